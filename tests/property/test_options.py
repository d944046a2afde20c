"""Every option that ``kvreport estimate`` accepts changes an answer, is named in it, or is refused: engine by engine."""

from __future__ import annotations

import json
import shlex
from functools import cache
from typing import Any, Final

import pytest

from kvreport import size
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.query import options

Question = dict[str, Any]

SERVERS: Final = (
    "vllm", "vllm@0.10.1", "vllm@0.16.0", "vllm@0.19.0", "sglang", "sglang@0.5.9", "tensorrt-llm", "transformers",
    "ceiling", "mlx",
)  # fmt: skip
LOCAL: Final = ("llama-cpp", "ollama")

DENSE: Final = {"model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "H100"}
PAIR: Final = DENSE | {"tensor_parallel": 2}
MIXTURE: Final = {"model": "Qwen/Qwen3-30B-A3B", "gpu": "H100", "data_parallel": 4, "expert_parallel": True}
LATENT: Final = {
    "model": "deepseek-ai/DeepSeek-V3",
    "gpu": "H200",
    "data_parallel": 8,
    "expert_parallel": True,
}
WIDE: Final = {"model": "deepseek-ai/DeepSeek-V3", "gpu": "H200", "tensor_parallel": 16}
CUT: Final = {"model": "deepseek-ai/DeepSeek-V3", "gpu": "H200", "tensor_parallel": 8}
HYBRID: Final = {"model": "Qwen/Qwen3-Next-80B-A3B-Instruct", "gpu": "H200", "tensor_parallel": 2}
IMAGES: Final = {"model": "Qwen/Qwen2.5-VL-7B-Instruct", "gpu": "H100", "tensor_parallel": 2}
EXPERTS: Final = {"model": "openai/gpt-oss-20b", "gpu": "H100"}
WINDOWS: Final = {"model": "google/gemma-3-12b-it", "gpu": "H100"}
STAGES: Final = {
    "model": "meta-llama/Llama-3.1-70B-Instruct",
    "gpu": "H100",
    "tensor_parallel": 4,
    "pipeline_parallel": 2,
}
OLDER: Final = {"model": "Qwen/Qwen2.5-7B-Instruct", "gpu": "l4"}
MODELS: Final = (DENSE, PAIR, MIXTURE, LATENT, CUT, HYBRID, IMAGES, EXPERTS, WINDOWS, STAGES, OLDER)
DRAFT: Final = {"draft": "meta-llama/Llama-3.2-1B-Instruct"}

HOME: Final = {"model": "HuggingFaceTB/SmolLM2-360M-Instruct", "gpu": "rtx-3060-12gb"}
HOME_WINDOWS: Final = {"model": "google/gemma-2-2b-it", "gpu": "rtx-3060-12gb"}
HOME_EXPERTS: Final = {"model": "allenai/OLMoE-1B-7B-0924", "gpu": "rtx-4060ti-16gb"}
HOME_PAIR: Final = HOME | {"gpu": ["rtx-4090", "rtx-3090"]}
HOME_MODELS: Final = (HOME, HOME_WINDOWS, HOME_EXPERTS, HOME_PAIR)

VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "context_tokens": (4096,), "weights": ("fp8", "q4_k_m"), "kv": ("fp8", "q8_0"), "dtype": ("float16", "float32"),
    "tensor_parallel": (2, 4), "data_parallel": (2,), "expert_parallel": (True,), "pipeline_parallel": (2,),
    "decode_context_parallel": (2,), "nodes": (2,), "pipeline_partition": ("30,50",), "num_redundant_experts": (32,),
    "mm_encoder_tp_mode": ("data",), "moe_dense_tp_size": (1,), "enable_dp_lm_head": (True,),
    "all2all_backend": ("deepep_high_throughput", "mori_high_throughput"), "network_bandwidth": ("1GB",),
    "utilization": (0.7,), "memory": ("20GiB", "6GiB"), "held_by_others": ("20GiB", "2GiB"), "engines_per_gpu": (2,),
    "kv_pool": ("5GiB",), "kv_pool_blocks": (9000,), "max_batched_tokens": (16384,), "max_seqs": (17,), "block_size": (64, 512), "eager": (True,),
    "sampler": ("sort", "flashinfer"), "moe_backend": ("marlin", "triton", "deep_gemm"), "model_runner": ("first", "second"),
    "mamba_ssm_cache_dtype": ("float32", "bfloat16"), "indexer_kv_dtype": ("bf16", "fp8"), "prefix_caching": (True, False), "parallel": (2,),
    "ubatch_size": (256,), "n_gpu_layers": (10,), "n_cpu_moe": (4,), "cache_type_k": ("q8_0",), "cache_type_v": ("q8_0",),
    "ctx_size": ("4K", 6000), "kv_unified": (True, False), "swa_full": (True,), "flash_attn": ("on", "off"), "batch_size": (128,), "cpu_moe": (True,),
    "override_tensor": ("ffn_.*_exps=CPU", "attn_q.*=CPU"), "split_mode": ("none", "row"), "tensor_split": ("3,1",),
    "main_gpu": (1,), "no_kv_offload": (True,), "no_op_offload": (True,), "fit": (True,), "fit_target": ("10GiB",),
    "spec_type": ("ngram-simple",), "cache_ram": ("1GiB",), "ctx_checkpoints": (4,), "host_bandwidth": ("50GB",),
    "host_memory": ("32GiB",), "draft": ("meta-llama/Llama-3.2-1B-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"),
    "num_speculative_tokens": (5,), "max_loras": (2,), "max_lora_rank": (64,), "limit_mm_per_prompt": ("image=0,video=0", "image=9"),
    "kv_offload": ("16GiB",), "any_context": (True,),
    "hf_overrides": ('{"max_position_embeddings": 4096}', "max_position_embeddings=8192", '{"hidden_size": 64}'),
}  # fmt: skip
"""Values of each option that its default differs from."""

