"""Jamba, Bamba and Zamba2: many Mamba layers, few of attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kvreport.architectures.attention import attention_cache, grouped_heads, layer_count
from kvreport.architectures.blueprint import Blueprint, Layer, Tensor
from kvreport.architectures.decoder import Sizes, context, decoder, expert_counts, sizes, vocabulary
from kvreport.architectures.families.mamba import step_rank
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.mamba import (
    mamba1_state,
    mamba1_tensors,
    mamba2_mixer,
    mamba2_state,
    mamba2_tensors,
    state_caches,
)
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import (
    Tensors,
    gated_mlp,
    linear,
    norms,
    routed_experts,
    router,
    self_attention,
)
from kvreport.catalog.caches import FullAttention

_ZAMBA2_HYBRID: Final = frozenset({6, 12, 18, 24, 30, 36, 42, 47, 51})
_ZAMBA2_LONG: Final = 16384
_AROUND: Final = ("input_layernorm", "pre_ff_layernorm")


@reads("JambaForCausalLM", family="Jamba", model_types=("jamba",))
def jamba(keys: Keys) -> Blueprint:
    """Attention on every eighth layer, Mamba-1 on the others; a mixture on every second layer."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    experts = expert_counts(keys, "num_experts", "num_local_experts")
    attention = self_attention(its.hidden, its.heads, its.kv_heads, its.head_dim)
    inner = keys.whole("mamba_expand", high=64) * its.hidden
    state = keys.whole("mamba_d_state", high=1 << 12)
    kernel = keys.whole("mamba_d_conv", low=2, high=1 << 10)
    rank = step_rank(keys, its.hidden, "mamba_dt_rank")
    mixer = (
        *mamba1_tensors(
            its.hidden,
            inner,
            state,
            kernel,
            rank,
            path="mamba",
            bias=keys.flag("mamba_proj_bias"),
            conv_bias=keys.flag("mamba_conv_bias"),
        ),
        Tensor("mamba.dt_layernorm.weight", "recurrent", (rank,)),
        Tensor("mamba.b_layernorm.weight", "recurrent", (state,)),
        Tensor("mamba.c_layernorm.weight", "recurrent", (state,)),
    )
    dense = gated_mlp(its.hidden, width, "feed_forward")
    mixed = (
        *router(its.hidden, experts[0], "feed_forward.router"),
        *routed_experts(its.hidden, width, experts[0], "feed_forward.experts.*"),
    )
    full = attention_cache("full", its.kv_heads, its.head_dim)
    mamba = state_caches("Mamba", mamba1_state(inner, state, kernel))
    attends = _every(keys, "attn_layer", its.layers)
    mixes = _every(keys, "expert_layer", its.layers) if experts[0] > 1 else [False] * its.layers
    around = norms(*_AROUND, width=its.hidden)
    layers = [
        Layer(
            *(full if attend else mamba),
            (*around, *(attention if attend else mixer), *(mixed if mix else dense)),
        )
        for attend, mix in zip(attends, mixes, strict=True)
    ]
    return decoder(
        keys,
        its,
        layers,
        final_norm="final_layernorm",
        intermediate=width,
        experts=experts if any(mixes) else None,
        rotates=False,
    )


def _every(keys: Keys, name: str, layers: int) -> list[bool]:
    period = keys.whole(f"{name}_period", high=MAX_LAYERS)
    offset = keys.whole(f"{name}_offset", low=0, high=MAX_LAYERS)
    return [index % period == offset for index in range(layers)]


