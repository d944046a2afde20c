"""What divides over devices, what replicates, what is refused."""

import pytest

from kvreport.accounting.parallel import (
    Layout,
    allowed_tensor_parallel,
    check_context_parallel,
    check_tensor_parallel,
    kv_copies,
    kv_heads_per_rank,
    stage_layers,
)
from kvreport.accounting.weights import weights_by_component
from kvreport.catalog.load import Catalogue, open_catalogue
from kvreport.catalog.model import Model
from kvreport.errors import InputError


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return open_catalogue()


@pytest.fixture(scope="module")
def llama(catalogue: Catalogue) -> Model:
    return catalogue.model("meta-llama/Llama-3.1-8B-Instruct")


def test_kv_heads_divide_and_then_replicate() -> None:
    assert [kv_heads_per_rank(8, ranks) for ranks in (1, 2, 8, 16)] == [8, 4, 1, 1]
    assert [kv_copies(8, ranks) for ranks in (1, 2, 8, 16, 32)] == [1, 1, 1, 2, 4]


def test_sizes_that_divide_the_heads_are_allowed(catalogue: Catalogue, llama: Model) -> None:
    assert allowed_tensor_parallel(llama) == (1, 2, 4, 8, 16)
    # 28 query heads and 4 KV heads: 7 and 14 divide the first but not the second.
    assert allowed_tensor_parallel(catalogue.model("Qwen/Qwen2.5-7B")) == (1, 2, 4)


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
    with pytest.raises(InputError, match=r"at most the 1 copies that 8 ranks hold of 8 KV heads"):
        check_context_parallel(llama, 8, 2)
    with pytest.raises(InputError, match=r"a divisor of the tensor-parallel size 16"):
        check_context_parallel(llama, 16, 3)


def test_a_latent_is_a_copy_on_every_rank_so_its_tokens_may_be_divided(catalogue: Catalogue) -> None:
    check_context_parallel(catalogue.model("deepseek-ai/DeepSeek-V3"), 8, 8)


def test_windows_are_not_divided_by_tokens(catalogue: Catalogue) -> None:
    with pytest.raises(InputError, match="sliding layers"):
        check_context_parallel(catalogue.model("openai/gpt-oss-120b"), 16, 2)


def test_a_layout_multiplies_its_ways_but_context(llama: Model) -> None:
    layout = Layout(tensor=16, pipeline=2, data=3, decode_context=2)
    layout.check(llama)
    assert layout.devices == 96
    with pytest.raises(InputError, match="data parallel: found 0"):
        Layout(data=0).check(llama)


def test_pipeline_stages_share_the_layers_and_keep_the_ends(catalogue: Catalogue, llama: Model) -> None:
    whole = weights_by_component(llama, None, catalogue.weight_formats)
    first, last = Layout(pipeline=2).stage_weights(llama, whole)
    # 128,256 x 4,096 x 2 B at either end; the final norm (8 KiB) is spread with the layers.
    end = 128_256 * 4096 * 2
    layers = 16_060_522_496 - 2 * end
    assert first == last == end + layers // 2
    assert Layout(pipeline=2, data=2).total_weights(llama, whole) == 2 * 16_060_522_496


def test_a_tied_embedding_is_on_the_first_and_on_the_last_stage(catalogue: Catalogue) -> None:
    gemma = catalogue.model("google/gemma-3-27b-it")
    whole = weights_by_component(gemma, None, catalogue.weight_formats)
    assert "output_head" not in whole
    stages = Layout(pipeline=2).stage_weights(gemma, whole)
    assert sum(stages) >= sum(whole.values()) + whole["embedding"]
    assert sum(stages) <= sum(whole.values()) + whole["embedding"] + 2
