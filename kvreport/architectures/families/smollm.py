"""SmolLM3, StableLM and Seed-OSS: Llama with one or two changes each."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.attention import Kind, layer_kinds, window
from kvreport.architectures.blueprint import Blueprint, Tensor
from kvreport.architectures.decoder import decoder, sizes
from kvreport.architectures.dense import PRE_NORMS, attention_layers, block
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import Tensors, gated_mlp

SMOLLM3: Final = {
    "attention_bias": False,
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "max_position_embeddings": 32768,
    "mlp_bias": False,
    "no_rope_layer_interval": 4,
    "num_attention_heads": 16,
    "num_hidden_layers": 36,
    "num_key_value_heads": 4,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 128256,
}
STABLELM: Final = {
    "hidden_size": 2560,
    "intermediate_size": 6912,
    "max_position_embeddings": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "qk_layernorm": False,
    "tie_word_embeddings": False,
    "use_parallel_residual": False,
    "use_qkv_bias": False,
    "vocab_size": 50304,
}
SEED_OSS: Final = {
    "attention_bias": True,
    "attention_out_bias": False,
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 27648,
    "max_position_embeddings": 524288,
    "mlp_bias": False,
    "num_attention_heads": 80,
    "num_hidden_layers": 64,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "vocab_size": 155136,
}


@reads("SmolLM3ForCausalLM", family="SmolLM", model_types=("smollm3",), defaults=SMOLLM3)
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
    defaults=STABLELM,
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


@reads("SeedOssForCausalLM", family="Seed-OSS", model_types=("seed_oss",), defaults=SEED_OSS)
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