TOGETHER: Final[dict[str, Question]] = {
    "max_lora_rank": {"max_loras": 2},
    "num_speculative_tokens": DRAFT,
    "fit_target": {"fit": True, "gpu": "rtx-3060-12gb"},
    "fit": {"fit_target": "11GiB", "gpu": "rtx-3060-12gb"},
    "expert_parallel": {"model": "Qwen/Qwen1.5-MoE-A2.7B", "gpu": "H100", "tensor_parallel": 8},
    "main_gpu": {"split_mode": "none", "gpu": ["rtx-4090", "rtx-3060-12gb"]},
    "tensor_split": {"gpu": ["rtx-4090", "rtx-3090"]},
    "split_mode": {"gpu": ["rtx-4090", "rtx-3090"]},
    "no_op_offload": {"n_gpu_layers": 4},
    "host_bandwidth": {"n_gpu_layers": 4},
    "kv_unified": {"parallel": 3},
    "network_bandwidth": WIDE,
    "nodes": CUT | {"network_bandwidth": "1GB"},
}
"""What an option needs with it, in the question before it, too."""

ALONE: Final = ("no_mmproj_offload", "mmproj", "fetch", "revision", "assume_defaults")
"""Options about files and about reading, which are asked below."""

ECHOES: Final = (
    "assumptions", "command", "layout", "max_batched_tokens", "max_seqs", "weight_format", "kv_format", "tensor_parallel",
    "not_followed", "first_sight", "engine_version",
)  # fmt: skip
"""Keys of an answer that repeat the question."""


def substance(found: dict[str, Any]) -> dict[str, Any]:
    """An answer without what repeats the question."""
    kept = {key: value for key, value in found.items() if key not in ECHOES}
    extras = dict(kept["extras"])
    extras.pop("encoder", None)
    return kept | {"extras": {name: value for name, value in extras.items() if value}}


@cache
def _answer(written: str) -> dict[str, Any] | str:
    asked = json.loads(written)
    model, gpu = asked.pop("model"), asked.pop("gpu")
    try:
        return estimate(model, gpu=gpu, **asked).to_dict()
    except InputError as error:
        return str(error)


