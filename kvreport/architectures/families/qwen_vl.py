"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: the text models of their generation beside a vision tower."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import either_tied
from kvreport.architectures.families.qwen import dense, sparse
from kvreport.architectures.keys import Keys
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import (
    qwen2_5_vision,
    qwen2_vision,
    qwen3_vision,
    section_or_default,
)
from kvreport.architectures.weights import Tensors


def _tower(
    keys: Keys, defaults: Mapping[str, Any], build: Callable[[Keys, str], Tensors], path: str
) -> Tensors:
    return build(section_or_default(keys.outer, "vision_config", defaults), path)


@reads("Qwen2VLForConditionalGeneration", family="Qwen2-VL", model_types=("qwen2_vl",))
def qwen2_vl(keys: Keys) -> Blueprint:
    """Qwen2 with a tower of LayerNorms and a two-matrix MLP."""
    tower = _tower(keys, published("qwen2_vision"), qwen2_vision, "visual")
    return dense(keys, qkv_bias=True, qk_norm=False, extra=tower, tie=either_tied(keys))


@reads(
    "Qwen2_5_VLForConditionalGeneration",
    family="Qwen2.5-VL",
    model_types=("qwen2_5_vl",),
)
def qwen2_5_vl(keys: Keys) -> Blueprint:
    """Qwen2.5 with a tower of RMSNorms and a gated MLP."""
    tower = _tower(keys, published("qwen2_5_vision"), qwen2_5_vision, "visual")
    return dense(keys, qkv_bias=True, qk_norm=False, extra=tower, tie=either_tied(keys))


@reads("Qwen3VLForConditionalGeneration", family="Qwen3-VL", model_types=("qwen3_vl",))
def qwen3_vl(keys: Keys) -> Blueprint:
    """Qwen3 with a tower whose deep layers are merged in as well."""
    tower = _tower(keys, published("qwen3_vision"), qwen3_vision, "model.visual")
    bias = keys.flag("attention_bias", default=False)
    return dense(keys, qkv_bias=bias, qk_norm=True, base="model.language_model", extra=tower)


@reads(
    "Qwen3VLMoeForConditionalGeneration",
    family="Qwen3-VL",
    model_types=("qwen3_vl_moe",),
)
def qwen3_vl_moe(keys: Keys) -> Blueprint:
    """Qwen3's mixture with the same tower."""
    tower = _tower(keys, published("qwen3_vision"), qwen3_vision, "model.visual")
    bias = keys.flag("attention_bias", default=False)
    return sparse(keys, qkv_bias=bias, qk_norm=True, base="model.language_model", extra=tower)
