"""gpt-oss: alternating windows, attention sinks, experts with biases published in MXFP4."""

from __future__ import annotations

from kvreport.architectures.attention import attention_cache, layer_kinds, window
from kvreport.architectures.blueprint import Blueprint, Layer, Tensor
from kvreport.architectures.decoder import decoder, expert_counts, sizes
from kvreport.architectures.keys import Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import norms, routed_experts, router, self_attention


@reads("GptOssForCausalLM", family="gpt-oss", model_types=("gpt_oss",))
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