def ask(question: Question) -> dict[str, Any] | str:
    """The answer of a question, or the words that refuse it."""
    usual = {} if question["model"] in {one["model"] for one in HOME_MODELS} else {"context_tokens": 8192}
    return _answer(json.dumps({"context_tokens": 2048} | usual | question))


def is_named(found: dict[str, Any], name: str) -> bool:
    """Whether an answer says of an option that it is not followed."""
    flags = next(option.flags for option in options() if option.name == name)
    if any(entry["flag"] in flags and entry["effect"] for entry in found["not_followed"]):
        return True
    spelled = (name, name.replace("_", "-"))
    return any(line.startswith(spelled) and "not followed" in line for line in found["assumptions"])


def outcomes(engine: str, name: str) -> set[str]:
    """What becomes of an option: ``changed``, ``named``, ``refused`` or ``silent``, over all that is asked."""
    met = set()
    local = engine in LOCAL
    for base in HOME_MODELS if local else MODELS:
        together = TOGETHER.get(name, {})
        if name in ("network_bandwidth", "nodes", "expert_parallel") and local:
            together = {}
        before = base | {"engine": engine} | together
        if name in ("draft", "num_speculative_tokens") and local and "draft" in together:
            before |= {"draft": "HuggingFaceTB/SmolLM2-135M-Instruct"}
        plain = ask(before)
        if isinstance(plain, str):
            met |= {"refused"} if together and not is_about_base(plain, base, engine) else set()
            continue
        for value in VALUES[name]:
            if before.get(name) == value:
                continue
            found = ask(before | {name: value})
            if isinstance(found, str):
                assert "allowed" in found or "instead" in found or "GGUF mixes" in found, found
                met.add("refused")
            elif substance(found) != substance(plain):
                met.add("changed")
            else:
                met.add("named" if is_named(found, name) else "silent")
        if "changed" in met:
            break
    return met


def is_about_base(words: str, base: Question, engine: str) -> bool:
    """Whether a refusal is of the model or the machine, not of the options beside it."""
    return words == ask(base | {"engine": engine})


def test_every_option_is_asked() -> None:
    assert {option.name for option in options()} == {*VALUES, *ALONE, "gpu", "engine"}


@pytest.mark.parametrize("engine", [*SERVERS, *LOCAL])
def test_an_accepted_option_changes_something_or_is_named(engine: str) -> None:
    met = {option.name: outcomes(engine, option.name) for option in options() if option.name in VALUES}
    assert all(met.values()), "something was not asked"
    assert {name for name, found in met.items() if "silent" in found and "changed" not in found} == set()


def test_an_option_of_what_is_not_asked_is_named() -> None:
    asked = HOME | {"engine": "llama-cpp"}
    for name, value in (("fit_target", "10GiB"), ("no_mmproj_offload", True)):
        found = ask(asked | {name: value})
        assert isinstance(found, dict)
        assert is_named(found, name), found["not_followed"]
        assert found["not_followed"][0]["term"] is None
    two = {"gpu": ["rtx-4090", "rtx-3090"], "main_gpu": 1}
    for engine, mode, term in (
        ("ollama", "layer", None), ("llama-cpp", "layer", None), ("llama-cpp", "row", "working memory"),
    ):  # fmt: skip
        found = ask(HOME | two | {"engine": engine, "split_mode": mode})
        assert isinstance(found, dict)
        assert is_named(found, "main_gpu"), found["not_followed"]
        assert found["not_followed"][-1]["term"] == term
    for engine in ("vllm", "transformers", "mlx", "ceiling"):
        refused = ask(DENSE | {"engine": engine, "mmproj": "projector.gguf"})
        assert isinstance(refused, str)
        assert refused.startswith("mmproj: found"), refused


