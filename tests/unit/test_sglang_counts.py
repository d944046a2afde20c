"""What SGLang counts of a model where layers, ranks and formats are not one cache a layer."""

from __future__ import annotations

from typing import Any

import invariants
import pytest

from kvreport.accounting.engines.sglang.command import command
from kvreport.estimation.commands import served_by

CATALOG = invariants.catalog()


def told(model: str, **asked: Any) -> dict[str, Any]:
    found = invariants.ask({"model": model, **asked})
    assert found is not None
    return invariants.hold(found)


@pytest.mark.parametrize("ranks", [1, 8])
def test_both_latents_of_a_layer_are_counted(ranks: int) -> None:
    """``num_attention_layers`` is twice the layers where each holds two (``configs/model_config.py``, 0.5.23)."""
    asked = {"gpu": "b300-sxm-288gb", "engine": "sglang", "tensor_parallel": 8, "context_tokens": 4096}
    found = told("meituan-longcat/LongCat-Flash-Chat", **asked, decode_context_parallel=ranks)
    assert found[invariants.RESERVED] == 4096 // ranks * 2 * 28 * 576 * 2


def test_context_ranks_hand_out_a_page_of_each_at_once() -> None:
    """``PagedTokenToKVPoolAllocator`` has pages of ``page_size * dcp_size`` tokens (0.5.15 to 0.5.23)."""
    asked = {"gpu": "h200-sxm-141gb", "tensor_parallel": 8, "decode_context_parallel": 8, "block_size": 64}
    found = told("deepseek-ai/DeepSeek-V3", **asked, engine="sglang", context_tokens=2561)
    page = 64 * 8
    assert found["block_tokens"] == page
    assert found[invariants.RESERVED] == -(-2561 // page) * 64 * 61 * 576 * 2


@pytest.mark.parametrize(("engine", "model"), [("sglang@0.5.9", "FP8"), ("sglang", "plain")])
def test_scales_that_a_release_does_not_count_are_named(engine: str, model: str) -> None:
    asked = {"gpu": "h200-sxm-141gb", "engine": engine, "tensor_parallel": 8, "context_tokens": 32768}
    found = told("deepseek-ai/DeepSeek-V3.2", **asked, kv="fp8")
    named = [line for line in found["explanation"] if "not counted" in line]
    assert bool(named) == (model == "FP8")
    if named:
        # 576 elements and an index key of 132 B in 61 layers; stored with 16 B of scales and a wide rotary part.
        assert f"{61 * (576 + 132):,} B for a token and takes {61 * (512 + 16 + 128 + 132):,} B" in named[0]


def test_a_class_that_registers_its_states_has_a_pool_for_them() -> None:
    """``configs/gigachat35.py`` calls ``register_linear_attn_model`` (0.5.23)."""
    found = told(
        "ai-sage/GigaChat3.5-432B-A28B-Reasoning", gpu="b300-sxm-288gb", engine="sglang", tensor_parallel=8
    )
    assert found["state_bytes_per_request_per_gpu"] > 0
    assert any("of the pool is kept for recurrent states" in line for line in found["explanation"])


@pytest.mark.parametrize(
    ("model", "engine", "verdict"),
    [
        ("meituan-longcat/LongCat-Flash-Chat", "sglang", "engine_does_not_run"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "sglang", "engine_does_not_run"),
        ("Qwen/Qwen3-8B", "sglang", "fits"),
    ],
)
def test_classes_without_stages_are_refused_in_stages(model: str, engine: str, verdict: str) -> None:
    """``ModelRunner`` asserts that a model's ``forward`` takes ``pp_proxy_tensors`` (0.5.9 to 0.5.23)."""
    asked = {"gpu": "b300-sxm-288gb", "engine": engine, "tensor_parallel": 4, "pipeline_parallel": 2}
    assert told(model, **asked, context_tokens=8192)["verdict"] == verdict


@pytest.mark.parametrize(("asked", "runs"), [(100, 96), (8, 8), (3, 8)])
def test_requests_at_once_are_of_all_data_ranks_together(asked: int, runs: int) -> None:
    """SGLang divides ``--max-running-requests`` among its data ranks: what the command says gives the same answer."""
    question = {"gpu": "b300-sxm-288gb", "engine": "sglang", "data_parallel": 8, "expert_parallel": True}
    question |= {"model": "deepseek-ai/DeepSeek-V3", "context_tokens": 4096, "tensor_parallel": 1}
    first = invariants.ask({**question, "max_seqs": asked})
    assert first is not None
    assert invariants.hold(first)[invariants.RUNNING] == runs
    words = command(served_by(first)).words
    assert words[words.index("--max-running-requests") + 1] == str(runs)
    again = invariants.ask({**question, "max_seqs": runs})
    assert again is not None
    assert invariants.hold(again)[invariants.RUNNING] == runs


def test_adapters_of_sglang_have_no_slots_for_experts_that_they_do_not_name() -> None:
    """Seven adapters of rank 32 took 102 GiB of a model that runs with them on one card of 96 (eve-112)."""
    asked: dict[str, Any] = {
        "gpu": "h200-sxm-141gb",
        "context_tokens": 8192,
        "max_loras": 7,
        "max_lora_rank": 32,
    }
    asked |= {"model": "Qwen/Qwen3-30B-A3B"}
    found, whole = (invariants.ask({**asked, "engine": engine}) for engine in ("sglang", "vllm"))
    assert found is not None
    assert whole is not None
    model = found.request.model
    factors = model.layer_count * 3 * 128 * 32 * (model.hidden_size + 768) * 7 * 2
    words = (
        2 * 32 * (model.vocabulary + model.hidden_size) * 7 * 2
    )  # vLLM has slots of embedding and head, too
    more = whole.loading_bytes["lora_adapters"] - found.loading_bytes["lora_adapters"]
    assert more == factors + words
    assert any(line.startswith("adapters change no routed experts") for line in found.request.assumptions)
