"""MPT: positions by attention biases (ALiBi)."""

from __future__ import annotations

from functools import partial

from kvreport.architectures.attention import grouped_heads
from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import decoder, sizes
from kvreport.architectures.dense import attention_layers, fused_attention
from kvreport.architectures.keys import Keys
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import section_or_default
from kvreport.architectures.weights import norms, plain_mlp


@reads("MptForCausalLM", "MPTForCausalLM", family="MPT", model_types=("mpt",))
def mpt(keys: Keys) -> Blueprint:
    """No biases at all; the number of KV heads follows from the type of attention."""
    attention = section_or_default(keys, "attn_config", published("mpt_attention"))
    if not keys.flag("no_bias"):
        raise keys.fault("no_bias", keys.raw("no_bias"), "true: biases in MPT are not known")
    if not attention.flag("alibi") or attention.flag("qk_ln"):
        raise attention.fault("alibi, qk_ln", "another combination", "alibi true and qk_ln false")
    its = sizes(
        keys,
        hidden=("d_model", "hidden_size"),
        heads=("n_heads", "num_attention_heads"),
        layers=("n_layers", "num_hidden_layers"),
        kv_heads=partial(_mpt_kv_heads, attention),
        divided=True,
    )
    hidden = its.hidden
    width = hidden * keys.whole("expansion_ratio", high=64)
    tensors = (
        *norms("norm_1", "norm_2", width=hidden),
        *fused_attention(its, "attn.Wqkv", "attn.out_proj"),
        *plain_mlp(hidden, width, "ffn"),
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
    )


def _mpt_kv_heads(attention: Keys, heads: int) -> int:
    kind = attention.text("attn_type")
    if kind == "multihead_attention":
        return heads
    if kind == "multiquery_attention":
        return 1
    if kind == "grouped_query_attention":
        return grouped_heads(attention, heads, "kv_n_heads")
    allowed = "multihead_attention, multiquery_attention or grouped_query_attention"
    raise attention.fault("attn_type", kind, allowed)
