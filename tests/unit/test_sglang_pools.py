"""SGLang's pools for states, next to the one for tokens."""

from __future__ import annotations

import kvreport
from kvreport.accounting.deployment import Case, Memo, plan_blocks
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import Serving
from kvreport.catalog.load import open_catalog


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


def test_plans_for_different_window_shares_are_kept_apart() -> None:
    catalog, known = open_catalog(), Memo()

    def window(share: float) -> float:
        case = Case(
            model=catalog.model("openai/gpt-oss-20b"),
            engine=catalog.engine("sglang"),
            accelerators=(catalog.accelerator("h100-sxm-80gb"),),
            formats=catalog.weight_formats,
            kv_format=catalog.kv_format("bf16"),
            layout=Layout(),
            serving=Serving(max_batched_tokens=8192, max_seqs=5000, window_share=share),
        )
        return plan_blocks(case, known).pool.flags.window_share

    assert [window(0.8), window(0.5)] == [0.8, 0.5]