@reads("BambaForCausalLM", family="Bamba", model_types=("bamba",))
def bamba(keys: Keys) -> Blueprint:
    """``attn_layer_indices`` names the layers with attention; all others are Mamba-2."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("attention_bias")
    heads, head_dim = _mamba2_heads(keys, its.hidden, "mamba_n_heads", "mamba_d_head")
    state, mixer = mamba2_mixer(keys, its.hidden, heads, head_dim)
    attention = self_attention(
        its.hidden, its.heads, its.kv_heads, its.head_dim, qkv_bias=bias, output_bias=bias
    )
    mlp = gated_mlp(its.hidden, width, "feed_forward", bias=keys.flag("mlp_bias"))
    around = norms(*_AROUND, width=its.hidden)
    full = attention_cache("full", its.kv_heads, its.head_dim)
    mamba = state_caches("Mamba-2", state)
    attends = set(keys.wholes("attn_layer_indices", high=its.layers - 1) or [])
    layers = [
        Layer(*full, (*around, *attention, *mlp))
        if index in attends
        else Layer(*mamba, (*around, *mixer, *mlp))
        for index in range(its.layers)
    ]
    return decoder(keys, its, layers, final_norm="final_layernorm", intermediate=width)


def _mamba2_heads(keys: Keys, hidden: int, heads_name: str, width_name: str) -> tuple[int, int]:
    """Return heads and head width, which must make up the inner width exactly."""
    heads = keys.whole(heads_name, high=1 << 14)
    inner = keys.whole("mamba_expand", high=64) * hidden
    each = keys.divide("mamba_expand times hidden_size", inner, heads_name, heads)
    told = keys.raw(width_name)
    if told not in (None, "auto") and keys.whole(width_name, high=1 << 14) != each:
        raise keys.fault(width_name, told, f"{each}, as {heads_name} and hidden_size say")
    return heads, each


@reads("Zamba2ForCausalLM", family="Zamba2", model_types=("zamba2",))
def zamba2(keys: Keys) -> Blueprint:
    """Mamba-2 everywhere; some layers call a shared transformer block first, with a cache each.

    The block reads the layer's input beside the embedding, so it is twice as wide as the rest.
    """
    its = _zamba2_sizes(keys)
    width = keys.whole("intermediate_size", default=4 * its.hidden)
    bias = keys.flag("add_bias_linear")
    heads, head_dim = _mamba2_heads(keys, its.hidden, "n_mamba_heads", "mamba_headdim")
    groups = keys.whole("mamba_ngroups", high=1 << 12)
    state = keys.whole("mamba_d_state", high=1 << 14)
    kernel = keys.whole("mamba_d_conv", low=2, high=1 << 10)
    mixer = (
        *norms("input_layernorm", width=its.hidden),
        *mamba2_tensors(its.hidden, heads, head_dim, groups, state, kernel, path="mamba", bias=bias),
    )
    calling = (
        *linear("linear", "other", its.hidden, its.hidden),
        *(replace(tensor, name=f"mamba_decoder.{tensor.name}") for tensor in mixer),
    )
    kept = mamba2_state(heads, head_dim, groups, state, kernel)
    attention = FullAttention(kv_heads=its.kv_heads, key_dim=its.head_dim, value_dim=its.head_dim)
    hybrid = _zamba2_hybrid(keys, its.layers)
    layers = [
        Layer("shared attention and Mamba-2", (attention, kept), calling)
        if index in hybrid
        else Layer("Mamba-2", (kept,), mixer)
        for index in range(its.layers)
    ]
    blocks = min(keys.whole("num_mem_blocks", high=64), len(hybrid))
    shared = _zamba2_shared(keys, its, width, blocks, len(hybrid), bias=bias) if hybrid else ()
    return decoder(keys, its, layers, final_norm="final_layernorm", extra=shared, intermediate=width)


def _zamba2_sizes(keys: Keys) -> Sizes:
    hidden = keys.whole("hidden_size")
    heads = keys.whole("num_attention_heads", high=1 << 14)
    longest = context(keys)
    return Sizes(
        hidden=hidden,
        layers=layer_count(keys),
        heads=heads,
        kv_heads=grouped_heads(keys, heads),
        head_dim=_zamba2_head_dim(keys, hidden, heads),
        vocabulary=vocabulary(keys),
        context=_ZAMBA2_LONG if keys.flag("use_long_context") else longest,
    )


def _zamba2_head_dim(keys: Keys, hidden: int, heads: int) -> int:
    """Return a head's width: as stated, else twice the hidden size over the heads (configuration_zamba2.py)."""
    if keys.has("attention_head_dim", "head_dim"):
        return keys.whole("attention_head_dim", "head_dim", high=1 << 14)
    return keys.divide("twice hidden_size", 2 * hidden, "num_attention_heads", heads)


def _zamba2_hybrid(keys: Keys, layers: int) -> frozenset[int]:
    known = ("hybrid", "mamba", "linear_attention")
    listed: Sequence[str] | None = keys.texts("layers_block_type", "layer_types", length=layers, of=known)
    if listed is not None:
        return frozenset(index for index, kind in enumerate(listed) if kind == "hybrid")
    if layers != keys.defaults["num_hidden_layers"]:
        raise keys.fault("layers_block_type", None, "a list of mamba and hybrid, one entry per layer")
    return _ZAMBA2_HYBRID


def _zamba2_shared(keys: Keys, its: Sizes, width: int, blocks: int, calls: int, *, bias: bool) -> Tensors:
    """Return the shared blocks, and the small adapters by which each call differs."""
    hidden, wide = its.hidden, 2 * its.hidden
    rank = keys.whole("adapter_rank", high=1 << 16)
    block = (
        *norms("input_layernorm", width=wide),
        *norms("pre_ff_layernorm", width=hidden),
        *self_attention(hidden, its.heads, its.kv_heads, its.head_dim, input_width=wide),
        *linear("feed_forward.gate_up_proj", "dense_mlp", 2 * width, hidden, "columns", bias=bias),
        *linear("feed_forward.down_proj", "dense_mlp", hidden, width, "rows", bias=bias),
    )
    adapters: Tensors = (
        *linear("feed_forward.gate_up_proj_adapter_list.0", "dense_mlp", rank, hidden),
        *linear("feed_forward.gate_up_proj_adapter_list.1", "dense_mlp", 2 * width, rank, "columns"),
    )
    if keys.flag("use_shared_attention_adapter"):
        for name in ("q", "k", "v"):
            path = f"self_attn.linear_{name}_adapter_list"
            adapters += linear(f"{path}.0", "attention", rank, wide)
            adapters += linear(f"{path}.1", "attention", wide, rank, "heads", heads=its.heads)
    return tuple(
        replace(tensor, name=f"model.layers.*.shared_transformer.{tensor.name}", count=times)
        for tensors, times in ((block, blocks), (adapters, calls))
        for tensor in tensors
    )
