"""RWKV-4 and RWKV-5: no attention and no cache that grows, a small state in every layer instead."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.attention import layer_count
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.decoder import Sizes, context, decoder, vocabulary
from kvreport.architectures.keys import Keys
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import Tensors, linear, norm, norms, out_linear
from kvreport.catalog.caches import RecurrentState, StateTensor
from kvreport.catalog.model import Component

_FLOATS_OF_RWKV4: Final = 3
"""Numerator, denominator and running maximum, which the class keeps in float32."""


@reads("RwkvForCausalLM", family="RWKV", model_types=("rwkv", "rwkv5"))
def rwkv(keys: Keys) -> Blueprint:
    """Read version 4, or 5 if the config says so: the versions share the name of their class."""
    if keys.text("model_type") == "rwkv5" or keys.has("head_size"):
        return _rwkv5(keys.with_defaults(published("rwkv5")))
    its = _sizes(keys)
    width = keys.whole("intermediate_size", default=4 * its.hidden)
    inner = keys.whole("attention_hidden_size", default=its.hidden)
    state = _state(its.hidden, inner, _FLOATS_OF_RWKV4)
    mixer = (
        Weight("attention.time_decay", "recurrent", (inner,)),
        Weight("attention.time_first", "recurrent", (inner,)),
        *_mixes("attention", its.hidden, "key", "value", "receptance"),
        *_projections(its.hidden, inner, inner, "key", "value", "receptance"),
    )
    return _assemble(keys, its, state, mixer, width)


def _rwkv5(keys: Keys) -> Blueprint:
    """Version 5: one ``head_size x head_size`` matrix per head, and a gate."""
    hidden = keys.whole("hidden_size")
    inner = keys.whole("attention_hidden_size", default=hidden)
    size = keys.whole("head_size", high=1 << 12)
    heads = keys.divide("attention_hidden_size", inner, "head_size", size)
    its = _sizes(keys)
    width = keys.whole("intermediate_size", default=max(32, hidden * 7 // 2 // 32 * 32))
    state = _state(hidden, heads, size * size)
    mixer = (
        Weight("attention.time_decay", "recurrent", (heads, size), "heads", heads),
        Weight("attention.time_faaaa", "recurrent", (heads, size), "heads", heads),
        *_mixes("attention", hidden, "key", "value", "receptance", "gate"),
        *_projections(hidden, inner, heads, "key", "value", "receptance", "gate"),
        *norm("attention.ln_x", inner, bias=True, component="recurrent"),
    )
    return _assemble(keys, its, state, mixer, width)


def _sizes(keys: Keys) -> Sizes:
    return Sizes(
        hidden=keys.whole("hidden_size"),
        layers=layer_count(keys),
        heads=0,
        kv_heads=0,
        head_dim=0,
        vocabulary=vocabulary(keys),
        context=context(keys, "context_length"),
    )


def _state(hidden: int, channels: int, columns: int) -> RecurrentState:
    """The last token's input of both halves of the layer, and the recurrence in float32."""
    return RecurrentState(
        mechanism="rwkv",
        tensors=(
            StateTensor(name="conv", channels=hidden, columns=2),
            StateTensor(name="recurrent", channels=channels, columns=columns, precision="float32"),
        ),
    )


def _mixes(prefix: str, hidden: int, *names: str) -> Tensors:
    component: Component = "recurrent" if prefix == "attention" else "dense_mlp"
    return tuple(Weight(f"{prefix}.time_mix_{name}", component, (1, 1, hidden)) for name in names)


def _projections(hidden: int, inner: int, heads: int, *names: str) -> Tensors:
    tensors: Tensors = ()
    for name in names:
        tensors += linear(f"attention.{name}", "recurrent", inner, hidden, "heads", heads=heads)
    return tensors + out_linear("attention.output", "recurrent", hidden, inner, heads)


def _assemble(keys: Keys, its: Sizes, state: RecurrentState, mixer: Tensors, width: int) -> Blueprint:
    tensors = (
        *norms("ln1", "ln2", width=its.hidden, bias=True),
        *mixer,
        *_mixes("feed_forward", its.hidden, "key", "receptance"),
        *linear("feed_forward.key", "dense_mlp", width, its.hidden, "columns"),
        *linear("feed_forward.receptance", "dense_mlp", its.hidden, its.hidden),
        *linear("feed_forward.value", "dense_mlp", its.hidden, width, "rows"),
    )
    first = (*norms("pre_ln", width=its.hidden, bias=True), *tensors)
    layers = [Layer("RWKV", (state,), tensors if index else first) for index in range(its.layers)]
    return decoder(
        keys,
        its,
        layers,
        base="rwkv",
        embed="embeddings",
        blocks="blocks",
        final_norm="ln_out",
        norm_bias=True,
        head="head",
        intermediate=width,
    )
