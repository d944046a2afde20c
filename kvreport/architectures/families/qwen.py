"""Qwen 1.5 to 3, dense and mixtures of experts, where every layer is attention."""

from __future__ import annotations

from kvreport.architectures.attention import Kind, attention_cache, layer_kinds, window
from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import Sizes, decoder, expert_counts, sizes
from kvreport.architectures.dense import attention_layers
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import (
    Tensors,
    gated_mlp,
    linear,
    norms,
    routed_experts,
    router,
    self_attention,
)


def qwen_windows(keys: Keys, its: Sizes) -> list[tuple[Kind, int | None]]:
    """Return each layer's kind and window; ``sliding_window`` counts only with ``use_sliding_window``."""
    span = window(keys) if keys.flag("use_sliding_window", default=False) else None
    first = keys.whole("max_window_layers", default=its.layers, low=0, high=MAX_LAYERS)
    kinds = layer_kinds(
        keys,
        its.layers,
        lambda index: "sliding" if span is not None and index >= first else "full",
        ("full", "sliding"),
    )
    return [(kind, span) for kind in kinds]


def sparse_layers(keys: Keys, layers: int) -> list[bool]:
    """Tell for each layer whether it is a mixture: every ``decoder_sparse_step``-th, with exceptions."""
    step = keys.whole("decoder_sparse_step", high=MAX_LAYERS)
    dense = set(keys.wholes("mlp_only_layers", high=MAX_LAYERS) or [])
    return [index not in dense and (index + 1) % step == 0 for index in range(layers)]


def mixture(keys: Keys, hidden: int, routed: int, *, shared: int | None = None, base: str = "mlp") -> Tensors:
    """Router, routed experts and, in Qwen2-MoE and the hybrids, one gated shared expert."""
    width = keys.whole("moe_intermediate_size")
    tensors = (
        *router(hidden, routed, f"{base}.gate"),
        *routed_experts(hidden, width, routed, f"{base}.experts.*"),
    )
    if shared is None:
        return tensors
    return (
        *tensors,
        *gated_mlp(hidden, shared, f"{base}.shared_expert", "shared_experts"),
        *linear(f"{base}.shared_expert_gate", "shared_experts", 1, hidden),
    )


@reads("Qwen2ForCausalLM", family="Qwen2", model_types=("qwen2",))
def qwen2(keys: Keys) -> Blueprint:
    """As Llama, with a bias on queries, keys and values."""
    return dense(keys, qkv_bias=True, qk_norm=False)


@reads("Qwen3ForCausalLM", family="Qwen3", model_types=("qwen3",))
def qwen3(keys: Keys) -> Blueprint:
    """No bias; queries and keys are normalised per head."""
    return dense(keys, qkv_bias=keys.flag("attention_bias", default=False), qk_norm=True)


def dense(
    keys: Keys,
    *,
    qkv_bias: bool,
    qk_norm: bool,
    base: str = "model",
    extra: Tensors = (),
    tie: bool | None = None,
) -> Blueprint:
    """Attention and a gated MLP in every layer; ``tie`` is None to read it from the config."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    tensors = (
        *_attention(keys, its, qkv_bias=qkv_bias, qk_norm=qk_norm),
        *gated_mlp(its.hidden, width),
    )
    layers = [
        Layer(*attention_cache(kind, its.kv_heads, its.head_dim, span=span), tensors)
        for kind, span in qwen_windows(keys, its)
    ]
    return decoder(keys, its, layers, tie=tie, base=base, intermediate=width, extra=extra)


def _attention(keys: Keys, its: Sizes, *, qkv_bias: bool, qk_norm: bool) -> Tensors:
    output_bias = qk_norm and keys.flag("attention_bias", default=False)
    return (
        *norms("input_layernorm", "post_attention_layernorm", width=its.hidden),
        *self_attention(
            its.hidden, its.heads, its.kv_heads, its.head_dim, qkv_bias=qkv_bias, output_bias=output_bias
        ),
        *(norms("self_attn.q_norm", "self_attn.k_norm", width=its.head_dim) if qk_norm else ()),
    )


@reads("Qwen3MoeForCausalLM", family="Qwen3", model_types=("qwen3_moe",))
def qwen3_moe(keys: Keys) -> Blueprint:
    """Qwen3's attention with a mixture of experts."""
    bias = keys.flag("attention_bias", default=False)
    return sparse(keys, qkv_bias=bias, qk_norm=True)


@reads("Qwen2MoeForCausalLM", family="Qwen2", model_types=("qwen2_moe",))
def qwen2_moe(keys: Keys) -> Blueprint:
    """Qwen2's attention with a mixture of experts and one gated shared expert."""
    bias = keys.flag("qkv_bias", default=True)
    return sparse(keys, qkv_bias=bias, qk_norm=False, shared=keys.whole("shared_expert_intermediate_size"))


def sparse(
    keys: Keys,
    *,
    qkv_bias: bool,
    qk_norm: bool,
    shared: int | None = None,
    base: str = "model",
    extra: Tensors = (),
) -> Blueprint:
    """Attention in every layer, a mixture of experts in most."""
    # Qwen3-Omni's class rounds the width of a head down where its config leaves it out.
    its = sizes(keys, exact=False)
    routed, per_token = expert_counts(keys, "num_experts", "num_local_experts")
    attention = _attention(keys, its, qkv_bias=qkv_bias, qk_norm=qk_norm)
    width = keys.whole("intermediate_size")
    plain = (*attention, *gated_mlp(its.hidden, width))
    mixed = (*attention, *mixture(keys, its.hidden, routed, shared=shared))
    layers = [
        Layer(*attention_cache(kind, its.kv_heads, its.head_dim, span=span), mixed if chosen else plain)
        for (kind, span), chosen in zip(qwen_windows(keys, its), sparse_layers(keys, its.layers), strict=True)
    ]
    return decoder(keys, its, layers, base=base, intermediate=width, experts=(routed, per_token), extra=extra)


@reads("MellumForCausalLM", family="Mellum", model_types=("mellum",))
def mellum(keys: Keys) -> Blueprint:
    """Mellum 2: Qwen3's mixture with a kind for every layer's attention and MLP."""
    its = sizes(keys)
    routed, per_token = expert_counts(keys, "num_experts", "num_local_experts")
    attention = _attention(keys, its, qkv_bias=keys.flag("attention_bias"), qk_norm=True)
    width = keys.whole("intermediate_size")
    mlps = {
        "dense": gated_mlp(its.hidden, width),
        "sparse": mixture(keys, its.hidden, routed),
    }
    chosen = keys.texts("mlp_layer_types", length=its.layers, of=tuple(mlps)) or ["sparse"] * its.layers
    kinds = layer_kinds(keys, its.layers, lambda _index: "full", ("full", "sliding"))
    tensors = [(*attention, *mlps[kind]) for kind in chosen]
    predicts = keys.whole("num_nextn_predict_layers", "num_mtp_layers", default=0, low=0, high=64)
    return decoder(
        keys,
        its,
        attention_layers(its, tensors, kinds=kinds, span=window(keys)),
        intermediate=width,
        experts=(routed, per_token),
        notes=["Its layer for multi-token prediction is not counted."] if predicts else [],
    )
