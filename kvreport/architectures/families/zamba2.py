"""Zamba2: Mamba-2 layers, some of which call a shared block of attention first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvreport.architectures.attention import grouped_heads, layer_count
from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import Sizes, context, decoder, vocabulary
from kvreport.architectures.keys import Keys
from kvreport.architectures.mamba_mixers import (
    Mamba2,
)
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors, linear, norm, placed
from kvreport.catalog.caches import FullAttention

_ZAMBA2_HYBRID: Final = frozenset({6, 12, 18, 24, 30, 36, 42, 47, 51})
_ZAMBA2_LONG: Final = 16384


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
    sizes = Mamba2(
        heads,
        head_dim,
        groups=keys.whole("mamba_ngroups", high=1 << 12),
        state=keys.whole("mamba_d_state", high=1 << 14),
        kernel=keys.whole("mamba_d_conv", low=2, high=1 << 10),
    )
    mixer = (
        *norm("input_layernorm", its.hidden),
        *sizes.tensors(keys, "mamba", its.hidden, bias=bias),
    )
    calling = (
        *linear("linear", "other", its.hidden, its.hidden),
        *placed(mixer, "mamba_decoder."),
    )
    kept = sizes.cache()
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
    given = {**its.given, "width": width, "rank": keys.whole("adapter_rank", high=1 << 16)}
    given |= {"bias": bias, "on_attention": keys.flag("use_shared_attention_adapter")}
    path = "model.layers.*.shared_transformer."
    return (
        *placed(part("zamba2_block", keys, **given), path, times=blocks),
        *placed(part("zamba2_adapters", keys, **given), path, times=calls),
    )
