"""Inkling, Muse Spark and readers of documents: counted on the meta device with transformers 5.23.0."""

import pytest
from huggingface_configs import CONFIGS
from reading import kinds, parts, read, total

from kvreport.accounting.engines.transformers import tensor_plan
from kvreport.accounting.kv_cache import held
from kvreport.catalog.model import Model
from kvreport.errors import InputError

# thinkingmachines/Inkling-Small, config.json of 2026-08-01, the keys that size anything.
SMALL_TEXT = CONFIGS["huggingface_autumn"]["SMALL_TEXT"]
SMALL: dict[str, dict[str, object]] = CONFIGS["huggingface_autumn"]["SMALL"]


def inkling_small(**text: object) -> Model:
    return read("InklingForConditionalGeneration", **{**SMALL, "text_config": {**SMALL_TEXT, **text}})


def inkling_2(**keys: object) -> Model:
    text = {"hidden_size": 4608, "num_hidden_layers": 48}
    return read("Inkling2ForConditionalGeneration", text_config=text, **keys)


def test_a_published_inkling_config_names_the_width_of_experts_as_the_checkpoint_does() -> None:
    model = inkling_small()
    # The repository's index says 531,912,898,740 bytes, which are these and the prediction layers.
    assert 0.990 < 2 * total(model) / 531_912_898_740 < 1
    experts = next(group for group in model.weights if group.component == "routed_experts")
    assert 2048 in experts.shape
    assert model.context_tokens == 1_048_576
    assert [index for index, kind in enumerate(kinds(model)) if kind == "full+state"] == list(range(5, 42, 6))


def test_inkling_has_the_prediction_layers_that_its_config_states() -> None:
    # The repositories state 265,956,439,090 parameters and, at 2 bytes but for 64 x 257 in float32, 1,904,604,285,204 bytes.
    ahead = {"num_nextn_predict_layers": 8, "local_layer_ids": [0, 2, 4, 5, 6, 7]}
    small = read("InklingForConditionalGeneration", **SMALL, mtp_config=ahead)
    assert parts(small)["mtp"] == 2_231_912_456
    assert total(small) + parts(small)["mtp"] == 265_956_439_090
    encoders = {
        "audio_config": {**SMALL["audio_config"], "decoder_dmodel": 6144},
        "vision_config": {**SMALL["vision_config"], "decoder_dmodel": 6144},
    }
    published = {
        **encoders,
        "text_config": {"hidden_size": 6144, "dense_mlp_idx": 2},
        "mtp_config": {"num_nextn_predict_layers": 8},
    }
    large = read("InklingForConditionalGeneration", **published)
    assert 2 * (total(large) + parts(large)["mtp"]) + 2 * 64 * 257 == 1_904_604_285_204


def test_the_convolutions_of_inkling_keep_three_columns_in_float32() -> None:
    model = read("InklingForCausalLM", hidden_size=6144)
    one, more = (int(held(model).request_bytes(length)) for length in (100_000, 100_001))
    # Eleven of 66 layers keep everything: 8 heads x 256 x 2 B.
    assert more - one == 11 * 8 * 256 * 2
    # 55 windows of 512 tokens (16 heads), and per layer 3 columns of keys, values and two residual streams.
    states = 4 * 3 * (11 * (2 * 1024 + 2 * 6144) + 55 * (2 * 2048 + 2 * 6144))
    assert one - 100_000 * (more - one) - 55 * 512 * 16 * 256 * 2 == states


def test_experts_of_inkling_2_are_mxfp8_where_the_published_config_is_silent() -> None:
    formats = {group.component: group.released for group in inkling_2().weights if group.released}
    assert formats == {"routed_experts": "mxfp8"}
    assert inkling_2().weight_format == "mxfp8"
    plain = inkling_2(transformers_version="5.23.0")
    assert {group.released for group in plain.weights} == {None}


def hunyuan_ocr(*, nested: bool) -> Model:
    text = {
        "attention_head_dim": 16,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "org_vocab_size": 1000,
    }
    vision = {
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
    }
    keys = {"text_config": text} if nested else text
    return read("HunYuanVLForConditionalGeneration", vision_config=vision, **keys)


