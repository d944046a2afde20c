"""OLMo 1 to 3, OLMoE, FlexOlmo: fully open models, each generation with its norms elsewhere."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.attention import layer_kinds, window
from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import Sizes, decoder, expert_counts, sizes
from kvreport.architectures.dense import attention_layers, block
from kvreport.architectures.keys import Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import Tensors, gated_mlp, norms, routed_experts, router

BEHIND: Final = ("post_attention_layernorm", "post_feedforward_layernorm")


def whole_norms(its: Sizes) -> Tensors:
    """Norms over all queries together and over all keys together, not per head."""
    return (
        *norms("self_attn.q_norm", width=its.heads * its.head_dim),
        *norms("self_attn.k_norm", width=its.kv_heads * its.head_dim),
    )


@reads("OlmoForCausalLM", family="OLMo", model_types=("olmo",))
def olmo(keys: Keys) -> Blueprint:
    """Its norms have no weights."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("attention_bias")
    tensors = block(its, gated_mlp(its.hidden, width), around=(), qkv_bias=bias, output_bias=bias)
    return decoder(keys, its, attention_layers(its, tensors), norm_weight=False, intermediate=width)


@reads("Olmo2ForCausalLM", family="OLMo", model_types=("olmo2",))
def olmo2(keys: Keys) -> Blueprint:
    """Norms behind attention and MLP instead of before, and on queries and keys."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    tensors = _behind(keys, its, gated_mlp(its.hidden, width))
    return decoder(keys, its, attention_layers(its, tensors), intermediate=width)


@reads("Olmo3ForCausalLM", family="OLMo", model_types=("olmo3",))
def olmo3(keys: Keys) -> Blueprint:
    """Three windows, then one layer that reads everything; only the latter's positions are scaled."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    kinds = layer_kinds(
        keys, its.layers, lambda index: "sliding" if (index + 1) % 4 else "full", ("full", "sliding")
    )
    tensors = _behind(keys, its, gated_mlp(its.hidden, width))
    return decoder(keys, its, attention_layers(its, tensors, kinds, window(keys)), intermediate=width)


@reads("OlmoeForCausalLM", family="OLMo", model_types=("olmoe",))
def olmoe(keys: Keys) -> Blueprint:
    """Norms before again; a mixture in every layer, each expert as wide as ``intermediate_size``."""
    its = sizes(keys)
    bias = keys.flag("attention_bias")
    mlp, width, experts = _mixture(keys, its)
    tensors = block(its, mlp, qkv_bias=bias, output_bias=bias, inside=whole_norms(its))
    return decoder(keys, its, attention_layers(its, tensors), intermediate=width, experts=experts)


@reads("FlexOlmoForCausalLM", family="OLMo", model_types=("flex_olmo",))
def flex_olmo(keys: Keys) -> Blueprint:
    """OLMo 2 with a few experts, each trained by itself."""
    its = sizes(keys)
    mlp, width, experts = _mixture(keys, its)
    tensors = _behind(keys, its, mlp)
    return decoder(keys, its, attention_layers(its, tensors), intermediate=width, experts=experts)


def _behind(keys: Keys, its: Sizes, mlp: Tensors) -> Tensors:
    bias = keys.flag("attention_bias")
    return block(its, mlp, around=BEHIND, qkv_bias=bias, output_bias=bias, inside=whole_norms(its))


def _mixture(keys: Keys, its: Sizes) -> tuple[Tensors, int, tuple[int, int]]:
    width = keys.whole("intermediate_size")
    experts = expert_counts(keys, "num_experts", "num_local_experts")
    return (
        (*router(its.hidden, experts[0]), *routed_experts(its.hidden, width, experts[0])),
        width,
        experts,
    )
