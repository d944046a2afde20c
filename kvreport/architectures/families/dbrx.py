"""DBRX and Grok-1: mixtures of experts of 2024 with classes of their own."""

from __future__ import annotations

from kvreport.architectures.attention import grouped_heads
from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import decoder, expert_counts, sizes
from kvreport.architectures.dense import attention_layers, block, fused_attention
from kvreport.architectures.keys import Keys
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import section_or_default
from kvreport.architectures.weights import gated_mlp, norms, routed_experts, router


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


@reads("Grok1ModelForCausalLM", family="Grok")
def grok1(keys: Keys) -> Blueprint:
    """Two norms before and two behind, eight wide experts; Grok 2 has a dense MLP beside narrower ones.

    Source: SGLang 0.5.23, ``grok.py`` (``residual_moe``, ``moe_intermediate_size``).
    """
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    inner = keys.whole("moe_intermediate_size", default=width)
    experts = expert_counts(keys, "num_experts", "num_local_experts")
    around = ("pre_attn_norm", "post_attn_norm", "pre_moe_norm", "post_moe_norm")
    mlp = (
        *router(its.hidden, experts[0], "moe_block.gate"),
        *routed_experts(
            its.hidden, inner, experts[0], "moe_block.experts.*", names=("linear", "linear_v", "linear_1")
        ),
        *(gated_mlp(its.hidden, width) if keys.flag("residual_moe", default=False) else ()),
    )
    tensors = block(its, mlp, around=around)
    return decoder(keys, its, attention_layers(its, tensors), intermediate=width, experts=experts)
