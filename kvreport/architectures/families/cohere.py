"""Command R to Command A, and Aya: one norm per layer, attention and MLP side by side."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.attention import Kind, layer_kinds, window
from kvreport.architectures.blueprint import Blueprint, Tensor
from kvreport.architectures.decoder import Sizes, decoder, expert_counts, sizes
from kvreport.architectures.dense import attention_layers, block
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import Tensors, gated_mlp, routed_experts, router

_BEFORE: Final = ("input_layernorm",)


@reads("CohereForCausalLM", family="Command", model_types=("cohere",))
def cohere(keys: Keys) -> Blueprint:
    """Full attention everywhere; Command R+ also normalises each query and key head by itself."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    inside: Tensors = ()
    if keys.flag("use_qk_norm"):
        inside = (
            Tensor("self_attn.q_norm.weight", "norms", (its.heads, its.head_dim)),
            Tensor("self_attn.k_norm.weight", "norms", (its.kv_heads, its.head_dim)),
        )
    tensors = _block(keys, its, gated_mlp(its.hidden, width), inside)
    return decoder(keys, its, attention_layers(its, tensors), intermediate=width)


@reads("Cohere2ForCausalLM", family="Command", model_types=("cohere2", "cohere_compass_text"))
def cohere2(keys: Keys) -> Blueprint:
    """Three windows, then one layer that reads everything, without positions."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    every = keys.whole("sliding_window_pattern", default=4, high=MAX_LAYERS)
    kinds = layer_kinds(
        keys, its.layers, lambda index: "sliding" if (index + 1) % every else "full", ("full", "sliding")
    )
    tensors = _block(keys, its, gated_mlp(its.hidden, width))
    return decoder(keys, its, attention_layers(its, tensors, kinds, window(keys)), intermediate=width)


@reads("Cohere2MoeForCausalLM", family="Command", model_types=("cohere2_moe",))
def cohere2_moe(keys: Keys) -> Blueprint:
    """Cohere 2's pattern over mixtures; the first layers may be dense with a pattern of their own."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    experts = expert_counts(keys, "num_experts")
    first = keys.whole("first_k_dense_replace", default=0, low=0, high=its.layers)
    every = keys.whole("sliding_window_pattern", default=4, high=MAX_LAYERS)
    every_first = keys.whole("prefix_dense_sliding_window_pattern", default=1, high=MAX_LAYERS)

    def pattern(index: int) -> Kind:
        place, stride = (index, every_first) if index < first else (index - first, every)
        return "sliding" if (place + 1) % stride else "full"

    kinds = layer_kinds(keys, its.layers, pattern, ("full", "sliding"))
    listed = keys.texts("mlp_layer_types", length=its.layers, of=("dense", "sparse"))
    mlps = listed or ["dense" if index < first else "sparse" for index in range(its.layers)]
    mixed = _block(keys, its, _mixture(keys, its, width, experts[0]))
    dense_width = keys.whole("prefix_dense_intermediate_size", default=width)
    dense = _block(keys, its, gated_mlp(its.hidden, dense_width))
    each = [dense if kind == "dense" else mixed for kind in mlps]
    layers = attention_layers(its, each, kinds, window(keys))
    return decoder(keys, its, layers, intermediate=width, experts=experts)


def _mixture(keys: Keys, its: Sizes, width: int, routed: int) -> Tensors:
    shared = keys.whole("num_shared_experts", low=0, high=1 << 10)
    joint = gated_mlp(its.hidden, width * shared, "mlp.shared_experts", "shared_experts") if shared else ()
    return (*router(its.hidden, routed), *routed_experts(its.hidden, width, routed), *joint)


def _block(keys: Keys, its: Sizes, mlp: Tensors, inside: Tensors = ()) -> Tensors:
    bias = keys.flag("attention_bias")
    return block(its, mlp, around=_BEFORE, qkv_bias=bias, output_bias=bias, inside=inside)
