"""gpt-oss: alternating windows, attention sinks, experts with biases published in MXFP4."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.attention import attention_cache, layer_kinds, window
from kvreport.architectures.blueprint import Blueprint, Layer, Tensor
from kvreport.architectures.decoder import decoder, expert_counts, sizes
from kvreport.architectures.keys import Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import norms, routed_experts, router, self_attention

GPT_OSS: Final = {
    "attention_bias": True,
    "head_dim": 64,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "max_position_embeddings": 131072,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "num_local_experts": 128,
    "sliding_window": 128,
    "tie_word_embeddings": False,
    "vocab_size": 201088,
}


@reads("GptOssForCausalLM", family="gpt-oss", model_types=("gpt_oss",), defaults=GPT_OSS)
def gpt_oss(keys: Keys) -> Blueprint:
    """Even layers look back 128 tokens, odd ones at everything; every layer is a mixture."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    routed, per_token = expert_counts(keys, "num_local_experts")
    bias = keys.flag("attention_bias")
    kinds = layer_kinds(keys, its.layers, lambda i: "full" if i % 2 else "sliding", ("full", "sliding"))
    tensors = (
        *norms("input_layernorm", "post_attention_layernorm", width=its.hidden),
        *self_attention(its.hidden, its.heads, its.kv_heads, its.head_dim, qkv_bias=bias, output_bias=bias),
        Tensor("self_attn.sinks", "attention", (its.heads,), "heads", its.heads),
        *router(its.hidden, routed, "mlp.router", bias=True),
        *routed_experts(its.hidden, width, routed, bias=True),
    )
    span = window(keys)
    layers = [Layer(*attention_cache(kind, its.kv_heads, its.head_dim, span=span), tensors) for kind in kinds]
    return decoder(keys, its, layers, intermediate=width, experts=(routed, per_token))
