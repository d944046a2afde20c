"""GPUs of which other processes, or engines like the one asked about, hold a part."""

from __future__ import annotations

import pytest

import kvreport
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.units import GIB

MODEL = "Qwen/Qwen3-8B"


def asked(**further):
    return estimate(MODEL, gpu="h100", context_tokens=8192, **further)


def test_vllm_is_not_charged_for_what_others_held_but_it_must_be_free() -> None:
    alone = asked(utilization=0.45)
    beside = asked(utilization=0.45, held_by_others="40GiB")
    assert beside.budget == alone.budget
    assert beside.verdict == "fits"
    assert asked(utilization=0.5, held_by_others="40GiB").verdict == "cache_exceeds_pool"
    assert asked(utilization=0.5, held_by_others="40GiB", engine="vllm@0.9.0").verdict == "fits"


def test_a_share_that_was_not_stated_is_what_others_leave_free() -> None:
    found = asked(held_by_others="40GiB")
    assert found.verdict == "fits"
    assert found.request.utilization == 0.48
    assert "--gpu-memory-utilization 0.48" in found.to_dict()["command"]
    assert found.to_dict()["extras"]["held_by_others"] == {"bytes": 40 * GIB, "engines_per_gpu": 1}
    assert asked().to_dict()["extras"]["held_by_others"] is None


@pytest.mark.parametrize("engine", ["tensorrt-llm", "llama-cpp", "ceiling", "sglang"])
def test_other_engines_go_without_what_others_hold(engine: str) -> None:
    alone = asked(engine=engine).budget.kv_pool_bytes
    beside = asked(engine=engine, held_by_others="8GiB").budget.kv_pool_bytes
    lost = (alone - beside) / GIB
    # Shares are of what is free (SGLang, TensorRT-LLM): that share of it is lost.
    assert 0.75 * 8 < lost <= 8.1


def test_what_others_hold_never_adds_a_request() -> None:
    found = [
        asked(engine=engine, held_by_others=f"{held}GiB").max_concurrent_requests
        for engine in ("vllm", "sglang", "tensorrt-llm")
        for held in range(1, 79, 6)
    ]
    for each in (found[:13], found[13:26], found[26:]):
        assert each == sorted(each, reverse=True)


def test_two_engines_share_a_gpu_and_the_last_of_them_starts() -> None:
    found = asked(engines_per_gpu=2)
    share = found.request.utilization
    assert found.verdict == "fits"
    assert 0.4 < share <= 0.5
    assert any("2 engines on each GPU" in line for line in found.request.assumptions)
    # A hundredth more and the last engine may find too little free.
    assert asked(engines_per_gpu=2, utilization=share + 0.01).verdict != "fits"
    refused = asked(engines_per_gpu=2, utilization=0.5)
    assert "other processes hold 40.08 GiB" in refused.explanation[-1]
    thirds = asked(engines_per_gpu=3)
    assert thirds.max_concurrent_requests < found.max_concurrent_requests


def test_what_cannot_be_shared_is_refused_with_what_works() -> None:
    with pytest.raises(InputError, match=r"held-by-others: .* allowed: less than"):
        asked(held_by_others="79GiB")
    with pytest.raises(InputError, match=r"engines-per-gpu: found 2 for SGLang.*--held-by-others"):
        asked(engines_per_gpu=2, engine="sglang")
    with pytest.raises(InputError, match=r"KV pool given by hand"):
        asked(engines_per_gpu=2, kv_pool="4GiB")
    with pytest.raises(InputError, match=r"engines-per-gpu: found 64; allowed: fewer"):
        asked(engines_per_gpu=64)


@pytest.mark.parametrize("gpu", ["mi210", "l4", "h100-sxm-80gb", "rtx-4090"])
def test_the_share_of_engines_that_share_is_everyone_s(gpu: str) -> None:
    """The last of two took a hundredth more than the other, and its own command was tight."""
    asked_of = {"gpu": gpu, "context_tokens": 8192, "engines_per_gpu": 2}
    found = kvreport.estimate("Qwen/Qwen3-Reranker-0.6B", **asked_of)
    back = kvreport.estimate("Qwen/Qwen3-Reranker-0.6B", **asked_of, utilization=found.request.utilization)
    assert (back.verdict, back.max_concurrent_requests) == (found.verdict, found.max_concurrent_requests)
