"""Weight bytes against figures worked by hand, published sizes and engines' own logs."""

import pytest

from kvreport.accounting.weights import (
    active_parameters,
    padded_vocabulary,
    parameters,
    parameters_by_component,
    released_bytes,
    tensor_bytes,
    weight_bytes,
    weights_by_component,
)
from kvreport.catalog.base import Source
from kvreport.catalog.caches import FullAttention
from kvreport.catalog.formats import WeightFormat, WiderTensors
from kvreport.catalog.load import Catalog
from kvreport.catalog.model import Experts, LayerGroup, Model, WeightGroup
from kvreport.catalog.variant import is_matrix
from kvreport.errors import InputError

LINEAR = ("attention", "dense_mlp", "routed_experts", "shared_experts", "recurrent")
FP8_BLOCK = WeightFormat(
    name="fp8-block", label="made up", bits=8, block=(128, 128), scale_bytes=4, quantises=LINEAR
)
INT4 = WeightFormat(name="int4", label="made up", bits=4, block=(1, 128), scale_bytes=2.5, quantises=LINEAR)
MXFP4 = WeightFormat(name="mxfp4", label="made up", bits=4, block=(1, 32), scale_bytes=1, quantises=LINEAR)
NVFP4 = WeightFormat(
    name="nvfp4", label="made up", bits=4, block=(1, 16), scale_bytes=1, tensor_bytes=4, quantises=LINEAR
)
BY_NAME = {form.name: form for form in (FP8_BLOCK, INT4, MXFP4, NVFP4)}


def row(name: str, component: str, shape: tuple[int, ...], **fields: object) -> WeightGroup:
    return WeightGroup.model_validate({"name": name, "component": component, "shape": shape, **fields})


def model(*rows: WeightGroup, **fields: object) -> Model:
    """One layer of 8 heads and 2 KV heads, width 1,024."""
    source = Source(covers=("layers", "weights", "context_tokens"), title="made up", evidence="derived")
    cache = FullAttention(kv_heads=2, key_dim=128, value_dim=128)
    return Model.model_validate(
        {
            "id": "test/model",
            "name": "Test",
            "family": "Test",
            "maker": "Test",
            "architecture": "TestForCausalLM",
            "context_tokens": 4096,
            "weight_format": "bf16",
            "hidden_size": 1024,
            "attention_heads": 8,
            "vocabulary": 1000,
            "layers": (LayerGroup(name="full", layers="0", caches=(cache,)),),
            "weights": rows,
            "sources": (source,),
            **fields,
        }
    )


SMALL = model(
    row("embed", "embedding", (1000, 1024), split="vocabulary"),
    row("head", "output_head", (1000, 1024), split="vocabulary"),
    row("q_proj.weight", "attention", (1024, 1024), split="heads", heads=8),
    row("k_proj.weight", "attention", (256, 1024), split="kv_heads", heads=2),
    row("k_proj.bias", "attention", (256,), split="kv_heads", heads=2),
    row("up_proj.weight", "dense_mlp", (2048, 1024), split="columns"),
    row("down_proj.weight", "dense_mlp", (1024, 2048), split="rows"),
    row("norm.weight", "norms", (1024,), count=2),
    row("mtp.weight", "mtp", (1024, 1024)),
)


def test_a_block_scaled_matrix_pays_for_blocks_that_are_cut_off() -> None:
    # 200 x 300 at 8 bits: 60,000 B, and 2 x 3 blocks of 128 x 128 with 4 B each.
    assert tensor_bytes((200, 300), FP8_BLOCK) == 60_000 + 6 * 4


def test_int4_pays_a_scale_and_half_a_byte_of_zero_point_per_group() -> None:
    # 4096 x 4096: 8 MiB of nibbles and 4096 x 32 groups of 2.5 B: 4.15625 bits per weight.
    assert tensor_bytes((4096, 4096), INT4) == 8_388_608 + 131_072 * 5 // 2
    assert tensor_bytes((4096, 4096), INT4) * 8 / 4096**2 == 4.15625


def test_four_bit_floats_cost_their_shared_scales() -> None:
    # NVFP4: 4 + 8/16 bits and 4 B once; MXFP4: 4 + 8/32 bits.
    assert tensor_bytes((1024, 1024), NVFP4) == 1024 * 1024 * 9 // 16 + 4
    assert tensor_bytes((1024, 1024), MXFP4) == 1024 * 1024 * 17 // 32


