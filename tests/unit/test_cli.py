"""The command line: answers on stdout with status 0, one clear line on stderr with status 2."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fuzzing import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvreport.cli import main, parser
from kvreport.cli.matrix import parse_contexts
from kvreport.cli.output import plain, table
from kvreport.errors import InputError

ASK = ["estimate", "Qwen/Qwen2.5-7B", "--gpu", "h100-sxm-80gb"]

CONTRACT = {
    "model",
    "gpu",
    "tensor_parallel",
    "context_tokens",
    "weight_format",
    "kv_format",
    "engine",
    "parameters",
    "weight_bytes_per_gpu",
    "kv_bytes_per_token_per_gpu",
    "state_bytes_per_request_per_gpu",
    "kv_bytes_per_request_per_gpu",
    "budget",
    "max_concurrency",
    "max_concurrent_requests",
    "kv_pool_tokens",
    "max_context_tokens",
    "verdict",
    "explanation",
}

# Qwen2.5-7B's published config.json, the keys that matter.
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "max_position_embeddings": 131072,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "vocab_size": 152064,
}


@pytest.fixture
def run(capsys):
    """Run a command in this process; return its status, stdout and stderr."""

    def runner(*arguments):
        status = main([str(argument) for argument in arguments])
        caught = capsys.readouterr()
        return status, caught.out, caught.err

    return runner


def refused(outcome):
    """The one line on stderr of a command that ended with status 2 and printed nothing."""
    status, out, err = outcome
    assert status == 2
    assert out == ""
    assert err.startswith("kvreport: error: ")
    assert err.count("\n") == 1
    return err


def test_tp_is_short_for_tensor_parallel(run, capsys, tmp_path) -> None:
    long = run(*ASK, "--tensor-parallel", "2", "--format", "json")
    assert run(*ASK, "--tp", "2", "--format", "json") == long
    assert json.loads(long[1])["tensor_parallel"] == 2
    log = tmp_path / "log"
    log.write_text("vllm serve Qwen/Qwen2.5-7B\nAvailable KV cache memory: 10.00 GiB\n")
    asked = ("log", str(log), "--gpu", "h100-sxm-80gb", "--format", "json")
    assert run(*asked, "--tp", "2") == run(*asked, "--tensor-parallel", "2") != run(*asked)
    size = ("size", "Qwen/Qwen2.5-7B", "--concurrent", "4", "--context", "4K", "--gpu", "h100-sxm-80gb")
    assert run(*size, "--tp", "2") == run(*size, "--tensor-parallel", "2")
    for command in ("estimate", "size", "log", "matrix"):
        with pytest.raises(SystemExit):
            parser().parse_args([command, "--help"])
        assert "--tensor-parallel" in (shown := capsys.readouterr().out)
        assert "--tp" in shown


@pytest.mark.parametrize(("short", "long"), [("--dp", "--data-parallel"), ("--pp", "--pipeline-parallel")])
def test_dp_and_pp_are_short_as_tp_is(run, short, long) -> None:
    assert run(*ASK, short, "2") == run(*ASK, long, "2") != run(*ASK)


def test_a_small_cache_of_a_request_is_not_printed_as_nothing(run) -> None:
    _, out, _ = run("estimate", "qwen3-0.6b", "--gpu", "h100-sxm-80gb", "--context", "64")
    # 28 layers x 8 KV heads x (128 + 128) x 2 B x 64 tokens = 7,340,032 B
    row = next(line.split() for line in out.splitlines() if line.split()[:1] == ["64"])
    assert row[2:4] == ["7", "MiB"]
    assert "0.00" not in " ".join(row)


def test_help_on_drafts_names_the_models_own_prediction_layer(capsys) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["estimate", "--help"])
    assert "mtp for the MTP layers" in " ".join(capsys.readouterr().out.split())


def test_json_has_every_key_of_the_contract(run):
    status, out, err = run(*ASK, "--context", "8K", "--format", "json")
    answer = json.loads(out)
    assert (status, err) == (0, "")
    assert set(answer) >= CONTRACT
    assert set(answer["budget"]) >= {
        "total_bytes",
        "utilization",
        "weights",
        "activations",
        "non_framework",
        "graphs",
        "kv_pool_bytes",
    }
    assert set(answer["parameters"]) >= {"total", "active", "by_component"}


def test_every_size_in_json_is_a_whole_number(run):
    _, out, _ = run(*ASK, "--format", "json")

    def sizes(value, name=""):
        if isinstance(value, dict):
            for key, item in value.items():
                yield from sizes(item, key)
        elif isinstance(value, list):
            for item in value:
                yield from sizes(item, name)
        elif "bytes" in name or "tokens" in name:
            yield name, value

    found = list(sizes(json.loads(out)))
    assert len(found) > 10
    # null is a size that does not apply: the tokens of an image for a model of text.
    assert all(value is None or isinstance(value, int) for _, value in found)


def test_text_says_the_conclusion_first(run):
    status, out, _ = run(*ASK, "--context", "32K", "--kv-pool", "40GiB")
    first = out.splitlines()[0]
    assert status == 0
    # 40 GiB // 917,504 B = 46,811 blocks; 2,048 for a request of 32K, 512 for one of 8K
    assert first.startswith("22 requests at 32K fit on one H100")
    assert "(91 at 8K)" in first


def test_text_never_reaches_past_a_terminal_s_control_characters(run, tmp_path):
    data = {**CONFIG, "_name_or_path": "evil/\x1b[31mred"}
    (tmp_path / "config.json").write_text(json.dumps(data))
    status, out, err = run("estimate", tmp_path / "config.json", "--gpu", "H100")
    assert status == 0, err
    assert "\x1b" not in out + err


def test_a_config_is_answered_like_the_catalog_s_entry(run, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    own = json.loads(run("estimate", path, "--gpu", "H100", "--context", "8K", "--format", "json")[1])
    known = json.loads(run(*ASK, "--context", "8K", "--format", "json")[1])
    for part in (
        "parameters",
        "weight_bytes_per_gpu",
        "kv_bytes_per_token_per_gpu",
        "budget",
        "max_concurrency",
    ):
        assert own[part] == known[part], part


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-7B", "Qwen--Qwen2.5-7B", "qwen/qwen2.5-7b"])
def test_a_model_is_found_by_id_slug_and_in_any_case(run, name):
    _, out, _ = run("estimate", name, "--gpu", "H100", "--format", "json")
    assert json.loads(out)["model"] == "Qwen/Qwen2.5-7B"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "required: COMMAND"),
        (["estimte"], "did you mean estimate?"),
        (["estimate"], "required: MODEL"),
        (["estimate", "Qwen/Qwen2.5-7B"], "required: --gpu"),
        (["estimate", "Qwen/Qwen9", "--gpu", "H100"], "did you mean"),
        ([*ASK[:3], "h100-sxm-81gb"], "did you mean h100-sxm-80gb"),
        ([*ASK, "--context", "-1"], "context"),
        ([*ASK, "--context", "8Q"], "context"),
        ([*ASK, "--kv", "fp9"], "KV format"),
        ([*ASK, "--weights", "fp9"], "weight format"),
        ([*ASK, "--engine", "fp9"], "engine"),
        ([*ASK, "--utilization", "1.2"], "utilization"),
        ([*ASK, "--utilization", "nan"], "utilization"),
        ([*ASK, "--utilization", "most"], "utilization"),
        ([*ASK, "--kv-pool", "lots"], "kv-pool"),
        ([*ASK, "--tensor-parallel", "3"], "tensor parallel"),
        ([*ASK, "--tensor-parallel", "two"], "tensor-parallel"),
        ([*ASK, "--format", "xml"], "invalid choice"),
        ([*ASK, "--util", "0.9"], "did you mean --utilization?"),
        (["estimate", "/nowhere/config.json", "--gpu", "H100"], "/nowhere/config.json"),
        (["estimate", "", "--gpu", "H100"], "model"),
        (["estimate", "a\nb", "--gpu", "H100"], "model"),
        (["model", "/nowhere/config.json"], "/nowhere/config.json"),
        (["check", "/nowhere"], "/nowhere"),
        (["matrix", "--out", "x", "--shard", "2/1", "--partitioned"], "shard"),
        (["matrix", "--out", "x", "--shard", "1/2"], "--partitioned"),
        (["matrix", "--out", "x", "--contexts", "8K..4K"], "contexts"),
        (["matrix", "--out", "x", "--tensor-parallel", "1,x"], "tensor-parallel"),
        (["matrix", "--out", "x", "--models", "nothing*"], "models"),
        (["matrix", "--out", "x", "--workers", "0"], "workers"),
    ],
)
def test_bad_input_is_one_clear_line_and_status_2(run, arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in refused(run(*arguments))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"architectures": ["NobodyForCausalLM"]}',
        "\x00\x01",
        '{"a": 1e999}',
        "[" * 100000,
    ],
)
def test_a_config_that_is_none_is_refused_in_one_line(run, tmp_path, content):
    path = tmp_path / "config.json"
    path.write_text(content)
    assert "config.json" in refused(run("estimate", path, "--gpu", "H100"))
    refused(run("model", path))


def test_check_names_every_fault_of_a_catalog_at_once(run, tmp_path, repository):
    import shutil

    shutil.copytree(repository / "data", tmp_path / "data")
    (tmp_path / "data/accelerators/h100-sxm-80gb.yaml").write_text("id: h100-sxm-80gb\nvendr: NVIDIA\n")
    model = tmp_path / "data/models/Qwen--Qwen2.5-7B.yaml"
    model.write_text(model.read_text().replace("hidden_size: 3584", "hidden_size: -3584"))
    status, out, err = run("check", tmp_path / "data")
    assert (status, out) == (2, "")
    assert "accelerators/h100-sxm-80gb.yaml: vendr" in err
    assert "models/Qwen--Qwen2.5-7B.yaml: hidden_size" in err
    assert all(line.startswith("kvreport: error: ") for line in err.splitlines())


def test_check_counts_what_it_read(run):
    status, out, _ = run("check")
    assert status == 0
    assert "models" in out
    assert "no fault" in out


def test_a_config_becomes_a_catalog_entry_that_answers_the_same(run, tmp_path, repository):
    import shutil

    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    status, out, err = run("model", tmp_path / "config.json", "--id", "mine/copy")
    assert status == 0, err
    shutil.copytree(repository / "data", tmp_path / "data")
    (tmp_path / "data/models/mine--copy.yaml").write_text(out)
    assert run("check", tmp_path / "data")[0] == 0
    ask = ("--gpu", "H100", "--format", "json", "--data", tmp_path / "data")
    mine = json.loads(run("estimate", "mine/copy", *ask)[1])
    known = json.loads(run("estimate", "Qwen/Qwen2.5-7B", *ask)[1])
    assert mine["max_concurrency"] == known["max_concurrency"]
    assert mine["weight_bytes_per_gpu"] == known["weight_bytes_per_gpu"]


def test_matrix_writes_what_it_says(run, tmp_path):
    status, out, err = run(
        "matrix",
        "--out",
        tmp_path / "d",
        "--models",
        "*qwen2.5-7b",
        "--gpus",
        "l4",
        "--contexts",
        "8K,1K..4K/1K",
    )
    assert status == 0, err
    assert "capacity.parquet" in out
    assert (tmp_path / "d/capacity.csv.gz").stat().st_size > 0


def test_contexts_are_numbers_and_ranges():
    assert parse_contexts("8K,1K..4K/1K,100") == [8192, 1024, 2048, 3072, 4096, 100]
    for wrong in ("", "1K..", "1..9/0", "4..1", "1..1M", "8K 9K"):
        with pytest.raises(InputError):
            parse_contexts(wrong)


@pytest.mark.parametrize("columns", ["80", "100"])
@pytest.mark.parametrize("command", ["estimate", "size", "replay", "log", "matrix"])
def test_help_cuts_no_flag_at_a_hyphen(capsys, monkeypatch, command, columns):
    """``--language-`` stood at the end of a line, ``model-only`` on the next: nobody finds or copies that."""
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(SystemExit):
        main([command, "--help"])
    cut = [line for line in capsys.readouterr().out.splitlines() if re.search(r"--?[a-z][a-z-]*-$", line)]
    assert cut == []


def test_version_and_help_end_with_status_0(capsys):
    for word in ("--version", "--help"):
        with pytest.raises(SystemExit) as ended:
            main([word])
        assert ended.value.code == 0
    assert "kvreport" in capsys.readouterr().out


def test_every_command_and_option_is_explained():
    """An option without a word of help is a fault."""
    (commands,) = [a for a in parser()._actions if hasattr(a, "choices") and isinstance(a.choices, dict)]
    assert {"estimate", "matrix", "model", "check"} <= set(commands.choices)
    for name, command in commands.choices.items():
        assert command.description, name
        for action in command._actions:
            assert action.help, (name, action.dest)


def test_a_reader_that_goes_away_is_no_error(repository):
    """`kvreport … | head -c 1` ends quietly."""
    read, write = os.pipe()
    process = subprocess.Popen(
        [Path(sys.executable).with_name("kvreport"), *ASK],
        stdout=write,
        stderr=subprocess.PIPE,
        cwd=repository,
    )
    os.close(write)
    os.close(read)
    _, err = process.communicate(timeout=60)
    assert err == b""
    assert process.returncode == 0


def test_a_plain_ascii_terminal_is_served(repository):
    done = subprocess.run(
        [sys.executable, "-m", "kvreport", *ASK],
        capture_output=True,
        check=True,
        cwd=repository,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"},
    )
    assert done.stdout.isascii()


def test_tables_are_aligned():
    assert table([("a", "bb"), ("ccc", "d")], "<>") == ["  a     bb", "  ccc    d"]


@pytest.mark.parametrize("text", ["\x1b[2J", "a\rb", "\u202eabc", "\x07", "a\u2028b", "\ud800"])
def test_control_and_direction_characters_are_replaced(text):
    assert "\ufffd" in plain(text)
    assert not set(text) - set("abc[2J") & set(plain(text))


words = st.one_of(
    st.sampled_from(
        [
            "--gpu",
            "--context",
            "--kv",
            "--weights",
            "--tensor-parallel",
            "--kv-pool",
            "H100",
            "8K",
            "fp8",
            "2",
        ]
    ),
    st.text(max_size=12),
)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(words, max_size=6))
def test_no_words_crash_the_command(words):
    """Whatever is typed after a valid question: answered, or refused with status 2."""
    try:
        status = main([*ASK, *words])
    except SystemExit as ended:  # -h, and -hX, which argparse reads as -h
        status = ended.code
    assert status in (0, 2)


HOSTILE = [
    '=HYPERLINK("http://x")',
    "+cmd|' /C calc'!A0",
    "<script>alert(1)</script>",
    "{{ 7 * 7 }}",
    "a\u202eb",
    "-1+1",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_ends_up_as_plain_text_in_csv_and_on_the_terminal(run, tmp_path, repository, name):
    import csv
    import shutil

    data = tmp_path / "data"
    for folder in ("engines", "accelerators"):
        shutil.copytree(repository / "data" / folder, data / folder)
    (data / "models").mkdir()
    for file in ("formats.yaml", "grid.yaml", "RELEASE"):
        shutil.copy(repository / "data" / file, data)
    text = (repository / "data/models/Qwen--Qwen2.5-7B.yaml").read_text()
    lines = [f"name: {json.dumps(name)}" if line.startswith("name: ") else line for line in text.splitlines()]
    (data / "models/Qwen--Qwen2.5-7B.yaml").write_text("\n".join(lines) + "\n")
    status, out, err = run(*ASK, "--data", data)
    if status == 0:
        assert "\u202e" not in out
    else:
        assert err.startswith("kvreport: error: models/Qwen--Qwen2.5-7B.yaml: name")
    outcome = run("matrix", "--out", tmp_path / "d", "--gpus", "l4", "--contexts", "8K", "--data", data)
    if outcome[0]:
        return
    with (tmp_path / "d/models.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["name"].lstrip("'") == name.replace("\u202e", " ")
    assert not row["name"].startswith(("=", "+", "-", "@"))


def test_an_interrupt_ends_quietly_with_status_130(run, monkeypatch):
    import kvreport.estimation

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(kvreport.estimation, "estimate", interrupted)
    assert run(*ASK) == (130, "", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["python -m sglang.launch_server --model-path Qwen/Qwen3-32B --lora-target-moduls q_proj"],
            "did you mean --lora-target-modules, a flag of python -m sglang.launch_server?",
        ),
        (["Qwen/Qwen3-32B", "--load-formt", "auto"], "did you mean --load-format, a flag of vllm serve?"),
        (["Qwen/Qwen3-32B", "--mtp"], "--draft mtp"),
        (["Qwen/Qwen3-32B", "--ctx", "8K"], "instead: --context"),
    ],
)
def test_an_unknown_flag_names_its_server_or_what_a_person_meant(capsys, words: list[str], said: str) -> None:
    assert main(["estimate", *words, "--gpu", "H100"]) == 2
    assert said in capsys.readouterr().err
