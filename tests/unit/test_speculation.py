"""Speculative decoding in servers' own words, with drafts that are no language models of their own."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from kvreport.cli import main
from kvreport.cli.speculation import speculation_in_our_spelling
from kvreport.errors import InputError, ServerRefusalError
from kvreport.estimation.estimate import estimate

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
            "--draft ngram --num-speculative-tokens 4",
        ),
        (
            "vllm",
            ["--speculative-config", '{"model":"ngram","num_speculative_tokens":4}'],
            "--draft ngram --num-speculative-tokens 4",
        ),
        (
            "vllm",
            ["--speculative-config", '{"model":"[ngram]","num_speculative_tokens":4,"prompt_lookup_max":4}'],
            "--draft ngram --num-speculative-tokens 4",
        ),
        ("vllm", ["-sc", '{"method":"suffix"}'], "--draft suffix --num-speculative-tokens 24"),
        (
            "vllm",
            ["-sc", '{"method":"suffix","suffix_decoding_max_tree_depth":8}'],
            "--draft suffix --num-speculative-tokens 8",
        ),
        (
            "vllm",
            shlex.split(
                "--speculative-config.method qwen3_next_mtp --speculative-config.num-speculative-tokens 2"
            ),
            "--draft mtp --num-speculative-tokens 2",
        ),
        (
            "vllm",
            shlex.split("--spec-method eagle3 --spec-model=a/b --spec-tokens 3"),
            "--draft a/b --num-speculative-tokens 3",
        ),
        ("sglang", ["--speculative-algorithm", "NGRAM"], "--draft ngram --num-speculative-tokens 11"),
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
            "--draft ngram --num-speculative-tokens 7",
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
        ("vllm", ["--speculative-config", '{"method":["mtp"],"num_speculative_tokens":1}']),
        ("vllm", ["-sc", '{"method":"mtp"}', "--spec-method", "mtp"]),
        ("vllm", ["-sc", '{"method":"mtp"}', "-sc", '{"method":"mtp"}']),
    ],
)
def test_what_cannot_be_read_is_one_sentence(server: str, words: list[str]) -> None:
    with pytest.raises(InputError, match=r"^-(-speculative-[a-z-]+|-spec-method|sc): found .*; allowed: "):
        speculation_in_our_spelling(words, server)


METHODS = {
    "eagle": False, "eagle3": False, "dflash": False, "draft_model": False, "custom_class": False, "medusa": False,
    "mtp": True, "deepseek_mtp": True, "qwen3_next_mtp": True, "dspark": True, "extract_hidden_states": True,
    "ngram": True, "ngram_gpu": True, "suffix": True,
}  # fmt: skip
"""Methods of vLLM, and whether it starts without a model (``SpeculativeConfig.__post_init__``, 0.33)."""


@pytest.mark.parametrize("tokens", [None, 2])
@pytest.mark.parametrize("model", [None, "a/b"])
@pytest.mark.parametrize("method", METHODS)
def test_a_method_without_its_model_or_its_tokens_is_refused_as_vllm_refuses_it(
    method: str, model: str | None, tokens: int | None
) -> None:
    """``eagle3`` without a draft model was answered, and vLLM ends with an error."""
    given = {"method": method, "model": model, "num_speculative_tokens": tokens}
    words = ["-sc", json.dumps({name: value for name, value in given.items() if value is not None})]
    starts = (model is not None or METHODS[method]) and (
        tokens is not None or method == "suffix" or (model is not None and method != "ngram")
    )
    if starts:
        assert speculation_in_our_spelling(words, "vllm")
    else:
        with pytest.raises(ServerRefusalError, match="vLLM does not start so; allowed: "):
            speculation_in_our_spelling(words, "vllm")


def test_sglang_does_not_draft_blocks_without_a_model() -> None:
    with pytest.raises(ServerRefusalError, match="DFLASH"):
        speculation_in_our_spelling(["--speculative-algorithm", "DFLASH"], "sglang")


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("vllm", ["--speculative-config", '{"method":"extract_hidden_states","num_speculative_tokens":1}']),
        ("vllm", ["--speculative-config", '{"method":"ngram_gpu","num_speculative_tokens":1}']),
        ("vllm", ["--speculative-config", '{"method":"medusa","model":"a/b","num_speculative_tokens":1}']),
        ("sglang", ["--speculative-algo", "EAGLE", "--speculative-eagle-topk", "8"]),
        ("sglang", ["--speculative-algo", "MEDUSA", "--speculative-num-steps", "3"]),
    ],
)
def test_drafts_that_are_not_counted_are_named_in_the_answer(server: str, words: list[str]) -> None:
    """They ended the answer until every flag of a server got one."""
    named = speculation_in_our_spelling(words, server)[0]
    assert named.startswith('--not-followed={"flag": "--speculative-')
    assert "a draft model" in named or "drafted tokens" in named


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("method", sorted(DRAFTS))
def test_a_printed_command_can_be_asked_again(
    tmp_path: Path, method: str, engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"gpu": "h200", "context_tokens": 8192, "engine": engine, "num_speculative_tokens": 3}
    found = estimate(TARGET, draft=draft(tmp_path, method), **asked)
    alone = estimate(TARGET, draft="ngram", **asked)
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


@pytest.mark.parametrize(
    ("engine", "method", "told"),
    [
        ("vllm", "ngram", '{"method":"ngram","num_speculative_tokens":5}'),
        ("vllm@0.28.0", "ngram", '{"method":"ngram","num_speculative_tokens":5}'),
        ("vllm", "suffix", '{"method":"suffix","num_speculative_tokens":5}'),
        ("sglang", "ngram", "--speculative-algorithm NGRAM --speculative-num-draft-tokens 6"),
        ("tensorrt-llm", "ngram", "--config options.yaml"),
    ],
)
def test_drafts_from_the_text_hold_nothing(engine: str, method: str, told: str) -> None:
    """A pasted n-gram was charged as a prediction layer, and the command to start it said ``mtp``."""
    asked = {"gpu": "h100", "context_tokens": 8192, "engine": engine}
    drafted = estimate(TARGET, draft=method, num_speculative_tokens=5, **asked).to_dict()
    # The first model runner of vLLM reserves other buffers than the second.
    runner = {"model_runner": "first"} if "first model runner" in " ".join(drafted["assumptions"]) else {}
    runner |= {"max_seqs": 48} if engine == "sglang" else {}
    alone = estimate(TARGET, **asked, **runner).to_dict()
    assert drafted["extras"]["draft"] is None
    assert drafted["kv_bytes_per_request_per_gpu"] == alone["kv_bytes_per_request_per_gpu"]
    assert drafted["budget"]["weights"] == alone["budget"]["weights"]
    assert drafted["budget"]["kv_pool_bytes"] == alone["budget"]["kv_pool_bytes"]
    assert told in drafted["command"]
    assert "mtp" not in drafted["command"]


def test_an_engine_s_own_methods_of_text_are_not_another_s() -> None:
    with pytest.raises(InputError, match=r"^draft: found suffix for SGLang.*; allowed with vLLM"):
        estimate(TARGET, gpu="h200", engine="sglang", draft="suffix", num_speculative_tokens=3)
    with pytest.raises(InputError, match="without a number of tokens"):
        estimate(TARGET, gpu="h200", draft="ngram")


def test_a_number_of_tokens_without_a_draft_is_no_layer_of_nobody() -> None:
    with pytest.raises(InputError, match=r"^num-speculative-tokens: found 5 without a draft.*--draft ngram"):
        estimate(TARGET, gpu="h200", num_speculative_tokens=5)
    asked = {"gpu": "h200", "context_tokens": 8192, "num_speculative_tokens": 2}
    own = estimate("zai-org/GLM-4.7-Flash", **asked).to_dict()
    stated = estimate("zai-org/GLM-4.7-Flash", draft="mtp", **asked).to_dict()
    assert any(line.startswith("draft mtp: ") for line in own["assumptions"])
    assert own["budget"] == stated["budget"]
    assert own["command"] == stated["command"]


def test_sglang_runs_few_requests_at_once_where_it_drafts() -> None:
    """618 requests were promised, and the server sets ``--max-running-requests`` to 48."""
    asked = {"gpu": "h200", "engine": "sglang", "context_tokens": 2048, "draft": "mtp"}
    found = estimate("zai-org/GLM-4.7-Flash", **asked).to_dict()
    assert (found["max_concurrent_requests"], found["limited_by"]) == (48, "max_num_seqs")
    told = estimate("zai-org/GLM-4.7-Flash", max_seqs=100, **asked).to_dict()
    assert told["max_concurrent_requests"] == 100


@pytest.mark.parametrize(
    ("flags", "tokens", "said"),
    [
        ("--spec-type ngram-simple", 48, "--spec-type ngram-simple"),
        ("--spec-type ngram-mod --spec-ngram-mod-n-max 16", 16, "--spec-ngram-mod-n-max 16"),
        ("--spec-type ngram-cache --lookup-cache-static f", 8, "--spec-type ngram-cache"),
    ],
)
def test_llama_server_s_drafts_from_the_text_load_nothing(
    flags: str, tokens: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = shlex.split("estimate llama-server -m Qwen/Qwen3.5-4B -c 8192 -np 4 --gpu rtx-4090")
    assert main([*asked, "--format", "json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert main([*asked, *flags.split(), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert said in found["command"]
    assert found["budget"]["weights"] == alone["budget"]["weights"]
    assert found["kv_bytes_per_request_per_gpu"] == alone["kv_bytes_per_request_per_gpu"], (
        "no copies of states"
    )
    logits = 4 * (1 + tokens) * 4 * 248_320
    assert found["budget"]["activations"] >= max(alone["budget"]["activations"], logits)


def test_a_draft_model_of_llama_server_is_read_as_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    asked = shlex.split(
        "llama-server -m Qwen/Qwen3-8B -c 8192 -md Qwen/Qwen3-0.6B --spec-draft-n-max 5 --gpu rtx-4090"
    )
    assert main(["estimate", *asked, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["extras"]["draft"]["tokens"] == 5
    assert main(["estimate", *asked[:5], "--num-speculative-tokens", "5", "--gpu", "rtx-4090"]) == 0
    assert "--spec-draft-n-max 5: no effect without a draft" in capsys.readouterr().out


def test_sizes_of_a_draft_of_sglang_alone_draft_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    asked = "sglang serve --model meta-llama/Llama-3.1-8B-Instruct --speculative-num-steps 3 --speculative-eagle-topk 8"
    assert main(["estimate", asked, "--gpu", "h100-sxm-80gb", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["extras"]["draft"] is None
    effect = "no effect without --speculative-algorithm"
    assert [(one["flag"], one["term"], one["effect"]) for one in found["not_followed"]] == [
        ("--speculative-num-steps", None, effect),
        ("--speculative-eagle-topk", None, effect),
    ]


def test_keys_that_are_not_followed_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    stated = (
        '{"model":"meta-llama/Llama-3.2-1B-Instruct","num_speculative_tokens":2,"quantization":"fp8",'
        '"prompt_lookup_max":4}'
    )
    command = ["vllm", "serve", "meta-llama/Llama-3.1-8B-Instruct", "--speculative-config", stated]
    asked = ["estimate", "--gpu", "h100-sxm-80gb", "--context", "8K", *command]
    assert main(asked) == 0
    said = capsys.readouterr()
    assert "Not followed\n  --speculative-config 'quantization': not followed; the draft's memory" in said.out
    assert "prompt_lookup_max" not in said.out + said.err
    assert main([*asked, "--format", "json"]) == 0
    [entry] = json.loads(capsys.readouterr().out)["not_followed"]
    assert (entry["flag"], entry["value"]) == ("--speculative-config", "'quantization'")
    assert entry["term"] == "a draft model"


@pytest.mark.parametrize("words", ["--x y " * 15_000, "x" * 100_000])
def test_a_command_has_one_budget_of_bytes_and_words(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Five seconds of argparse for 100 kB."""
    start = ["estimate", f"vllm serve {TARGET} {words}", "--gpu", "h100"]
    for line in (start, ["estimate", *start[1].split(), "--gpu", "h100"]):
        assert main(line) == 2
        assert "command line: found " in capsys.readouterr().err
