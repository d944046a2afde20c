"""ERNIE 4.5 VL: text and vision tokens each have experts of their own, beside shared ones."""

from __future__ import annotations

from kvreport.architectures.attention import attention_cache
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.decoder import decoder, expert_counts, sizes, whole_tied
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import section_or_default
from kvreport.architectures.weights import Tensors, gated_mlp, norms, routed_experts, self_attention


@reads(
    "Ernie4_5_VLMoeForConditionalGeneration",
    "Ernie4_5_VLMoEForConditionalGeneration",
    family="ERNIE 4.5",
    model_types=("ernie4_5_vl_moe", "ernie4_5_moe_vl"),
)
def ernie_vl(keys: Keys) -> Blueprint:
    """Every token reads as many experts of its own kind; all are resident."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("use_bias")
    experts = expert_counts(
        _alike(keys, "moe_num_experts"),
        "moe_num_experts",
        "num_experts",
        per_token=("moe_k", "num_experts_per_tok"),
    )
    attention = (
        *norms("input_layernorm", "post_attention_layernorm", width=its.hidden),
        *self_attention(its.hidden, its.heads, its.kv_heads, its.head_dim, qkv_bias=bias, output_bias=bias),
    )
    dense = (*attention, *gated_mlp(its.hidden, width, bias=bias))
    mixed = (*attention, *_mixture(keys, its.hidden, experts[0], bias=bias))
    kept = attention_cache("full", its.kv_heads, its.head_dim)
    layers = [Layer(*kept, mixed if sparse else dense) for sparse in _mixtures(keys, its.layers)]
    nested = keys.outer is not keys
    return decoder(
        keys,
        its,
        layers,
        tie=whole_tied(keys),
        base="model.language_model" if nested else "model",
        intermediate=width,
        experts=experts,
        extra=_vision(keys, its.hidden),
    )


def _alike(keys: Keys, name: str) -> Keys:
    """Read one number where a release states it for both kinds of tokens; vLLM 0.33 asks for equal ones, too."""
    listed = keys.raw(name)
    if not isinstance(listed, list):
        return keys
    counts = keys.wholes(name, length=2, low=1) or []
    if counts[0] != counts[1]:
        raise keys.fault(name, listed, "the same number for both kinds of tokens")
    same = Keys({**keys.data, name: counts[0]}, keys.where, keys.path, keys.defaults, keys.trail)
    same.outer = keys.outer if keys.outer is not keys else same
    return same


def _mixtures(keys: Keys, layers: int) -> list[bool]:
    listed = keys.texts("mlp_layer_types", length=layers, of=("dense", "sparse"))
    if listed is not None:
        return [kind == "sparse" for kind in listed]
    first = keys.raw("moe_layer_start_index")
    start = (
        min(keys.wholes("moe_layer_start_index", high=MAX_LAYERS) or [1]) if isinstance(first, list) else 1
    )
    return [index >= start for index in range(layers)]


def _mixture(keys: Keys, hidden: int, routed: int, *, bias: bool) -> Tensors:
    widths = keys.wholes("moe_intermediate_size", length=2, low=1) or []
    shared = keys.whole("moe_num_shared_experts", low=0, high=1 << 10) * widths[0]
    tensors: Tensors = ()
    for kind, width in zip(("text_moe", "vision_moe"), widths, strict=True):
        tensors += (
            Weight(f"mlp.{kind}.gate.weight", "router", (routed, hidden)),
            Weight(f"mlp.{kind}.gate.moe_statics.e_score_correction_bias", "router", (1, routed)),
            *routed_experts(hidden, width, routed, f"mlp.{kind}.experts.*"),
        )
    return (
        *tensors,
        *(gated_mlp(hidden, shared, "mlp.shared_experts", "shared_experts", bias=bias) if shared else ()),
    )


def _vision(keys: Keys, text_hidden: int) -> Tensors:
    vision = section_or_default(keys.outer, "vision_config", "ernie_vision")
    return part("ernie_vision", vision, "model", text_hidden=text_hidden)
