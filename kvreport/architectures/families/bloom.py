"""BLOOM and MPT: positions by attention biases (ALiBi); OPT: learned positions."""

from __future__ import annotations

from functools import partial
from typing import Final

from kvreport.architectures.attention import grouped_heads
from kvreport.architectures.blueprint import Blueprint, Tensor
from kvreport.architectures.decoder import decoder, one_each, open_context, sizes
from kvreport.architectures.dense import attention_layers, fused_attention
from kvreport.architectures.keys import Keys
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import section_or_default
from kvreport.architectures.weights import Tensors, linear, norm, norms, plain_mlp, self_attention

_OPT_OFFSET: Final = 2
"""Rows that OPT keeps in front of its positions."""


@reads("BloomForCausalLM", family="BLOOM", model_types=("bloom",))
def bloom(keys: Keys) -> Blueprint:
    """Biases everywhere, and a norm behind the embedding."""
    longest, notes = open_context(keys, 2048)
    its = sizes(
        keys,
        hidden=("hidden_size", "n_embed"),
        heads=("n_head", "num_attention_heads"),
        layers=("n_layer", "num_hidden_layers"),
        kv_heads=one_each,
        divided=True,
        longest=longest,
    )
    hidden = its.hidden
    tensors = (
        *norms("input_layernorm", "post_attention_layernorm", width=hidden, bias=True),
        *fused_attention(
            its,
            "self_attention.query_key_value",
            "self_attention.dense",
            qkv_bias=True,
            output_bias=True,
        ),
        *plain_mlp(hidden, 4 * hidden, names=("dense_h_to_4h", "dense_4h_to_h"), bias=True),
    )
    return decoder(
        keys,
        its,
        attention_layers(its, tensors),
        base="transformer",
        embed="word_embeddings",
        blocks="h",
        final_norm="ln_f",
        norm_bias=True,
        extra=norm("transformer.word_embeddings_layernorm", hidden, bias=True),
        intermediate=4 * hidden,
        notes=notes,
    )


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


@reads("OPTForCausalLM", family="OPT", model_types=("opt",))
def opt(keys: Keys) -> Blueprint:
    """Learned positions; the smallest but one has an embedding narrower than its layers."""
    its = sizes(keys, kv_heads=one_each, divided=True)
    hidden, heads = its.hidden, its.heads
    width = keys.whole("ffn_dim")
    narrow = keys.whole("word_embed_proj_dim", default=hidden)
    bias = keys.flag("enable_bias")
    affine = keys.flag("layer_norm_elementwise_affine")
    attention = self_attention(
        hidden, heads, heads, its.head_dim, output="out_proj", qkv_bias=bias, output_bias=bias
    )
    around = norms("self_attn_layer_norm", "final_layer_norm", width=hidden, bias=True) if affine else ()
    mlp = (
        *linear("fc1", "dense_mlp", width, hidden, "columns", bias=bias),
        *linear("fc2", "dense_mlp", hidden, width, "rows", bias=bias),
    )
    tensors = (*around, *attention, *mlp)
    last = affine and keys.flag("do_layer_norm_before") and not keys.flag("_remove_final_layer_norm")
    base = "model.decoder"
    positions = its.context + _OPT_OFFSET
    extra: Tensors = (Tensor(f"{base}.embed_positions.weight", "other", (positions, hidden), looked_up=True),)
    if narrow != hidden:
        extra += linear(f"{base}.project_in", "other", hidden, narrow)
        extra += linear(f"{base}.project_out", "other", narrow, hidden)
    return decoder(
        keys,
        its,
        attention_layers(its, tensors),
        base=base,
        embedding_width=narrow,
        final_norm="final_layer_norm",
        norm_bias=True,
        norm_weight=last,
        extra=extra,
        intermediate=width,
    )
