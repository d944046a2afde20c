"""What SGLang's own code answered in several releases, against the rules of each release.

``scripts/run_sglang_planner.py`` recorded the rows with a pretended device and a budget of 40 GiB;
``scripts/check_sglang.py`` compares them, here as in a whole run.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pytest

from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.sglang.pools import Division, pool_rule, pools_of
from kvreport.catalog.load import Catalog
from kvreport.catalog.planner_check import OracleCheck
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.units import GIB
from kvreport.witness.asking import ours
from scripts import check_sglang as script

H100, B200, RTX_4090 = "h100-sxm-80gb", "b200-sxm-180gb", "rtx-4090"
DATA_8 = {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}
FP8 = {"tp_size": 2, "kv_cache_dtype": "fp8_e4m3"}
CONTEXT = {"tp_size": 8, "dcp_size": 4}
PAGED = {"mem_fraction_static": 0.8, "chunked_prefill_size": 4096, "page_size": 64}
CAPPED = {"disable_radix_cache": True, "max_running_requests": 64}
HALVES = {"tp_size": 4, "dp_size": 2, "enable_dp_attention": True, "max_running_requests": 256}
STAGES = {"pp_size": 2}
INKLING = "thinkingmachines/Inkling"
MINIMAX, STEP = "nvidia/MiniMax-M3-NVFP4", "stepfun-ai/Step-3.7-Flash"
DEEPSEEK, GPT_OSS, MAMBA = "deepseek-ai/DeepSeek-V3.2", "openai/gpt-oss-120b", "tiiuae/falcon-mamba-7b"


class Spot(NamedTuple):
    sglang: str
    id: str
    gpu: str
    flags: dict[str, Any]
    kv_dtype: str
    context_tokens: int
    tokens: int
    window_tokens: int | None
    state_slots: int | None
    max_requests: int
    page_tokens: int
    share: float
    chunk_tokens: int
    captured_requests: int


# fmt: off
SPOTS = [
    Spot("0.5.16", "deepseek-ai/DeepSeek-V3.2", H100, FP8, "float8_e4m3fn", 163840, 994432, None, None, 3107, 64, 0.834, 8192, 256),
    Spot("0.5.17", "deepseek-ai/DeepSeek-V3.2", H100, FP8, "float8_e4m3fn", 163840, 893504, None, None, 2792, 64, 0.815, 8192, 256),
    Spot("0.5.16", "Qwen/Qwen3.5-27B", H100, {}, "bfloat16", 262144, 345292, None, 132, 26, 1, 0.7675554687499999, 8192, 256),
    Spot("0.5.17", "Qwen/Qwen3.5-27B", H100, {}, "bfloat16", 262144, 345292, None, 131, 26, 1, 0.7675554687499999, 8192, 256),
    Spot("0.5.16", "Qwen/Qwen3.5-27B", H100, STAGES, "bfloat16", 262144, 690584, None, 132, 33, 1, 0.7657059374999999, 8192, 256),
    Spot("0.5.18", "Qwen/Qwen3.5-27B", H100, STAGES, "bfloat16", 262144, 690584, None, 263, 65, 1, 0.7657059374999999, 8192, 256),
    Spot("0.5.16", "Qwen/Qwen3.5-27B", H100, CAPPED, "bfloat16", 262144, 505024, None, 64, 64, 1, 0.7675554687499999, 8192, 256),
    Spot("0.5.18", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", B200, {}, "bfloat16", 262144, 3683198, None, 413, 82, 1, 0.854, 16384, 512),
    Spot("0.5.18", "Qwen/Qwen3.8-2.4T-A95B-FP8", H100, {}, "bfloat16", 262144, 243946, None, 33, 11, 1, 0.83, 8192, 256),
    Spot("0.5.19", "moonshotai/Kimi-K3", H100, {}, "bfloat16", 1048576, 822045, None, 44, 8, 1, 0.7655099999999999, 8192, 256),
    Spot("0.5.20", "moonshotai/Kimi-K3", H100, {}, "bfloat16", 1048576, 822045, None, 44, 8, 1, 0.7833343749999999, 8192, 256),
    Spot("0.5.20", MINIMAX, H100, {}, "bfloat16", 1048576, 312320, None, None, 2048, 128, 0.7885, 8192, 256),
    Spot("0.5.20", MINIMAX, H100, DATA_8, "bfloat16", 1048576, 312320, None, None, 2048, 128, 0.5623999999999999, 1024, 512),
    Spot("0.5.21", MINIMAX, RTX_4090, DATA_8, "bfloat16", 1048576, 312424, None, None, 2048, 1, 0.4921, 512, 160),
    Spot("0.5.22", MINIMAX, RTX_4090, DATA_8, "bfloat16", 1048576, 312424, None, None, 2048, 1, 0.4769, 512, 160),
    Spot("0.5.20", MINIMAX, B200, FP8, "float8_e4m3fn", 1048576, 947840, None, None, 2048, 128, 0.8103499999999999, 16384, 512),
    Spot("0.5.21", MINIMAX, B200, FP8, "float8_e4m3fn", 1048576, 1129728, None, None, 2048, 128, 0.8103499999999999, 16384, 512),
    Spot("0.5.22", MINIMAX, H100, FP8, "float8_e4m3fn", 1048576, 947840, None, None, 2048, 128, 0.7866, 8192, 256),
    Spot("0.5.23", MINIMAX, H100, FP8, "float8_e4m3fn", 1048576, 1129728, None, None, 2048, 128, 0.7866, 8192, 256),
    Spot("0.5.23", MINIMAX, B200, PAGED, "bfloat16", 1048576, 312320, None, None, 2048, 128, 0.8, 4096, 512),
    Spot("0.5.21", DEEPSEEK, B200, CONTEXT, "float8_e4m3fn", 163840, 3977728, None, None, 3107, 64, 0.852, 16384, 512),
    Spot("0.5.22", DEEPSEEK, B200, CONTEXT, "float8_e4m3fn", 163840, 2551040, None, None, 2048, 64, 0.852, 16384, 512),
    Spot("0.5.20", GPT_OSS, H100, STAGES, "float16", 131072, 647269, 517815, None, 2528, 1, 0.834, 8192, 256),
    Spot("0.5.21", GPT_OSS, H100, STAGES, "float16", 131072, 1294538, 1035630, None, 4096, 1, 0.834, 8192, 256),
    Spot("0.5.20", STEP, B200, STAGES, "bfloat16", 128000, 273024, 218368, None, 2048, 128, 0.8131999999999999, 16384, 512),
    Spot("0.5.23", STEP, B200, CAPPED, "bfloat16", 128000, 625536, 90240, None, 64, 128, 0.8189, 16384, 64),
    Spot("0.5.23", "Qwen/Qwen3.5-27B", B200, PAGED, "bfloat16", 262144, 345292, None, 131, 26, 1, 0.8, 4096, 512),
    Spot("0.5.23", MAMBA, H100, HALVES, "bfloat16", 2048, 2048, None, 2216, 128, 1, 0.806, 4096, 256),
    Spot("0.5.20", MAMBA, H100, DATA_8, "bfloat16", 2048, 2048, None, 4433, 1024, 1, 0.586, 1024, 512),
    Spot("0.5.16", INKLING, H100, {}, "float16", 1048576, 433371, 43337, 534, 106, 1, 0.83, 8192, 256),
    Spot("0.5.20", INKLING, H100, CAPPED, "float16", 1048576, 367990, 57473, 64, 64, 1, 0.83, 8192, 256),
    Spot("0.5.23", INKLING, B200, FP8, "float8_e4m3fn", 1048576, 1733376, 173312, 640, 128, 128, 0.853, 16384, 512),
    Spot("0.5.23", INKLING, H100, STAGES, "float16", 1048576, 836252, 83625, 1068, 267, 1, 0.828, 8192, 256),
    Spot("0.5.16", INKLING, H100, DATA_8, "float16", 1048576, 433371, 43337, 534, 106, 1, 0.586, 1024, 512),
    Spot("0.5.23", 'meta-llama/Llama-3.1-8B-Instruct', 'h100-sxm-80gb', {}, 'bfloat16', 131072, 327680, None, None, 2048, 1, 0.83, 8192, 256),
    Spot("0.5.23", 'meta-llama/Llama-3.1-8B-Instruct', 'h100-sxm-80gb', {'tp_size': 8}, 'bfloat16', 131072, 2621440, None, None, 4096, 1, 0.812, 8192, 512),
    Spot("0.5.23", 'meta-llama/Llama-3.1-8B-Instruct', 'h100-sxm-80gb', {'tp_size': 8, 'dp_size': 8, 'enable_dp_attention': True}, 'bfloat16', 131072, 327680, None, None, 2048, 1, 0.586, 1024, 512),
    Spot("0.5.23", 'meta-llama/Llama-3.1-8B-Instruct', 'rtx-4090', {}, 'bfloat16', 131072, 327680, None, None, 2048, 1, 0.704, 4096, 48),
    Spot("0.5.23", 'meta-llama/Llama-3.1-8B-Instruct', 'b200-sxm-180gb', {'kv_cache_dtype': 'fp8_e4m3'}, 'float8_e4m3fn', 131072, 655360, None, None, 2560, 64, 0.854, 16384, 512),
    Spot("0.5.23", 'zai-org/GLM-4.5', 'h100-sxm-80gb', {'tp_size': 8, 'dcp_size': 8}, 'bfloat16', 131072, 911800, None, None, 2048, 1, 0.818, 8192, 512),
    Spot("0.5.23", 'zai-org/GLM-5-FP8', 'h100-sxm-80gb', {'tp_size': 4, 'dcp_size': 4}, 'bfloat16', 202752, 1310976, None, None, 2048, 64, 0.824, 8192, 512),
    Spot("0.5.23", 'EleutherAI/gpt-neox-20b', 'h100-sxm-80gb', {'tp_size': 8, 'dcp_size': 2}, 'float16', 2048, 317750, None, None, 4096, 1, 0.818, 8192, 512),
    Spot("0.5.23", 'nvidia/GLM-5-NVFP4', 'rtx-pro-6000-ws', {'tp_size': 8, 'dcp_size': 4}, 'float8_e4m3fn', 202752, 1995008, None, None, 2048, 64, 0.848, 8192, 512),
    Spot("0.5.23", 'zai-org/GLM-5.2', 'rtx-pro-6000-ws', {'tp_size': 8, 'dcp_size': 4}, 'float8_e4m3fn', 1048576, 3066880, None, None, 2048, 64, 0.848, 8192, 512),
    Spot("0.5.23", 'nvidia/MiniMax-M3-NVFP4', 'h100-sxm-80gb', {'tp_size': 8, 'dcp_size': 4}, 'bfloat16', 1048576, 3791360, None, None, 2048, 128, 0.7770999999999999, 8192, 512),
    Spot("0.5.23", 'tiiuae/falcon-mamba-7b', 'h100-sxm-80gb', {'tp_size': 8, 'dcp_size': 4}, 'bfloat16', 2048, 8192, None, 4433, 1024, 1, 0.818, 8192, 512),
    Spot("0.5.23", 'nvidia/Gemma-4-31B-IT-NVFP4', 'h100-sxm-80gb', {'disable_radix_cache': True, 'max_running_requests': 64, 'page_size': 64}, 'float8_e4m3fn', 262144, 64896, 98368, None, 64, 64, 0.7641785156249999, 8192, 64),
    Spot("0.5.23", 'openai/gpt-oss-120b', 'h100-sxm-80gb', {}, 'float16', 131072, 647269, 517815, None, 2528, 1, 0.83, 8192, 256),
    Spot("0.5.23", 'openai/gpt-oss-120b', 'h100-sxm-80gb', {'max_running_requests': 64, 'disable_radix_cache': True}, 'float16', 131072, 1132187, 32897, None, 64, 1, 0.834, 8192, 64),
    Spot("0.5.23", 'openai/gpt-oss-120b', 'h100-sxm-80gb', {'swa_full_tokens_ratio': 0.5, 'mamba_full_memory_ratio': 0.5}, 'float16', 131072, 776722, 388361, None, 3034, 1, 0.83, 8192, 256),
    Spot("0.5.23", 'openai/gpt-oss-120b', 'b200-sxm-180gb', {'tp_size': 8}, 'float16', 131072, 5178112, 4142464, None, 4096, 64, 0.849, 16384, 512),
    Spot("0.5.23", 'google/gemma-3-27b-it', 'h100-sxm-80gb', {}, 'bfloat16', 131072, 84562, None, None, 2048, 1, 0.83, 8192, 256),
    Spot("0.5.23", 'google/gemma-4-E4B-it', 'h100-sxm-80gb', {}, 'bfloat16', 131072, 499321, 399456, None, 2048, 1, 0.8329125, 8192, 256),
    Spot("0.5.23", 'google/gemma-4-E4B-it', 'rtx-pro-6000-ws', {'tp_size': 8}, 'bfloat16', 131072, 998643, 798914, None, 3900, 1, 0.84588, 8192, 512),
    Spot("0.5.23", 'google/gemma-3n-E4B-it', 'h100-sxm-80gb', {'kv_cache_dtype': 'fp8_e5m2'}, 'float8_e5m2', 32768, 1198372, None, None, 4096, 1, 0.83, 8192, 256),
    Spot("0.5.23", 'RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic', 'h100-sxm-80gb', {'tp_size': 8}, 'bfloat16', 10485760, 2056031, 1644824, None, 2048, 1, 0.812, 8192, 512),
    Spot("0.5.23", 'XiaomiMiMo/MiMo-V2-Flash', 'b200-sxm-180gb', {}, 'bfloat16', 262144, 234880, 187904, None, 2048, 128, 0.854, 16384, 512),
    Spot("0.5.23", 'deepseek-ai/DeepSeek-V3.2', 'h100-sxm-80gb', {'kv_cache_dtype': 'fp8_e4m3'}, 'float8_e4m3fn', 163840, 893504, None, None, 2792, 64, 0.816, 8192, 256),
    Spot("0.5.23", 'deepseek-ai/DeepSeek-V3.2', 'b200-sxm-180gb', {}, 'float8_e4m3fn', 163840, 994432, None, None, 3107, 64, 0.849, 16384, 512),
    Spot("0.5.23", 'zai-org/GLM-5.3', 'h100-sxm-80gb', {'tp_size': 8}, 'bfloat16', 1048576, 463616, None, None, 2048, 64, 0.799, 8192, 512),
    Spot("0.5.23", 'zai-org/GLM-5.3', 'rtx-pro-6000-ws', {'kv_cache_dtype': 'fp8_e4m3'}, 'float8_e4m3fn', 1048576, 796224, None, None, 2048, 64, 0.847, 8192, 256),
    Spot("0.5.23", 'deepseek-ai/DeepSeek-V4-Flash', 'h100-sxm-80gb', {}, 'float8_e4m3fn', 1048576, 5677312, 567552, None, 256, 256, 0.835, 8192, 256),
    Spot("0.5.23", 'deepseek-ai/DeepSeek-V4-Flash', 'h100-sxm-80gb', {'max_running_requests': 64}, 'float8_e4m3fn', 1048576, 5961216, 595968, None, 64, 256, 0.84, 8192, 64),
    Spot("0.5.23", 'Qwen/Qwen3.5-27B', 'h100-sxm-80gb', {}, 'bfloat16', 262144, 345292, None, 131, 26, 1, 0.767555469, 8192, 256),
    Spot("0.5.23", 'Qwen/Qwen3.5-27B', 'h100-sxm-80gb', {'disable_overlap_schedule': True}, 'bfloat16', 262144, 345292, None, 131, 43, 1, 0.767555469, 8192, 256),
    Spot("0.5.23", 'Qwen/Qwen3.5-27B', 'h100-sxm-80gb', {'max_running_requests': 64, 'disable_radix_cache': True}, 'bfloat16', 262144, 502675, None, 64, 64, 1, 0.771254531, 8192, 64),
    Spot("0.5.23", 'Qwen/Qwen3.5-27B', 'h100-sxm-80gb', {'mamba_ssm_dtype': 'bfloat16', 'max_mamba_cache_size': 40}, 'bfloat16', 262144, 606283, None, 40, 8, 1, 0.767555469, 8192, 256),
    Spot("0.5.23", 'Qwen/Qwen3.5-27B', 'h100-sxm-80gb', {'page_size': 64}, 'bfloat16', 262144, 345280, None, 131, 26, 64, 0.767555469, 8192, 256),
    Spot("0.5.23", 'Qwen/Qwen3.5-27B', 'b200-sxm-180gb', {'tp_size': 8}, 'bfloat16', 262144, 1379993, None, 1056, 211, 1, 0.785126016, 16384, 512),
    Spot("0.5.23", 'nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4', 'b200-sxm-180gb', {}, 'bfloat16', 262144, 3683136, None, 413, 82, 64, 0.854, 16384, 512),
    Spot("0.5.23", 'moonshotai/Kimi-K3', 'h100-sxm-80gb', {'tp_size': 8}, 'bfloat16', 1048576, 817982, None, 361, 72, 1, 0.76738625, 8192, 512),
    Spot("0.5.23", 'moonshotai/Kimi-K3', 'b200-sxm-180gb', {}, 'bfloat16', 1048576, 822016, None, 44, 8, 64, 0.803973125, 16384, 512),
    Spot("0.5.23", 'LiquidAI/LFM2-350M', 'b200-sxm-180gb', {}, 'float16', 128000, 1839610, None, 496692, 4096, 1, 0.854, 16384, 512),
    Spot("0.5.23", 'meta-llama/Llama-3.2-11B-Vision-Instruct', 'h100-sxm-80gb', {}, 'bfloat16', 131072, 262144, None, None, 2048, 1, 0.707314583, -1, 256),
    Spot("0.5.23", 'nvidia/MiniMax-M3-NVFP4', 'h100-sxm-80gb', {'kv_cache_dtype': 'fp8_e4m3'}, 'float8_e4m3fn', 1048576, 624768, None, None, 2048, 128, 0.7885, 8192, 256),
    Spot("0.5.23", 'nvidia/MiniMax-M3-NVFP4', 'rtx-4090', {}, 'bfloat16', 1048576, 312424, None, None, 2048, 1, 0.6688, 4096, 48),
    Spot("0.5.23", 'moonshotai/Kimi-K2-Instruct', 'h100-sxm-80gb', {'tp_size': 8, 'dp_size': 8, 'enable_dp_attention': True}, 'bfloat16', 131072, 611191, None, None, 2387, 1, 0.573, 1024, 512),
    Spot("0.5.23", 'moonshotai/Kimi-K2-Instruct', 'b200-sxm-180gb', {}, 'bfloat16', 131072, 611136, None, None, 2387, 64, 0.849, 16384, 512),
    Spot("0.5.23", 'Qwen/Qwen3-VL-8B-Instruct', 'h100-sxm-80gb', {'chunked_prefill_size': 2048, 'context_length': 4096}, 'bfloat16', 4096, 291271, None, None, 4096, 1, 0.808245156, 2048, 256),
    Spot("0.5.23", 'Qwen/Qwen3-8B', 'h100-sxm-80gb', {'mem_fraction_static': 0.7, 'max_total_tokens': 100000}, 'bfloat16', 40960, 100000, None, None, 2048, 1, 0.7, 8192, 256),
    Spot("0.5.23", 'meta-models/Muse-Glimmer-30B', 'a100-sxm4-40gb', {}, 'bfloat16', 131072, 948937, 759149, None, 3706, 1, 0.62852, 4096, 32),
    Spot("0.5.23", 'meta-llama/Llama-2-7b-hf', 'b200-sxm-180gb', {}, 'float16', 4096, 81920, None, None, 4096, 64, 0.855, 16384, 512),
    Spot("0.5.23", 'stepfun-ai/Step-3.7-Flash', 'h100-sxm-80gb', {}, 'bfloat16', 128000, 273066, 218452, None, 2048, 1, 0.79325, 8192, 256),
    Spot("0.5.23", 'deepseek-ai/DeepSeek-V3', 'h100-sxm-80gb', {'tp_size': 8, 'moe_a2a_backend': 'deepep'}, 'bfloat16', 163840, 611191, None, None, 2048, 1, 0.761, 8192, 512),
    Spot("0.5.23", 'Qwen/Qwen3-30B-A3B', 'h100-sxm-80gb', {'tp_size': 8, 'dp_size': 8, 'enable_dp_attention': True, 'moe_a2a_backend': 'deepep'}, 'bfloat16', 40960, 436906, None, None, 4096, 1, 0.551, 1024, 512),
    Spot("0.5.23", 'meta-models/Muse-Glimmer-30B', 'h100-sxm-80gb', {'tp_size': 8, 'moe_a2a_backend': 'deepep'}, 'bfloat16', 131072, 1897875, 1518300, None, 4096, 1, 0.59128, 8192, 512),
]
# fmt: on

NEWEST = [spot for spot in SPOTS if spot.sglang == "0.5.23"]


def rule_of(catalog: Catalog, spot: Spot) -> Division:
    """The rule of the pools of a spot of the newest release."""
    model, engine, gpu = catalog.model(spot.id), catalog.engine("sglang"), catalog.accelerator(spot.gpu)
    resolved = script._resolved(model, engine, gpu, spot.flags)
    return pool_rule(model, engine, script._pool_flags(model, engine, gpu, spot._asdict(), resolved))


def test_a_rule_gives_arrays_what_it_gives_numbers(catalog: Catalog) -> None:
    budgets = np.arange(10, 80, 7) * GIB
    for spot in NEWEST[::5]:
        rule = rule_of(catalog, spot)
        assert list(rule.tokens(budgets)) == [int(rule.tokens(int(one))) for one in budgets]


def test_windows_and_states_limit_requests_beside_tokens(catalog: Catalog) -> None:
    rule = rule_of(catalog, next(spot for spot in NEWEST if spot.state_slots == 131))
    assert rule.requests_beside(script.BUDGET_BYTES, 1024) == 131 // 5
    rule = rule_of(catalog, next(spot for spot in NEWEST if spot.window_tokens == 517_815 and not spot.flags))
    # A request inside its window takes as many slots of the smaller pool; a long one, its window and a little.
    assert rule.requests_beside(script.BUDGET_BYTES, 100) == 517_815 // 100
    assert rule.requests_beside(script.BUDGET_BYTES, 100_000) == 517_815 // (128 + 128 + 2)


def test_a_budget_without_a_state_or_a_window_is_refused(catalog: Catalog) -> None:
    for name in ("Qwen/Qwen3.5-27B", "openai/gpt-oss-120b", "deepseek-ai/DeepSeek-V4-Flash"):
        rule = rule_of(catalog, next(spot for spot in NEWEST if spot.id == name))
        with pytest.raises(InputError):
            pools_of(rule, 10_000_000)


@pytest.mark.parametrize("spot", SPOTS, ids=lambda spot: f"{spot.sglang}-{spot.id}-{spot.gpu}-{spot.flags}")
def test_each_release_resolves_flags_and_sizes_pools_as_its_own_code_does(
    catalog: Catalog, spot: Spot
) -> None:
    engine = rules(catalog.engine(f"sglang@{spot.sglang}")).at_release(spot.sglang)
    gpu = catalog.accelerator(spot.gpu)
    told = script._found(catalog.model(spot.id), engine, gpu, spot._asdict())
    if (
        "gemma-3n" in spot.id
    ):  # the recorded config names the class without images, the catalog's the one with them
        assert told is not None
        assert not re.search(r"(^|; )(tokens|window_tokens|max_requests) ", told)
    else:
        assert told is None


def test_a_wrong_answer_is_told(catalog: Catalog) -> None:
    spot = SPOTS[0]
    engine = rules(catalog.engine(f"sglang@{spot.sglang}")).at_release(spot.sglang)
    wrong = {**spot._asdict(), "tokens": spot.tokens + 1}
    told = script._found(catalog.model(spot.id), engine, catalog.accelerator(spot.gpu), wrong)
    assert told == f"tokens {spot.tokens} for {spot.tokens + 1}"


def test_the_published_run_adds_up_and_holds_each_release(catalog: Catalog) -> None:
    found = OracleCheck.read(catalog.folder)
    assert found is not None
    assert sum(one.points for one in found.releases) == found.points
    assert sum(one.equal for one in found.releases) == found.equal
    assert sum(one.points for one in found.differences) == found.points - found.equal
    assert all(one.equal / one.points >= 0.99 for one in found.releases)


@pytest.mark.parametrize(
    ("gpu", "kv", "tensor_parallel", "tokens"),
    [
        (H100, "bf16", 1, 312_320),
        (H100, "bf16", 8, 947_840),
        (B200, "fp8", 1, 624_768),
        (B200, "bf16", 8, 947_840),
    ],
)
def test_index_keys_are_narrow_beside_an_fp8_cache_alone(gpu, kv, tensor_parallel, tokens) -> None:
    """``make follow`` asked SGLang 0.5.23: beside a 16-bit cache the keys of the index keep 16 bits."""
    told = {"engine": "sglang", "tensor_parallel": tensor_parallel, "context_tokens": 8192}
    result = estimate(MINIMAX, gpu=gpu, kv=kv, **told)
    assert ours(result, 40 * GIB)["tokens"] == tokens
