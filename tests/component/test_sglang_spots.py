"""SGLang's pools and resolved flags, against SGLang 0.5.23's own code run with a pretended device.

``scripts/run_sglang_planner.py`` recorded these for a budget of 40 GiB; ``scripts/check_sglang.py`` compares
a whole recorded run. Models come from the catalog; nothing but flags, storage type and context goes in.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest

from kvreport.accounting import capacity
from kvreport.accounting.engines.registry import rules
from kvreport.accounting.engines.sglang import plan as sglang_plan
from kvreport.accounting.engines.sglang import settings as sglang_settings
from kvreport.accounting.engines.sglang.compressed import WINDOW_SHARE, is_compressed
from kvreport.accounting.engines.sglang.pools import Division, PoolFlags, RankPools, pool_rule, pools_of
from kvreport.accounting.engines.sglang.settings import Settings
from kvreport.accounting.extras import own_prediction_layer, with_draft
from kvreport.accounting.sizing import pool_for, replica_users
from kvreport.catalog.load import Catalog
from kvreport.errors import InputError
from kvreport.estimation.estimate import estimate
from kvreport.units import GIB

BUDGET = 40 * GIB


class Spot(NamedTuple):
    model: str
    gpu: str
    flags: dict[str, Any]
    stored: str
    context: int
    tokens: int
    window_tokens: int | None
    slots: int | None
    requests: int
    page: int
    share: float
    chunk: int
    captured: int


# fmt: off
SPOTS = [
    Spot('meta-llama/Llama-3.1-8B-Instruct', 'h100-sxm-80gb', {}, 'bfloat16', 131072, 327680, None, None, 2048, 1, 0.83, 8192, 256),
    Spot('meta-llama/Llama-3.1-8B-Instruct', 'h100-sxm-80gb', {'tp_size': 8}, 'bfloat16', 131072, 2621440, None, None, 4096, 1, 0.812, 8192, 512),
    Spot('meta-llama/Llama-3.1-8B-Instruct', 'h100-sxm-80gb', {'tp_size': 8, 'dp_size': 8, 'enable_dp_attention': True}, 'bfloat16', 131072, 327680, None, None, 2048, 1, 0.586, 1024, 512),
    Spot('meta-llama/Llama-3.1-8B-Instruct', 'rtx-4090', {}, 'bfloat16', 131072, 327680, None, None, 2048, 1, 0.704, 4096, 48),
    Spot('meta-llama/Llama-3.1-8B-Instruct', 'b200-sxm-180gb', {'kv_cache_dtype': 'fp8_e4m3'}, 'float8_e4m3fn', 131072, 655360, None, None, 2560, 64, 0.854, 16384, 512),
    Spot('zai-org/GLM-4.5', 'h100-sxm-80gb', {'tp_size': 8, 'dcp_size': 8}, 'bfloat16', 131072, 911800, None, None, 2048, 1, 0.818, 8192, 512),
    Spot('zai-org/GLM-5-FP8', 'h100-sxm-80gb', {'tp_size': 4, 'dcp_size': 4}, 'bfloat16', 202752, 1310976, None, None, 2048, 64, 0.824, 8192, 512),
    Spot('EleutherAI/gpt-neox-20b', 'h100-sxm-80gb', {'tp_size': 8, 'dcp_size': 2}, 'float16', 2048, 317750, None, None, 4096, 1, 0.818, 8192, 512),
    Spot('nvidia/GLM-5-NVFP4', 'rtx-pro-6000-ws', {'tp_size': 8, 'dcp_size': 4}, 'float8_e4m3fn', 202752, 1995008, None, None, 2048, 64, 0.848, 8192, 512),
    Spot('zai-org/GLM-5.2', 'rtx-pro-6000-ws', {'tp_size': 8, 'dcp_size': 4}, 'float8_e4m3fn', 1048576, 3066880, None, None, 2048, 64, 0.848, 8192, 512),
    Spot('nvidia/MiniMax-M3-NVFP4', 'h100-sxm-80gb', {'tp_size': 8, 'dcp_size': 4}, 'bfloat16', 1048576, 3791360, None, None, 2048, 128, 0.7770999999999999, 8192, 512),
    Spot('tiiuae/falcon-mamba-7b', 'h100-sxm-80gb', {'tp_size': 8, 'dcp_size': 4}, 'bfloat16', 2048, 8192, None, 4433, 1024, 1, 0.818, 8192, 512),
    Spot('nvidia/Gemma-4-31B-IT-NVFP4', 'h100-sxm-80gb', {'disable_radix_cache': True, 'max_running_requests': 64, 'page_size': 64}, 'float8_e4m3fn', 262144, 64896, 98368, None, 64, 64, 0.7641785156249999, 8192, 64),
    Spot('openai/gpt-oss-120b', 'h100-sxm-80gb', {}, 'float16', 131072, 647269, 517815, None, 2528, 1, 0.83, 8192, 256),
    Spot('openai/gpt-oss-120b', 'h100-sxm-80gb', {'max_running_requests': 64, 'disable_radix_cache': True}, 'float16', 131072, 1132187, 32897, None, 64, 1, 0.834, 8192, 64),
    Spot('openai/gpt-oss-120b', 'h100-sxm-80gb', {'swa_full_tokens_ratio': 0.5, 'mamba_full_memory_ratio': 0.5}, 'float16', 131072, 776722, 388361, None, 3034, 1, 0.83, 8192, 256),
    Spot('openai/gpt-oss-120b', 'b200-sxm-180gb', {'tp_size': 8}, 'float16', 131072, 5178112, 4142464, None, 4096, 64, 0.849, 16384, 512),
    Spot('google/gemma-3-27b-it', 'h100-sxm-80gb', {}, 'bfloat16', 131072, 84562, None, None, 2048, 1, 0.83, 8192, 256),
    Spot('google/gemma-4-E4B-it', 'h100-sxm-80gb', {}, 'bfloat16', 131072, 499321, 399456, None, 2048, 1, 0.8329125, 8192, 256),
    Spot('google/gemma-4-E4B-it', 'rtx-pro-6000-ws', {'tp_size': 8}, 'bfloat16', 131072, 998643, 798914, None, 3900, 1, 0.84588, 8192, 512),
    Spot('google/gemma-3n-E4B-it', 'h100-sxm-80gb', {'kv_cache_dtype': 'fp8_e5m2'}, 'float8_e5m2', 32768, 1198372, None, None, 4096, 1, 0.83, 8192, 256),
    Spot('RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic', 'h100-sxm-80gb', {'tp_size': 8}, 'bfloat16', 10485760, 2056031, 1644824, None, 2048, 1, 0.812, 8192, 512),
    Spot('XiaomiMiMo/MiMo-V2-Flash', 'b200-sxm-180gb', {}, 'bfloat16', 262144, 234880, 187904, None, 2048, 128, 0.854, 16384, 512),
    Spot('deepseek-ai/DeepSeek-V3.2', 'h100-sxm-80gb', {'kv_cache_dtype': 'fp8_e4m3'}, 'float8_e4m3fn', 163840, 893504, None, None, 2792, 64, 0.816, 8192, 256),
    Spot('deepseek-ai/DeepSeek-V3.2', 'b200-sxm-180gb', {}, 'float8_e4m3fn', 163840, 994432, None, None, 3107, 64, 0.849, 16384, 512),
    Spot('zai-org/GLM-5.3', 'h100-sxm-80gb', {'tp_size': 8}, 'bfloat16', 1048576, 463616, None, None, 2048, 64, 0.799, 8192, 512),
    Spot('zai-org/GLM-5.3', 'rtx-pro-6000-ws', {'kv_cache_dtype': 'fp8_e4m3'}, 'float8_e4m3fn', 1048576, 796224, None, None, 2048, 64, 0.847, 8192, 256),
    Spot('deepseek-ai/DeepSeek-V4-Flash', 'h100-sxm-80gb', {}, 'float8_e4m3fn', 1048576, 5677312, 567552, None, 256, 256, 0.835, 8192, 256),
    Spot('deepseek-ai/DeepSeek-V4-Flash', 'h100-sxm-80gb', {'max_running_requests': 64}, 'float8_e4m3fn', 1048576, 5961216, 595968, None, 64, 256, 0.84, 8192, 64),
    Spot('Qwen/Qwen3.5-27B', 'h100-sxm-80gb', {}, 'bfloat16', 262144, 345292, None, 131, 26, 1, 0.767555469, 8192, 256),
    Spot('Qwen/Qwen3.5-27B', 'h100-sxm-80gb', {'disable_overlap_schedule': True}, 'bfloat16', 262144, 345292, None, 131, 43, 1, 0.767555469, 8192, 256),
    Spot('Qwen/Qwen3.5-27B', 'h100-sxm-80gb', {'max_running_requests': 64, 'disable_radix_cache': True}, 'bfloat16', 262144, 502675, None, 64, 64, 1, 0.771254531, 8192, 64),
    Spot('Qwen/Qwen3.5-27B', 'h100-sxm-80gb', {'mamba_ssm_dtype': 'bfloat16', 'max_mamba_cache_size': 40}, 'bfloat16', 262144, 606283, None, 40, 8, 1, 0.767555469, 8192, 256),
    Spot('Qwen/Qwen3.5-27B', 'h100-sxm-80gb', {'page_size': 64}, 'bfloat16', 262144, 345280, None, 131, 26, 64, 0.767555469, 8192, 256),
    Spot('Qwen/Qwen3.5-27B', 'b200-sxm-180gb', {'tp_size': 8}, 'bfloat16', 262144, 1379993, None, 1056, 211, 1, 0.785126016, 16384, 512),
    Spot('nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4', 'b200-sxm-180gb', {}, 'bfloat16', 262144, 3683136, None, 413, 82, 64, 0.854, 16384, 512),
    Spot('moonshotai/Kimi-K3', 'h100-sxm-80gb', {'tp_size': 8}, 'bfloat16', 1048576, 817982, None, 361, 72, 1, 0.76738625, 8192, 512),
    Spot('moonshotai/Kimi-K3', 'b200-sxm-180gb', {}, 'bfloat16', 1048576, 822016, None, 44, 8, 64, 0.803973125, 16384, 512),
    Spot('LiquidAI/LFM2-350M', 'b200-sxm-180gb', {}, 'float16', 128000, 1839610, None, 496692, 4096, 1, 0.854, 16384, 512),
    Spot('meta-llama/Llama-3.2-11B-Vision-Instruct', 'h100-sxm-80gb', {}, 'bfloat16', 131072, 262144, None, None, 2048, 1, 0.707314583, -1, 256),
    Spot('nvidia/MiniMax-M3-NVFP4', 'h100-sxm-80gb', {'kv_cache_dtype': 'fp8_e4m3'}, 'float8_e4m3fn', 1048576, 624768, None, None, 2048, 128, 0.7885, 8192, 256),
    Spot('nvidia/MiniMax-M3-NVFP4', 'rtx-4090', {}, 'bfloat16', 1048576, 312424, None, None, 2048, 1, 0.6688, 4096, 48),
    Spot('moonshotai/Kimi-K2-Instruct', 'h100-sxm-80gb', {'tp_size': 8, 'dp_size': 8, 'enable_dp_attention': True}, 'bfloat16', 131072, 611191, None, None, 2387, 1, 0.573, 1024, 512),
    Spot('moonshotai/Kimi-K2-Instruct', 'b200-sxm-180gb', {}, 'bfloat16', 131072, 611136, None, None, 2387, 64, 0.849, 16384, 512),
    Spot('Qwen/Qwen3-VL-8B-Instruct', 'h100-sxm-80gb', {'chunked_prefill_size': 2048, 'context_length': 4096}, 'bfloat16', 4096, 291271, None, None, 4096, 1, 0.808245156, 2048, 256),
    Spot('Qwen/Qwen3-8B', 'h100-sxm-80gb', {'mem_fraction_static': 0.7, 'max_total_tokens': 100000}, 'bfloat16', 40960, 100000, None, None, 2048, 1, 0.7, 8192, 256),
    Spot('meta-models/Muse-Glimmer-30B', 'a100-sxm4-40gb', {}, 'bfloat16', 131072, 948937, 759149, None, 3706, 1, 0.62852, 4096, 32),
    Spot('meta-llama/Llama-2-7b-hf', 'b200-sxm-180gb', {}, 'float16', 4096, 81920, None, None, 4096, 64, 0.855, 16384, 512),
    Spot('stepfun-ai/Step-3.7-Flash', 'h100-sxm-80gb', {}, 'bfloat16', 128000, 273066, 218452, None, 2048, 1, 0.79325, 8192, 256),
    Spot('deepseek-ai/DeepSeek-V3', 'h100-sxm-80gb', {'tp_size': 8, 'moe_a2a_backend': 'deepep'}, 'bfloat16', 163840, 611191, None, None, 2048, 1, 0.761, 8192, 512),
    Spot('Qwen/Qwen3-30B-A3B', 'h100-sxm-80gb', {'tp_size': 8, 'dp_size': 8, 'enable_dp_attention': True, 'moe_a2a_backend': 'deepep'}, 'bfloat16', 40960, 436906, None, None, 4096, 1, 0.551, 1024, 512),
    Spot('meta-models/Muse-Glimmer-30B', 'h100-sxm-80gb', {'tp_size': 8, 'moe_a2a_backend': 'deepep'}, 'bfloat16', 131072, 1897875, 1518300, None, 4096, 1, 0.59128, 8192, 512),
]
# fmt: on


def resolved(catalog: Catalog, spot: Spot) -> Settings:
    flags = spot.flags
    return sglang_settings.settings(
        catalog.model(spot.model),
        catalog.engine("sglang"),
        catalog.accelerator(spot.gpu),
        sglang_settings.SglangFlags(
            tensor_parallel=flags.get("tp_size", 1),
            data_attention=flags.get("dp_size", 1),
            context_ranks=flags.get("dcp_size", 1),
            chunk_tokens=flags.get("chunked_prefill_size"),
            max_requests=flags.get("max_running_requests"),
            share=flags.get("mem_fraction_static"),
            page_tokens=flags.get("page_size"),
            prefix_cache=not flags.get("disable_radix_cache"),
            overlap=not flags.get("disable_overlap_schedule"),
            context_tokens=flags.get("context_length"),
            deepep=flags.get("moe_a2a_backend") == "deepep",
        ),
    )


def pool_flags(catalog: Catalog, spot: Spot) -> PoolFlags:
    model, engine = catalog.model(spot.model), catalog.engine("sglang")
    gpu, flags, found = catalog.accelerator(spot.gpu), spot.flags, resolved(catalog, spot)
    data = flags.get("dp_size", 1)
    return PoolFlags(
        element_bytes=1 if spot.stored.startswith("float8") else 2,
        attention_ranks=flags.get("tp_size", 1) // data,
        context_ranks=flags.get("dcp_size", 1),
        page_tokens=found.page_tokens,
        context_tokens=spot.context,
        window_share=flags.get("swa_full_tokens_ratio", WINDOW_SHARE if is_compressed(model) else 0.8),
        state_share=flags.get("mamba_full_memory_ratio", 0.9),
        states_per_request=found.states_per_request,
        state_dtype=flags.get("mamba_ssm_dtype"),
        max_requests=None if found.max_requests is None else max(1, found.max_requests // data),
        max_tokens=flags.get("max_total_tokens"),
        max_states=flags.get("max_mamba_cache_size"),
        prefix_cache=not flags.get("disable_radix_cache"),
        chunk_tokens=found.chunk_tokens,
        overlap=not flags.get("disable_overlap_schedule"),
        scaled_latents=sglang_plan.scaled_latents(model, engine, gpu, flags.get("dcp_size", 1)),
        narrow_index=spot.stored == "float8_e4m3fn" and sglang_settings.narrow_beside_fp8(engine, gpu),
    )


def pools(catalog: Catalog, spot: Spot) -> RankPools:
    flags = pool_flags(catalog, spot)
    return pools_of(pool_rule(catalog.model(spot.model), catalog.engine("sglang"), flags), BUDGET)


@pytest.mark.parametrize("spot", SPOTS, ids=lambda spot: f"{spot.model}-{spot.gpu}-{spot.flags}")
def test_pools_hold_what_the_engine_says(catalog: Catalog, spot: Spot) -> None:
    found = pools(catalog, spot)
    assert (found.tokens, found.window_tokens, found.state_slots, found.max_requests) == (
        spot.tokens,
        spot.window_tokens,
        spot.slots,
        spot.requests,
    )


# The recorded config of Gemma 3n names the class without images, the catalog's record the one with them.
@pytest.mark.parametrize(
    "spot",
    [spot for spot in SPOTS if "gemma-3n" not in spot.model],
    ids=lambda spot: f"{spot.model}-{spot.gpu}-{spot.flags}",
)
def test_flags_are_resolved_as_the_engine_does(catalog: Catalog, spot: Spot) -> None:
    found = resolved(catalog, spot)
    assert (found.page_tokens, found.chunk_tokens, found.captured_requests) == (
        spot.page,
        spot.chunk,
        spot.captured,
    )
    assert found.share == pytest.approx(spot.share, abs=1e-9)


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
    catalog: Catalog, model: str, gpu: str, ranks: int, kv: str, tokens: int
) -> None:
    found = estimate(
        model, gpu=gpu, tensor_parallel=ranks, kv=kv, engine="sglang", kv_pool=BUDGET, catalog=catalog
    )
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
    catalog: Catalog, model: str, steps: int, requests: int | None, tokens: int, slots: int | None
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
        catalog=catalog,
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
    catalog: Catalog, model: str, flags: dict[str, Any], steps: int, tokens: int
) -> None:
    found = estimate(
        model,
        gpu="h100-sxm-80gb",
        engine="sglang",
        kv_pool=BUDGET,
        draft="mtp",
        num_speculative_tokens=steps,
        catalog=catalog,
        **flags,
    )
    assert found.kv_pool_tokens == tokens


@pytest.mark.parametrize(("release", "layers"), [("0.5.13", 61), ("0.5.14", 62)])
def test_drafts_are_counted_since_0_5_14(catalog: Catalog, release: str, layers: int) -> None:
    model = catalog.model("deepseek-ai/DeepSeek-V3")
    engine = rules(catalog.engine("sglang-0.5.13")).at_release(release)
    whole = with_draft(model, own_prediction_layer(model)).whole
    assert sglang_plan.counted(whole, engine).layer_count == layers


def test_a_rule_gives_arrays_what_it_gives_numbers(catalog: Catalog) -> None:
    engine = catalog.engine("sglang")
    budgets = np.arange(10, 80, 7) * GIB
    for spot in SPOTS[::5]:
        model, flags = catalog.model(spot.model), pool_flags(catalog, spot)
        many = pool_rule(model, engine, flags).tokens(budgets)
        assert list(many) == [int(pool_rule(model, engine, flags).tokens(int(one))) for one in budgets]


def test_windows_and_states_limit_requests_beside_tokens(catalog: Catalog) -> None:
    engine = catalog.engine("sglang")
    states = next(spot for spot in SPOTS if spot.slots == 131)
    rule = pool_rule(catalog.model(states.model), engine, pool_flags(catalog, states))
    assert rule.requests_beside(BUDGET, 1024) == 131 // 5
    windows = next(spot for spot in SPOTS if spot.window_tokens == 517_815 and not spot.flags)
    rule = pool_rule(catalog.model(windows.model), engine, pool_flags(catalog, windows))
    # A request inside its window takes as many slots of the smaller pool; a long one, its window and a little.
    assert rule.requests_beside(BUDGET, 100) == 517_815 // 100
    assert rule.requests_beside(BUDGET, 100_000) == 517_815 // (128 + 128 + 2)


def test_a_budget_without_a_state_or_a_window_is_refused(catalog: Catalog) -> None:
    engine = catalog.engine("sglang")
    for name in ("Qwen/Qwen3.5-27B", "openai/gpt-oss-120b", "deepseek-ai/DeepSeek-V4-Flash"):
        spot = next(one for one in SPOTS if one.model == name)
        with pytest.raises(InputError):
            pools_of(pool_rule(catalog.model(name), engine, pool_flags(catalog, spot)), 10_000_000)


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


def test_a_pool_is_found_for_so_many_requests(catalog: Catalog) -> None:
    found = estimate(
        "Qwen/Qwen3.5-27B", gpu="h100-sxm-80gb", engine="sglang", kv_pool=BUDGET, catalog=catalog
    )
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
