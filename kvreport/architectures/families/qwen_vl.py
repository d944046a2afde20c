"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: the text models of their generation beside a vision tower."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import either_tied
from kvreport.architectures.families.qwen import QWEN2, QWEN3, QWEN3_MOE, dense, sparse
from kvreport.architectures.keys import Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import (
    QWEN2_5_VISION,
    QWEN2_VISION,
    QWEN3_VISION,
    qwen2_5_vision,
    qwen2_vision,
    qwen3_vision,
    section_or_default,
)
from kvreport.architectures.weights import Tensors

QWEN2_VL: Final = {
    **QWEN2,
    "hidden_size": 8192,
    "intermediate_size": 29568,
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
    "num_key_value_heads": 8,
    "vocab_size": 152064,
}
QWEN3_VL: Final = {**QWEN3, "max_position_embeddings": 128000}
QWEN3_VL_MOE: Final = {
    **QWEN3_MOE,
    "intermediate_size": 5632,
    "max_position_embeddings": 128000,
    "moe_intermediate_size": 1408,
    "num_attention_heads": 16,
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "num_key_value_heads": 16,
}


def _tower(
    keys: Keys, defaults: Mapping[str, Any], build: Callable[[Keys, str], Tensors], path: str
) -> Tensors:
    return build(section_or_default(keys.outer, "vision_config", defaults), path)


@reads("Qwen2VLForConditionalGeneration", family="Qwen2-VL", model_types=("qwen2_vl",), defaults=QWEN2_VL)
def qwen2_vl(keys: Keys) -> Blueprint:
    """Qwen2 with a tower of LayerNorms and a two-matrix MLP."""
    tower = _tower(keys, QWEN2_VISION, qwen2_vision, "visual")
    return dense(keys, qkv_bias=True, qk_norm=False, extra=tower, tie=either_tied(keys))


@reads(
    "Qwen2_5_VLForConditionalGeneration",
    family="Qwen2.5-VL",
    model_types=("qwen2_5_vl",),
    defaults=QWEN2_VL,
)
def qwen2_5_vl(keys: Keys) -> Blueprint:
    """Qwen2.5 with a tower of RMSNorms and a gated MLP."""
    tower = _tower(keys, QWEN2_5_VISION, qwen2_5_vision, "visual")
    return dense(keys, qkv_bias=True, qk_norm=False, extra=tower, tie=either_tied(keys))


@reads("Qwen3VLForConditionalGeneration", family="Qwen3-VL", model_types=("qwen3_vl",), defaults=QWEN3_VL)
def qwen3_vl(keys: Keys) -> Blueprint:
    """Qwen3 with a tower whose deep layers are merged in as well."""
    tower = _tower(keys, QWEN3_VISION, qwen3_vision, "model.visual")
    bias = keys.flag("attention_bias", default=False)
    return dense(keys, qkv_bias=bias, qk_norm=True, base="model.language_model", extra=tower)


@reads(
    "Qwen3VLMoeForConditionalGeneration",
    family="Qwen3-VL",
    model_types=("qwen3_vl_moe",),
    defaults=QWEN3_VL_MOE,
)
def qwen3_vl_moe(keys: Keys) -> Blueprint:
    """Qwen3's mixture with the same tower."""
    tower = _tower(keys, QWEN3_VISION, qwen3_vision, "model.visual")
    bias = keys.flag("attention_bias", default=False)
    return sparse(keys, qkv_bias=bias, qk_norm=True, base="model.language_model", extra=tower)
