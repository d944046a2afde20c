"""LFM2: short convolutions with a state of two tokens, and a few layers of attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvreport.architectures.attention import Kind, attention_cache, window
from kvreport.architectures.blueprint import Blueprint, Layer, Tensor
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
from kvreport.catalog.caches import Cache, FullAttention, RecurrentState, StateTensor

_NAMES: Final = ("w1", "w3", "w2")


@reads("Lfm2ForCausalLM", family="LFM2", model_types=("lfm2",))
def lfm2(keys: Keys) -> Blueprint:
    """Dense; the width of the MLP is two thirds of what is stated, rounded up."""
    its = sizes(keys)
    width = _adjusted(keys)
    mlp = gated_mlp(its.hidden, width, "feed_forward", names=_NAMES)
    listed = keys.texts("layer_types", length=its.layers, of=("full_attention", "conv"))
    if listed is None:
        full = keys.wholes("full_attn_idxs", high=MAX_LAYERS)
        chosen = set(range(its.layers)) if full is None else set(full)
        listed = ["full_attention" if index in chosen else "conv" for index in range(its.layers)]
    layers = _layers(keys, its, listed, [mlp] * its.layers)
    return _assemble(keys, its, layers, width, None)


@reads("Lfm2MoeForCausalLM", family="LFM2", model_types=("lfm2_moe",))
def lfm2_moe(keys: Keys) -> Blueprint:
    """A mixture in all layers but the first two; the config must list what each layer is."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    experts = expert_counts(keys, "num_experts")
    dense = gated_mlp(its.hidden, width, "feed_forward", names=_NAMES)
    mixed = (
        *router(its.hidden, experts[0], "feed_forward.gate"),
        *(correction_bias(experts[0], "feed_forward.expert_bias") if keys.flag("use_expert_bias") else ()),
        *routed_experts(
            its.hidden,
            keys.whole("moe_intermediate_size"),
            experts[0],
            "feed_forward.experts.*",
            names=_NAMES,
        ),
    )
    first = keys.whole("num_dense_layers", low=0, high=MAX_LAYERS)
    listed = keys.texts("layer_types", length=its.layers, of=("full_attention", "conv"))
    if listed is None:
        raise keys.fault("layer_types", None, "a list of full_attention and conv, one entry per layer")
    mlps = [dense if index < first else mixed for index in range(its.layers)]
    return _assemble(keys, its, _layers(keys, its, listed, mlps), width, experts)


def _adjusted(keys: Keys) -> int:
    stated = keys.whole("block_ff_dim", default=keys.whole("intermediate_size"))
    if not keys.flag("block_auto_adjust_ff_dim"):
        return stated
    width = 2 * stated // 3
    if keys.null("block_ffn_dim_multiplier"):
        keys.trail.usual[keys.field("block_ffn_dim_multiplier")] = None
        return width
    width = int(keys.number("block_ffn_dim_multiplier", low=0.01, high=64) * width)
    multiple = keys.whole("block_multiple_of", high=1 << 16)
    return max(1, -(-width // multiple)) * multiple


def _layers(keys: Keys, its: Sizes, kinds: Sequence[str], mlps: Sequence[Tensors]) -> list[Layer]:
    hidden = its.hidden
    attention = (
        *self_attention(hidden, its.heads, its.kv_heads, its.head_dim, output="out_proj"),
        *norms("self_attn.q_layernorm", "self_attn.k_layernorm", width=its.head_dim),
    )
    convolution, state = _convolution(keys, hidden)
    around = norms("operator_norm", "ffn_norm", width=hidden)
    full: Cache = FullAttention(kv_heads=its.kv_heads, key_dim=its.head_dim, value_dim=its.head_dim)
    return [
        Layer("full attention", (full,), (*around, *attention, *mlp))
        if kind == "full_attention"
        else Layer("short convolution", (state,), (*around, *convolution, *mlp))
        for kind, mlp in zip(kinds, mlps, strict=True)
    ]


def _convolution(keys: Keys, hidden: int) -> tuple[Tensors, RecurrentState]:
    """A gated short convolution, and the columns that it keeps."""
    kernel = keys.whole("conv_L_cache", low=2, high=1 << 10)
    bias = keys.flag("conv_bias")
    tensors = (
        *linear("conv.in_proj", "recurrent", 3 * hidden, hidden, "columns", bias=bias),
        Tensor("conv.conv.weight", "recurrent", (hidden, 1, kernel), "columns"),
        *((Tensor("conv.conv.bias", "recurrent", (hidden,), "columns"),) if bias else ()),
        *linear("conv.out_proj", "recurrent", hidden, hidden, "rows", bias=bias),
    )
    kept = StateTensor(name="conv", channels=hidden, columns=kernel - 1)
    return tensors, RecurrentState(mechanism="short_conv", tensors=(kept,))


def _assemble(
    keys: Keys, its: Sizes, layers: list[Layer], width: int, experts: tuple[int, int] | None
) -> Blueprint:
    tie = keys.flag("tie_embedding") if keys.has("tie_embedding") else None
    return decoder(
        keys, its, layers, tie=tie, final_norm="embedding_norm", intermediate=width, experts=experts
    )


@reads("Lfm3ForCausalLM", family="LFM3", model_types=("lfm3",))
def lfm3(keys: Keys) -> Blueprint:
    """LFM3: windows beside full attention and convolutions, gated heads, norms on both sides."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    words = ("full_attention", "sliding_attention", "conv")
    kinds = keys.texts("layer_types", length=its.layers, of=words) or [
        "full_attention" if index % 4 == 2 else "conv" if index % 4 or not index else "sliding_attention"
        for index in range(its.layers)
    ]
    bias = keys.flag("attention_bias")
    after = ("post_operator_norm", "post_ffn_norm") if keys.flag("use_sandwich_norm") else ()
    around = norms("operator_norm", "ffn_norm", *after, width=its.hidden)
    mlp = gated_mlp(its.hidden, width, "feed_forward", names=_NAMES)
    attention = (
        *self_attention(its.hidden, its.heads, its.kv_heads, its.head_dim, qkv_bias=bias, output_bias=bias),
        *norms("self_attn.q_norm", "self_attn.k_norm", width=its.head_dim),
        *(
            linear("self_attn.g_proj", "attention", its.heads, its.hidden, "heads", heads=its.heads)
            if keys.flag("use_attention_gate")
            else ()
        ),
    )
    convolution, state = _convolution(keys, its.hidden)
    span = window(keys)
    layers = []
    for kind in kinds:
        if kind == "conv":
            layers.append(Layer("short convolution", (state,), (*around, *convolution, *mlp)))
            continue
        short: Kind = "sliding" if kind == "sliding_attention" else "full"
        kept = attention_cache(short, its.kv_heads, its.head_dim, span=span)
        layers.append(Layer(*kept, (*around, *attention, *mlp)))
    return _assemble(keys, its, layers, width, None)
