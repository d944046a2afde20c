"""RecurrentGemma (Griffin): two layers of a linear recurrence, then one that slides over a window."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.attention import attention_cache
from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import Sizes, decoder, open_context, sizes
from kvreport.architectures.keys import MAX_CONTEXT, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors, norms
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
    mlp = part("gated_mlp", keys, "mlp_block", hidden=hidden, mlp_width=both, bias_mlp=True)
    given = {**its.given, "bias_qkv": keys.flag("attention_bias"), "bias_out": True}
    attention = part("grouped_attention", keys, "temporal_block", **given)
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
    given = {"hidden": its.hidden, "heads": its.heads, "width": width, "each": each, "kernel": kernel}
    tensors = part("rg_lru", keys, "temporal_block", **given)
    state = RecurrentState(
        mechanism="rg_lru",
        tensors=(
            StateTensor(name="conv", channels=width, columns=kernel - 1),
            StateTensor(name="recurrent", channels=width, columns=1, precision="float32"),
        ),
    )
    return state, tensors
