"""Bad input: one line on stderr, status 2, and nothing on stdout."""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys

import pytest

import kvreport
from kvreport.accounting.text_drafts import TEXT_DRAFTS
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.query import options

ESTIMATE = "estimate llama-3.1-8b --gpu H100"
SIZE = "size llama-3.1-8b --context 8K --concurrent 10"

BAD = {
    # The same flag twice where once is meant.
    f"{ESTIMATE} --context 32K --context 64K": "2 times",
    f"{ESTIMATE} --tp 2 --tensor-parallel 4": "2 times",
    f"{ESTIMATE} --memory 80GiB --memory 90GiB": "2 times",
    f"{SIZE} --concurrent 20": "2 times",
    f"{SIZE} --kv fp8 --kv=bf16": "2 times",
    "matrix --out a --out b": "2 times",
    "log - --tp 1 --tp 2": "2 times",
    # Unknown names, with near ones.
    "estimate lama-3.1-8b --gpu H100": "Llama-3.1-8B",
    "estimate llama-3.1-8b --gpu H1000": "did you mean",
    f"{ESTIMATE} --engine vlm": "did you mean vllm",
    f"{ESTIMATE} --engine vllm@abc": "a version of vLLM",
    f"{ESTIMATE} --engine ollama@0.12.0": "allowed: ollama alone, which is fb30760",
    f"{ESTIMATE} --engine llama.cpp@foo": "allowed: a build, such as b9849, or llama-cpp alone, which is 0c1e57098",
    f"{ESTIMATE} --weights fp9": "did you mean fp8",
    f"{ESTIMATE} --kv fp9": "did you mean fp8",
    f"{ESTIMATE} --draft nosuchmodel": "nosuchmodel",
    f"{ESTIMATE} --dtype float8": "float16",
    f"{ESTIMATE} --frobnicate": "--frobnicate",
    f"{ESTIMATE} --format xml": "json",
    f"{SIZE} --gpu nosuch": "nosuch",
    f"{SIZE} --price h1000=3": "did you mean",
    f"{SIZE} --engine nosuch": "nosuch",
    "size nosuch --context 8K --concurrent 10": "nosuch",
    "matrix --models nosuch --out a": "nosuch",
    "model nosuch": "nosuch",
    "list nosuch": "models",
    "log /nonexistent.log": "No such file",
    "diff /nonexistent /nonexistent2": "no such file",
    "nosuchcommand": "estimate",
    # Impossible values.
    f"{ESTIMATE} --context 0": "out of range",
    f"{ESTIMATE} --context -5": "-5",
    f"{ESTIMATE} --context 12Q": "12Q",
    f"{ESTIMATE} --utilization 1.5": "share",
    f"{ESTIMATE} --utilization nan": "share",
    f"{ESTIMATE} --tp 3": "does not divide",
    f"{ESTIMATE} --tp 0": "from 1",
    f"{ESTIMATE} --nodes 3 --tp 8": "a divisor of 8",
    f"{ESTIMATE} --max-seqs 0": "from 1",
    f"{ESTIMATE} --memory 80": "1 GiB",
    f"{ESTIMATE} --memory 0GiB": "out of range",
    f"{ESTIMATE} --kv-pool 0": "out of range",
    f"{ESTIMATE} --expert-parallel": "without routed experts",
    f"{ESTIMATE} --pipeline-parallel 99": "1 to 32",
    f"{ESTIMATE} --limit-mm-per-prompt picture=2": "image, video, audio",
    f"{ESTIMATE} --require 0": "from 1",
    f"{SIZE} --available 0": "available",
    f"{SIZE} --price h100=abc": "GPU=PRICE",
    "size llama-3.1-8b --context 8K --concurrent 0": "above 0",
    "size llama-3.1-8b --context 999M --concurrent 1": "supports 131,072",
    'estimate llama-3.1-8b --gpu "H100*0"': "H100*8",
    # Flags that the engine does not have.
    f"{ESTIMATE} --n-gpu-layers 4": "--engine llama-cpp",
    f"{ESTIMATE} --cache-type-k q4_0": "--engine llama-cpp",
    f"{ESTIMATE} --max-lora-rank 64": "--max-loras",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_line_and_status_2(line, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith("kvreport: error: ")
    assert BAD[line] in said.err


RELEASES = [("vllm", "0.34.1", "0.35.0"), ("sglang", "0.5.24", "0.5.25"), ("tensorrt-llm", "1.3.0", "1.4.0")]


@pytest.mark.parametrize(("engine", "next_one", "far"), [*RELEASES, ("mlx", "0.33.0", "0.34.0")])
def test_one_release_beyond_the_newest_read_is_said_in_the_first_line(capsys, engine, next_one, far) -> None:
    asked = ["estimate", "llama-3.1-8b", "--gpu", "H100", "--context", "8K", "--engine"]
    assert main([*asked, f"{engine}@{next_one}"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert f" {next_one} was not read, and the rules of " in first
    assert main([*asked, f"{engine}@{next_one}", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["engine_version"], found["release_read"] < next_one) == (next_one, True)
    assert main([*asked, f"{engine}@{far}"]) == 2
    assert "the newest release that was read" in capsys.readouterr().err
    assert main([*asked, engine, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["release_read"] == found["engine_version"]


@pytest.mark.parametrize(
    "words",
    [
        "estimate --gpu H100 docker run vllm/vllm-openai:v9.9.0 --model Qwen/Qwen3-8B",
        "size Qwen/Qwen3-8B --engine vllm@9.9 --gpu H100 --concurrent 1 --context 4K",
        "replay azure-code Qwen/Qwen3-8B --gpu H100 --engine vllm@9.9",
        "diff vllm@0.33.0 vllm@9.9 --model qwen/qwen3-8b",
        "diff vllm vllm-9.9 --model qwen/qwen3-8b",
        "estimate Qwen/Qwen3-8B --gpu H100 --engine sglang==0.7.0",
    ],
)
def test_every_command_refuses_a_release_far_beyond_the_newest_read(capsys, words) -> None:
    assert main(words.split()) == 2
    said = capsys.readouterr().err
    assert "0.33.0, the newest release that was read, and 0.34" in said or "0.5.23, the newest" in said, said


@pytest.mark.parametrize(
    ("name", "oldest"),
    [("vllm@0.8.5", "0.9"), ("vllm-0.7", "0.9"), ("vllm==0.6.3", "0.9"), ("sglang@0.4.6", "0.5.3")],
)
def test_a_release_that_is_too_old_is_one_error_with_the_oldest_computed(capsys, name, oldest) -> None:
    assert main(["estimate", "Qwen/Qwen3-8B", "--gpu", "H100", "--engine", name]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert f"allowed: {oldest}, the oldest release that is computed" in said


def test_python_says_and_refuses_releases_beyond_the_newest_read() -> None:
    found = kvreport.estimate("Qwen/Qwen3-8B", gpu="H100", engine="vllm@0.34")
    assert found.request.release_read == "0.33.0"
    with pytest.raises(InputError, match="the newest release that was read"):
        kvreport.size("Qwen/Qwen3-8B", context=4096, concurrent=1, engine="vllm@0.35")


def test_size_and_diff_say_that_a_release_was_not_read(capsys) -> None:
    asked = "size Qwen/Qwen3-8B --engine vllm@0.34.0 --gpu H100 --concurrent 1 --context 4K --tp 1"
    assert main(asked.split()) == 0
    assert capsys.readouterr().out.startswith(
        "vLLM 0.34.0 was not read, and the rules of 0.33.0 are used: For "
    )
    assert main(["diff", "vllm@0.32.0", "vllm@0.34.0", "--model", "Qwen/Qwen3-8B"]) == 0
    assert capsys.readouterr().out.startswith("vLLM 0.34.0 was not read, and the rules of 0.33.0 are used\n")


@pytest.mark.parametrize("sign", ["\x1b[31m", "\u202e", "\x00", "\u2028", "\x85", "\x9b2J"])
def test_no_error_carries_a_sign_that_a_terminal_obeys(sign):
    """Names come from files that others wrote; an error shows what is in them and does nothing."""
    said = str(InputError(f"model.gguf: found {sign}name; allowed: a name"))
    assert said.isprintable()
    assert "\\x" in said or "\\u" in said
    assert str(InputError("مرحبا, two\nlines")) == "مرحبا, two\nlines"


@pytest.mark.parametrize("method", sorted(TEXT_DRAFTS))
def test_a_draft_from_text_that_an_engine_lacks_names_the_engines_that_have_it(method):
    """It was a traceback for TensorRT-LLM's name."""
    with pytest.raises(InputError, match=f"found {method} for mlx-lm; allowed with vLLM"):
        kvreport.estimate(
            "Qwen/Qwen3-8B", gpu="m3-ultra-512", engine="mlx", draft=method, num_speculative_tokens=3
        )


def test_an_engine_that_lacks_the_class_promises_a_model_without_a_cache_nothing():
    """mlx-lm has no module of BERT: it said that nothing bounds its requests, as if it ran."""
    found = kvreport.estimate("BAAI/bge-large-en", gpu="m3-ultra-512", engine="mlx", context_tokens=256)
    assert (found.verdict, found.max_concurrent_requests) == ("engine_does_not_run", 0)


@pytest.mark.parametrize("engine", ["ceiling", "transformers"])
def test_an_engine_without_a_limit_does_not_promise_a_model_without_a_cache_a_number(engine):
    """It said 1,099,511,627,776 requests, the number that stands for no limit."""
    with pytest.raises(InputError, match="keeps no cache, so nothing bounds its requests"):
        kvreport.estimate("BAAI/bge-large-en", gpu="rtx-5080", engine=engine, context_tokens=256)
    assert (
        kvreport.estimate("BAAI/bge-large-en", gpu="rtx-5080", context_tokens=256).limited_by
        == "max_num_seqs"
    )


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            "estimate zzzz --gpu H100",
            "model: found 'zzzz'; allowed: a known name; kvreport list models prints all ",
        ),
        (
            "estimate llama-3.1-8b --gpu zzzz",
            "accelerator: found 'zzzz'; allowed: a known name; kvreport list gpus",
        ),
        ("estimate llama-3.1-8b --gpu H100 --engine zzzz", "a known name; kvreport list engines prints all "),
        ("estimate llama-3.1-8b --gpu H100 --kv zzzz", "a known name; kvreport list formats prints all "),
        (
            "estimate llama-3.1-8b --gpu H100 --draft zzzz",
            "draft: model: found 'zzzz'; allowed: a known name; ",
        ),
    ],
)
def test_a_name_like_no_other_is_told_where_names_are_listed(capsys, flags, words):
    """It listed the first twelve of hundreds, and called a draft a model."""
    assert main(shlex.split(flags)) == 2
    assert words in capsys.readouterr().err


def test_check_names_the_catalog_that_it_checked(capsys, tmp_path, monkeypatch):
    """In a project of one's own it checked the package's catalog, and said that no fault was found."""
    assert main(["init", str(tmp_path / "mine")]) == 0
    monkeypatch.chdir(tmp_path / "mine")
    capsys.readouterr()
    assert main(["check"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("catalog of this package: ")
    assert "kvreport check data" in said.err
    for words in (["check", "data"], ["check", "--data", "data"]):
        assert main(words) == 0
        said = capsys.readouterr()
        assert said.out.startswith("data: 1 model, 1 accelerator, ")
        assert not said.err


def test_a_faulty_record_is_told_as_it_is(capsys, tmp_path):
    """The hint about other kinds of models stood behind the fault of the one that was named."""
    assert main(["init", str(tmp_path / "mine")]) == 0
    (record,) = (tmp_path / "mine/data/models").iterdir()
    record.write_text(record.read_text(encoding="utf-8") + "id: twice\n", encoding="utf-8")
    capsys.readouterr()
    assert main(["estimate", record.stem, "--gpu", "H100", "--data", str(tmp_path / "mine/data")]) == 2
    said = capsys.readouterr().err
    assert said.rstrip().endswith("allowed: YAML, every key once")
    for text, found in (("", "found nothing"), ("- 1", "found a list"), ("word", "found a text")):
        record.write_text(text, encoding="utf-8")
        assert main(["check", str(tmp_path / "mine/data")]) == 2
        assert f"{found}; allowed: fields with values" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "[4096, 14336], count: 32",
            "[4096, 14336], count: 3",
            "published_total: found 14.96 GiB, where the record's tensors make ",
        ),
        (
            "weight_format: bf16",
            "weight_format: nvfp4",
            "weight_format: found nvfp4, and no tensor states a format; allowed: ",
        ),
    ],
)
def test_a_record_whose_tensors_are_not_what_it_says_is_refused(capsys, tmp_path, old, new, said):
    data = tmp_path / "mine/data"
    assert main(["init", str(tmp_path / "mine")]) == 0
    (record,) = (data / "models").iterdir()
    text = record.read_text(encoding="utf-8")
    changed = text.replace(old, new, 1)
    assert changed != text
    assert main(["check", str(data)]) == 0
    record.write_text(changed, encoding="utf-8")
    capsys.readouterr()
    for words in (["check", str(data)], ["estimate", record.stem, "--gpu", "H100", "--data", str(data)]):
        assert main(words) == 2
        told = capsys.readouterr()
        assert f"models/{record.stem}.yaml: {said}" in told.err
        assert not told.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["estimate", "llama-3.1-8b", "--gpu", "H100", "--max-seqs", "0"], "--max-seqs: found 0"),
        (["estimate", "llama-3.1-8b", "--gpu", "H100", "--memory=3"], "--memory: found 3"),
        (["estimate", "llama-3.1-8b", "--gpu", "H100", "--utilization", "2"], "--utilization: found '2'"),
        (["estimate", "llama-3.1-8b", "--gpu", "H1000"], "did you mean h100-"),
        (["estimate", "llama-3.1-8bb", "--gpu", "H100"], "did you mean meta-llama/Llama-3.1-8B-Instruct"),
        (["estimate", "llama-9", "--gpu", "H100"], "did you mean meta-llama/"),
        (["size", "llama-3.1-8b", "--people", "5", "--context", "8K"], "instead: --users N"),
        (["size", "llama-3.1-8b", "--requests", "5"], "instead: kvreport size MODEL --concurrent N"),
        (["diff", "vllm@0.11", "vllm@77", "--gpu", "H100"], "engine: found 'vllm@77'; allowed: a version of vLLM"),
    ],
)  # fmt: skip
def test_an_error_names_the_flag_and_suggests_what_a_person_would(words, said, capsys):
    assert main(words) == 2
    told = capsys.readouterr().err
    assert f"kvreport: error: {said}" in told or said in told.partition("error: ")[2]
    assert "SGLang" not in told


def asked_size(**wrong):
    return kvreport.size("llama-3.1-8b", concurrent=4, context="8K", **({"gpus": "h100-sxm-80gb"} | wrong))


def asked_matrix(**wrong):
    return kvreport.matrix(models="llama-3.1-8b", gpus="h100-sxm-80gb", contexts=[8192], **wrong)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (lambda: kvreport.estimate(5, gpu="H100"), "model: found 5; allowed: a name"),
        (lambda: kvreport.estimate("llama-3.1-8b", gpu="H100", tp=2), "did you mean tensor_parallel"),
        (lambda: kvreport.matrix(models=[1], gpus="*", contexts=[8192]), "models: found 1; allowed: a text"),
        (lambda: kvreport.matrix(models="llama-9", gpus="*", contexts=[8192]), "did you mean meta-llama/"),
        (lambda: kvreport.estimate("llama-3.1-8b", gpu="H100", context_tokens=[1]), r"context: found \[1\]"),
        (lambda: kvreport.replay(3, "llama-3.1-8b", gpu="H100"), "trace: found neither a file '3'"),
        (
            lambda: asked_size(layouts=["tp2"]),
            "layouts: found .*; allowed: one or a list of records of kvreport.Layout",
        ),
        (lambda: asked_size(layouts=3), "layouts: found 3; allowed: "),
        (
            lambda: asked_size(tensor_parallel=["2"]),
            "tensor-parallel: found .*; allowed: one or a list of whole numbers",
        ),
        (lambda: asked_size(tensor_parallel=2.5), "tensor-parallel: found 2.5; allowed: "),
        (lambda: asked_size(weights=[4]), "weights: found .*; allowed: one or a list of names"),
        (lambda: asked_size(kv=None), "kv: found None; allowed: one or a list of names"),
        (lambda: asked_size(gpus=[3]), "gpus: found .*; allowed: one or a list of names"),
        (lambda: asked_size(prices=["h100"]), "prices: found .*; allowed: a number above 0 for each name"),
        (
            lambda: asked_size(prices={"h100-sxm-80gb": "2"}),
            "prices: found .*; allowed: a number above 0 for each",
        ),
        (lambda: kvreport.size([], concurrent=4, context=8192), "models: found no name"),
        (
            lambda: asked_matrix(tensor_parallel=["tp2"]),
            "tensor-parallel: found .*; allowed: one or a list of whole",
        ),
        (
            lambda: asked_matrix(tensor_parallel=[2.5]),
            "tensor-parallel: found .*; allowed: one or a list of whole",
        ),
        (lambda: asked_matrix(weights=[]), "weights: found .*; allowed: one or a list of names"),
        (lambda: asked_matrix(kv=[None]), "kv: found .*; allowed: one or a list of names"),
        (lambda: asked_matrix(engine=3), "engine: found 3; allowed: a text"),
        (
            lambda: kvreport.boundary("llama-3.1-8b", gpu="H100", requests=["x"]),
            "requests: found .*; allowed: one or",
        ),
    ],
)
def test_a_wrong_type_or_name_in_python_is_one_sentence(asked, said):
    with pytest.raises(InputError, match=said):
        asked()


