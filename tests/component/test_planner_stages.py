"""Whole models over pipeline stages, against vLLM 0.33.0's own planner run without a GPU.

The layers were dealt to as many workers as there are stages; for 40 GiB on each, at 32,768 tokens, the engine said
these blocks, tokens and concurrency. ``scripts/check_planner.py`` compares a whole run.
"""

import pytest

from kvreport.accounting import capacity
from kvreport.accounting.deployment import Case, Deployment, lay_out
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import Serving
from kvreport.catalog.load import Catalog
from kvreport.errors import InputError
from kvreport.units import GIB

CONTEXT = 32_768

SPOTS = [
    # model, tp, stages, kv, blocks, tokens, concurrency
    ("moonshotai/Kimi-K3", 1, 3, None, 719, 1_570_679, 47.933333),
    ("moonshotai/Kimi-K3", 8, 8, None, 12_136, 7_647_547, 233.384615),
    ("moonshotai/Kimi-K3", 8, 4, "fp8", 6_935, 7_330_518, 223.709677),
    ("Qwen/Qwen3.6-27B", 1, 3, None, 2_100, 1_404_342, 42.857143),
    ("Qwen/Qwen3.6-27B", 1, 8, "fp8", 6_553, 7_157_623, 218.433333),
    ("deepseek-ai/DeepSeek-V4-Pro", 8, 3, None, 81_940, 394_274, 12.032305),
    ("deepseek-ai/DeepSeek-V4-Pro", 1, 8, None, 224_594, 1_080_689, 32.980029),
]


def laid(catalog: Catalog, model: str, layout: Layout, kv: str | None = None) -> Deployment:
    found = catalog.model(model)
    return lay_out(
        Case(
            model=found,
            engine=catalog.engine("vllm"),
            accelerators=(catalog.accelerator("h100-sxm-80gb"),),
            formats=catalog.weight_formats,
            kv_format=catalog.kv_format(kv) if kv else None,
            layout=layout,
            serving=Serving(max_batched_tokens=8192),
        )
    )


@pytest.mark.parametrize("spot", SPOTS, ids=lambda spot: f"{spot[0]}-tp{spot[1]}-pp{spot[2]}-{spot[3]}")
def test_stages_have_their_layers_of_the_groups_of_the_whole_model(catalog: Catalog, spot: tuple) -> None:
    model, tp, stages, kv, blocks, tokens, concurrency = spot
    plans = [rank.plan for rank in laid(catalog, model, Layout(tensor=tp, pipeline=stages), kv).ranks]
    assert min(int(capacity.blocks(40 * GIB, plan)) for plan in plans) == blocks
    printed = min(float(capacity.concurrency(40 * GIB, plan, CONTEXT)) for plan in plans)
    assert round(printed, 6) == concurrency
    assert int(printed * CONTEXT) == tokens


def test_a_stage_without_layers_of_a_group_still_gives_it_blocks(catalog: Catalog) -> None:
    # Qwen3.6-27B has 3 groups of states and 1 of attention: 8 stages of 8 layers each keep all four.
    whole = laid(catalog, "Qwen/Qwen3.6-27B", Layout())
    staged = laid(catalog, "Qwen/Qwen3.6-27B", Layout(pipeline=8))
    blocks = int(whole.plan.profile.request_bytes(CONTEXT)) // whole.plan.block_bytes
    for rank in staged.ranks:
        assert int(rank.plan.profile.request_bytes(CONTEXT)) // rank.plan.block_bytes == blocks


def test_a_stage_without_any_cache_is_refused_as_the_engine_fails_on_it(catalog: Catalog) -> None:
    # Layers 60 to 69 of this model have no attention; the engine's planner divides by the size of their cache.
    with pytest.raises(InputError, match=r"stage of layers 60 to 69 without a cache.*fewer stages"):
        laid(catalog, "nvidia/Llama-3_3-Nemotron-Super-49B-v1", Layout(pipeline=8))
