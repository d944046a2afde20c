"""Speculative decoding in servers' own words, with drafts that are no language models of their own."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from kvreport.catalog.load import open_catalog
from kvreport.cli import main
from kvreport.cli.speculation import speculation_in_our_spelling
from kvreport.errors import InputError
from kvreport.estimation.estimate import estimate

CATALOG = open_catalog()
TARGET = "Qwen/Qwen3-8B"
BLOCK: dict[str, Any] = {
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "max_position_embeddings": 40960,
    "num_attention_heads": 32,
    "num_hidden_layers": 5,
    "num_key_value_heads": 8,
    "vocab_size": 151936,
}
DRAFTS: dict[str, dict[str, Any]] = {
    "dflash": BLOCK | {"architectures": ["DFlashDraftModel"]},
    "dspark": BLOCK | {"architectures": ["Qwen3DSparkModel"], "markov_rank": 256},
    "eagle3": BLOCK
    | {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 32000},
    "eagle": BLOCK | {"architectures": ["EagleLlamaForCausalLM"], "num_hidden_layers": 1},
}


def draft(folder: Path, method: str) -> str:
    path = folder / method / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(DRAFTS[method]), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("server", "words", "ours"),
    [
        (
            "vllm",
            ["--speculative-config", '{"method":"mtp","num_speculative_tokens":2}'],
            "--draft mtp --num-speculative-tokens 2",
        ),
        (
            "vllm",
            ['--speculative_config={"model":"a/b","num_speculative_tokens":3}', "-x"],
            "-x --draft a/b --num-speculative-tokens 3",
        ),
        (
            "vllm",
            ["--speculative-config", '{"method":"ngram","num_speculative_tokens":4}'],
            "--num-speculative-tokens 4",
        ),
        (
            "vllm",
            ["--speculative-config", '{"model":"ngram","num_speculative_tokens":4}'],
            "--num-speculative-tokens 4",
        ),
        ("vllm", ["--speculative-algorithm", "EAGLE"], "--speculative-algorithm EAGLE"),
        (
            "sglang",
            shlex.split(
                "--speculative-algorithm EAGLE3 --speculative-draft-model-path a/b --speculative-num-steps 3 "
                "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
            ),
            "--draft a/b --num-speculative-tokens 3",
        ),
        ("sglang", ["--speculative-algorithm", "NEXTN"], "--draft mtp --num-speculative-tokens 3"),
        ("sglang", ["--speculative-algo", "EAGLE"], "--draft mtp --num-speculative-tokens 3"),
        (
            "sglang",
            ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "8"],
            "--num-speculative-tokens 7",
        ),
    ],
)
def test_a_server_s_flags_of_speculation_are_read(server: str, words: list[str], ours: str) -> None:
    assert speculation_in_our_spelling(words, server) == ours.split()


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("vllm", ["--speculative-config", "{x"]),
        ("vllm", ["--speculative-config", "[" * 100_000]),
        ("vllm", ["--speculative-config", '["mtp"]']),
        ("vllm", ["--speculative-config", '{"method":"mtp","num_speculative_tokens":true}']),
        ("vllm", ["--speculative-config", '{"model":3}']),
        ("vllm", ["--speculative-config"]),
        ("vllm", ["--speculative-config", '{"num_speculative_tokens":2}']),
        ("vllm", ["--speculative-config", '{"method":"eagle3","num_speculative_tokens":2}']),
        ("vllm", ["--speculative-config", '{"method":"extract_hidden_states","num_speculative_tokens":1}']),
        ("sglang", ["--speculative-eagle-topk", "8"]),
        ("sglang", ["--speculative-num-steps", "3"]),
    ],
)
def test_what_cannot_be_read_is_one_sentence(server: str, words: list[str]) -> None:
    with pytest.raises(InputError, match=r"^--speculative-[a-z-]+: found .*; allowed: "):
        speculation_in_our_spelling(words, server)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("method", sorted(DRAFTS))
def test_a_printed_command_can_be_asked_again(
    tmp_path: Path, method: str, engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"gpu": "h200", "context_tokens": 8192, "engine": engine, "num_speculative_tokens": 3}
    found = estimate(TARGET, draft=draft(tmp_path, method), catalog=CATALOG, **asked)
    alone = estimate(TARGET, catalog=CATALOG, **asked)
    assert found.max_concurrency < alone.max_concurrency
    command = found.to_dict()["command"]
    said = f'"method":"{method}"' if engine == "vllm" else f"--speculative-algorithm {method.upper()}"
    assert said in command
    words = shlex.split(command)
    first = next(
        place for place, word in enumerate(words) if word.startswith("--") and word != "--model-path"
    )
    assert (
        main(["estimate", TARGET, "--gpu", "h200", "--engine", engine, "--format", "json", *words[first:]])
        == 0
    )
    again = json.loads(capsys.readouterr().out)
    assert again["max_concurrent_requests"] == found.max_concurrent_requests


def test_a_release_in_the_name_of_a_server_has_that_server_s_flags(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["estimate", TARGET, "--gpu", "h200", "--engine", "sglang-0.5.9", "--context-length", "8192"]
    assert main(words) == 0
    assert main([*words[:-2], "--max-model-len", "8K"]) == 2
    assert "a flag of vLLM" in capsys.readouterr().err