def test_a_name_that_estimate_takes_is_taken_by_matrix():
    frame = kvreport.matrix(models="llama-3.1-8b", gpus="h100-sxm-80gb", contexts=[8192], tensor_parallel=[1])
    assert set(frame["model"]) == {"meta-llama/Llama-3.1-8B-Instruct"}


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [("pyarrow", ["matrix", "--out", "m"], "data"), ("jinja2", ["export", "--out", "e"], "site")],
)
def test_a_command_without_its_extra_says_what_to_install(package, words, extra, tmp_path):
    """The small package answers most commands; the others ended in a traceback."""
    script = f"import sys; sys.modules[{package!r}] = None; from kvreport.cli import main; sys.exit(main({words!r}))"
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr == (
        f"kvreport: error: found no package {package!r}; allowed: the wheel with its extra, pip install 'kvreport-….whl[{extra}]'\n"
    )


M = "Qwen/Qwen3-8B"
_SIZE = {"context": 8192, "concurrent": 4, "gpus": "h100", "tensor_parallel": 1}
_WORK = {"users": 10, "requests_per_minute": 1.0, "latency_s": 10.0}


@pytest.mark.parametrize("value", ["0.9", "x", True, [1], {}, object()])
def test_what_is_no_number_is_refused_by_the_name_of_its_argument(value) -> None:
    """A text raised TypeError, and True was 1."""
    for name in ("concurrent", "ttft_s", "tpot_s", "burst", "efficiency", "spare_replicas", "available"):
        with pytest.raises(InputError, match=rf"^{name}: found .*; allowed: a (whole )?number$"):
            kvreport.size(M, **_SIZE | {name: value})
    for name in _WORK:
        with pytest.raises(InputError, match=f"^{name}: found"):
            kvreport.size(M, **_SIZE | {"concurrent": None} | _WORK | {name: value})
    for name in ("replicas", "time_to_live_s", "speed", "efficiency", "hit_rate", "wait_s", "rate", "limit"):
        with pytest.raises(InputError, match=f"^{name}: found"):
            kvreport.replay("mooncake-conversation", M, gpu="h100", **{name: value})
    with pytest.raises(InputError, match=r"^utilization: found"):
        kvreport.estimate(M, gpu="h100", utilization=value)
    with pytest.raises(InputError, match=r"^utilization: found"):
        kvreport.size(M, **_SIZE, utilization=value)
    with pytest.raises(InputError, match=r"^tensor_parallel: found"):
        kvreport.diff(M, M, gpu="h100", tensor_parallel=value)


