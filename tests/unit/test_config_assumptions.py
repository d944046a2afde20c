"""Nothing is assumed in silence: missing, misspelt and unread keys are refused or listed."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_configs import CONFIGS

from kvreport.architectures import read_config, read_config_report
from kvreport.errors import InputError

LLAMA: dict[str, Any] = CONFIGS["config_assumptions"]["LLAMA"]
QWEN3_MOE: dict[str, Any] = {
    **LLAMA,
    "architectures": ["Qwen3MoeForCausalLM"],
    "head_dim": 128,
    "moe_intermediate_size": 1536,
    "num_experts": 128,
    "num_experts_per_tok": 8,
}
SERIALIZED_GEMMA_3: dict[str, Any] = {
    # transformers writes a composite's sections as differences from their class: 27B leaves out two sizes.
    "architectures": ["Gemma3ForConditionalGeneration"],
    "text_config": {
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "model_type": "gemma3_text",
        "num_attention_heads": 32,
        "num_hidden_layers": 62,
        "num_key_value_heads": 16,
        "sliding_window": 1024,
        "head_dim": 128,
    },
    "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27, "patch_size": 14, "image_size": 896},
}


def without(config: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != key}


@pytest.mark.parametrize(
    "key",
    [
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_hidden_layers",
        "vocab_size",
        "num_experts",
        "moe_intermediate_size",
    ],
)
def test_a_core_dimension_that_is_missing_is_refused_by_name(key: str) -> None:
    with pytest.raises(
        InputError, match=rf"^config: {key}: found nothing; allowed: a whole number; the defaults"
    ):
        read_config(without(QWEN3_MOE, key))


def test_the_published_default_is_taken_where_it_is_asked_for() -> None:
    reading = read_config_report(without(LLAMA, "num_hidden_layers"), assume_defaults=True)
    assert reading.model.layer_count == 32
    assert "num_hidden_layers = 32: not in the config; the default of LlamaForCausalLM" in reading.assumptions


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("n_layers", "num_hidden_layers"),
        ("num_hidden_layer", "num_hidden_layers"),
        ("numHiddenLayers", "num_hidden_layers"),
        ("hiden_size", "hidden_size"),
        ("n_kv_heads", "num_key_value_heads"),
        ("num_key_value_head", "num_key_value_heads"),
        ("num_key_values_heads", "num_key_value_heads"),
        ("ffn_dim", "intermediate_size"),
        ("vocabsize", "vocab_size"),
    ],
)
def test_a_dimension_under_another_name_is_refused_with_both(wrong: str, right: str) -> None:
    config = without(LLAMA, right) | {wrong: LLAMA[right]}
    with pytest.raises(InputError, match=rf"^config: {right}: found nothing, but {wrong} = {LLAMA[right]}"):
        read_config(config)


def test_heads_without_groups_are_listed() -> None:
    reading = read_config_report(without(LLAMA, "num_key_value_heads"))
    assert "num_key_value_heads = 64: not in the config; one per query head" in reading.assumptions
    stated = read_config_report(LLAMA | {"num_key_value_heads": None})
    assert "num_key_value_heads = 64: null in the config; one per query head" in stated.assumptions


@pytest.mark.parametrize("stated", [{}, {"head_dim": None}])
def test_a_derived_head_width_is_listed(stated: dict[str, None]) -> None:
    reading = read_config_report(LLAMA | stated)
    how = "null in the config" if stated else "not in the config"
    assert f"head_dim = 128: {how}; hidden_size / num_attention_heads" in reading.assumptions


def test_null_and_missing_keys_that_decide_bytes_are_listed() -> None:
    mixtral = LLAMA | {"architectures": ["MixtralForCausalLM"], "num_local_experts": 8, "head_dim": 128}
    missing = read_config_report(mixtral).assumptions
    assert "Not in the config, so none or by the rule of MixtralForCausalLM: sliding_window." in missing
    null = read_config_report(mixtral | {"sliding_window": None}).assumptions
    assert "Null in the config, so none or by the rule of MixtralForCausalLM: sliding_window." in null


def test_a_section_written_as_a_difference_takes_its_class_s_sizes() -> None:
    reading = read_config_report(SERIALIZED_GEMMA_3)
    assert reading.model.vocabulary == 262_208
    assert any(text.startswith("text_config.vocab_size = 262208") for text in reading.assumptions)


def test_a_section_that_restates_a_default_was_not_written_as_a_difference() -> None:
    text = without(SERIALIZED_GEMMA_3["text_config"], "num_hidden_layers") | {"vocab_size": 262_208}
    with pytest.raises(InputError, match=r"^config: text_config.num_hidden_layers: found nothing"):
        read_config(SERIALIZED_GEMMA_3 | {"text_config": text})


def test_an_encoder_that_the_class_has_no_place_for_is_refused() -> None:
    tower = {"hidden_size": 1152, "num_hidden_layers": 27, "intermediate_size": 4304}
    with pytest.raises(InputError, match=r"^config: vision_config: found the sizes of an encoder"):
        read_config(LLAMA | {"vision_config": tower})


def test_keys_that_look_like_sizes_and_were_not_used_are_listed() -> None:
    reading = read_config_report(
        LLAMA
        | {"linear_head_dim": 128, "compress_rates": [4, 128], "initializer_range": 0.02, "eos_token_id": 2}
    )
    assert reading.not_read == ("compress_rates", "linear_head_dim")


def test_a_config_that_states_everything_assumes_nothing() -> None:
    reading = read_config_report(LLAMA | {"attention_bias": False, "head_dim": 128, "mlp_bias": False})
    assert reading.assumptions == ()
    assert reading.not_read == ()


def said(config: dict[str, Any]) -> str:
    return " ".join(read_config_report(config).assumptions)


def test_a_class_that_only_the_model_type_names_is_said() -> None:
    assert "model_type" not in said(LLAMA)
    unnamed = without(LLAMA, "architectures") | {"model_type": "llama"}
    assert "architectures: not in the config; model_type llama is read as LlamaForCausalLM" in said(unnamed)


def test_the_type_of_recurrent_states_is_said_where_the_config_is_silent() -> None:
    config = {
        **LLAMA,
        "architectures": ["Qwen3_5ForCausalLM"],
        "head_dim": 128,
        "layer_types": ["linear_attention", "full_attention"] * 40,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 16,
        "linear_value_head_dim": 128,
    }
    assert "mamba_ssm_dtype = 'auto'" in said(config)
    assert "mamba_ssm_dtype" not in said(config | {"mamba_ssm_dtype": "float32"})


def test_a_part_that_is_null_is_said() -> None:
    assert "vision_config" in said(GEMMA_4 | {"vision_config": None})


GEMMA_4: dict[str, Any] = CONFIGS["config_assumptions"]["GEMMA_4"]
