"""Nemotron from neural architecture search: every layer has its own heads, width, or nothing."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.attention import attention_cache, head_dim, layer_count
from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import Sizes, context, decoder, dense_mlp, vocabulary
from kvreport.architectures.keys import Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors, norm
from kvreport.catalog.caches import Cache

_MULTIPLE: Final = 256


@reads("DeciLMForCausalLM", family="Llama Nemotron", model_types=("nemotron-nas",))
def nemotron_nas(keys: Keys) -> Blueprint:
    """Llama's parts, chosen layer by layer in ``block_configs``.

    The class lives in the checkpoint's repository and has no defaults that could stand in, so a
    missing dimension is an error. A block that replaces attention or MLP by one linear layer, or
    uses attention sinks, is not known here and refused.
    """
    hidden = keys.whole("hidden_size")
    heads = keys.whole("num_attention_heads", high=1 << 14)
    layers = layer_count(keys)
    width = head_dim(keys, hidden, heads)
    bias = keys.flag("attention_bias", default=False)
    mlp_bias = keys.flag("mlp_bias", default=False)
    built = []
    for block in keys.sections("block_configs", layers):
        attention, feed_forward = _part(block, "attention"), _part(block, "ffn")
        tensors: Tensors = ()
        kind: str = "no attention"
        caches: tuple[Cache, ...] = ()
        if not attention.flag("no_op", default=False):
            group = attention.whole("n_heads_in_group", high=heads)
            kv_heads = keys.divide("num_attention_heads", heads, "n_heads_in_group", group)
            kind, caches = attention_cache("full", kv_heads, width)
            given = {"hidden": hidden, "heads": heads, "kv_heads": kv_heads, "head_dim": width}
            tensors += norm("input_layernorm", hidden)
            tensors += part("grouped_attention", keys, "self_attn", **given, bias_qkv=bias, bias_out=bias)
        if not feed_forward.flag("no_op", default=False):
            inner = _mlp_width(feed_forward, hidden)
            tensors += norm("post_attention_layernorm", hidden)
            tensors += dense_mlp(keys, hidden, inner, bias=mlp_bias)
        built.append(Layer(kind, caches, tensors))
    its = Sizes(hidden, layers, heads, heads, width, vocabulary(keys), context(keys))
    return decoder(keys, its, built)


def _part(block: Keys, name: str) -> Keys:
    part = block.section(name)
    if part is None:
        raise block.fault(name, None, "an object")
    for refused in ("replace_with_linear", "num_sink_tokens", "window_length", "sparsify"):
        if part.raw(refused):
            raise part.fault(refused, part.raw(refused), "null or false")
    return part


def _mlp_width(part: Keys, hidden: int) -> int:
    """Return the width that a multiplier means: two thirds of it, rounded up to 256."""
    if part.has("intermediate_size"):
        return part.whole("intermediate_size")
    width = int(2 * part.number("ffn_mult", low=0.01, high=64) * hidden / 3)
    return -(-width // _MULTIPLE) * _MULTIPLE
