"""What an engine asks for at start, and what is free then."""

from __future__ import annotations

import numpy as np
import pytest

import kvreport
from kvreport.accounting.capacity import Verdict, start_verdict
from kvreport.accounting.shares import start_shortage
from kvreport.catalog.load import open_catalog
from kvreport.dataset.grid import axes
from kvreport.dataset.matrix import matrix

MODEL = "Qwen/Qwen3-8B"
SHARED = "dgx-spark-gb10"


@pytest.mark.parametrize(
    ("share", "verdict"),
    # Logs of machines that ran nothing else: 0.80 starts, 0.85 is a recipe's, 0.87 is refused on one machine, 0.92
    # refused on one and started on another, 0.95 started on one.
    [
        (0.7, "fits"),
        (0.8, "fits"),
        (0.85, "tight"),
        (0.87, "may_fit"),
        (0.92, "may_fit"),
        (0.97, "cache_exceeds_pool"),
    ],
)
def test_a_share_of_unified_memory_that_is_not_free_is_refused(share, verdict) -> None:
    found = kvreport.estimate(MODEL, gpu=SHARED, utilization=share, context_tokens=4096)
    assert found.verdict == verdict
    if verdict != "fits":
        assert "at start vLLM" in found.explanation[-1]
    if verdict in ("may_fit", "cache_exceeds_pool"):
        assert found.shortfall_bytes == found.start_shortage_bytes > 0
        assert found.max_concurrent_requests == 0


def test_a_shared_memory_has_a_default_that_is_surely_free(catalog) -> None:
    found = kvreport.estimate(MODEL, gpu=SHARED, context_tokens=4096)
    assert found.verdict == "fits"
    assert found.request.utilization == 0.8
    assert any("--gpu-memory-utilization 0.8" in line for line in found.request.assumptions)
    plain = kvreport.estimate(MODEL, gpu="h100", context_tokens=4096)
    assert plain.request.utilization == catalog.engine("vllm").utilization


def test_the_check_came_with_a_release_and_is_vllms() -> None:
    for engine in ("vllm@0.9.0", "sglang"):
        found = kvreport.estimate(MODEL, gpu=SHARED, engine=engine, utilization=0.92, context_tokens=4096)
        assert found.start_shortage_bytes is None, engine


def test_nearly_all_of_a_card_is_not_free_either() -> None:
    # "Free memory on device (78.66/79.19 GiB)": a context takes half a GiB.
    assert kvreport.estimate(MODEL, gpu="h100", utilization=0.98, context_tokens=4096).verdict == "fits"
    assert (
        kvreport.estimate(MODEL, gpu="rtx-4090", utilization=1.0, context_tokens=4096).verdict
        == "cache_exceeds_pool"
    )


def test_memory_that_is_set_has_no_logs_of_what_is_free(catalog) -> None:
    device = catalog.accelerator(SHARED)
    free, *_ = device.free_at_start
    set_free, *_ = device.with_usable(1 << 36).free_at_start
    assert free < device.usable_bytes - (1 << 33)
    assert (1 << 36) - (1 << 30) < set_free < 1 << 36


def test_the_waterfall_and_the_levers_are_about_the_share() -> None:
    printed = kvreport.estimate(MODEL, gpu=SHARED, utilization=0.92, context_tokens=4096)
    from kvreport.estimation.why_not import why_not

    told = why_not(printed, open_catalog())
    assert [term.term for term in told.waterfall] == ["usable", "not_free", "asked", "short"]
    assert sum(term.size_bytes for term in told.waterfall[:3]) == told.waterfall[3].size_bytes
    assert any(lever.flags == "--utilization 0.8" and lever.enough for lever in told.levers)


def test_many_devices_are_judged_like_each_alone(catalog) -> None:
    chosen = axes(catalog, models=MODEL, gpus=f"{SHARED},h100-sxm-80gb,rtx-4090")
    for cube in matrix(chosen):
        for place in np.argwhere(cube.possible):
            gpu, tp, weights, kv = place
            if (cube.weight_formats[weights], cube.kv_formats[kv], cube.tensor_parallel[tp]) != (
                "released",
                "bf16",
                1,
            ):
                continue
            alone = kvreport.estimate(MODEL, gpu=cube.gpus[gpu], context_tokens=8192)
            row = dict(zip(cube.contexts, cube.values["verdict"][tuple(place)].tolist(), strict=True))
            assert Verdict(row[8192]).label == alone.verdict
            pool = np.ravel(cube.values["kv_pool_bytes_per_gpu"][tuple(place)])[0]
            assert pool == alone.budget.kv_pool_bytes


def test_the_verdict_of_a_shortage() -> None:
    assert [Verdict(int(start_verdict(short, 10))).label for short in (11, 1, 0, -9, -10)] == [
        "cache_exceeds_pool",
        "may_fit",
        "tight",
        "tight",
        "fits",
    ]
    assert start_shortage(open_catalog().engine("ceiling"), open_catalog().accelerator(SHARED), 1.0) is None
