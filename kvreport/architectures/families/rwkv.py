"""RWKV-4 and RWKV-5: no attention and no cache that grows, a small state in every layer instead."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import Sizes, context, decoder, stateful_sizes
from kvreport.architectures.keys import Keys
from kvreport.architectures.parts import part
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.catalog.caches import RecurrentState, StateTensor

_FLOATS_OF_RWKV4: Final = 3
"""Numerator, denominator and running maximum, which the class keeps in float32."""


@reads("RwkvForCausalLM", family="RWKV", model_types=("rwkv", "rwkv5"))
def rwkv(keys: Keys) -> Blueprint:
    """Read version 4, or 5 if the config says so: the versions share the name of their class."""
    if keys.text("model_type") == "rwkv5" or keys.has("head_size"):
        return _rwkv5(keys.with_defaults(published("rwkv5")))
    its = stateful_sizes(keys, context(keys, "context_length"))
    width = keys.whole("intermediate_size", default=4 * its.hidden)
    inner = keys.whole("attention_hidden_size", default=its.hidden)
    given = {"heads": 0, "size": 0, "divided": inner, "inner": inner, "width": width}
    return _assemble(keys, its, _state(its.hidden, inner, _FLOATS_OF_RWKV4), given)


def _rwkv5(keys: Keys) -> Blueprint:
    """Version 5: one ``head_size x head_size`` matrix per head, and a gate."""
    hidden = keys.whole("hidden_size")
    inner = keys.whole("attention_hidden_size", default=hidden)
    size = keys.whole("head_size", high=1 << 12)
    heads = keys.divide("attention_hidden_size", inner, "head_size", size)
    its = stateful_sizes(keys, context(keys, "context_length"))
    width = keys.whole("intermediate_size", default=max(32, hidden * 7 // 2 // 32 * 32))
    given = {"heads": heads, "size": size, "divided": heads, "inner": inner, "width": width}
    return _assemble(keys, its, _state(hidden, heads, size * size), given)


def _state(hidden: int, channels: int, columns: int) -> RecurrentState:
    """The last token's input of both halves of the layer, and the recurrence in float32."""
    return RecurrentState(
        mechanism="rwkv",
        tensors=(
            StateTensor(name="conv", channels=hidden, columns=2),
            StateTensor(name="recurrent", channels=channels, columns=columns, precision="float32"),
        ),
    )


def _assemble(keys: Keys, its: Sizes, state: RecurrentState, given: dict[str, int]) -> Blueprint:
    first, other = (part("rwkv_layer", keys, hidden=its.hidden, **given, first=one) for one in (True, False))
    layers = [Layer("RWKV", (state,), other if index else first) for index in range(its.layers)]
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
        intermediate=given["width"],
    )
