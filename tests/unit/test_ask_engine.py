"""``--ask-engine``: what an engine says is judged, bounded and compared; the engine here is a script that answers.

The real engines were run where they are installed; ``make follow`` runs them over many models.
"""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
from huggingface_configs import LLAMA_3_1_8B

from kvreport.cli import main
from kvreport.estimation import estimate
from kvreport.publish import schemas
from kvreport.witness import asking


@pytest.fixture
def model(tmp_path: Path) -> str:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps(LLAMA_3_1_8B | {"auto_map": {"A": "b.py"}}), encoding="utf-8"
    )
    return str(folder)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """Return an answer for an H100."""
    path = tmp_path_factory.mktemp("model") / "config.json"
    path.write_text(json.dumps(LLAMA_3_1_8B), encoding="utf-8")
    return estimate(path, gpu="H100", context_tokens=8192)


@pytest.fixture
def engine(tmp_path: Path):
    """Return an interpreter that runs some Python with the question as ``q`` and never the engine."""

    def made(body: str) -> str:
        path = tmp_path / "python"
        path.write_text(
            f"#!{sys.executable}\nimport json, sys, time\nq = json.load(sys.stdin)\n{body}\n", "utf-8"
        )
        path.chmod(0o755)
        return str(path)

    return made


def answering(result, **changed: object) -> str:
    """Python that prints our own figures as the engine's, some of them changed."""
    mine = asking.ours(result, result.budget.kv_pool_bytes) | changed
    row = {name: mine.pop(name) for name in ("tokens", "concurrency") if name in mine}
    said = {"release": "9.9.9", **mine, "at": [{"length": 8192, "pool": result.budget.kv_pool_bytes, **row}]}
    return f"print({json.dumps(said)!r})"


def asked(model: str, python: str, capsys, *more: str) -> dict:
    assert (
        main(
            [
                "estimate",
                model,
                "--gpu",
                "H100",
                "--context",
                "8K",
                "--ask-engine",
                python,
                "--format",
                "json",
                *more,
            ]
        )
        == 0
    )
    return json.loads(capsys.readouterr().out)["engine_says"]


@pytest.mark.parametrize("family", asking.ASKED)
def test_an_engine_that_plans_as_we_do_differs_in_nothing_and_one_token_less_is_named(
    model, engine, capsys, family
) -> None:
    result = estimate(model, gpu="H100", context_tokens=8192, engine=family)
    tokens = asking.ours(result, result.budget.kv_pool_bytes)["tokens"]
    assert tokens
    same = asked(model, engine(answering(result)), capsys, "--engine", family)
    assert (same["release"], same["differs"], same["kv_pool_tokens"], same["reason"]) == (
        "9.9.9",
        [],
        tokens,
        None,
    )
    less = asked(model, engine(answering(result, tokens=tokens - 1)), capsys, "--engine", family)
    assert less["differs"] == [{"quantity": "tokens", "ours": tokens, "engine": tokens - 1}]


def test_the_engine_is_told_the_flags_of_the_start_and_the_config_without_its_code(
    model, engine, tmp_path: Path
) -> None:
    python = engine(f"open({str(tmp_path / 'q')!r}, 'w').write(json.dumps(q))")
    result = estimate(model, gpu="B200", context_tokens=4096, tensor_parallel=2, kv="fp8")
    said = asking.engine_says(result, python, asking.files_of(model))
    assert said["reason"]["text"].startswith("it ended with status 0")
    question = json.loads((tmp_path / "q").read_text())
    (case,) = question["cases"]
    assert case["words"] == [
        "--tensor-parallel-size", "2", "--max-model-len", "4096", "--kv-cache-dtype", "fp8"
    ]  # fmt: skip
    assert "auto_map" not in case["config"]
    assert question["device"]["capability"] == [10, 0]
    assert case["pools"] == [result.budget.kv_pool_bytes]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("print('{')", "its answer is no JSON object"),
        ("print('[' * 100000)", "its answer is no JSON object"),
        ("print([])", "its answer is no JSON object"),
        ("print(json.dumps({'release': 7, 'at': 'x', 'tokens': True}))", "it gave no figures"),
        ("print(json.dumps({'error': 'a\\x1b[31m\\u202e' * 999}))", "a [31m"),
        ("print(json.dumps({'cannot': \"ModuleNotFoundError: No module named 'vllm'\"}))", "No module named"),
        ("while True: print('x' * 1000000)", "it printed more than 16"),
        ("sys.exit(7)", "it ended with status 7"),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_a_reason(result, engine, body, text) -> None:
    reason = asking.engine_says(result, engine(body), (LLAMA_3_1_8B, None))["reason"]
    assert text in reason["text"]
    assert reason["text"].isprintable()
    assert len(reason["text"]) <= 300
    assert (reason["kind"] == "not installed") == ("No module" in text)


