"""Phi: Phi-1.5 and 2 (parallel blocks), Phi-3 and 4 (fused matrices), Phi-3-small, and PhiMoE."""

from __future__ import annotations

from kvreport.architectures.attention import Kind, grouped_heads, window
from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import decoder, expert_counts, sizes
from kvreport.architectures.dense import PRE_NORMS, attention_layers, block, fused_attention
from kvreport.architectures.keys import Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import (
    linear,
    norms,
    plain_mlp,
    routed_experts,
    router,
    self_attention,
)


@reads("PhiForCausalLM", family="Phi", model_types=("phi", "phi-msft"))
def phi(keys: Keys) -> Blueprint:
    """Attention and MLP side by side behind one LayerNorm; a bias on everything, the head too.

    The first published configs of Phi-2 use GPT-2's names for the dimensions.
    """
    its = sizes(
        keys,
        hidden=("hidden_size", "n_embd"),
        heads=("num_attention_heads", "n_head"),
        layers=("num_hidden_layers", "n_layer"),
        kv_heads=lambda heads: grouped_heads(keys, heads, "num_key_value_heads", "n_head_kv"),
    )
    hidden = its.hidden
    width = keys.whole("intermediate_size", "n_inner", default=4 * hidden)
    qk = keys.flag("qk_layernorm")
    tensors = (
        *norms("input_layernorm", width=hidden, bias=True),
        *self_attention(
            hidden, its.heads, its.kv_heads, its.head_dim, output="dense", qkv_bias=True, output_bias=True
        ),
        *(
            norms("self_attn.q_layernorm", "self_attn.k_layernorm", width=its.head_dim, bias=True)
            if qk
            else ()
        ),
        *plain_mlp(hidden, width, names=("fc1", "fc2"), bias=True),
    )
    return decoder(
        keys,
        its,
        attention_layers(its, tensors),
        final_norm="final_layernorm",
        norm_bias=True,
        head_bias=True,
        intermediate=width,
    )


@reads("Phi3ForCausalLM", family="Phi", model_types=("phi3",))
def phi3(keys: Keys) -> Blueprint:
    """Llama with queries, keys and values in one matrix, gate and up projection in another.

    A window counts on every layer; in the long-context versions it is wider than the context.
    """
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    span = window(keys)
    tensors = (
        *norms(*PRE_NORMS, width=its.hidden),
        *fused_attention(its, "self_attn.qkv_proj", "self_attn.o_proj"),
        *linear("mlp.gate_up_proj", "dense_mlp", 2 * width, its.hidden, "columns"),
        *linear("mlp.down_proj", "dense_mlp", its.hidden, width, "rows"),
    )
    kinds: list[Kind] = ["sliding" if span else "full"] * its.layers
    return decoder(keys, its, attention_layers(its, tensors, kinds=kinds, span=span), intermediate=width)


@reads("Phi3SmallForCausalLM", family="Phi", model_types=("phi3small",))
def phi3_small(keys: Keys) -> Blueprint:
    """Fused projections with biases, LayerNorms and a gated MLP of its own kind.

    Every second layer attends to blocks only, but its cache holds every token. The class lives in
    the checkpoint's repository and has no defaults that could stand in.
    """
    its = sizes(keys)
    width = keys.whole("ff_intermediate_size")
    tensors = (
        *norms(*PRE_NORMS, width=its.hidden, bias=True),
        *fused_attention(
            its, "self_attn.query_key_value", "self_attn.dense", qkv_bias=True, output_bias=True
        ),
        *linear("mlp.up_proj", "dense_mlp", 2 * width, its.hidden, "columns", bias=True),
        *linear("mlp.down_proj", "dense_mlp", its.hidden, width, "rows", bias=True),
    )
    return decoder(
        keys,
        its,
        attention_layers(its, tensors),
        tie=keys.flag("tie_word_embeddings", default=True),
        final_norm="final_layernorm",
        norm_bias=True,
        intermediate=width,
    )


@reads("PhiMoEForCausalLM", "PhimoeForCausalLM", family="Phi", model_types=("phimoe",))
def phimoe(keys: Keys) -> Blueprint:
    """Sixteen experts behind attention with biases; LayerNorms."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    routed, per_token = expert_counts(keys, "num_local_experts")
    bias = keys.flag("attention_bias")
    span = window(keys)
    mlp = (
        *router(its.hidden, routed, "block_sparse_moe.gate"),
        *routed_experts(its.hidden, width, routed, "block_sparse_moe.experts.*", names=("w1", "w3", "w2")),
    )
    tensors = block(its, mlp, norm_bias=True, qkv_bias=bias, output_bias=bias)
    kinds: list[Kind] = ["sliding" if span else "full"] * its.layers
    return decoder(
        keys,
        its,
        attention_layers(its, tensors, kinds=kinds, span=span),
        norm_bias=True,
        head_bias=keys.flag("lm_head_bias"),
        intermediate=width,
        experts=(routed, per_token),
    )
