"""DBRX and Grok-1: mixtures of experts of 2024 with classes of their own."""

from __future__ import annotations

from kvreport.architectures.attention import grouped_heads
from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import decoder, expert_counts, sizes
from kvreport.architectures.dense import attention_layers, fused_attention
from kvreport.architectures.keys import Keys
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import section_or_default
from kvreport.architectures.weights import norms, routed_experts, router


@reads("DbrxForCausalLM", family="DBRX", model_types=("dbrx",))
def dbrx(keys: Keys) -> Blueprint:
    """Fine-grained experts; attention and experts are described in sections of their own."""
    attention = section_or_default(keys, "attn_config", published("dbrx_attention"))
    ffn = section_or_default(keys, "ffn_config", published("dbrx_experts"))
    its = sizes(
        keys,
        hidden=("d_model", "hidden_size"),
        heads=("n_heads", "num_attention_heads"),
        layers=("n_layers", "num_hidden_layers"),
        kv_heads=lambda heads: grouped_heads(attention, heads, "kv_n_heads"),
        divided=True,
    )
    hidden = its.hidden
    width = ffn.whole("ffn_hidden_size")
    experts = expert_counts(ffn, "moe_num_experts", per_token=("moe_top_k",))
    tensors = (
        *norms("norm_attn_norm.norm_1", "norm_attn_norm.norm_2", width=hidden),
        *fused_attention(its, "norm_attn_norm.attn.Wqkv", "norm_attn_norm.attn.out_proj"),
        *router(hidden, experts[0], "ffn.router.layer"),
        *routed_experts(hidden, width, experts[0], "ffn.experts.mlp", names=("w1", "v1", "w2")),
    )
    return decoder(
        keys,
        its,
        attention_layers(its, tensors),
        base="transformer",
        embed="wte",
        blocks="blocks",
        final_norm="norm_f",
        intermediate=width,
        experts=experts,
    )