def test_an_engine_that_never_answers_is_ended_with_what_it_started(result, engine, tmp_path: Path) -> None:
    late = tmp_path / "late"
    python = engine(
        f"import subprocess; subprocess.Popen(['sh', '-c', 'sleep 2; touch {late}'])\ntime.sleep(60)"
    )
    assert asking.ask(python, "vllm", result.request.accelerator, [{}], seconds=0.5) == [
        {"error": "no answer within 0 s"}
    ]
    time.sleep(2.2)
    assert not late.exists()


def test_without_a_config_or_an_interpreter_it_is_said(model, capsys) -> None:
    assert asked("llama-3.1-8b", "nowhere", capsys)["reason"]["kind"] == "no config"
    assert main(["estimate", model, "--gpu", "H100", "--ask-engine", "/no/python"]) == 2
    assert "found no interpreter '/no/python'" in capsys.readouterr().err
    assert (
        main(["estimate", model, "--gpu", "H100", "--ask-engine", sys.executable, "--engine", "tensorrt-llm"])
        == 2
    )
    assert "allowed: --engine vllm or --engine sglang" in capsys.readouterr().err


def test_an_interpreter_and_a_wheel_may_be_named_from_here(
    result, engine, tmp_path: Path, monkeypatch
) -> None:
    engine("print(json.dumps({'error': q['path']}))")
    monkeypatch.chdir(tmp_path)
    device = result.request.accelerator
    (found,) = asking.ask("./python", "vllm", device, [{}], path=Path("wheel"))
    assert found["error"] == str(tmp_path / "wheel")


def test_an_interpreter_without_the_engine_says_so(result) -> None:
    reason = asking.engine_says(result, sys.executable, (LLAMA_3_1_8B, None))["reason"]
    assert reason["kind"] == "not installed", reason


def test_the_text_names_what_parts(tmp_path: Path, engine, capsys) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_1_8B), encoding="utf-8")
    result = estimate(tmp_path / "config.json", gpu="H100", context_tokens=8192, tensor_parallel=2)
    python = engine(answering(result, max_seqs=7))
    words = ["estimate", str(tmp_path / "config.json"), "--gpu", "H100", "--context", "8K", "-tp", "2"]
    assert main([*words, "--ask-engine", python]) == 0
    said = capsys.readouterr().out
    assert "vLLM 9.9.9 itself says, of a KV pool of" in said
    assert f"max_seqs      {result.request.serving.max_seqs:,}            7" in said


def two(model: str, old: str, new: str, *more: str) -> list[str]:
    return ["diff", old, new, "--ask-engine", "--model", model, "--gpu", "H100", *more]


def test_two_engines_are_compared_over_the_same_starts(model, result, engine, tmp_path, capsys) -> None:
    """Both are asked the same cases; what parts is named, with the bytes that both were given."""
    tokens = asking.ours(result, result.budget.kv_pool_bytes)["tokens"]
    old = shutil.copy(engine(answering(result)), str(tmp_path / "old"))
    new = shutil.copy(engine(answering(result, tokens=tokens - 1, concurrency=1.5)), str(tmp_path / "new"))
    assert main(two(model, old, old)) == 0
    assert "old (9.9.9) and new (9.9.9) say the same" in capsys.readouterr().out
    assert main(two(model, old, new, "--no-decrease")) == 3
    said = capsys.readouterr().out
    assert ["tokens", f"{tokens:,}", f"{tokens - 1:,}"] in [line.split() for line in said.splitlines()]
    assert main(two(model, old, new, "--format", "json")) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schemas.read("diff"))
    assert (found["compared"], found["decreased"]) == (1, 1)
    (one,) = found["engines"]
    assert {"quantity": "tokens", "old": tokens, "new": tokens - 1} in one["differs"]
    assert one["new"]["max_concurrency"] == 1.5


