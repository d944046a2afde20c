"""Pipeline stages of SGLang: what its own configurators say of them, and what every rank agrees on."""

from __future__ import annotations

import pytest

from kvreport.accounting.engines.sglang import plan, settings
from kvreport.accounting.engines.sglang.pools import PoolFlags, pools_of
from kvreport.accounting.parallel import Layout
from kvreport.accounting.stages import partition_of, stages
from kvreport.catalog.load import open_catalog
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.units import GIB

CATALOG = open_catalog()
ENGINE = CATALOG.engine("sglang")
BYTES = {"bfloat16": 2.0, "float16": 2.0, "float8_e4m3fn": 1.0}

# SGLang 0.5.23 with a pretended H100 and a budget of 40 GiB on every stage (scripts/run_sglang_planner.py): stages,
# tokens, tokens of the window pool, states and requests at once of the stage with the fewest tokens.
RUN = [
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", 2, 1841509, None, 525, 131, "bfloat16"),
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", 3, 2762264, None, 788, 197, "bfloat16"),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 2, 7362229, None, 793, 198, "bfloat16"),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 3, 7362229, None, 1190, 297, "bfloat16"),
    ("deepseek-ai/DeepSeek-V3", 2, 1202667, None, None, 3758, "bfloat16"),
    ("deepseek-ai/DeepSeek-V3", 3, 1775366, None, None, 4096, "bfloat16"),
    ("deepseek-ai/DeepSeek-V3.2", 3, 1592832, None, None, 4096, "bfloat16"),
    ("deepseek-ai/DeepSeek-V4-Flash", 2, 11249920, 1124864, None, 256, "float8_e4m3fn"),
    ("deepseek-ai/DeepSeek-V4-Flash", 3, 16062208, 1606144, None, 256, "float8_e4m3fn"),
    ("openai/gpt-oss-20b", 2, 1941807, 1553445, None, 4096, "float16"),
    ("openai/gpt-oss-20b", 3, 2912711, 2330168, None, 4096, "float16"),
    ("meta-llama/Llama-3.1-70B-Instruct", 3, 388361, None, None, 2048, "bfloat16"),
]


@pytest.mark.parametrize(("name", "number", "tokens", "window", "states", "requests", "dtype"), RUN)
def test_pools_of_stages_are_those_of_the_engine(
    name: str,
    number: int,
    tokens: int,
    window: int | None,
    states: int | None,
    requests: int,
    dtype: str,
) -> None:
    model, gpu = CATALOG.model(name), CATALOG.accelerator("h100-sxm-80gb")
    resolved = settings.settings(model, ENGINE, gpu, settings.SglangFlags(pipeline_parallel=number))
    flags = PoolFlags(
        element_bytes=BYTES[dtype],
        page_tokens=resolved.page_tokens,
        context_tokens=model.context_tokens,
        window_share=0.1 if "V4" in name else plan.WINDOW_SHARE,
        states_per_request=resolved.states_per_request,
        max_requests=resolved.max_requests,
        chunk_tokens=resolved.chunk_tokens,
        overlap=False,
    )
    layout = Layout(pipeline=number)
    parts = stages(model, number, partition_of(ENGINE, model, layout))
    each = [pools_of(plan.stage_rule(model, ENGINE, flags, layout, part.model), 40 * GIB) for part in parts]
    least = min(each, key=lambda one: one.tokens)
    found = (least.tokens, least.window_tokens, least.state_slots, least.max_requests)
    assert found == (tokens, window, states, requests)


def test_every_stage_takes_the_pool_of_the_one_with_least() -> None:
    laid = estimate(
        "meta-llama/Llama-3.1-70B-Instruct",
        gpu=["h200-sxm-141gb", "h100-sxm-80gb"],
        pipeline_parallel=2,
        engine="sglang",
        context_tokens=8192,
    ).deployment
    assert len(laid.ranks) == 2
    assert len({int(one.pool_bytes) for one in laid.ranks}) == 1
    assert laid.case.accelerator is not None
    assert laid.case.accelerator.id == "h100-sxm-80gb"


def test_stages_of_a_model_with_images_keep_the_same_share_free() -> None:
    # Arguments are resolved once from the whole config, though the encoder is on the first stage alone.
    laid = estimate(
        "Qwen/Qwen2.5-VL-72B-Instruct",
        gpu="h200-sxm-141gb",
        tensor_parallel=2,
        pipeline_parallel=2,
        engine="sglang",
        context_tokens=8192,
    ).deployment
    kept = {int(one.reserve.total) for one in laid.ranks}
    assert len(kept) == 1


def test_a_partition_that_is_given_is_taken() -> None:
    answer = estimate(
        "meta-llama/Llama-3.1-70B-Instruct",
        gpu="h100-sxm-80gb",
        pipeline_parallel=3,
        pipeline_partition="28,28,24",
        engine="sglang",
        context_tokens=8192,
    )
    assert [len(one.layers) for one in answer.deployment.ranks] == [28, 28, 24]
    usual = estimate(
        "meta-llama/Llama-3.1-70B-Instruct",
        gpu="h100-sxm-80gb",
        pipeline_parallel=3,
        engine="sglang",
        context_tokens=8192,
    )
    assert [len(one.layers) for one in usual.deployment.ranks] == [26, 27, 27]


def test_experts_that_ranks_do_not_share_equally_are_refused() -> None:
    with pytest.raises(
        InputError, match=r"found 256 experts on 7 ranks.*divides 256, or --num-redundant-experts 3"
    ):
        estimate(
            "deepseek-ai/DeepSeek-V3",
            gpu="h200-sxm-141gb",
            data_parallel=7,
            expert_parallel=True,
            engine="sglang",
            context_tokens=8192,
        )


@pytest.mark.parametrize(
    ("layout", "refused"), [({"tensor_parallel": 2}, True), ({"pipeline_parallel": 2}, False)]
)
def test_unequal_memory_is_refused_where_ranks_divide_layers(
    layout: dict[str, int], *, refused: bool
) -> None:
    def asked() -> int:
        answer = estimate(
            "Qwen/Qwen3-8B", gpu=["rtx-5090", "rtx-3090"], engine="sglang", context_tokens=8192, **layout
        )
        return answer.deployment.requests(8192)

    if refused:
        with pytest.raises(InputError, match="refuses as unbalanced; allowed: --pipeline-parallel 2"):
            asked()
    else:
        assert asked() > 0