def test_hunyuan_ocr_is_read_with_its_text_keys_in_a_section_or_at_the_top() -> None:
    assert total(hunyuan_ocr(nested=True)) == total(hunyuan_ocr(nested=False)) == 1_344_128


def test_granite_4_vision_has_a_projector_per_layer_of_the_map_and_four_by_place() -> None:
    def granite(layers: int) -> Model:
        return read(
            "Granite4VisionForConditionalGeneration",
            text_config={"hidden_size": 4096, "num_hidden_layers": 32},
            deepstack_layer_map=[[1, index] for index in range(layers)],
            downsample_rate="3/8",
        )

    assert total(granite(2)) == 6_901_840_128
    # Queries of 3 x 3, positions of 8 x 8, one block of the Q-Former, and the way to the text.
    block = 8 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 3 * 2 * 768
    projector = (9 + 64 + 4) * 768 + block + 4096 * 768 + 4096
    assert total(granite(3)) - total(granite(2)) == projector


def test_what_transformers_holds_of_lightning_and_delayed_states_equals_its_tensors() -> None:
    # The small models of the class table, run on the CPU with 128 and 256 tokens in bfloat16.
    minimax = read(
        "MiniMaxForCausalLM",
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=32,
        num_key_value_heads=8,
        layer_types=["full_attention", "linear_attention"] * 2,
    )
    zaya = read(
        "ZayaForCausalLM",
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=128,
        layer_types=["hybrid"] * 4,
    )
    held_by = [tensor_plan(model, None, 1).profile.request_bytes for model in (minimax, zaya)]
    assert [int(bytes_at(128)) for bytes_at in held_by] == [73_728, 545_792]
    assert [int(bytes_at(256)) for bytes_at in held_by] == [139_264, 1_070_080]


def test_what_transformers_holds_of_rwkv_and_xlstm_equals_its_tensors() -> None:
    # The small models of the class table, run on the CPU in bfloat16, whatever the length.
    rwkv = read("RwkvForCausalLM", hidden_size=256, num_hidden_layers=4, context_length=1024)
    xlstm = read("xLSTMForCausalLM", hidden_size=256, num_hidden_layers=4, num_blocks=4, num_heads=8)
    held_by = [tensor_plan(model, None, 1).profile.request_bytes for model in (rwkv, xlstm)]
    assert [int(bytes_at(128)) for bytes_at in held_by] == [16_384, 33_856]


# The sizes of nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B, one layer of each kind.
NEMOTRON = CONFIGS["huggingface_autumn"]["NEMOTRON"]


def _predicted(model: Model) -> int:
    return sum(group.parameters for group in model.weights if group.component == "mtp")


@pytest.mark.parametrize(
    "said",
    [
        {"mtp_layers_block_type": ["attention", "moe"]},
        {"mtp_hybrid_override_pattern": "*E"},
        {},
    ],
)
def test_prediction_layers_of_nemotron_h_are_counted_at_16_bits(said: dict[str, object]) -> None:
    quantized = {"quant_method": "modelopt", "quant_algo": "FP8"}
    model = read(
        "NemotronHForCausalLM", **NEMOTRON, num_nextn_predict_layers=1, quantization_config=quantized, **said
    )
    attention = 2 * 4096 * 2688 + 2 * 256 * 2688
    mixture = 128 * 2688 + 128 + 2 * 128 * 1856 * 2688 + 2 * 3712 * 2688
    # The join of two streams, and norms: two before it, one in each block, one at the end.
    assert _predicted(model) == attention + mixture + 2 * 2688 * 2688 + 5 * 2688
    assert {group.released for group in model.weights if group.component == "mtp"} == {None}
    assert _predicted(read("NemotronHForCausalLM", **NEMOTRON)) == 0


MOE = {key: size for key, size in NEMOTRON.items() if key.startswith(("moe_", "n_routed", "num_experts"))}
SHARED = {key: size for key, size in NEMOTRON.items() if key not in MOE and key != "layers_block_type"}
PUZZLE: dict[str, object] = {**SHARED, "num_nextn_predict_layers": 1}


def puzzle(*blocks: dict[str, object], **more: object) -> Model:
    return read("NemotronHPuzzleForCausalLM", **PUZZLE, **more, block_configs=list(blocks))