def test_one_of_two_engines_that_cannot_answer_says_why(model, result, engine, tmp_path, capsys) -> None:
    good = shutil.copy(engine(answering(result)), str(tmp_path / "good"))
    bad = shutil.copy(
        engine("print(json.dumps({'cannot': \"ModuleNotFoundError: No module named 'vllm'\"}))"),
        str(tmp_path / "bad"),
    )
    assert main(two(model, good, bad, "--no-decrease")) == 3
    assert "new (no release) could not answer: not installed" in capsys.readouterr().out
    assert main(two("llama-3.1-8b", good, good)) == 2
    assert "found no config.json of --model 'llama-3.1-8b'" in capsys.readouterr().err
    assert main(two(model, good, good, "--context", ",".join(str(1024 * n) for n in range(1, 18)))) == 2
    assert "found 17 starts; allowed: 16 at once" in capsys.readouterr().err


def test_a_variable_that_one_case_sets_does_not_answer_the_next(tmp_path: Path) -> None:
    (tmp_path / "on_setting.py").write_text(
        "import os\n"
        "class SettingPlanner:\n"
        "    release = '1.0'\n"
        "    def __init__(self, device): os.environ['OF_THE_ENGINE'] = 'kept'\n"
        "    def answer(self, folder, case):\n"
        "        found = {name: os.environ.get(name) for name in ('OF_THE_ENGINE', 'OF_A_CASE')}\n"
        "        os.environ['OF_A_CASE'] = 'set'\n"
        "        return found\n",
        encoding="utf-8",
    )
    question = {"engine": "setting", "device": {}, "path": str(tmp_path), "cases": [{"config": {}}] * 2}
    script = Path(asking.__file__).with_name("run.py")
    done = subprocess.run(
        [sys.executable, str(script)], input=json.dumps(question), capture_output=True, text=True, check=True
    )
    first, second = map(json.loads, done.stdout.splitlines())
    assert first == second == {"release": "1.0", "OF_THE_ENGINE": "kept", "OF_A_CASE": None}


def test_the_folder_of_a_case_has_the_name_of_its_model(tmp_path: Path) -> None:
    """SGLang knows Llama 2 by the path (0.5.23 ``srt/arg_groups/memory_hook.py``)."""
    (tmp_path / "on_named.py").write_text(
        "class NamedPlanner:\n"
        "    release = '1.0'\n"
        "    def __init__(self, device): pass\n"
        "    def answer(self, folder, case): return {'folder': folder.rpartition('/')[2]}\n",
        encoding="utf-8",
    )
    cases = [{"config": {}, "model": name} for name in ("meta-llama/Llama-2-7b-hf", "../..", "")]
    question = {"engine": "named", "device": {}, "path": str(tmp_path), "cases": cases}
    script = Path(asking.__file__).with_name("run.py")
    done = subprocess.run(
        [sys.executable, str(script)], input=json.dumps(question), capture_output=True, text=True, check=True
    )
    named = [json.loads(line)["folder"] for line in done.stdout.splitlines()]
    assert named == ["meta-llama--Llama-2-7b-hf", "--", "model"]


def test_a_group_of_ranks_answers_every_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    """Latent attention divided over ranks has rank 0 broadcast a handle (vLLM 0.33.0 ``distributed/parallel_state.py``)."""
    monkeypatch.syspath_prepend(str(Path(asking.__file__).parent))
    on_vllm = importlib.import_module("on_vllm")
    group = on_vllm.RankGroup(4, 1).device_group
    assert (group.size(), group.rank(), group.world_size) == (4, 1, 4)
    group.broadcast_obj(object(), src=0)
    group.barrier()
    assert not hasattr(group, "__array__")
