"""Baichuan 1 and 2, InternLM 1 to 3, Orion and XVERSE: Llama's relatives of 2023 and 2024."""

from __future__ import annotations

from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import decoder, sizes
from kvreport.architectures.dense import attention_layers, block, fused_attention
from kvreport.architectures.keys import Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import gated_mlp, norms


@reads(
    "BaichuanForCausalLM",
    "BaiChuanForCausalLM",
    family="Baichuan",
    model_types=("baichuan",),
)
def baichuan(keys: Keys) -> Blueprint:
    """One matrix for queries, keys and values, one KV head per query head."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    tensors = (
        *norms("input_layernorm", "post_attention_layernorm", width=its.hidden),
        *fused_attention(its, "self_attn.W_pack", "self_attn.o_proj"),
        *gated_mlp(its.hidden, width),
    )
    return decoder(keys, its, attention_layers(its, tensors), intermediate=width)


@reads("InternLMForCausalLM", family="InternLM", model_types=("internlm",))
def internlm(keys: Keys) -> Blueprint:
    """As Llama, with a bias on all four projections of the attention."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("bias")
    tensors = block(its, gated_mlp(its.hidden, width), qkv_bias=bias, output_bias=bias)
    return decoder(keys, its, attention_layers(its, tensors), intermediate=width)


@reads("InternLM2ForCausalLM", family="InternLM", model_types=("internlm2",))
def internlm2(keys: Keys) -> Blueprint:
    """Queries, keys and values of a group lie together in one matrix."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("bias")
    tensors = (
        *norms("attention_norm", "ffn_norm", width=its.hidden),
        *fused_attention(its, "attention.wqkv", "attention.wo", qkv_bias=bias, output_bias=bias),
        *gated_mlp(its.hidden, width, "feed_forward", names=("w1", "w3", "w2")),
    )
    return decoder(
        keys, its, attention_layers(its, tensors), embed="tok_embeddings", head="output", intermediate=width
    )


@reads("InternLM3ForCausalLM", family="InternLM", model_types=("internlm3",))
def internlm3(keys: Keys) -> Blueprint:
    """As Llama, with biases switched on one by one.

    ``qkv_bias`` is on queries, keys and values; ``bias`` on the output and on the MLP.
    """
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("bias", "mlp_bias", default=False)
    mlp = gated_mlp(its.hidden, width, bias=bias)
    qkv_bias = keys.flag("qkv_bias", "attention_bias", default=False)
    tensors = block(its, mlp, qkv_bias=qkv_bias, output_bias=bias)
    return decoder(keys, its, attention_layers(its, tensors), intermediate=width)


@reads("OrionForCausalLM", family="Orion", model_types=("orion",))
def orion(keys: Keys) -> Blueprint:
    """As Llama, with LayerNorms."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    tensors = block(its, gated_mlp(its.hidden, width), norm_bias=True)
    return decoder(keys, its, attention_layers(its, tensors), norm_bias=True, intermediate=width)


@reads("XverseForCausalLM", family="XVERSE", model_types=("xverse",))
def xverse(keys: Keys) -> Blueprint:
    """As Llama."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    tensors = block(its, gated_mlp(its.hidden, width))
    return decoder(keys, its, attention_layers(its, tensors), intermediate=width)
