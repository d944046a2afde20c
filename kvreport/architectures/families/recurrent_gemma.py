"""RecurrentGemma (Griffin): two layers of a linear recurrence, then one that slides over a window."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.attention import attention_cache
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.decoder import Sizes, decoder, open_context, sizes
from kvreport.architectures.keys import MAX_CONTEXT, Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import Tensors, gated_mlp, linear, norms, self_attention
from kvreport.catalog.caches import Cache, RecurrentState, StateTensor

TRAINED_ON: Final = 8192


@reads(
    "RecurrentGemmaForCausalLM",
    family="RecurrentGemma",
    model_types=("recurrent_gemma",),
)
def recurrent_gemma(keys: Keys) -> Blueprint:
    """No layer reads more than the window, so the cache stops growing there."""
    longest, notes = open_context(keys, TRAINED_ON)
    its = sizes(keys, longest=longest)
    hidden = its.hidden
    both = keys.divide("intermediate_size", keys.whole("intermediate_size"), "its two halves", 2)
    around = norms("temporal_pre_norm", "channel_pre_norm", width=hidden)
    mlp = gated_mlp(hidden, both, "mlp_block", bias=True)
    attention = self_attention(
        hidden,
        its.heads,
        its.kv_heads,
        its.head_dim,
        prefix="temporal_block",
        qkv_bias=keys.flag("attention_bias"),
        output_bias=True,
    )
    span = keys.whole("attention_window_size", "sliding_window", high=MAX_CONTEXT)
    slides = attention_cache("sliding", its.kv_heads, its.head_dim, span=span)
    state, mixer = _recurrence(keys, its)
    pattern = keys.texts("block_types", "_block_types", of=("recurrent", "attention"))
    if not pattern:
        raise keys.fault("block_types", "an empty list", "at least one of recurrent and attention")
    layers = [
        Layer(*slides, (*around, *attention, *mlp))
        if pattern[index % len(pattern)] == "attention"
        else Layer("RG-LRU", (state,), (*around, *mixer, *mlp))
        for index in range(its.layers)
    ]
    return decoder(keys, its, layers, final_norm="final_norm", intermediate=both, notes=notes)


def _recurrence(keys: Keys, its: Sizes) -> tuple[Cache, Tensors]:
    """Return the state and the tensors of a recurrent block: one number per channel, in float32."""
    width = keys.whole("lru_width", default=its.hidden)
    kernel = keys.whole("conv1d_width", low=2, high=1 << 10)
    each = keys.divide("lru_width", width, "num_attention_heads", its.heads)
    path = "temporal_block"
    gates: Tensors = ()
    for name in ("input_gate", "recurrent_gate"):
        gates += (
            Weight(f"{path}.rg_lru.{name}_weight", "recurrent", (its.heads, each, each), "heads", its.heads),
            Weight(f"{path}.rg_lru.{name}_bias", "recurrent", (its.heads, each), "heads", its.heads),
        )
    tensors = (
        *linear(f"{path}.linear_y", "recurrent", width, its.hidden, "columns", bias=True),
        *linear(f"{path}.linear_x", "recurrent", width, its.hidden, "columns", bias=True),
        *linear(f"{path}.linear_out", "recurrent", its.hidden, width, "rows", bias=True),
        Weight(f"{path}.conv_1d.weight", "recurrent", (width, 1, kernel), "columns"),
        Weight(f"{path}.conv_1d.bias", "recurrent", (width,), "columns"),
        Weight(f"{path}.rg_lru.recurrent_param", "recurrent", (width,), "columns"),
        *gates,
    )
    state = RecurrentState(
        mechanism="rg_lru",
        tensors=(
            StateTensor(name="conv", channels=width, columns=kernel - 1),
            StateTensor(name="recurrent", channels=width, columns=1, precision="float32"),
        ),
    )
    return state, tensors