@pytest.mark.parametrize("name", ["spare_replicas", "available", "users"])
def test_parts_of_replicas_gpus_and_people_are_refused(name) -> None:
    """One and a half spare replicas were answered with 2.5 GPUs."""
    with pytest.raises(InputError, match=rf"^{name}: found 1\.5; allowed: a whole number$"):
        kvreport.size(M, **_SIZE | {name: 1.5})
    with pytest.raises(InputError, match=r"^replicas: found 1\.5; allowed: a whole number$"):
        kvreport.replay("mooncake-conversation", M, gpu="h100", replicas=1.5)


def test_an_option_that_a_comparison_does_not_take_is_named_with_the_one_that_is_meant() -> None:
    """A TypeError named a function that nobody had called."""
    with pytest.raises(InputError, match="unknown option 'context'; did you mean context_tokens"):
        kvreport.diff(M, M, gpu="h100", context=8192)
    with pytest.raises(InputError, match="engine: found an option that diff does not take; allowed: tensor_"):
        kvreport.diff(M, M, gpu="h100", engine="vllm")


@pytest.mark.parametrize("value", [1.5, True, [1], object()])
def test_limits_of_inputs_that_are_no_pairs_are_refused(value) -> None:
    with pytest.raises(InputError, match=r"^limit-mm-per-prompt: found"):
        kvreport.estimate(M, gpu="h100", limit_mm_per_prompt=value)


def test_one_value_or_a_list_is_nothing_else() -> None:
    with pytest.raises(InputError, match=r"found 1\.5; allowed: one value or a list"):
        kvreport.size(1.5, context=8192, concurrent=4)
    with pytest.raises(InputError, match="models: found no name"):
        kvreport.size({}, context=8192, concurrent=4)
    with pytest.raises(InputError, match=r"found 1\.5; allowed: one value or a list"):
        kvreport.matrix(M, "h100-sxm-80gb", contexts=1.5)


@pytest.mark.parametrize("value", [1.5, [1], {"a": 1}, True, None, b"x", ["a", "b"]], ids=str)
def test_no_option_of_another_type_is_a_traceback(value: object) -> None:
    for option in options():
        asked = {"gpu": "h100", "context_tokens": 8192, option.name: value}
        with contextlib.suppress(InputError):
            kvreport.estimate("Qwen/Qwen3-8B", **asked)
    with pytest.raises(InputError, match="engine"):
        kvreport.size("Qwen/Qwen3-8B", context=8192, concurrent=4, gpus="h100", engine=value)
