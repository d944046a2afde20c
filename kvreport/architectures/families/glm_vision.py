"""GLM-4.1V, 4.5V and 4.6V: GLM's text models beside a tower that merges patches by convolution."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import decoder, either_tied, expert_counts, outer_tied, sizes
from kvreport.architectures.dense import attention_layers, block
from kvreport.architectures.families.deepseek import mixture, mixture_pattern
from kvreport.architectures.keys import Keys
from kvreport.architectures.layered import read_layered
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import section_or_default
from kvreport.architectures.weights import Tensors, gated_mlp

_BASE: Final = "model.language_model"


@reads(
    "Glm4vForConditionalGeneration",
    "Glm46VForConditionalGeneration",
    family="GLM-4V",
    model_types=("glm4v", "glm46v"),
)
def glm4v(keys: Keys) -> Blueprint:
    """GLM-4.1V-Thinking and 4.6V-Flash: the dense text model of GLM-4-0414."""
    # The later config class copies no word of its text part (transformers 5.24, ``configuration_glm46v.py``).
    alone = (keys.outer.text("model_type") or "glm4v") != "glm4v"
    tie = outer_tied(keys) if alone else either_tied(keys)
    return read_layered("glm4v", keys, tie=tie, base=_BASE, extra=_tower(keys))


@reads("Glm4vMoeForConditionalGeneration", family="GLM-4V", model_types=("glm4v_moe",))
def glm4v_moe(keys: Keys) -> Blueprint:
    """GLM-4.5V and 4.6V: GLM-4.5-Air's text model without norms of queries and keys."""
    its = sizes(keys, exact=False)
    width = keys.whole("intermediate_size")
    bias = keys.flag("attention_bias")
    experts = expert_counts(keys, "n_routed_experts", "num_experts")
    dense = block(its, gated_mlp(its.hidden, width), qkv_bias=bias)
    mixed = block(its, mixture(keys, its.hidden, experts[0], correction=True), qkv_bias=bias)
    each = [mixed if sparse else dense for sparse in mixture_pattern(keys, its.layers)]
    return decoder(
        keys,
        its,
        attention_layers(its, each),
        tie=either_tied(keys),
        base=_BASE,
        extra=_tower(keys),
        intermediate=width,
        experts=experts,
    )


def _tower(keys: Keys) -> Tensors:
    return part(
        "glm4v_vision", section_or_default(keys.outer, "vision_config", "glm4v_vision"), "model.visual"
    )
