"""Flags as servers spell them, and what the command line says of arguments that it does not have."""

from __future__ import annotations

import json

import pytest

from kvreport.catalog.server_flags import load_server_flags
from kvreport.cli import main
from kvreport.cli.spellings import SERVERS_FLAGS, WITHOUT_MEMORY, in_our_spelling
from kvreport.resources import data_dir
from kvreport.startup_log.memory_flags import MEMORY_FLAGS

ESTIMATE = ("estimate", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "h100", "--format", "json")


def answered(capsys, *words):
    assert main([*ESTIMATE, *words]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *words):
    assert main(list(words)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_flags_of_vllm_mean_what_they_mean_there(capsys):
    ours = answered(
        capsys,
        *(
            "--tensor-parallel",
            "2",
            "--context",
            "8192",
            "--utilization",
            "0.9",
            "--kv",
            "fp8",
            "--max-seqs",
            "64",
        ),
        *("--max-batched-tokens", "4096", "--eager", "--no-prefix-caching"),
    )
    theirs = answered(
        capsys,
        *("-tp", "2", "--max_model_len=8192", "--gpu-memory-utilization=0.9", "--kv-cache-dtype", "fp8"),
        *("--max-num-seqs", "64", "--max-num-batched-tokens", "4096", "--enforce-eager"),
        "--no-enable-prefix-caching",
    )
    assert ours == theirs


def test_flags_of_sglang_mean_what_they_mean_there(capsys):
    ours = answered(
        capsys,
        "--engine",
        "sglang",
        "--tp",
        "2",
        "--context",
        "8K",
        "--utilization",
        "0.8",
        "--max-seqs",
        "64",
    )
    theirs = answered(
        capsys,
        *("--engine=sglang", "--tp-size", "2", "--context-length", "8192", "--mem-fraction-static", "0.8"),
        *("--max-running-requests", "64"),
    )
    assert ours == theirs


def test_a_small_k_is_decimal_after_the_flag_of_vllm_alone():
    flags = ["--context"]
    assert in_our_spelling(["--max-model-len", "32k"], flags) == ["--context", "32000"]
    assert in_our_spelling(["--max-model-len", "1.5k"], flags) == ["--context", "1500"]
    assert in_our_spelling(["--max-model-len=32K"], flags) == ["--context=32K"]
    assert in_our_spelling(["--context", "32k"], flags) == ["--context", "32k"]


def test_every_spelling_is_a_flag_that_the_server_has():
    servers = load_server_flags(data_dir())
    for family, spellings in SERVERS_FLAGS.items():
        long = {flag for flag in spellings if flag.startswith("--no-") is False and flag.startswith("--")}
        assert long <= set(servers[family].flags)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--mem-fraction-static", "0.8"), ("a flag of SGLang", "the rules of vLLM", "--utilization")),
        (
            ("--engine", "sglang", "--max-model-len", "8K"),
            ("a flag of vLLM", "the rules of SGLang", "--context"),
        ),
        (("--contxt", "8K"), ("'--contxt'", "did you mean --context?")),
        (("--gpus", "2"), ("'--gpus'", "--gpu")),
        (("--concurrent", "4"), ("'--concurrent'", "kvreport size MODEL --concurrent")),
        (("--ep", "8"), ("'--ep'", "instead: --expert-parallel, without a number")),
        (("--ctx-size", "4096"), ("--context TOKENS for each request",)),
        (("--optimization-level", "0"), ("vllm serve", "leave it out")),
        (("-c", "4096"), ("-c: not an option here", "--context TOKENS for each request")),
        (("--count", "4"), ("'--count'", "--gpu 4xNAME")),
        (("--qzx",), ("'--qzx'", "see kvreport estimate --help")),
    ],
)
def test_an_option_that_a_command_does_not_have_is_answered_with_what_it_has(capsys, words, said):
    told = refused(capsys, *ESTIMATE, *words)
    assert all(part in told for part in said), told


@pytest.mark.parametrize("flag", ["--held-by-others", "--engines-per-gpu"])
def test_a_gpu_that_others_use_too_is_answered_with_the_way_to_its_share(capsys, flag):
    told = refused(capsys, "size", "qwen/qwen3-8b", "--gpu", "h100", "--context", "8K", flag, "2")
    assert f"'{flag}': not an option of kvreport size; instead: kvreport estimate" in told
    assert "--utilization" in told


def test_the_share_that_others_leave_can_be_sized_with(capsys):
    asked = ["qwen/qwen3-8b", "--gpu", "h100", "--context", "8K"]
    assert main(["estimate", *asked, "--engines-per-gpu", "2"]) == 0
    share = capsys.readouterr().out.split("--gpu-memory-utilization ")[1].split()[0]
    assert main(["size", *asked, "--concurrent", "8", "--utilization", share, "--format", "json"]) == 0
    sized = json.loads(capsys.readouterr().out)["deployments"][0]
    told = ["--max-seqs", str(sized["users_per_replica"])]
    assert main(["estimate", *asked, *told, "--engines-per-gpu", "2", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["max_concurrent_requests"] == sized["users_held_by_memory"]


def test_flags_that_change_no_memory_are_left_out_and_named(capsys):
    """A command is pasted as it is: nothing of it is passed over without a word."""
    own = [*ESTIMATE]
    assert main(own) == 0
    plain = capsys.readouterr().out
    pasted = "--trust-remote-code --port 8000 --served_model_name=mine --tool-call-parser hermes --enable-auto-tool-choice"
    assert main([own[0], *pasted.split()[:3], *own[1:], *pasted.split()[3:]]) == 0
    said = capsys.readouterr()
    assert said.out == plain
    assert (
        "--trust-remote-code, --port, --served-model-name, --tool-call-parser, --enable-auto-tool-choice"
        in said.err
    )


def test_flags_without_memory_are_servers_flags_and_none_that_the_reader_knows():
    every = {flag for server in load_server_flags(data_dir()).values() for flag in server.flags}
    assert set(WITHOUT_MEMORY) <= every
    assert not set(WITHOUT_MEMORY) & {one.flag for one in MEMORY_FLAGS}


@pytest.mark.parametrize(
    ("limit", "found"),
    [
        ('{"image": 2, "video": 0}', {"image": 2, "video": 0}),
        ('{"image": {"count": 3, "width": 512}}', {"image": 3}),
        ("image=2", {"image": 2}),
    ],
)
def test_inputs_are_limited_as_the_server_spells_it(capsys, limit, found):
    words = ["estimate", "Qwen/Qwen3-VL-8B-Instruct", "--gpu", "l40s", "--context", "32K", "--format", "json"]
    assert main([*words, "--limit-mm-per-prompt", limit]) == 0
    told = json.loads(capsys.readouterr().out)["extras"]["encoder"]
    assert told["limits"] == found


@pytest.mark.parametrize(
    "limit", ['{"image": "many"}', '{"image": {"width": 5}}', "{image}", '{"image": true}']
)
def test_limits_that_are_no_numbers_are_refused(capsys, limit):
    told = refused(capsys, *ESTIMATE, "--limit-mm-per-prompt", limit)
    assert "limit-mm-per-prompt" in told
    assert "allowed: KIND=N" in told


def test_a_name_with_spaces_that_was_not_quoted(capsys):
    assert "quote a name with spaces" in refused(capsys, "estimate", "llama", "3.1", "8b", "--gpu", "h100")


def test_a_command_that_does_not_exist(capsys):
    assert "did you mean estimate?" in refused(capsys, "estimat", "llama-3.1-8b")
