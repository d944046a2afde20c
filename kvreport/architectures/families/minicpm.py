"""MiniCPM 1 and 2 (Llama with scaled residuals) and MiniCPM3 (latent attention)."""

from __future__ import annotations

from kvreport.architectures.attention import latent_cache
from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import decoder, expert_counts, sizes
from kvreport.architectures.dense import attention_layers, block
from kvreport.architectures.families.deepseek import latent_sizes, latent_tensors
from kvreport.architectures.keys import Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import gated_mlp, routed_experts, router


@reads("MiniCPMForCausalLM", family="MiniCPM", model_types=("minicpm",))
def minicpm(keys: Keys) -> Blueprint:
    """As Llama; with ``num_experts`` every layer is a mixture (MiniCPM-MoE)."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("attention_bias")
    experts = None
    mlp = gated_mlp(its.hidden, width)
    if keys.optional("num_experts"):
        experts = expert_counts(keys, "num_experts")
        mlp = (
            *router(its.hidden, experts[0]),
            *routed_experts(its.hidden, width, experts[0], names=("w1", "w3", "w2")),
        )
    tensors = block(its, mlp, qkv_bias=bias, output_bias=bias)
    return decoder(keys, its, attention_layers(its, tensors), intermediate=width, experts=experts)


@reads("MiniCPM3ForCausalLM", family="MiniCPM", model_types=("minicpm3",))
def minicpm3(keys: Keys) -> Blueprint:
    """Latent attention as in DeepSeek-V2, with a dense MLP."""
    its, rank, rope = latent_sizes(keys)
    width = keys.whole("intermediate_size")
    kind, caches = latent_cache(rank, rope)
    tensors = (
        *latent_tensors(keys, its, rank, rope),
        *gated_mlp(its.hidden, width, bias=keys.flag("mlp_bias")),
    )
    return decoder(keys, its, [Layer(kind, caches, tensors)] * its.layers, intermediate=width)