def test_blocks_of_puzzle_that_say_what_the_plain_class_says_are_the_same_model() -> None:
    plain = read("NemotronHForCausalLM", **NEMOTRON, num_nextn_predict_layers=1)
    mixture = {"block_type": "moe", **MOE}
    ahead = [{"block_type": "attention"}, mixture]
    model = puzzle({"block_type": "mamba"}, mixture, {"block_type": "attention"}, mtp_block_configs=ahead)
    assert (model.weights, model.layers, model.experts) == (plain.weights, plain.layers, plain.experts)


def test_each_block_of_puzzle_has_its_own_sizes() -> None:
    small = {
        **MOE,
        "block_type": "moe",
        "n_routed_experts": 64,
        "num_experts_per_tok": 4,
        "moe_latent_size": 1024,
    }
    blocks: list[dict[str, object]] = [
        {"block_type": "moe", **MOE},
        small,
        {"block_type": "attention", "sliding_window": 4096},
        {"block_type": "attention"},
        {"block_type": "mamba", "ssm_state_size": 96},
        {"block_type": "mamba"},
        {"block_type": "mlp", "intermediate_size": 5000},
    ]
    model = puzzle(*blocks, mtp_block_configs=blocks[:1])
    each = dict.fromkeys(["routed_experts", "dense_mlp"], 0)
    for group in model.weights:
        if group.component in each:
            each[group.component] += group.parameters
    assert each["routed_experts"] == 2 * 1856 * (128 * 2688 + 64 * 1024)
    assert each["dense_mlp"] == 2 * 5000 * 2688
    assert kinds(model) == ["", "", "sliding", "full", "state", "state", ""]
    assert model.experts is not None
    assert (model.experts.routed, model.experts.per_token) == (128, 6)
    states = [group.caches for group in model.layers if group.name == "Mamba-2"]
    assert len(states) == 2
    assert states[0] != states[1]


def test_prediction_layers_of_deepseek_v4_have_the_formats_of_its_layers() -> None:
    quantized = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    config = {
        "hidden_size": 4096,
        "num_hidden_layers": 4,
        "compress_ratios": [0, 0, 4, 128],
        "expert_dtype": "fp4",
        "quantization_config": quantized,
    }
    model = read("DeepseekV4ForCausalLM", **config, num_nextn_predict_layers=1)
    forms = {group.name: group.released for group in model.weights if group.component == "mtp"}
    assert forms["mtp.0.attn.wq_a.weight"] == "fp8-block"
    assert forms["mtp.0.e_proj.weight"] == "fp8-block"
    assert forms["mtp.0.ffn.experts.*.w1.weight"] == "mxfp4"
    assert forms["mtp.0.hc_head_fn"] == "fp32"
    assert forms["mtp.0.ffn.gate.weight"] is None
    # A copy that quantizes the layers' experts further leaves these as they were.
    listed = {f"layers.{index}.ffn.experts": {"quant_algo": "NVFP4"} for index in range(4)}
    further = {**quantized, "quantized_layers": listed}
    copy = read(
        "DeepseekV4ForCausalLM", **{**config, "quantization_config": further}, num_nextn_predict_layers=1
    )
    again = {group.name: group.released for group in copy.weights if ".experts." in group.name}
    assert again["layers.*.ffn.experts.*.w1.weight"] == "nvfp4"
    assert again["mtp.0.ffn.experts.*.w1.weight"] == "mxfp4"


def test_fastvlm_is_read_with_the_one_tower_that_its_releases_have() -> None:
    text = {"hidden_size": 3584}
    tower = {"architecture": "fastvit_mci3", "hidden_size": 3072, "model_args": {"inference_mode": True}}
    model = read(
        "FastVlmForConditionalGeneration", text_config={**text, "num_hidden_layers": 2}, vision_config=tower
    )
    vision = sum(group.parameters for group in model.weights if group.component == "vision")
    # FastViT, counted on the meta device with transformers 5.23, and two layers of the projector.
    assert vision - 2 * 3584 - 3584 * (3072 + 3584) == 122_714_208
    for wrong in ({"architecture": "vit_base_patch16_224"}, {"model_args": {"inference_mode": False}}):
        with pytest.raises(InputError, match="vision_config"):
            read("FastVlmForConditionalGeneration", text_config=text, vision_config={**tower, **wrong})
