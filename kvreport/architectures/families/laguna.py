"""Laguna: a number of query heads per layer, a gate per head, windows, many small experts."""

from __future__ import annotations

from kvreport.architectures.attention import attention_cache, layer_kinds, window
from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import Sizes, decoder, expert_counts, sizes
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import (
    Tensors,
    correction_bias,
    gated_mlp,
    linear,
    norms,
    routed_experts,
    router,
    self_attention,
)


@reads("LagunaForCausalLM", family="Laguna", model_types=("laguna",))
def laguna(keys: Keys) -> Blueprint:
    """Full layers have fewer query heads than windows; KV heads are the same everywhere."""
    its = sizes(keys)
    kinds = layer_kinds(keys, its.layers, lambda _index: "full", ("full", "sliding"))
    heads = keys.wholes("num_attention_heads_per_layer", length=its.layers, low=1, high=1 << 14)
    span = window(keys)
    routed, per_token = expert_counts(keys, "num_experts", "num_local_experts")
    width = keys.whole("intermediate_size")
    mlps = {True: _mixture(keys, its.hidden, routed), False: gated_mlp(its.hidden, width)}
    layers = [
        Layer(
            *attention_cache(kind, its.kv_heads, its.head_dim, span=span),
            (*_attention(keys, its, here), *mlps[sparse]),
        )
        for kind, here, sparse in zip(
            kinds, heads or [its.heads] * its.layers, _mixtures(keys, its.layers), strict=True
        )
    ]
    return decoder(keys, its, layers, intermediate=width, experts=(routed, per_token))


def _attention(keys: Keys, its: Sizes, heads: int) -> Tensors:
    keys.divide("num_attention_heads_per_layer", heads, "num_key_value_heads", its.kv_heads)
    bias = keys.flag("attention_bias")
    gating = keys.raw("gating")
    if gating not in (None, True, False, "per-head", "per_head", "per-element", "per_element"):
        raise keys.fault("gating", gating, "per-head, per-element, true or false")
    # True, and no word at all, mean one gate per head; anything else one per element.
    outputs = heads if gating in (None, True, "per-head", "per_head") else heads * its.head_dim
    return (
        *norms("input_layernorm", "post_attention_layernorm", width=its.hidden),
        *self_attention(its.hidden, heads, its.kv_heads, its.head_dim, qkv_bias=bias, output_bias=bias),
        *norms("self_attn.q_norm", "self_attn.k_norm", width=its.head_dim),
        *linear("self_attn.g_proj", "attention", outputs, its.hidden, "heads", heads=heads),
    )


def _mixtures(keys: Keys, layers: int) -> list[bool]:
    kinds = keys.texts("mlp_layer_types", length=layers, of=("dense", "sparse"))
    if kinds is not None:
        return [kind == "sparse" for kind in kinds]
    dense = set(keys.wholes("mlp_only_layers", high=MAX_LAYERS) or [0])
    return [index not in dense for index in range(layers)]


def _mixture(keys: Keys, hidden: int, routed: int) -> Tensors:
    shared = keys.whole("shared_expert_intermediate_size", low=0)
    return (
        *router(hidden, routed),
        *correction_bias(routed),
        *routed_experts(hidden, keys.whole("moe_intermediate_size"), routed),
        *(gated_mlp(hidden, shared, "mlp.shared_experts", "shared_experts") if shared else ()),
    )
