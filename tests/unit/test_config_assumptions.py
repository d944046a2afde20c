"""Nothing is assumed in silence: missing, misspelt and unread keys are refused or listed."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_configs import CONFIGS

from kvreport.architectures import read_config_report

LLAMA: dict[str, Any] = CONFIGS["config_assumptions"]["LLAMA"]
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


def test_the_published_default_is_taken_where_it_is_asked_for() -> None:
    reading = read_config_report(without(LLAMA, "num_hidden_layers"), assume_defaults=True)
    assert reading.model.layer_count == 32
    assert "num_hidden_layers = 32: not in the config; the default of LlamaForCausalLM" in reading.assumptions


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
