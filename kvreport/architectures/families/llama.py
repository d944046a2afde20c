"""Llama 1 to 3 and everything that took its class over (SmolLM, Falcon 3, CodeLlama, distills)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kvreport.architectures.attention import Kind, layer_kinds, window
from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import decoder, sizes
from kvreport.architectures.dense import PRE_NORMS, attention_layers, block
from kvreport.architectures.keys import Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import gated_mlp

_CWM_PERIOD: Final = 4


@reads(
    "LlamaForCausalLM",
    "IQuestCoderForCausalLM",
    "LLaMAForCausalLM",
    "SolarForCausalLM",
    family="Llama",
    model_types=("llama", "solar", "emu3_text_model"),
)
def llama(keys: Keys) -> Blueprint:
    """RMSNorm, grouped-query attention on every layer, gated MLP."""
    return _llama(keys, PRE_NORMS)


@reads("HyperCLOVAXForCausalLM", family="HyperCLOVA X", model_types=("hyperclovax",))
def hyperclovax(keys: Keys) -> Blueprint:
    """As Llama, with a norm after each block as well."""
    after = ("post_norm1", "post_norm2") if keys.flag("use_post_norm", default=True) else ()
    return _llama(keys, (*PRE_NORMS, *after))


@reads("CwmForCausalLM", family="Code World Model", model_types=("cwm",))
def cwm(keys: Keys) -> Blueprint:
    """As Llama, with a window on three layers of four."""
    return _llama(keys, PRE_NORMS, lambda index: "sliding" if index % _CWM_PERIOD else "full")


def _llama(keys: Keys, around: tuple[str, ...], pattern: Callable[[int], Kind] | None = None) -> Blueprint:
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("attention_bias", default=False)
    mlp = gated_mlp(its.hidden, width, bias=keys.flag("mlp_bias", default=False))
    tensors = block(its, mlp, around=around, qkv_bias=bias, output_bias=bias)
    if pattern is None:
        layers = attention_layers(its, tensors)
    else:
        kinds = layer_kinds(keys, its.layers, pattern, ("full", "sliding"))
        layers = attention_layers(its, tensors, kinds=kinds, span=window(keys))
    return decoder(keys, its, layers, intermediate=width)
