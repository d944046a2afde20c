"""What SGLang makes of ``--context-length``: AMD's attention kernels leave less of the share for long contexts."""

from __future__ import annotations

from typing import Any

import pytest

import kvreport
from kvreport.catalog.load import Catalog
from kvreport.estimation.size import size

MODEL = "meta-llama/Llama-3.1-8B-Instruct"


def static_bytes(catalog: Catalog, gpu: str, tokens: int, engine: str = "sglang", **options: Any) -> int:
    """Weights and pool together: what ``mem_fraction_static`` is a share of."""
    found = kvreport.estimate(
        MODEL, gpu=gpu, context_tokens=tokens, engine=engine, catalog=catalog, **options
    )
    return found.budget.kv_pool_bytes + found.budget.weights


@pytest.mark.parametrize("options", [{}, {"utilization": 0.9}])
@pytest.mark.parametrize("release", ["sglang@0.5.9", "sglang@0.5.17", "sglang"])
def test_aiter_takes_15_percent_of_the_share_above_8192_tokens(
    catalog: Catalog, release: str, options: dict[str, Any]
) -> None:
    """0.5.9 ``server_args.py`` and 0.5.23 ``arg_groups/attention_hook.py``: ``context_len > 8192``."""
    short, at, above, long = (
        static_bytes(catalog, "mi300x", tokens, engine=release, **options)
        for tokens in (1024, 8192, 8193, 65536)
    )
    assert short == at
    assert above == long == pytest.approx(0.85 * at, rel=1e-6)


def test_other_devices_keep_the_same_for_every_length(catalog: Catalog) -> None:
    assert static_bytes(catalog, "h200-sxm-141gb", 1024) == static_bytes(catalog, "h200-sxm-141gb", 131072)


def test_latents_on_amd_follow_the_head_count_of_the_kernels() -> None:
    """AITER serves latents with 16 or 128 heads; others run on Triton's kernels, which take all of the share."""
    rows = kvreport.matrix(
        models="deepseek-ai/DeepSeek-V3,deepseek-ai/DeepSeek-V2-Lite*",
        gpus="mi355x",
        engine="sglang",
        contexts=[8192, 16384],
    )
    rows = rows[
        (rows["layout"] == "tp8") & (rows["weight_format"] == "released") & (rows["kv_format"] == "bf16")
    ]
    pools = rows.pivot_table(
        index="model", columns="context_tokens", values="kv_pool_bytes_per_gpu", observed=True
    )
    assert len(pools)
    assert (pools[8192] > pools[16384]).all()


def test_the_fractions_of_a_deployment_are_those_of_its_longest_request() -> None:
    found = {
        tokens: size(
            MODEL, context=tokens, concurrent=8, gpus=["mi300x"], tensor_parallel=[1], engine="sglang"
        )
        for tokens in (8192, 16384)
    }
    highest = {}
    for tokens, one in found.items():
        best = one.ranking.deployments[0]
        # The command of a deployment states its requests, by which SGLang sizes its graphs.
        told = kvreport.estimate(
            MODEL, gpu="mi300x", context_tokens=tokens, engine="sglang", max_seqs=best.users_each
        )
        assert best.pool_bytes == told.budget.kv_pool_bytes
        interval = one.fractions(best, (best.pool_bytes // 2,))
        assert interval is not None
        highest[tokens] = interval["highest"]
    # What is given is lowered afterwards, so that the same fraction is meant, but for graphs of half as many requests.
    assert highest[8192] == pytest.approx(highest[16384], abs=0.0015)
