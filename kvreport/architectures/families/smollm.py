"""SmolLM3, StableLM and Seed-OSS: Llama with one or two changes each."""

from __future__ import annotations

from kvreport.architectures.attention import Kind, layer_kinds, window
from kvreport.architectures.blueprint import Blueprint, Tensor
from kvreport.architectures.decoder import decoder, sizes
from kvreport.architectures.dense import PRE_NORMS, attention_layers, block
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import Tensors, gated_mlp


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


@reads(
    "StableLmForCausalLM",
    "StableLMEpochForCausalLM",
    family="StableLM",
    model_types=("stablelm", "stablelm_epoch"),
)
def stablelm(keys: Keys) -> Blueprint:
    """LayerNorms, of which one falls away where attention and MLP run in parallel."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    each: Tensors = ()
    if keys.flag("qk_layernorm"):
        each = (
            Tensor("self_attn.q_layernorm.norms.*.weight", "norms", (its.head_dim,), count=its.heads),
            Tensor("self_attn.k_layernorm.norms.*.weight", "norms", (its.head_dim,), count=its.kv_heads),
        )
    tensors = block(
        its,
        gated_mlp(its.hidden, width),
        around=PRE_NORMS[:1] if keys.flag("use_parallel_residual") else PRE_NORMS,
        norm_bias=True,
        qkv_bias=keys.flag("use_qkv_bias"),
        inside=each,
    )
    return decoder(keys, its, attention_layers(its, tensors), norm_bias=True, intermediate=width)


@reads("SeedOssForCausalLM", family="Seed-OSS", model_types=("seed_oss",))
def seed_oss(keys: Keys) -> Blueprint:
    """More heads than its width would give; a bias on queries, keys and values."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    tensors = block(
        its,
        gated_mlp(its.hidden, width, bias=keys.flag("mlp_bias")),
        qkv_bias=keys.flag("attention_bias"),
        output_bias=keys.flag("attention_out_bias"),
    )
    return decoder(keys, its, attention_layers(its, tensors), intermediate=width)
