"""What divides over devices, what replicates, what is refused."""

import pytest

from kvreport.accounting.kv_cache import heads_per_rank
from kvreport.accounting.parallel import (
    Layout,
    allowed_tensor_parallel,
    check_context_parallel,
    check_tensor_parallel,
    stage_layers,
)
from kvreport.accounting.stages import stages
from kvreport.accounting.weights import weights_by_component
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.catalog.model import Model
from kvreport.errors import InputError


@pytest.fixture(scope="module")
def llama(catalog: Catalog) -> Model:
    return catalog.model("meta-llama/Llama-3.1-8B-Instruct")


def test_kv_heads_divide_and_then_replicate() -> None:
    assert [heads_per_rank(8, ranks) for ranks in (1, 2, 8, 16)] == [8, 4, 1, 1]


def test_sizes_that_divide_the_heads_are_allowed(catalog: Catalog, llama: Model) -> None:
    assert allowed_tensor_parallel(llama) == (1, 2, 4, 8, 16)
    # 28 query heads and 4 KV heads: 7 and 14 divide the first but not the second.
    assert allowed_tensor_parallel(catalog.model("Qwen/Qwen2.5-7B")) == (1, 2, 4)


def test_a_size_that_does_not_divide_is_refused_with_the_reason_and_the_way_out(llama: Model) -> None:
    message = r"Llama-3.1-8B.*found 3, which does not divide the 32 heads of .*q_proj.*16: 1, 2, 4, 8, 16$"
    with pytest.raises(InputError, match=message):
        check_tensor_parallel(llama, 3)
    check_tensor_parallel(llama, 16)


@pytest.mark.parametrize("ranks", [0, -1, 4096])
def test_a_size_out_of_range_is_refused(llama: Model, ranks: int) -> None:
    with pytest.raises(InputError, match=f"found {ranks}; allowed: 1 to 1024"):
        check_tensor_parallel(llama, ranks)


def test_leftover_layers_go_before_the_last_stage() -> None:
    # vLLM's distributed/utils.py: 61 layers over 4 stages are 15, 15, 16, 15.
    assert [len(stage) for stage in stage_layers(61, 4)] == [15, 15, 16, 15]
    assert [len(stage) for stage in stage_layers(10, 4)] == [2, 3, 3, 2]
    assert [list(stage) for stage in stage_layers(4, 2)] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("stages", [0, 5])
def test_more_stages_than_layers_are_refused(stages: int) -> None:
    with pytest.raises(InputError, match=f"pipeline parallel: found {stages}; allowed: 1 to 4"):
        stage_layers(4, stages)


def test_context_parallel_needs_copies_of_the_kv_heads(llama: Model) -> None:
    check_context_parallel(llama, 8, 1)
    check_context_parallel(llama, 16, 2)
    with pytest.raises(
        InputError, match=r"allowed: 1, because 8 ranks hold 8 KV heads once, or more tensor ranks"
    ):
        check_context_parallel(llama, 8, 2)
    with pytest.raises(InputError, match=r"a divisor of the tensor-parallel size 16"):
        check_context_parallel(llama, 16, 3)


def test_a_latent_is_a_copy_on_every_rank_so_its_tokens_may_be_divided(catalog: Catalog) -> None:
    check_context_parallel(catalog.model("deepseek-ai/DeepSeek-V3"), 8, 8)


def test_windows_are_not_divided_by_tokens(catalog: Catalog) -> None:
    with pytest.raises(InputError, match="sliding layers"):
        check_context_parallel(catalog.model("openai/gpt-oss-120b"), 16, 2)


def test_a_layout_multiplies_its_ways_but_context(llama: Model) -> None:
    layout = Layout(tensor=16, pipeline=2, data=3, decode_context=2)
    layout.check(llama)
    assert layout.devices == 96
    with pytest.raises(InputError, match="data parallel: found 0"):
        Layout(data=0).check(llama)


def stage_bytes(model: Model, number: int) -> list[int]:
    formats = open_catalog().weight_formats
    return [sum(weights_by_component(stage.model, None, formats).values()) for stage in stages(model, number)]


def test_pipeline_stages_share_the_layers_and_keep_the_ends(llama: Model) -> None:
    first, last = stage_bytes(llama, 2)
    # 128,256 x 4,096 x 2 B at either end; the last norm, 8 KiB, is on the last.
    assert last - first == 8192
    assert first + last == 16_060_522_496


def test_a_tied_embedding_is_on_the_first_and_on_the_last_stage(catalog: Catalog) -> None:
    gemma = catalog.model("google/gemma-3-27b-it")
    whole = weights_by_component(gemma, None, catalog.weight_formats)
    assert "output_head" not in whole
    assert sum(stage_bytes(gemma, 2)) == sum(whole.values()) + whole["embedding"]


@pytest.mark.parametrize("number", [2, 3, 4, 8])
@pytest.mark.parametrize(
    "name",
    [
        "deepseek-ai/DeepSeek-V3",  # three dense layers, then mixtures
        "Qwen/Qwen3.6-27B",  # states and attention alternate
        "openai/gpt-oss-120b",
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        "ai21labs/Jamba-v0.1",
    ],
)
def test_stages_are_the_whole_and_what_they_copy(catalog: Catalog, name: str, number: int) -> None:
    model = catalog.model(name)
    whole = weights_by_component(model, None, catalog.weight_formats)
    copied = 0 if "output_head" in whole else whole["embedding"]
    assert sum(stage_bytes(model, number)) == sum(whole.values()) + copied
    parts = stages(model, number)
    assert [part.layers.stop - part.layers.start for part in parts] == [
        part.model.layer_count for part in parts
    ]
    assert sum(part.model.layer_count for part in parts) == model.layer_count


def test_dense_layers_lead_so_the_first_stage_of_a_mixture_is_lighter(catalog: Catalog) -> None:
    first, *_, last = stages(catalog.model("deepseek-ai/DeepSeek-V3"), 4)
    held = [
        sum(row.count for row in part.model.weights if row.component == "routed_experts")
        for part in (first, last)
    ]
    # 61 layers in four: 15, 15, 16, 15; three dense layers first; 3 x 256 matrices per mixture.
    assert held == [(15 - 3) * 3 * 256, 15 * 3 * 256]
