"""Falcon-H1: attention beside Mamba-2."""

from __future__ import annotations

from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import decoder, sizes
from kvreport.architectures.keys import Keys
from kvreport.architectures.mamba import mamba2_mixer
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import gated_mlp, norms, self_attention
from kvreport.catalog.caches import FullAttention


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
