"""Qwen 1 (2023), in its maker's own class."""

from __future__ import annotations

from kvreport.architectures.attention import layer_count
from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import Sizes, context, decoder, vocabulary
from kvreport.architectures.dense import attention_layers, fused_attention
from kvreport.architectures.keys import Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import gated_mlp, norms


@reads("QWenLMHeadModel", family="Qwen", model_types=("qwen",))
def qwen(keys: Keys) -> Blueprint:
    """Read Qwen 1: ``intermediate_size`` counts gate and up together, so each is half as wide.

    Its tokens beyond ``seq_length`` are reached by extrapolation, so that is the context limit.
    """
    heads = keys.whole("num_attention_heads", high=1 << 14)
    its = Sizes(
        hidden=keys.whole("hidden_size"),
        layers=layer_count(keys),
        heads=heads,
        kv_heads=heads,
        head_dim=keys.whole("kv_channels", high=1 << 16),
        vocabulary=vocabulary(keys),
        context=keys.whole("seq_length", default=context(keys)),
    )
    width = keys.divide("intermediate_size", keys.whole("intermediate_size"), "its two halves", 2)
    bias = not keys.flag("no_bias")
    tensors = (
        *norms("ln_1", "ln_2", width=its.hidden),
        *fused_attention(its, "attn.c_attn", "attn.c_proj", qkv_bias=True, output_bias=bias),
        *gated_mlp(its.hidden, width, names=("w2", "w1", "c_proj"), bias=bias),
    )
    return decoder(
        keys,
        its,
        attention_layers(its, tensors),
        base="transformer",
        embed="wte",
        blocks="h",
        final_norm="ln_f",
        intermediate=width,
    )