def test_text_and_json_name_what_is_not_followed(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [
        "estimate",
        DENSE["model"],
        *shlex.split("--gpu h100-sxm-80gb --context 8K --engine tensorrt-llm --eager"),
    ]
    assert main(asked) == 0
    whole = capsys.readouterr().out
    assert whole.count("but for what is not followed of: graphs") == 3
    assert "tight: one request of 8K fits the estimated pool, but for what is not followed" in whole
    said = whole.split("Not followed\n")[1]
    assert said.lstrip().startswith("--eager: ")
    assert "the error band does not cover what this changes of: graphs" in said
    assert main([*asked, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    [entry] = told["not_followed"]
    assert (entry["flag"], entry["term"]) == ("--eager", "graphs")
    assert told["uncertainty_unknown"] == ["graphs"]
    assert set(entry) == {"flag", "value", "term", "effect"}


def test_an_option_that_changes_no_memory_leaves_the_band_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["estimate", DENSE["model"], "--gpu", "h100-sxm-80gb", "--network-bandwidth", "1GB"]
    assert main(asked) == 0
    said = capsys.readouterr().out.split("Not followed\n")[1]
    assert "--network-bandwidth" in said
    assert "band does not cover" not in said


@pytest.mark.parametrize(
    ("engine", "asked", "words"),
    [
        ("llama-cpp", {"utilization": 0.7}, "utilization: found 0.7 for llama.cpp; allowed: --memory SIZE"),
        ("ollama", {"max_seqs": 4}, "max-seqs: found 4 for Ollama; allowed: --parallel N"),
        ("llama-cpp", {"pipeline_parallel": 2}, "allowed: --gpu 2xNAME"),
        ("transformers", {"parallel": 2}, "allowed: with --engine llama-cpp or ollama"),
        ("vllm", {"moe_dense_tp_size": 1}, "allowed: --engine sglang"),
    ],
)
def test_a_refusal_names_option_engine_and_what_works(engine: str, asked: Question, words: str) -> None:
    refused = ask((HOME if engine in LOCAL else DENSE) | {"engine": engine} | asked)
    assert isinstance(refused, str)
    assert words in refused


SIZED: Final = ("size", "Qwen/Qwen3-8B", "--context", "8K", "--concurrent", "4")
PASSED_OVER: Final = (
    ("utilization", "0.5"), ("max-seqs", "8"), ("max-batched-tokens", "512"), ("average", "2K"), ("spares", "1"),
    ("price", "rtx-4090=1"), ("tpot", "30ms"), ("layouts", "tp2"), ("efficiency", "0.5"), ("disaggregated", None),
)  # fmt: skip


@pytest.mark.parametrize(("name", "value"), PASSED_OVER)
@pytest.mark.parametrize("engine", LOCAL)
def test_size_refuses_what_a_machine_at_home_has_no_use_for(
    engine: str, name: str, value: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"--{name}", *([] if value is None else [value])]
    assert main([*SIZED, "--gpu", "rtx-4090", "--engine", engine, *words]) == 2
    assert capsys.readouterr().err.startswith(f"kvreport: error: --{name}: found")


@pytest.mark.parametrize(
    ("name", "value"), [("ttft", "1s"), ("spares", "1"), ("layouts", "tp2"), ("burst", "2")]
)
def test_size_refuses_with_a_trace_what_a_trace_does_not_use(
    name: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["size", "Qwen/Qwen3-8B", "--trace", "none.jsonl", f"--{name}", value]) == 2
    assert f"error: --{name}: found" in capsys.readouterr().err


@pytest.mark.parametrize("engine", SERVERS)
def test_size_judges_options_as_estimate_does(engine: str) -> None:
    """MLX's own number of requests was followed by one and not by the other; what generate() lacks was accepted."""
    gpu = "m4-max-128" if engine == "mlx" else "h100-sxm-80gb"
    for name, value in (("max_seqs", 2), ("max_batched_tokens", 512), ("utilization", 0.8)):
        try:
            said = estimate("Qwen/Qwen3-8B", gpu=gpu, engine=engine, **{name: value})
        except InputError as error:
            with pytest.raises(InputError, match=str(error)[:12]):
                size("Qwen/Qwen3-8B", context=8192, concurrent=2, gpus=[gpu], engine=engine, **{name: value})
            continue
        found = size("Qwen/Qwen3-8B", context=8192, concurrent=2, gpus=[gpu], engine=engine, **{name: value})
        assert len(found.not_followed) == len(said.request.not_followed)
        if name == "max_seqs":
            assert (found.ranking.deployments[0].users_each == 2) == (not found.not_followed)
