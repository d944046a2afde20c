"""SGLang's pools for states, next to the one for tokens."""

from __future__ import annotations

import kvreport


def test_no_context_fits_where_the_pool_of_states_holds_no_request():
    found = kvreport.estimate(
        "nvidia/Qwen3.5-122B-A10B-NVFP4",
        gpu="h20-96gb",
        engine="sglang",
        context_tokens=2048,
        utilization=0.5,
    )
    assert found.max_context_tokens == 0
    small = kvreport.estimate(
        "nvidia/Qwen3.5-122B-A10B-NVFP4",
        gpu="h20-96gb",
        engine="sglang",
        context_tokens=2048,
        kv_pool=500_000_000,
    )
    assert small.max_concurrent_requests_by_memory == 0
    assert small.max_context_tokens == 0
    enough = kvreport.estimate(
        "nvidia/Qwen3.5-122B-A10B-NVFP4",
        gpu="h20-96gb",
        engine="sglang",
        context_tokens=2048,
        kv_pool=20_000_000_000,
    )
    assert enough.max_concurrent_requests_by_memory > 0
    assert enough.max_context_tokens > 2048