def test_a_zero_in_the_block_means_the_whole_side() -> None:
    channel = WeightFormat(name="c", label="made up", bits=8, block=(1, 0), scale_bytes=4)
    whole = WeightFormat(name="t", label="made up", bits=8, block=(0, 0), scale_bytes=4)
    assert tensor_bytes((64, 100), channel) == 6400 + 64 * 4
    assert tensor_bytes((64, 100), whole) == 6400 + 4


def test_stacked_experts_are_so_many_matrices() -> None:
    assert tensor_bytes((8, 200, 300), FP8_BLOCK) == 8 * tensor_bytes((200, 300), FP8_BLOCK)


def test_an_unquantised_tensor_costs_its_elements() -> None:
    assert tensor_bytes((3, 5), None) == 30
    assert tensor_bytes((3, 5), None, plain_bytes=4) == 60


def test_kernels_and_vectors_are_no_matrices() -> None:
    assert is_matrix((64, 32))
    assert is_matrix((128, 64, 32))
    assert not is_matrix((4096,))
    assert not is_matrix((8192, 1, 4))
    assert not is_matrix((8192, 4))
    assert not is_matrix((1, 4096))


def test_a_format_leaves_what_it_does_not_quantise_at_sixteen_bits() -> None:
    plain = weights_by_component(SMALL, None, BY_NAME)
    fp8 = weights_by_component(SMALL, FP8_BLOCK, BY_NAME)
    assert fp8["embedding"] == plain["embedding"]
    assert fp8["norms"] == plain["norms"] == 2 * 1024 * 2
    # up and down: 2,048 x 1,024 B each and 16 x 8 scales of 4 B each.
    assert fp8["dense_mlp"] == 2 * (2048 * 1024 + 128 * 4)
    # q and k with 64 + 16 scales; the bias stays at 2 B.
    assert fp8["attention"] == 1280 * 1024 + 80 * 4 + 256 * 2


def test_multi_token_prediction_is_left_out_unless_asked_for() -> None:
    assert "mtp" not in weights_by_component(SMALL, None, BY_NAME)
    assert weights_by_component(SMALL, None, BY_NAME, without=())["mtp"] == 1024 * 1024 * 2


def test_the_vocabulary_is_padded_to_sixty_four_rows_and_then_divided() -> None:
    assert padded_vocabulary(1000) == 1024
    assert padded_vocabulary(128_256) == 128_256
    assert weights_by_component(SMALL, None, BY_NAME)["embedding"] == 1024 * 1024 * 2
    assert weights_by_component(SMALL, None, BY_NAME, 4)["embedding"] == 256 * 1024 * 2
    # The checkpoint itself is not padded.
    assert released_bytes(SMALL, BY_NAME) == 2 * sum(r.parameters for r in SMALL.weights)


def test_kv_heads_replicate_once_there_are_more_ranks_than_heads() -> None:
    def attention(ranks: int) -> int:
        return weights_by_component(SMALL, None, BY_NAME, ranks)["attention"]

    q, k = 1024 * 1024 * 2, 256 * 1024 * 2 + 256 * 2
    assert attention(1) == q + k
    assert attention(2) == q // 2 + k // 2
    assert attention(4) == q // 4 + k // 2
    assert attention(8) == q // 8 + k // 2


def test_norms_are_whole_on_every_rank() -> None:
    assert weights_by_component(SMALL, None, BY_NAME, 8)["norms"] == 2 * 1024 * 2


def test_groups_that_do_not_divide_are_extended_to_one_per_rank() -> None:
    one = model(row("bc_proj.weight", "recurrent", (256, 1024), split="groups", heads=1))
    two = model(row("bc_proj.weight", "recurrent", (256, 1024), split="groups", heads=2))
    assert weight_bytes(one, None, BY_NAME, 8) == 256 * 1024 * 2
    assert weight_bytes(two, None, BY_NAME, 8) == 128 * 1024 * 2


