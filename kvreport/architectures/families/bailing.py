"""Ling and Ring 1 and 2 (Bailing MoE): grouped queries in one matrix, many small experts."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.attention import grouped_heads, head_dim, layer_count
from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import Sizes, context, decoder, expert_counts, vocabulary
from kvreport.architectures.dense import attention_layers, fused_attention
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import (
    Tensors,
    correction_bias,
    gated_mlp,
    norms,
    routed_experts,
    router,
)

UNCOUNTED: Final = "Its layers for multi-token prediction, which only speculation loads, are not counted."


@reads(
    "BailingMoeForCausalLM",
    "BailingMoeV2ForCausalLM",
    family="Ling",
    model_types=("bailing_moe", "bailing_moe_v2"),
)
def bailing_moe(keys: Keys) -> Blueprint:
    """Read the maker's own class, as vLLM does; every dimension must be in the config.

    ``use_bias`` is a bias on everything, ``use_qkv_bias`` on queries, keys and values alone.
    """
    hidden = keys.whole("hidden_size")
    heads = keys.whole("num_attention_heads", high=1 << 14)
    stated = keys.raw("head_dim")
    its = Sizes(
        hidden=hidden,
        layers=layer_count(keys),
        heads=heads,
        kv_heads=grouped_heads(keys, heads),
        head_dim=keys.divide("hidden_size", hidden, "num_attention_heads", heads)
        if stated == 0
        else head_dim(keys, hidden, heads),
        vocabulary=vocabulary(keys),
        context=context(keys),
    )
    width = keys.whole("intermediate_size")
    experts = expert_counts(keys, "num_experts")
    bias = keys.flag("use_bias")
    attention = grouped_attention(keys, its, bias=bias)
    dense = (*attention, *gated_mlp(hidden, width, bias=bias))
    mixed = (*attention, *mixture(keys, hidden, experts[0], bias=bias))
    first = keys.whole("first_k_dense_replace", low=0, high=MAX_LAYERS)
    layers = attention_layers(its, [dense if index < first else mixed for index in range(its.layers)])
    return decoder(
        keys,
        its,
        layers,
        embed="word_embeddings",
        intermediate=width,
        experts=experts,
        notes=[UNCOUNTED] if keys.whole("num_nextn_predict_layers", default=0, low=0, high=64) else [],
    )


def grouped_attention(keys: Keys, its: Sizes, *, bias: bool) -> Tensors:
    """Grouped queries in one matrix, and the norms of the layer."""
    each: Tensors = ()
    if keys.flag("use_qk_norm"):
        names = ("attention.query_layernorm", "attention.key_layernorm")
        each = norms(*names, width=its.head_dim, bias=not keys.flag("use_rmsnorm"))
    return (
        *norms("input_layernorm", "post_attention_layernorm", width=its.hidden),
        *fused_attention(
            its,
            "attention.query_key_value",
            "attention.dense",
            qkv_bias=bias or keys.flag("use_qkv_bias"),
            output_bias=bias,
        ),
        *each,
    )


def mixture(keys: Keys, hidden: int, routed: int, *, bias: bool) -> Tensors:
    """Router with learned offsets, routed experts, and the shared ones as one MLP of their joint width."""
    width = keys.whole("moe_intermediate_size")
    shared = keys.whole("num_shared_experts", low=0, high=1 << 10)
    joint = shared * keys.whole("moe_shared_expert_intermediate_size", default=width)
    offsets = keys.flag("moe_router_enable_expert_bias")
    return (
        *router(hidden, routed),
        *(correction_bias(routed, "mlp.gate.expert_bias") if offsets else ()),
        *routed_experts(hidden, width, routed),
        *(gated_mlp(hidden, joint, "mlp.shared_experts", "shared_experts", bias=bias) if shared else ()),
    )
