"""Laguna: a number of query heads per layer, a gate per head, windows, many small experts."""

from __future__ import annotations

from kvreport.architectures.attention import attention_cache, layer_kinds, listed_mixtures, window
from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import Sizes, decoder, dense_mlp, expert_counts, sizes
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors, linear


@reads("LagunaForCausalLM", family="Laguna", model_types=("laguna",))
def laguna(keys: Keys) -> Blueprint:
    """Full layers have fewer query heads than windows; KV heads are the same everywhere."""
    its = sizes(keys)
    kinds = layer_kinds(keys, its.layers, lambda _index: "full", ("full", "sliding"))
    heads = keys.wholes("num_attention_heads_per_layer", length=its.layers, low=1, high=1 << 14)
    span = window(keys)
    routed, per_token = expert_counts(keys, "num_experts", "num_local_experts")
    width = keys.whole("intermediate_size")
    dense = dense_mlp(keys, its.hidden, width)
    mlps = {True: _mixture(keys, its.hidden, routed), False: dense}
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
    given = {**its.given, "heads": heads, "bias_qkv": bias, "bias_out": bias}
    return (
        *part("pre_norms", keys, hidden=its.hidden),
        *part("grouped_attention", keys, "self_attn", **given),
        *part("head_norms", keys, "self_attn", head_dim=its.head_dim),
        *linear("self_attn.g_proj", "attention", outputs, its.hidden, "heads", heads=heads),
    )


def _mixtures(keys: Keys, layers: int) -> list[bool]:
    listed = listed_mixtures(keys, layers)
    if listed is not None:
        return listed
    dense = set(keys.wholes("mlp_only_layers", high=MAX_LAYERS) or [0])
    return [index not in dense for index in range(layers)]


def _mixture(keys: Keys, hidden: int, routed: int) -> Tensors:
    shared = keys.whole("shared_expert_intermediate_size", low=0)
    given = {"hidden": hidden, "routed": routed, "expert_width": keys.whole("moe_intermediate_size")}
    return part("deepseek_mixture", keys, "mlp", **given, shared_width=shared)