def test_a_released_tensor_keeps_its_own_format_and_a_conversion_replaces_it() -> None:
    mixed = model(
        row("experts.up_proj.weight", "routed_experts", (1024, 1024), count=4, released="mxfp4"),
        row("q_proj.weight", "attention", (1024, 1024)),
    )
    released = weights_by_component(mixed, None, BY_NAME)
    assert released == {"attention": 2 << 20, "routed_experts": 4 * (1 << 20) * 17 // 32}
    assert weights_by_component(mixed, FP8_BLOCK, BY_NAME)["routed_experts"] == 4 * ((1 << 20) + 256)


def test_an_unknown_released_format_is_refused_with_the_known_ones() -> None:
    odd = model(row("q.weight", "attention", (64, 64), released="int3"))
    with pytest.raises(
        InputError, match=r"test/model: weights: q.weight: found released format 'int3'.*mxfp4"
    ):
        weight_bytes(odd, None, BY_NAME)


def test_a_float32_checkpoint_is_served_at_sixteen_bits_but_downloaded_at_thirty_two() -> None:
    wide = model(row("q.weight", "attention", (64, 64)), dtype="float32")
    assert weight_bytes(wide, None, BY_NAME) == 64 * 64 * 2
    assert released_bytes(wide, BY_NAME) == 64 * 64 * 4


def test_a_mixed_format_names_its_wider_tensors() -> None:
    mixture = WeightFormat(
        name="mix",
        label="made up",
        bits=4.5,
        quantises=("embedding", "output_head", "attention"),
        wider=(
            WiderTensors(component="output_head", bits=6.5),
            WiderTensors(component="embedding", bits=6.5, tied_only=True),
            WiderTensors(component="attention", names=("v_proj",), bits=5.5),
        ),
    )
    rows = (
        row("embed.weight", "embedding", (64, 64), split="vocabulary"),
        row("a.k_proj.weight", "attention", (64, 64)),
        row("a.v_proj.weight", "attention", (64, 64)),
    )
    n = 64 * 64 // 8
    tied = weights_by_component(model(*rows), mixture, {})
    assert tied == {"embedding": n * 6.5, "attention": n * (4.5 + 5.5)}
    head = row("lm_head.weight", "output_head", (64, 64), split="vocabulary")
    untied = weights_by_component(model(*rows, head), mixture, {})
    assert untied == {"embedding": n * 4.5, "output_head": n * 6.5, "attention": n * (4.5 + 5.5)}


def test_active_parameters_count_the_experts_that_a_token_is_sent_to() -> None:
    mixture = model(
        row("q", "attention", (10, 10)),
        row("experts", "routed_experts", (10, 10), count=8),
        row("vision", "vision", (10, 10)),
        row("mtp", "mtp", (10, 10)),
        experts=Experts(routed=8, per_token=2),
    )
    assert parameters_by_component(mixture) == {
        "attention": 100, "routed_experts": 800, "vision": 100, "mtp": 100,
    }  # fmt: skip
    assert parameters(mixture) == 1000
    assert active_parameters(mixture) == 300


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        # Counted on the meta device with transformers 5.23.0.
        ("meta-llama/Llama-3.1-8B-Instruct", 8_030_261_248, 8_030_261_248),
        ("meta-llama/Llama-2-7b-hf", 6_738_415_616, 6_738_415_616),
        ("Qwen/Qwen2.5-7B", 7_615_616_512, 7_615_616_512),
        ("openai/gpt-oss-120b", 116_829_156_672, 5_711_982_912),
        ("deepseek-ai/DeepSeek-V3", 671_026_419_200, 37_552_297_472),
        ("google/gemma-3-27b-it", 27_432_406_640, 27_009_346_304),
    ],
)
def test_parameters_of_published_models_are_exact(
    catalog: Catalog, name: str, total: int, active: int
) -> None:
    assert parameters(catalog.model(name)) == total
    assert active_parameters(catalog.model(name)) == active


def test_llama_31_8b_weighs_two_bytes_per_parameter(catalog: Catalog) -> None:
    llama = catalog.model("meta-llama/Llama-3.1-8B-Instruct")
    assert weight_bytes(llama, None, catalog.weight_formats) == 16_060_522_496
    assert weight_bytes(llama, catalog.weight_format("fp16"), catalog.weight_formats) == 16_060_522_496
    assert released_bytes(llama, catalog.weight_formats) == 16_060_522_496


@pytest.mark.parametrize(
    ("form", "bits"),
    [("q8_0", 8.5008), ("q4_k_m", 4.8944)],  # llama.cpp, tools/quantize/README.md, Llama-3.1-8B
)
def test_gguf_formats_reach_the_published_bits_per_weight(catalog: Catalog, form: str, bits: float) -> None:
    llama = catalog.model("meta-llama/Llama-3.1-8B-Instruct")
    size = weight_bytes(llama, catalog.weight_format(form), catalog.weight_formats)
    assert size * 8 / parameters(llama) == pytest.approx(bits, abs=0.0015)


def test_gpt_oss_120b_as_released_is_the_size_of_its_checkpoint(catalog: Catalog) -> None:
    # The published safetensors hold 65.25 GB (60.77 GiB): MXFP4 experts, everything else BF16.
    oss = catalog.model("openai/gpt-oss-120b")
    assert released_bytes(oss, catalog.weight_formats) / 2**30 == pytest.approx(60.77, abs=0.005)
