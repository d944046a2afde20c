"""What SGLang's own code answered in several releases, where these differ, against the rules of each release.

``scripts/run_sglang_planner.py`` recorded the rows with a pretended device and a budget of 40 GiB;
``scripts/check_sglang.py`` compares them, here as in a whole run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from kvreport.accounting.engines.registry import rules
from kvreport.catalog.load import Catalog
from kvreport.catalog.planner_check import OracleCheck
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
]
# fmt: on


@pytest.mark.parametrize("spot", SPOTS, ids=lambda spot: f"{spot.sglang}-{spot.id}-{spot.gpu}-{spot.flags}")
def test_each_release_resolves_flags_and_sizes_pools_as_its_own_code_does(
    catalog: Catalog, spot: Spot
) -> None:
    engine = rules(catalog.engine(f"sglang@{spot.sglang}")).at_release(spot.sglang)
    gpu = catalog.accelerator(spot.gpu)
    assert script._found(catalog.model(spot.id), engine, gpu, spot._asdict()) is None


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
def test_index_keys_are_narrow_beside_an_fp8_cache_alone(
    catalog: Catalog, gpu, kv, tensor_parallel, tokens
) -> None:
    """``make follow`` asked SGLang 0.5.23: beside a 16-bit cache the keys of the index keep 16 bits."""
    told = {"engine": "sglang", "tensor_parallel": tensor_parallel, "context_tokens": 8192}
    result = estimate(MINIMAX, gpu=gpu, kv=kv, catalog=catalog, **told)
    assert ours(result, 40 * GIB)["tokens"] == tokens
