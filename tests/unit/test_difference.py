"""What changed in capacity and which term did it; lists; requirements."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields, replace
from pathlib import Path

import pytest

from kvreport import estimate
from kvreport.catalog.load import open_catalog
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.estimation.difference import Side, Terms, compare, effects
from kvreport.resources import data_dir

GIB = 1 << 30


def test_terms_add_up_to_the_pool_of_the_estimate() -> None:
    for model, gpu, engine in (
        ("llama-3.1-8b", "h100", "vllm"),
        ("openai/gpt-oss-20b", "h100", "vllm@0.11.0"),
    ):
        answer = estimate(model, gpu=gpu, engine=engine, context_tokens=8192)
        assert abs(Terms.of(answer).pool_bytes - answer.budget.kv_pool_bytes) <= 1
        # Blocks that the engine keeps for itself are the only difference.
        assert answer.max_concurrency == pytest.approx(Terms.of(answer).requests, rel=0.01)


def test_the_term_that_moved_alone_is_the_cause() -> None:
    old = Terms(80 * GIB, 16 * GIB, 0, 2 * GIB, GIB // 2, GIB // 2, GIB)
    assert effects(old, old) == ()
    for field in fields(Terms):
        new = replace(old, **{field.name: getattr(old, field.name) + GIB})
        (one,) = effects(old, new)
        assert one.term == field.name
        assert one.requests == pytest.approx(new.requests - old.requests)
    # By hand: 61 GiB hold 61 requests of 1 GiB; activations + 7 GiB take 7, memory + 2 GiB give 2.
    new = replace(old, activation_bytes=9 * GIB, memory_bytes=82 * GIB)
    cause, other = effects(old, new)
    assert (cause.term, round(cause.requests, 6)) == ("activation_bytes", -7)
    assert (other.term, round(other.requests, 6)) == ("memory_bytes", 2)


def test_a_cause_points_the_way_the_answer_went() -> None:
    old = Terms(10 * GIB, 0, 0, 0, 0, 0, GIB)
    new = replace(old, memory_bytes=12 * GIB, request_bytes=int(1.25 * GIB))
    assert new.requests < old.requests
    assert effects(old, new)[0].term == "request_bytes"


def test_a_new_engine_release_is_explained() -> None:
    catalog = open_catalog()
    found = compare(
        Side(catalog, "openai/gpt-oss-20b", "vllm-0.10"),
        Side(catalog, "openai/gpt-oss-20b", "vllm"),
        "h100",
    )
    assert found.new is not None
    assert found.old is not None
    # What did it points the way the answer went; the default share of memory rose from 0.90 to 0.92.
    assert found.effects[0].requests * (found.new - found.old) > 0
    (memory,) = [effect for effect in found.effects if effect.term == "memory_bytes"]
    assert (memory.old, memory.new) == (round(84943715697 * 0.9), round(84943715697 * 0.92))


def test_two_configs_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "llama-3.1-8b", "qwen2.5-7b", "--gpu", "h100", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (one,) = found["differences"]
    assert one["cause"] == "request_bytes"
    # Facts of the two configs: 2 x 32 layers x 8 heads x 128 x 2 B, and 2 x 28 x 4 x 128 x 2 B, times 8,192.
    (kv,) = [term for term in one["terms"] if term["term"] == "request_bytes"]
    assert (kv["old_bytes"], kv["new_bytes"]) == (131072 * 8192, 57344 * 8192)
    for end, name in (("old", "llama-3.1-8b"), ("new", "qwen2.5-7b")):
        assert one[end]["max_concurrency"] == estimate(name, gpu="h100", context_tokens=8192).max_concurrency


def test_two_folders_of_data_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("old", "new"):
        shutil.copytree(
            data_dir(), tmp_path / name, ignore=shutil.ignore_patterns("models", "observations", "claims")
        )
        (tmp_path / name / "models").mkdir()
        llama = "models/meta-llama--Llama-3.1-8B-Instruct.yaml"
        shutil.copy(data_dir() / llama, tmp_path / name / llama)
    gpu = tmp_path / "new/accelerators/h100-sxm-80gb.yaml"
    gpu.write_text(gpu.read_text().replace("value: 84943715697", "value: 74943715697"))
    command = ["diff", str(tmp_path / "old"), str(tmp_path / "new"), "--context", "8K,32K"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "2 compared: 2 changed, 2 of them hold fewer requests" in said
    assert "memory that the engine may take" in said
    assert main([*command, "--no-decrease"]) == 3
    assert main(["diff", str(tmp_path / "new"), str(tmp_path / "old"), "--no-decrease"]) == 0
    assert main(["diff", str(tmp_path / "old"), str(tmp_path / "old"), "--no-decrease"]) == 0
    assert "0 changed" in capsys.readouterr().out


def test_two_releases_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = next((data_dir() / "releases").glob("*.json"))
    later = json.loads(path.read_text())
    later["version"] = "2027.01.02"
    later["models"]["meta-llama/Llama-3.1-8B-Instruct"]["request_bytes"] *= 2
    (tmp_path / "2027.01.02.json").write_text(json.dumps(later))
    assert main(["diff", path.stem, str(tmp_path / "2027.01.02.json")]) == 0
    said = capsys.readouterr().out
    assert f"{path.stem} -> 2027.01.02" in said
    assert "Changed bytes reserved per request of 8K (1): meta-llama/Llama-3.1-8B-Instruct" in said


def test_what_neither_side_answers_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "llama-3.1-8b", "no-such-model"]) == 2
    assert main(["diff", "vllm-0.10", "vllm", "--model", "nothing/*"]) == 2
    assert main(["diff", "llama-3.1-8b", "qwen2.5-7b", "--tp", "5"]) == 2
    for line in capsys.readouterr().err.splitlines():
        assert line.startswith("kvreport: error: ")
    with pytest.raises(InputError):
        compare(Side(open_catalog(), "x"), Side(open_catalog(), "y"), "h100")


def test_a_release_that_no_longer_runs_a_model_serves_less(capsys: pytest.CaptureFixture[str]) -> None:
    """The memory of what is refused was counted, and a model that stops running stood as a gain of 7%."""
    command = ["diff", "vllm@0.11.0", "vllm", "--model", "Qwen/Qwen-7B", "--format", "json", "--no-decrease"]
    assert main(command) == 3
    found = json.loads(capsys.readouterr().out)
    (one,) = found["differences"]
    assert (found["decreased"], one["old"]["verdict"]) == (1, "fits")
    assert one["new"] == {"max_concurrency": None, "verdict": "engine_does_not_run"}
    assert (one["terms"], "does not have the class" in one["note"]) == ([], True)


def test_a_requirement_is_met_or_status_3(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["estimate", "llama-3.1-8b", "--gpu", "h100", "--context", "8K"]
    fits = estimate("llama-3.1-8b", gpu="h100", context_tokens=8192).max_concurrent_requests
    assert main([*command, "--require", str(fits)]) == 0
    assert capsys.readouterr().err == ""
    assert main([*command, "--require", str(fits + 1), "--format", "json"]) == 3
    said = capsys.readouterr()
    assert json.loads(said.out)["max_concurrent_requests"] == fits
    assert said.err == f"kvreport: requirement not met: {fits} of {fits + 1} requests run at once\n"
    assert main([*command, "--require", "0"]) == 2


@pytest.mark.parametrize(
    ("what", "pattern", "expected"),
    [
        ("models", "llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct"),
        ("models", "openai/*", "openai/gpt-oss-20b"),
        ("gpus", "h200", "h200-sxm-141gb"),
        ("engines", "sglang", "sglang"),
        ("formats", "fp8*", "fp8"),
    ],
)
def test_names_are_listed(capsys: pytest.CaptureFixture[str], what: str, pattern: str, expected: str) -> None:
    assert main(["list", what, pattern, "--format", "json"]) == 0
    found = [row["id"] for row in json.loads(capsys.readouterr().out)]
    assert expected in found
    assert main(["list", what, "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) > len(found)
    assert main(["list", what, pattern]) == 0
    assert expected in capsys.readouterr().out


def test_an_empty_list_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "gpus", "abacus"]) == 0
    assert "no gpus match 'abacus'" in capsys.readouterr().out


def test_a_list_is_for_a_reader(capsys: pytest.CaptureFixture[str]) -> None:
    """Units instead of eleven digits, the model before its copies, and one GPU is a GPU."""
    assert main(["list", "models", "qwen3-32b"]) == 0
    head, first, *_ = capsys.readouterr().out.splitlines()
    assert first.split()[0] == "Qwen/Qwen3-32B"
    assert "32.8B" in first
    assert "40K" in first
    assert "context" in head
    assert main(["list", "gpu", "h200"]) == 0
    assert "GiB" in capsys.readouterr().out


def test_a_cause_that_is_long_ends_in_a_whole_word_and_counts_have_their_unit(capsys) -> None:
    from kvreport.cli.difference import _print
    from kvreport.estimation.difference import Difference

    note = "the release refuses this model " + "because of something " * 9
    _print([Difference("a/b", "g", 1, 8192, 2.0, None, "fits", "no answer", (), note)], [], 20)
    said = capsys.readouterr().out
    assert "old (requests)" in said
    printed, cause = said.split("no answer")[1].split(maxsplit=1)
    assert printed == "-"
    cause = cause.strip()
    assert cause.endswith(" …")
    assert set(cause.removesuffix(" …").split()) <= set(note.split())


def test_a_printed_line_that_counts_otherwise_is_no_change_of_capacity(capsys, monkeypatch) -> None:
    """vLLM 0.21 counts tokens of hybrids otherwise (vllm#43308): 762,432 and 2,153,006 of one pool."""
    command = ["diff", "vllm@0.20.0", "vllm@0.21.0", "--model", "qwen/qwen3.5-35b-a3b", "--gpu", "h200"]
    assert main([*command, "--format", "json", "--no-decrease"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["differences"]
    answers = [
        estimate("qwen/qwen3.5-35b-a3b", gpu="h200", engine=name, context_tokens=8192)
        for name in ("vllm@0.20.0", "vllm@0.21.0")
    ]
    assert answers[0].budget.kv_pool_bytes == answers[1].budget.kv_pool_bytes
    assert one["printed"] == {
        "old_tokens": answers[0].kv_pool_tokens,
        "new_tokens": answers[1].kv_pool_tokens,
        "only": True,
    }
    assert answers[0].kv_pool_tokens != answers[1].kv_pool_tokens
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert "1 compared: 0 changed, 0 of them hold fewer requests; 1 changed in the printed line only" in out
    assert "printed line only: pool and requests are the same" in out
    assert err.startswith("\rdiff: 0 of 1 models")


def test_a_change_of_memory_is_never_the_printed_line_only(capsys) -> None:
    command = ["diff", "vllm@0.20.0", "vllm@0.22.0", "--model", "qwen/qwen3.5-35b-a3b", "--gpu", "h200"]
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert "1 compared: 1 changed" in out
    assert "printed line only" not in out
    assert "x2.82" in out  # of the tokens that the log line counts
    assert err == ""


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        # Qwen3's limit is 40K: what memory alone would hold at 128K was shown, and a model that stops there as a gain.
        (
            ["Qwen/Qwen3-8B", "Qwen/Qwen3-32B", "--gpu", "h100", "--context", "128K"],
            0,
            ["0 changed", "1 run on neither side", "Qwen3 32B supports 40,960 tokens, but 131,072 were requested"],
        ),
        (
            ["llama-3.1-8b", "Qwen/Qwen3-8B", "--gpu", "h100", "--context", "128K"],
            3,
            ["1 of them hold fewer", "fits -> context_exceeds_model", "Qwen3 8B supports 40,960 tokens"],
        ),
        (
            ["vllm", "sglang", "--model", "Qwen/Qwen3-8B", "--gpu", "m4-16"],
            0,
            ["0 changed", "1 run on neither side", "vLLM 0.33 does not run on M4 16GB", "SGLang 0.5.23 does not"],
        ),
    ],
)  # fmt: skip
def test_what_a_side_refuses_holds_nothing_and_says_why(capsys, arguments, status, said) -> None:
    assert main(["diff", *arguments, "--no-decrease"]) == status
    out = capsys.readouterr().out
    assert [text for text in said if text not in out] == []


def test_the_change_shown_is_of_the_requests_that_the_count_compares(capsys) -> None:
    """llama.cpp prints the cells of its slots and vLLM its pool: x0.02 stood as the change of 47.74 to 57.30."""
    command = ["diff", "vllm", "llama-cpp", "--model", "qwen/qwen3-8b", "--gpu", "h100", "--no-decrease"]
    assert main([*command, "--format", "json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["differences"]
    factor = one["new"]["max_concurrency"] / one["old"]["max_concurrency"]
    assert main(command) == 0
    out = capsys.readouterr().out
    head, row = (line.split("  ") for line in out.splitlines()[1:3])
    assert f"x{factor:.2f}" in out
    assert out.count(" x") == 1
    columns = [[cell.strip() for cell in line if cell.strip()] for line in (head, row)]
    assert dict(zip(*columns, strict=True))["change"] == f"x{factor:.2f}"
