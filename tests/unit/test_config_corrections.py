"""Readings that were silently wrong once; the figures are transformers 5.23's own, on the meta device."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_configs import CONFIGS

from kvreport.architectures import read_config, read_config_report
from kvreport.catalog.caches import FullAttention, RecurrentState, SlidingWindow
from kvreport.catalog.model import Model
from kvreport.errors import InputError

LLAMA_SECTION: dict[str, Any] = CONFIGS["config_corrections"]["LLAMA_SECTION"]


def total(model: Model, *components: str) -> int:
    return sum(row.parameters for row in model.weights if not components or row.component in components)


def test_bailing_hybrid_states_its_linear_heads_under_their_own_names() -> None:
    # transformers writes the rotary width as head_dim and the linear heads' as linear_head_dim.
    config = {"architectures": ["BailingHybridForCausalLM"], "head_dim": 64, "linear_head_dim": 128}
    model = read_config(config | {"linear_num_heads": 32}, assume_defaults=True)
    assert total(model) == 124_414_211_552
    states = [c for group in model.layers for c in group.caches if isinstance(c, RecurrentState)]
    assert states[0].tensors[1].columns == 128 * 128


def test_mimo_v2_5_has_encoders_and_prediction_layers() -> None:
    config = {
        "architectures": ["MiMoV2ForCausalLM"],
        "audio_config": {
            "audio_channels": 20,
            "out_hidden_size": 4096,
            "projection_layers": 2,
            "speech_vocab_size": "1280",
        },
        "num_nextn_predict_layers": 3,
        "vision_config": {"depth": 28, "fullatt_block_indexes": [0, 9, 18, 27], "hidden_size": 1280},
    }
    model = read_config(config, assume_defaults=True)
    # 0.73 B in the tower and 0.33 B in each prediction layer, as the model's report has it.
    assert total(model, "vision") == 728_594_432
    assert round(total(model, "mtp") / 3, -7) == 330_000_000
    assert total(model, "audio") == 261_127_168


MIMO_V2_6: dict[str, Any] = {
    "architectures": ["MiMoV2ForCausalLM"],
    "attention_bias": False,
    "head_dim": 192,
    "hidden_size": 4096,
    "hybrid_layer_pattern": [0, 1, 1, 1, 1, *[0, 1, 1, 1, 1, 1] * 7, 0],
    "intermediate_size": 16384,
    "max_position_embeddings": 1048576,
    "moe_intermediate_size": 2048,
    "moe_layer_freq": [0, *[1] * 47],
    "n_routed_experts": 256,
    "num_attention_heads": 64,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "num_nextn_predict_layers": 3,
    "sliding_window": 128,
    "swa_head_dim": 192,
    "swa_num_attention_heads": 64,
    "swa_num_key_value_heads": 8,
    "swa_v_head_dim": 128,
    "v_head_dim": 128,
    "vocab_size": 152576,
    "quantization_config": {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "weight_block_size": [128, 128],
        "store_dtype": "mxfp4",
        "mxfp4_block_size": 32,
        "ignored_layers": [
            *(f"model.layers.{layer}.self_attn.o_proj" for layer in range(48)),
            "model.decoder.self_attn.o_proj",
        ],
    },
}


def test_experts_of_an_fp8_checkpoint_are_stored_as_it_says() -> None:
    model = read_config(MIMO_V2_6, assume_defaults=True)
    # Headers of MiMo-V2.6-Flash-RL at 5711b26: 160,859,947,008 bytes of packed values and scales, 3,859,808,256 of FP8.
    experts = total(model, "routed_experts")
    assert experts // 2 + experts // 32 == 160_859_947_008
    assert {row.released for row in model.weights if row.component == "routed_experts"} == {"mxfp4"}
    assert sum(row.parameters for row in model.weights if row.released == "fp8-block") == 3_859_808_256
    # A prediction layer's output projection and the layer that joins its inputs stay wide.
    wide = {row.name.split(".")[-2] for row in model.weights if row.component == "mtp" and not row.released}
    assert {"eh_proj", "o_proj"} <= wide


def test_glm_5_3_flash_has_the_prediction_layer_that_its_config_states() -> None:
    text = {"hidden_size": 4096, "index_kpool": 4, "num_nextn_predict_layers": 1}
    quantizer = {
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": [
            *("lm_head", "model.visual", "indexer", "kv_b_proj"),
            *(f"model.language_model.layers.{layer}.self_attn" for layer in range(45) if layer % 4 != 3),
        ],
    }
    config = {
        "architectures": ["Glm5NextForConditionalGeneration"],
        "text_config": text,
        "vision_config": {"out_hidden_size": 4096, "projection_intermediate_size": 10240},
    }
    model = read_config({**config, "quantization_config": quantizer}, assume_defaults=True)
    # The release's headers: 321,322,735,872 elements in FP8 and BF16, and 295,518 in float32 that are not scales.
    assert total(model) == 321_322_735_872 + 295_518
    assert sum(row.parameters for row in model.weights if row.released == "fp8-block") == 314_396_639_232


SECTIONED = (
    "LlavaNextForConditionalGeneration",
    "LlavaForConditionalGeneration",
    "VoxtralForConditionalGeneration",
)
"""Classes whose text is a Llama here."""


@pytest.mark.parametrize(
    ("architecture", "inner", "outer", "has_head"),
    [
        ("LlavaNextForConditionalGeneration", True, False, True),
        ("LlavaNextForConditionalGeneration", False, True, False),
        ("LlavaForConditionalGeneration", True, False, False),
        ("VoxtralForConditionalGeneration", True, True, True),
        ("Qwen2AudioForConditionalGeneration", True, False, True),
        ("Qwen2AudioForConditionalGeneration", False, True, True),
        ("Qwen2VLForConditionalGeneration", True, False, False),
        ("Qwen2_5_VLForConditionalGeneration", True, False, False),
        ("Qwen2_5_VLForConditionalGeneration", False, False, True),
        ("Glm4vForConditionalGeneration", True, False, False),
        ("Glm4vMoeForConditionalGeneration", True, False, False),
        ("Glm46VForConditionalGeneration", True, False, True),
        ("Glm46VForConditionalGeneration", False, True, False),
        ("GlmOcrForConditionalGeneration", True, False, False),
        ("PaddleOCRVLForConditionalGeneration", False, False, True),
        ("PaddleOCRVLForConditionalGeneration", True, False, False),
        ("MllamaForConditionalGeneration", True, True, True),
        ("Llama4ForConditionalGeneration", False, True, True),
        ("Step3p7ForConditionalGeneration", True, False, True),
    ],
)
def test_each_class_asks_its_own_place_whether_the_head_is_tied(
    architecture: str, inner: bool, outer: bool, has_head: bool
) -> None:
    config = {
        "architectures": [architecture],
        "text_config": (LLAMA_SECTION if architecture in SECTIONED else {}) | {"tie_word_embeddings": inner},
        "tie_word_embeddings": outer,
        **({"model_type": "glm46v"} if "Glm46V" in architecture else {}),
    }
    model = read_config(config, assume_defaults=True)
    assert (total(model, "output_head") > 0) is has_head


def test_shieldgemma_2_ties_its_head_if_its_text_part_says_so() -> None:
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "shieldgemma2",
        "text_config": {"model_type": "gemma3_text"},
        "tie_word_embeddings": False,
    }
    assert not total(read_config(config, assume_defaults=True), "output_head")
    config["text_config"] = {"model_type": "gemma3_text", "tie_word_embeddings": False}
    assert total(read_config(config, assume_defaults=True), "output_head")


def test_zamba_shares_one_block_unless_nothing_is_tied() -> None:
    block = {"architectures": ["ZambaForCausalLM"], "num_hidden_layers": 6}
    kinds = ["mamba", "hybrid", "mamba", "hybrid", "mamba", "hybrid"]
    small = block | {"layers_block_type": kinds, "hidden_size": 64, "num_attention_heads": 4}
    tied, untied = (
        read_config(small | {"tie_word_embeddings": tie}, assume_defaults=True) for tie in (True, False)
    )
    once = total(tied, "dense_mlp")
    assert once
    assert total(untied, "dense_mlp") == 3 * once


def test_aria_s_projector_has_the_queries_that_its_config_states() -> None:
    usual, wide = (
        read_config(
            {"architectures": ["AriaForConditionalGeneration"], "text_config": {}, **more},
            assume_defaults=True,
        )
        for more in ({}, {"max_value_projector_patch_to_query_dict": 512})
    )
    width = next(row.shape[1] for row in usual.weights if row.name.endswith("multi_modal_projector.query"))
    assert total(wide) - total(usual) == 256 * width


def test_muse_glimmer_s_projector_reads_out_hidden_size() -> None:
    wide, narrow = (
        read_config(
            {
                "architectures": ["MuseGlimmerForConditionalGeneration"],
                "out_hidden_size": width,
                "text_config": {"num_hidden_layers": 4},
            },
            assume_defaults=True,
        )
        for width in (6144, 3072)
    )
    assert total(wide) - total(narrow) == 3072 * 4096


def test_windows_of_mimo_v2_have_twice_the_heads_unless_it_says_otherwise() -> None:
    config = {"architectures": ["MiMoV2FlashForCausalLM"], "num_key_value_heads": 8}
    model = read_config(config, assume_defaults=True)
    windows = [c for group in model.layers for c in group.caches if isinstance(c, SlidingWindow)]
    full = [c for group in model.layers for c in group.caches if isinstance(c, FullAttention)]
    assert windows[0].kv_heads == 2 * full[0].kv_heads == 16


def test_sizes_of_single_layers_are_read_or_refused() -> None:
    gemma = {"architectures": ["Gemma4ForCausalLM"]}
    usual = read_config(gemma, assume_defaults=True)
    own = read_config(gemma | {"per_layer_config": {"05": {"head_dim": 256}}}, assume_defaults=True)
    assert total(own) < total(usual)
    with pytest.raises(InputError, match=r"per_layer_config.05.intermediate_size"):
        read_config(gemma | {"per_layer_config": {"05": {"intermediate_size": 8}}}, assume_defaults=True)
    llama = {**LLAMA_SECTION, "architectures": ["LlamaForCausalLM"]}
    with pytest.raises(InputError, match=r"per_layer_config: found"):
        read_config(llama | {"per_layer_config": {"0": {"intermediate_size": 8}}})


def test_biases_that_a_class_does_not_build_are_not_counted() -> None:
    nemotron = {
        "architectures": ["NemotronHForCausalLM"],
        "hybrid_override_pattern": "M*-",
        "num_hidden_layers": 3,
    }
    plain = total(read_config(nemotron, assume_defaults=True))
    assert total(read_config(nemotron | {"mamba_proj_bias": True}, assume_defaults=True)) == plain
    deepseek = {"architectures": ["DeepseekV2ForCausalLM"], "num_experts_per_tok": None}
    reading = read_config_report(deepseek, assume_defaults=True)
    biased = read_config(deepseek | {"mlp_bias": True}, assume_defaults=True)
    assert total(biased) > total(reading.model)
    assert any(text.startswith("num_experts_per_tok") for text in reading.assumptions)
