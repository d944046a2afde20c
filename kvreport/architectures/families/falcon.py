"""Falcon 1 and 2 (one KV head, or eight groups) and Falcon-H1 (attention beside Mamba-2)."""

from __future__ import annotations

from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import decoder, sizes
from kvreport.architectures.dense import attention_layers, fused_attention
from kvreport.architectures.keys import Keys
from kvreport.architectures.mamba import mamba2_mixer
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import gated_mlp, norms, plain_mlp, self_attention
from kvreport.catalog.caches import FullAttention


@reads(
    "FalconForCausalLM",
    "RWForCausalLM",
    family="Falcon",
    model_types=("falcon", "RefinedWeb", "RefinedWebModel"),
)
def falcon(keys: Keys) -> Blueprint:
    """Read Falcon, where ``num_kv_heads`` counts only in the newer decoder.

    The 7B states 71 of them and has one, because of ``multi_query``. Files from before the class
    was renamed (``RefinedWeb``) say the newer decoder by ``n_head_kv``.
    """
    newer = keys.flag("new_decoder_architecture") or keys.has("n_head_kv")

    def kv_heads(heads: int) -> int:
        if newer:
            found = keys.whole("num_kv_heads", "n_head_kv", default=heads, high=heads)
        else:
            found = 1 if keys.flag("multi_query") else heads
        keys.divide("num_attention_heads", heads, "num_kv_heads", found)
        return found

    its = sizes(
        keys,
        hidden=("hidden_size", "n_embed"),
        heads=("num_attention_heads", "n_head"),
        layers=("num_hidden_layers", "n_layer"),
        kv_heads=kv_heads,
        divided=True,
    )
    hidden = its.hidden
    width = keys.whole("ffn_hidden_size", default=4 * hidden)
    bias = keys.flag("bias")
    tensors = (
        *norms(*_norm_names(keys, newer=newer), width=hidden, bias=True),
        *fused_attention(
            its,
            "self_attention.query_key_value",
            "self_attention.dense",
            qkv_bias=bias,
            output_bias=bias,
        ),
        *plain_mlp(hidden, width, names=("dense_h_to_4h", "dense_4h_to_h"), bias=bias),
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
        intermediate=width,
    )


def _norm_names(keys: Keys, *, newer: bool) -> tuple[str, ...]:
    """Return the norms of a layer: two in sequence, or one or two in front of parallel halves."""
    if not keys.flag("parallel_attn"):
        return ("input_layernorm", "post_attention_layernorm")
    if keys.whole("num_ln_in_parallel_attn", default=2 if newer else 1, high=2) == 2:
        return ("ln_attn", "ln_mlp")
    return ("input_layernorm",)


@reads("FalconH1ForCausalLM", family="Falcon-H1", model_types=("falcon_h1",))
def falcon_h1(keys: Keys) -> Blueprint:
    """Every layer runs attention and Mamba-2 side by side, and keeps the caches of both."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("attention_bias")
    heads, head_dim = _mamba_heads(keys, its.hidden)
    state, mixer = mamba2_mixer(
        keys,
        its.hidden,
        heads,
        head_dim,
        output_bias=keys.flag("projectors_bias"),
        gated_norm=keys.flag("mamba_rms_norm"),
    )
    attention = self_attention(
        its.hidden, its.heads, its.kv_heads, its.head_dim, qkv_bias=bias, output_bias=bias
    )
    tensors = (
        *norms("input_layernorm", "pre_ff_layernorm", width=its.hidden),
        *attention,
        *mixer,
        *gated_mlp(its.hidden, width, "feed_forward", bias=keys.flag("mlp_bias")),
    )
    caches = (
        FullAttention(kv_heads=its.kv_heads, key_dim=its.head_dim, value_dim=its.head_dim),
        state,
    )
    layer = Layer("full attention and Mamba-2", caches, tensors)
    return decoder(keys, its, [layer] * its.layers, final_norm="final_layernorm", intermediate=width)


def _mamba_heads(keys: Keys, hidden: int) -> tuple[int, int]:
    """Return heads and head width of the Mamba half, whose inner width may be stated by itself."""
    heads = keys.whole("mamba_n_heads", high=1 << 14)
    told = keys.raw("mamba_d_head")
    stated = None if told in (None, "auto") else keys.whole("mamba_d_head", high=1 << 14)
    if keys.has("mamba_d_ssm"):
        inner = keys.whole("mamba_d_ssm")
    elif "mamba_d_ssm" in keys.data:
        inner = keys.whole("mamba_expand", high=64) * hidden
    else:
        inner = heads * stated if stated is not None else keys.whole("mamba_d_ssm")
    each = keys.divide("mamba_d_ssm", inner, "mamba_n_heads", heads)
    if stated not in (None, each):
        raise keys.fault("mamba_d_head", stated, f"{each}, as mamba_d_ssm and mamba_n_heads say")
    return heads, each
