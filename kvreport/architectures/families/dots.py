"""dots.llm1: DeepSeek's mixture of experts behind plain attention with normalised queries and keys."""

from __future__ import annotations

from kvreport.architectures.attention import Kind, layer_kinds, window
from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import decoder, expert_counts, sizes
from kvreport.architectures.dense import attention_layers, block
from kvreport.architectures.families.deepseek import mixture
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import gated_mlp, norms


@reads("Dots1ForCausalLM", family="dots", model_types=("dots1",))
def dots1(keys: Keys) -> Blueprint:
    """The class has no default number of experts, so a config must state it."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("attention_bias")
    experts = expert_counts(keys, "n_routed_experts")
    span = None if keys.null("sliding_window") else window(keys)
    first_window = keys.whole("max_window_layers", low=0, high=MAX_LAYERS)
    dense_layers = keys.whole("first_k_dense_replace", low=0, high=MAX_LAYERS)

    def pattern(index: int) -> Kind:
        return "sliding" if span is not None and index >= first_window else "full"

    kinds = layer_kinds(keys, its.layers, pattern, ("full", "sliding"))
    inside = norms("self_attn.q_norm", "self_attn.k_norm", width=its.head_dim)
    dense = block(its, gated_mlp(its.hidden, width), qkv_bias=bias, output_bias=bias, inside=inside)
    mixed = block(
        its,
        mixture(keys, its.hidden, experts[0], correction=True),
        qkv_bias=bias,
        output_bias=bias,
        inside=inside,
    )
    each = [dense if index < dense_layers else mixed for index in range(its.layers)]
    layers = attention_layers(its, each, kinds, span)
    return decoder(keys, its, layers, intermediate=width, experts=experts)
