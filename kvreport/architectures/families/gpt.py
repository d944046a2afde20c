"""GPT-2 and what followed its layout: GPT-J, GPT-NeoX (Pythia), GPT-BigCode (StarCoder)."""

from __future__ import annotations

from kvreport.architectures.blueprint import Blueprint, Tensor
from kvreport.architectures.decoder import Sizes, decoder, one_each, sizes
from kvreport.architectures.dense import attention_layers, fused_attention
from kvreport.architectures.keys import Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import Tensors, norms, plain_mlp, self_attention


def gpt_sizes(keys: Keys, *, multi_query: bool = False) -> Sizes:
    """Read the dimensions, whose names differ between the first classes and the later ones."""
    return sizes(
        keys,
        hidden=("n_embd", "hidden_size"),
        heads=("n_head", "num_attention_heads"),
        layers=("n_layer", "num_hidden_layers"),
        kv_heads=(lambda _heads: 1) if multi_query else one_each,
        divided=True,
        scaled=False,
    )


@reads("GPT2LMHeadModel", family="GPT-2", model_types=("gpt2",))
def gpt2(keys: Keys) -> Blueprint:
    """Learned positions, LayerNorms, biases everywhere."""
    return _gpt2(keys, gpt_sizes(keys))


@reads("GPTBigCodeForCausalLM", family="StarCoder", model_types=("gpt_bigcode",))
def gpt_bigcode(keys: Keys) -> Blueprint:
    """As GPT-2, with one KV head for all query heads."""
    return _gpt2(keys, gpt_sizes(keys, multi_query=keys.flag("multi_query")))


def _gpt2(keys: Keys, its: Sizes) -> Blueprint:
    if keys.flag("add_cross_attention", default=False):
        raise keys.fault("add_cross_attention", "true", "false: a decoder without an encoder")
    width = keys.whole("n_inner", default=4 * its.hidden)
    tensors = (
        *norms("ln_1", "ln_2", width=its.hidden, bias=True),
        *fused_attention(its, "attn.c_attn", "attn.c_proj", qkv_bias=True, output_bias=True),
        *plain_mlp(its.hidden, width, names=("c_fc", "c_proj"), bias=True),
    )
    positions = (Tensor("transformer.wpe.weight", "other", (its.context, its.hidden), looked_up=True),)
    return decoder(
        keys,
        its,
        attention_layers(its, tensors),
        base="transformer",
        embed="wte",
        blocks="h",
        final_norm="ln_f",
        norm_bias=True,
        extra=positions,
        intermediate=width,
    )


@reads("GPTJForCausalLM", family="GPT-J", model_types=("gptj",))
def gptj(keys: Keys) -> Blueprint:
    """One norm in front of attention and MLP together; the output head has a bias."""
    its = gpt_sizes(keys)
    width = keys.whole("n_inner", default=4 * its.hidden)
    tensors = (
        *norms("ln_1", width=its.hidden, bias=True),
        *self_attention(its.hidden, its.heads, its.kv_heads, its.head_dim, prefix="attn", output="out_proj"),
        *plain_mlp(its.hidden, width, names=("fc_in", "fc_out"), bias=True),
    )
    return decoder(
        keys,
        its,
        attention_layers(its, tensors),
        base="transformer",
        embed="wte",
        blocks="h",
        final_norm="ln_f",
        norm_bias=True,
        head_bias=True,
        intermediate=width,
    )


@reads("GPTNeoXForCausalLM", family="GPT-NeoX", model_types=("gpt_neox",))
def gpt_neox(keys: Keys) -> Blueprint:
    """Rotary positions and two norms, whether attention and MLP run in parallel or not."""
    its = gpt_sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("attention_bias")
    attention = fused_attention(
        its, "attention.query_key_value", "attention.dense", qkv_bias=bias, output_bias=bias
    )
    mlp = plain_mlp(its.hidden, width, names=("dense_h_to_4h", "dense_4h_to_h"), bias=True)
    around = norms("input_layernorm", "post_attention_layernorm", width=its.hidden, bias=True)
    tensors: Tensors = (*around, *attention, *mlp)
    return decoder(
        keys,
        its,
        attention_layers(its, tensors),
        base="gpt_neox",
        embed="embed_in",
        final_norm="final_layer_norm",
        norm_bias=True,
        head="embed_out",
        intermediate=width,
    )
