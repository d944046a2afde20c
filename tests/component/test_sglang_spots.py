"""Estimates, drafts and settings of SGLang against its own code, run with a pretended device and a budget of 40 GiB.

``test_sglang_by_release.py`` has the pools and resolved flags of whole recorded cases.
"""

from typing import Any

import pytest

from kvreport.accounting import capacity
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.sglang import plan as sglang_plan
from kvreport.accounting.engines.sglang import settings as sglang_settings
from kvreport.accounting.engines.sglang.compressed import WINDOW_SHARE
from kvreport.accounting.engines.sglang.pools import Division, PoolFlags, pool_rule
from kvreport.accounting.extras import own_prediction_layer, with_draft
from kvreport.accounting.sizing import pool_for, replica_users
from kvreport.catalog.load import Catalog
from kvreport.estimation.estimate import hypothetical as estimate
from kvreport.units import GIB

BUDGET = 40 * GIB


@pytest.mark.parametrize(
    ("model", "gpu", "ranks", "kv", "tokens"),
    [
        ("openai/gpt-oss-120b", "h100-sxm-80gb", 1, "auto", 647_269),
        ("google/gemma-3-27b-it", "h100-sxm-80gb", 1, "auto", 84_562),
        ("Qwen/Qwen3.5-27B", "h100-sxm-80gb", 1, "auto", 345_292),
        ("deepseek-ai/DeepSeek-V3.2", "b200-sxm-180gb", 8, "auto", 994_432),
        ("deepseek-ai/DeepSeek-V4-Flash", "h100-sxm-80gb", 8, "auto", 5_677_312),
        ("zai-org/GLM-5.3", "h100-sxm-80gb", 1, "auto", 463_616),
    ],
)
def test_an_estimate_prints_the_engines_tokens(
    model: str, gpu: str, ranks: int, kv: str, tokens: int
) -> None:
    found = estimate(model, gpu=gpu, tensor_parallel=ranks, kv=kv, engine="sglang", kv_pool=BUDGET)
    assert found.kv_pool_tokens == tokens


@pytest.mark.parametrize(
    ("model", "steps", "requests", "tokens", "slots"),
    [
        ("Qwen/Qwen3.6-27B", 3, None, 1_704_155, 584),
        ("Qwen/Qwen3.6-27B", 1, 32, 1_658_350, 753),
        ("Qwen/Qwen3.5-35B-A3B", 3, None, 2_938_276, 1401),
        ("Qwen/Qwen3.5-35B-A3B", 1, 32, 2_724_484, 1803),
        ("deepseek-ai/DeepSeek-V3", 3, None, 601_333, None),
        ("deepseek-ai/DeepSeek-V3.2", 3, None, 539_456, None),
        ("zai-org/GLM-5-FP8", 1, 32, 423_360, None),
        ("zai-org/GLM-5.2", 3, None, 457_280, None),
    ],
)
def test_drafts_take_what_the_engine_says(
    model: str, steps: int, requests: int | None, tokens: int, slots: int | None
) -> None:
    # EAGLE with the model's own prediction layer, one more token verified than drafted, eight ranks of an H100.
    found = estimate(
        model,
        gpu="h100-sxm-80gb",
        tensor_parallel=8,
        engine="sglang",
        kv_pool=BUDGET,
        draft="mtp",
        num_speculative_tokens=steps,
        max_seqs=requests,
    )
    assert found.kv_pool_tokens == tokens
    pool = found.plan.pool
    assert isinstance(pool, Division)
    assert pool.state_slots(BUDGET) == slots


@pytest.mark.parametrize(
    ("model", "flags", "steps", "tokens"),
    [
        ("Qwen/Qwen3.5-35B-A3B", {"data_parallel": 8}, 3, 8 * 1_465_208),
        ("Qwen/Qwen3.6-27B", {"prefix_caching": False}, 3, 79_855),
        ("Qwen/Qwen3.6-27B", {"tensor_parallel": 2, "mamba_ssm_cache_dtype": "bfloat16"}, 2, 749_327),
    ],
)
def test_drafting_requests_are_those_of_all_data_ranks(
    model: str, flags: dict[str, Any], steps: int, tokens: int
) -> None:
    found = estimate(
        model,
        gpu="h100-sxm-80gb",
        engine="sglang",
        kv_pool=BUDGET,
        draft="mtp",
        num_speculative_tokens=steps,
        **flags,
    )
    assert found.kv_pool_tokens == tokens


@pytest.mark.parametrize(("release", "layers"), [("0.5.13", 61), ("0.5.14", 62)])
def test_drafts_are_counted_since_0_5_14(catalog: Catalog, release: str, layers: int) -> None:
    model = catalog.model("deepseek-ai/DeepSeek-V3")
    engine = rules(catalog.engine("sglang-0.5.13")).at_release(release)
    whole = with_draft(model, own_prediction_layer(model)).whole
    assert sglang_plan.counted(whole, engine).layer_count == layers


