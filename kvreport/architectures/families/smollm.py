"""SmolLM3, StableLM and Seed-OSS: Llama with one or two changes each."""

from __future__ import annotations

from kvreport.architectures.attention import Kind, layer_kinds, window
from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import decoder, sizes
from kvreport.architectures.dense import attention_layers, block
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import gated_mlp


@reads("SmolLM3ForCausalLM", family="SmolLM", model_types=("smollm3",))
def smollm3(keys: Keys) -> Blueprint:
    """Every fourth layer has no rotary positions; only with a window switched on do those slide."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("attention_bias")
    span = window(keys) if keys.flag("use_sliding_window") else None
    every = keys.whole("no_rope_layer_interval", high=MAX_LAYERS)
    rotary = keys.wholes("no_rope_layers", length=its.layers, high=1) or [
        int((index + 1) % every != 0) for index in range(its.layers)
    ]

    def pattern(index: int) -> Kind:
        return "sliding" if span is not None and not rotary[index] else "full"

    kinds = layer_kinds(keys, its.layers, pattern, ("full", "sliding"))
    tensors = block(
        its,
        gated_mlp(its.hidden, width, bias=keys.flag("mlp_bias")),
        qkv_bias=bias,
        output_bias=bias,
    )
    return decoder(keys, its, attention_layers(its, tensors, kinds, span), intermediate=width)
