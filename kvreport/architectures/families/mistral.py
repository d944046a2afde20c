"""Mistral 7B and its dense and sparse successors of the same class (Nemo, Large, Mixtral)."""

from __future__ import annotations

from kvreport.architectures.attention import attention_cache, window
from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import decoder, expert_counts, sizes
from kvreport.architectures.keys import Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import gated_mlp, norms, routed_experts, router, self_attention


@reads("MistralForCausalLM", family="Mistral", model_types=("mistral",))
def mistral(keys: Keys) -> Blueprint:
    """As Llama, with a sliding window on every layer where the config has one.

    An explicit null means no window (v0.2 and later); a missing key means the class's 4,096.
    """
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    span = None if keys.null("sliding_window") else window(keys)
    kind, caches = attention_cache("sliding", its.kv_heads, its.head_dim, span=span)
    layer = Layer(
        kind,
        caches,
        (
            *norms("input_layernorm", "post_attention_layernorm", width=its.hidden),
            *self_attention(its.hidden, its.heads, its.kv_heads, its.head_dim),
            *gated_mlp(its.hidden, width),
        ),
    )
    return decoder(keys, its, [layer] * its.layers, intermediate=width)


@reads("MixtralForCausalLM", family="Mixtral", model_types=("mixtral",))
def mixtral(keys: Keys) -> Blueprint:
    """Mistral's attention, and a mixture of experts in every layer."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    routed, per_token = expert_counts(keys, "num_local_experts")
    kind, caches = attention_cache("sliding", its.kv_heads, its.head_dim, span=window(keys))
    layer = Layer(
        kind,
        caches,
        (
            *norms("input_layernorm", "post_attention_layernorm", width=its.hidden),
            *self_attention(its.hidden, its.heads, its.kv_heads, its.head_dim),
            *router(its.hidden, routed, "block_sparse_moe.gate"),
            *routed_experts(
                its.hidden, width, routed, "block_sparse_moe.experts.*", names=("w1", "w3", "w2")
            ),
        ),
    )
    return decoder(keys, its, [layer] * its.layers, intermediate=width, experts=(routed, per_token))