def test_amd_lowers_the_share_for_long_contexts(catalog: Catalog) -> None:
    model, engine = catalog.model("Qwen/Qwen3-8B"), catalog.engine("sglang")
    gpu = catalog.accelerator("mi300x")
    short = sglang_settings.settings(model, engine, gpu, sglang_settings.SglangFlags(context_tokens=8192))
    long = sglang_settings.settings(model, engine, gpu, sglang_settings.SglangFlags(context_tokens=8193))
    assert long.share == pytest.approx(0.85 * short.share)


def test_older_releases_capture_less_on_small_devices(catalog: Catalog) -> None:
    model, gpu = catalog.model("Qwen/Qwen3-8B"), catalog.accelerator("rtx-4090")
    older = sglang_settings.settings(model, catalog.engine("sglang-0.5.15"), gpu)
    newer = sglang_settings.settings(model, catalog.engine("sglang"), gpu)
    assert (older.chunk_tokens, older.captured_requests) == (2048, 24)
    assert (newer.chunk_tokens, newer.captured_requests) == (4096, 48)
    wide = sglang_settings.settings(
        model, catalog.engine("sglang-0.5.15"), gpu, sglang_settings.SglangFlags(tensor_parallel=4)
    )
    assert wide.captured_requests == 80


@pytest.mark.parametrize(("release", "captured", "share"), [("0.5.21", 512, 0.855), ("0.5.22", 64, 0.86)])
def test_graphs_are_captured_for_no_more_than_run_since_0_5_22(
    catalog: Catalog, release: str, captured: int, share: float
) -> None:
    # scripts/run_sglang_planner.py with both releases: Llama-2-7b-hf, B200, max_running_requests 64, no radix cache.
    model, gpu = catalog.model("meta-llama/Llama-2-7b-hf"), catalog.accelerator("b200-sxm-180gb")
    engine = rules(catalog.engine("sglang")).at_release(release)
    found = sglang_settings.settings(
        model, engine, gpu, sglang_settings.SglangFlags(max_requests=64, prefix_cache=False)
    )
    assert (found.captured_requests, found.share) == (captured, pytest.approx(share))


def test_releases_before_0_5_16_keep_nothing_for_deepep(catalog: Catalog) -> None:
    model, gpu = catalog.model("deepseek-ai/DeepSeek-V3"), catalog.accelerator("h100-sxm-80gb")
    older = catalog.engine("sglang-0.5.15")
    plain, deepep = (
        sglang_settings.settings(
            model, older, gpu, sglang_settings.SglangFlags(tensor_parallel=8, deepep=one)
        )
        for one in (False, True)
    )
    assert plain.share == deepep.share


def test_a_pool_is_found_for_so_many_requests() -> None:
    found = estimate("Qwen/Qwen3.5-27B", gpu="h100-sxm-80gb", engine="sglang", kv_pool=BUDGET)
    needed = pool_for(found.plan, 12, 4096)
    assert replica_users(needed, found.plan, 4096, 4096) >= 12
    assert replica_users(needed - (64 << 20), found.plan, 4096, 4096) < 12
    assert capacity.users(needed, found.plan, 4096) >= 12


@pytest.mark.parametrize(
    ("release", "gpu", "tokens", "kv_bytes"),
    # Logged for GLM-5.2 in FP8 on eight MI355X, SGLang 0.5.15.post1: 145.55 GiB for 2,829,952 tokens with
    # data-parallel attention, 167.86 GiB for 3,263,680 without.
    [("sglang-0.5.15", "mi355x", 2_829_952, 145.55), ("sglang-0.5.15", "mi355x", 3_263_680, 167.86)],
)
def test_older_releases_keep_index_keys_on_every_layer(
    catalog: Catalog, release: str, gpu: str, tokens: int, kv_bytes: float
) -> None:
    model, engine = catalog.model("zai-org/GLM-5.2-FP8"), catalog.engine(release)
    scaled = sglang_plan.scaled_latents(model, engine, catalog.accelerator(gpu))
    flags = PoolFlags(element_bytes=1, page_tokens=64, scaled_latents=scaled)
    assert pool_rule(model, engine, flags).cell_bytes * tokens / GIB == pytest.approx(kv_bytes, abs=0.01)


def test_before_0521_compressed_slots_are_not_padded(catalog: Catalog) -> None:
    # "bytes_per_full_token=7705.45" in a log of DeepSeek-V4-Flash of August 2026.
    model = catalog.model("deepseek-ai/DeepSeek-V4-Flash")
    flags = PoolFlags(element_bytes=1, page_tokens=256, window_share=WINDOW_SHARE, max_requests=256)
    older = pool_rule(model, catalog.engine("sglang-0.5.20"), flags)
    assert older.cell_bytes == pytest.approx(7705.45, abs=0.005)
    newer = pool_rule(model, catalog.engine("sglang"), flags)
    assert newer.cell_bytes == pytest.approx(7086.75)
