"""Configs of public repositories whose indexes state the bytes of their weights.

Each total is ``metadata.total_size`` of the ``model.safetensors.index.json`` next to the config, in a repository on GitHub
that is named at it.
"""

from __future__ import annotations

from typing import Any

import pytest

from kvreport.accounting.weights import released_bytes
from kvreport.architectures.reader import ConfigReading, read_config_report
from kvreport.catalog.load import open_catalog

# Mistral Small 4 converted by mlx-lm: delsakov/mcp_tests.
MISTRAL_4: dict[str, Any] = {
    "architectures": ["Mistral3ForConditionalGeneration"],
    "model_type": "mistral3",
    "dtype": "bfloat16",
    "multimodal_projector_bias": False,
    "spatial_merge_size": 2,
    "text_config": {
        "attention_bias": False,
        "first_k_dense_replace": 0,
        "head_dim": 128,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "kv_lora_rank": 256,
        "max_position_embeddings": 1048576,
        "mlp_bias": False,
        "model_type": "mistral4",
        "moe_intermediate_size": 2048,
        "n_routed_experts": 128,
        "n_shared_experts": 1,
        "num_attention_heads": 32,
        "num_experts_per_tok": 4,
        "num_hidden_layers": 36,
        "num_key_value_heads": 32,
        "q_lora_rank": 1024,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 64,
        "tie_word_embeddings": False,
        "v_head_dim": 128,
        "vocab_size": 131072,
    },
    "tie_word_embeddings": False,
}
MISTRAL_4_BYTES = 66_949_842_944
IN_FOURS = {"quantization": {"group_size": 64, "bits": 4, "mode": "affine"}}

# deepseek-ai/DeepSeek-OCR as it stands in wxiangqi1202-cpu/deskocr2-ascend, folder model.
DEEPSEEK_OCR: dict[str, Any] = {
    "architectures": ["DeepseekOCRForCausalLM"],
    "model_type": "DeepseekOCR",
    "language_config": {
        "architectures": ["DeepseekV2ForCausalLM"],
        "first_k_dense_replace": 1,
        "hidden_size": 1280,
        "intermediate_size": 6848,
        "kv_lora_rank": None,
        "max_position_embeddings": 8192,
        "moe_intermediate_size": 896,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "num_attention_heads": 10,
        "num_experts_per_tok": 6,
        "num_hidden_layers": 12,
        "num_key_value_heads": 10,
        "q_lora_rank": None,
        "qk_nope_head_dim": 0,
        "qk_rope_head_dim": 0,
        "torch_dtype": "bfloat16",
        "v_head_dim": 0,
        "vocab_size": 129280,
    },
    "projector_config": {"input_dim": 2048, "n_embed": 1280, "projector_type": "linear"},
    "torch_dtype": "bfloat16",
    "vision_config": {"image_size": 1024, "model_name": "deeplip_b_l", "model_type": "vision"},
}
DEEPSEEK_OCR_BYTES = 6_672_212_480

# IDLEOAK/openpangu-lightweight-methods. Its file keeps the rotary frequencies of 34 layers as well: 64 numbers of four bytes each.
PANGU: dict[str, Any] = {
    "architectures": ["PanguEmbeddedForCausalLM"],
    "bias": True,
    "hidden_size": 4096,
    "intermediate_size": 12800,
    "max_position_embeddings": 32768,
    "model_type": "PanguEmbedded",
    "num_attention_heads": 32,
    "num_hidden_layers": 34,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 153376,
}
PANGU_BYTES = 16_061_784_576 - 34 * 64 * 4

# In bitsandbytes' NF4: reubzdubz/Molmo7B_D_NF4Quant. Its file also keeps what the quantizer writes of each matrix's shape, 7,336 bytes.
MOLMO: dict[str, Any] = {
    "architectures": ["MolmoForCausalLM"],
    "attention_layer_norm": False,
    "embedding_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 37888,
    "max_position_embeddings": 4096,
    "model_type": "molmo",
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "qkv_bias": True,
    "quantization_config": {
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": False,
        "llm_int8_skip_modules": [
            "model.vision_backbone",
            "model.transformer.ff_out",
            "model.transformer.ln_f",
        ],
        "load_in_4bit": True,
        "quant_method": "bitsandbytes",
    },
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "vocab_size": 152064,
    "weight_tying": False,
}
MOLMO_BYTES = 6_661_964_712 - 7_336

QWEN_NEXT: dict[str, Any] = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "dtype": "bfloat16",
    "hidden_size": 1024,
    "intermediate_size": 3584,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "linear_value_head_dim": 128,
    "max_position_embeddings": 262144,
    "mtp_num_hidden_layers": 1,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "vocab_size": 248320,
}


def read(config: dict[str, Any]) -> ConfigReading:
    return read_config_report(config, id="local/published")


def stored(config: dict[str, Any]) -> int:
    return released_bytes(read(config).model, open_catalog().weight_formats)


def components(config: dict[str, Any]) -> set[str]:
    return {row.component for row in read(config).model.weights}


@pytest.mark.parametrize(
    ("config", "total"),
    [(DEEPSEEK_OCR, DEEPSEEK_OCR_BYTES), (PANGU, PANGU_BYTES), (MOLMO, MOLMO_BYTES)],
    ids=["DeepSeek-OCR", "openPangu-Embedded-7B", "Molmo-7B-D"],
)
def test_bytes_equal_those_of_the_published_index(config: dict[str, Any], total: int) -> None:
    assert stored(config) == total


def test_a_decoder_without_latents_keeps_keys_and_values() -> None:
    caches = [cache.kind for group in read(DEEPSEEK_OCR).model.layers for cache in group.caches]
    assert set(caches) == {"full"}


@pytest.mark.parametrize(
    ("name", "base"),
    [("TeleChat3ForCausalLM", "LlamaForCausalLM"), ("LlamaBidirectionalModel", "LlamaModel")],
)
def test_classes_that_are_another_under_a_name_of_their_own(name: str, base: str) -> None:
    config = {
        key: value for key, value in PANGU.items() if key not in ("architectures", "model_type", "bias")
    }
    assert stored(config | {"architectures": [name]}) == stored(config | {"architectures": [base]})


def test_a_model_converted_for_mlx_as_text_alone_has_no_image_encoder() -> None:
    # mlx-lm takes vision_config out of the config that it writes; the class's defaults are no tower of it.
    reading = read(MISTRAL_4 | IN_FOURS)
    assert released_bytes(reading.model, open_catalog().weight_formats) == MISTRAL_4_BYTES
    assert not [sentence for sentence in reading.assumptions if "vision" in sentence]
    assert any("text alone" in note for note in reading.model.notes)


def test_an_unconverted_model_keeps_its_image_encoder() -> None:
    assert "vision" in components(MISTRAL_4)


def test_a_model_converted_for_mlx_has_no_prediction_layers() -> None:
    assert "mtp" in components(QWEN_NEXT)
    assert "mtp" not in components(QWEN_NEXT | IN_FOURS)
