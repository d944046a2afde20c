"""Granite: dense 3.x, mixtures 3.x, and the hybrids of 4.0 with Mamba-2 and shared experts."""

from __future__ import annotations

from kvreport.architectures.attention import attention_cache
from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import Sizes, decoder, expert_counts, sizes
from kvreport.architectures.dense import PRE_NORMS
from kvreport.architectures.keys import MAX_EXPERTS, Keys
from kvreport.architectures.mamba import mamba2_mixer
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import (
    Tensors,
    experts,
    linear,
    norms,
    router,
    self_attention,
)
from kvreport.catalog.model import Component


def _mixture(keys: Keys, hidden: int, routed: int) -> Tensors:
    """Router, experts with gate and up projection in one matrix, and a shared MLP where there is one."""
    width = keys.whole("intermediate_size")
    shared = keys.whole("shared_intermediate_size", low=0)
    tensors: Tensors = ()
    if routed:
        inside = (
            *linear("block_sparse_moe.input_linear", "routed_experts", 2 * width, hidden, count=routed),
            *linear("block_sparse_moe.output_linear", "routed_experts", hidden, width, count=routed),
        )
        tensors = (*router(hidden, routed, "block_sparse_moe.router.layer"), *experts(inside))
    if shared:
        component: Component = "shared_experts" if routed else "dense_mlp"
        tensors += (
            *linear("shared_mlp.input_linear", component, 2 * shared, hidden, "columns"),
            *linear("shared_mlp.output_linear", component, hidden, shared, "rows"),
        )
    return tensors


@reads(
    "GraniteMoeHybridForCausalLM",
    family="Granite 4",
    model_types=("granitemoehybrid",),
)
def granite_hybrid(keys: Keys) -> Blueprint:
    """Nine Mamba-2 layers for one of attention; every layer ends in a mixture or a shared MLP.

    Without ``layer_types`` the class builds Mamba-2 everywhere. ``num_local_experts`` may be 0.
    """
    its = sizes(keys)
    # In these configs "mamba" is the older word for linear attention.
    listed = keys.texts(
        "layer_types",
        "layers_block_type",
        length=its.layers,
        of=("mamba", "linear_attention", "attention", "full_attention"),
    )
    full = [kind in ("attention", "full_attention") for kind in listed or ["mamba"] * its.layers]
    routed = keys.whole("num_local_experts", low=0, high=MAX_EXPERTS)
    counts = expert_counts(keys, "num_local_experts") if routed else None
    mlp = _mixture(keys, its.hidden, routed)
    around = norms(*PRE_NORMS, width=its.hidden)
    bias = keys.flag("attention_bias")
    attention = Layer(
        *attention_cache("full", its.kv_heads, its.head_dim),
        (
            *around,
            *self_attention(
                its.hidden, its.heads, its.kv_heads, its.head_dim, qkv_bias=bias, output_bias=bias
            ),
            *mlp,
        ),
    )
    recurrent = _mamba(keys, its, (*around, *mlp))
    return decoder(
        keys,
        its,
        [attention if is_full else recurrent for is_full in full],
        intermediate=keys.whole("intermediate_size"),
        experts=counts,
    )


def _mamba(keys: Keys, its: Sizes, beside: Tensors) -> Layer:
    heads = keys.whole("mamba_n_heads", high=1 << 16)
    inner = keys.whole("mamba_expand", high=64) * its.hidden
    stated = keys.raw("mamba_d_head")
    width = (
        keys.divide("mamba_expand * hidden_size", inner, "mamba_n_heads", heads)
        if stated in (None, "auto")
        else keys.whole("mamba_d_head", high=1 << 14)
    )
    state, mixer = mamba2_mixer(keys, its.hidden, heads, width)
    return Layer("Mamba-2", (state,), (*beside, *mixer))
