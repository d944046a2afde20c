"""Trinity (AFMoE), Solar Open and Hunyuan 3: mixtures with learned offsets and shared experts."""

from __future__ import annotations

from kvreport.architectures.attention import layer_kinds, window
from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import Sizes, decoder, expert_counts, sizes
from kvreport.architectures.dense import attention_layers, block
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import (
    Tensors,
    correction_bias,
    gated_mlp,
    linear,
    norms,
    routed_experts,
    router,
)


def _mixture(
    keys: Keys, its: Sizes, routed: int, shared: int, *, gate: str, offsets: str, bias: bool = False
) -> Tensors:
    """Router, offsets, experts, and the shared ones as one MLP of their joint width."""
    width = keys.whole("moe_intermediate_size")
    joint = gated_mlp(its.hidden, width * shared, "mlp.shared_experts", "shared_experts", bias=bias)
    return (
        *router(its.hidden, routed, gate),
        *correction_bias(routed, offsets),
        *routed_experts(its.hidden, width, routed),
        *(joint if shared else ()),
    )


@reads("AfmoeForCausalLM", family="Trinity", model_types=("afmoe",))
def afmoe(keys: Keys) -> Blueprint:
    """Gated attention over windows, with every fourth layer in full; norms on both sides."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("attention_bias")
    experts = expert_counts(keys, "num_experts")
    shared = keys.whole("num_shared_experts", low=0, high=1 << 10)
    every = keys.whole("global_attn_every_n_layers", high=MAX_LAYERS)
    first = keys.whole("num_dense_layers", low=0, high=MAX_LAYERS)
    kinds = layer_kinds(
        keys, its.layers, lambda index: "sliding" if (index + 1) % every else "full", ("full", "sliding")
    )
    queries = its.heads * its.head_dim
    inside = (
        *norms("self_attn.q_norm", "self_attn.k_norm", width=its.head_dim),
        *linear("self_attn.gate_proj", "attention", queries, its.hidden, "heads", heads=its.heads),
    )
    around = ("input_layernorm", "post_attention_layernorm", "pre_mlp_layernorm", "post_mlp_layernorm")
    sparse = _mixture(keys, its, experts[0], shared, gate="mlp.router.gate", offsets="mlp.expert_bias")
    dense, mixed = (
        block(its, mlp, around=around, qkv_bias=bias, output_bias=bias, inside=inside)
        for mlp in (gated_mlp(its.hidden, width), sparse)
    )
    each = [dense if index < first else mixed for index in range(its.layers)]
    layers = attention_layers(its, each, kinds, window(keys))
    return decoder(keys, its, layers, intermediate=width, experts=experts)


@reads("SolarOpenForCausalLM", family="Solar", model_types=("solar_open",))
def solar_open(keys: Keys) -> Blueprint:
    """A mixture in every layer; a bias, if any, is on queries, keys and values only."""
    its = sizes(keys)
    experts = expert_counts(keys, "n_routed_experts", "num_local_experts")
    shared = keys.whole("n_shared_experts", low=0, high=1 << 10)
    mlp = _mixture(keys, its, experts[0], shared, gate="mlp.gate", offsets="mlp.gate.e_score_correction_bias")
    tensors = block(its, mlp, qkv_bias=keys.flag("attention_bias"))
    return decoder(keys, its, attention_layers(its, tensors), experts=experts)


@reads("HYV3ForCausalLM", family="Hunyuan", model_types=("hy_v3",))
def hy_v3(keys: Keys) -> Blueprint:
    """Hunyuan 3: normalised queries and keys, a dense first layer, then mixtures."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("attention_bias")
    mlp_bias = keys.flag("mlp_bias")
    experts = expert_counts(keys, "num_experts", "num_local_experts")
    shared = keys.whole("num_shared_experts", low=0, high=1 << 10)
    listed = keys.texts("mlp_layer_types", length=its.layers, of=("dense", "sparse"))
    first = keys.whole("first_k_dense_replace", default=1, low=0, high=MAX_LAYERS)
    mlps = listed or ["dense" if index < first else "sparse" for index in range(its.layers)]
    inside: Tensors = norms("self_attn.q_norm", "self_attn.k_norm", width=its.head_dim)
    sparse = _mixture(
        keys,
        its,
        experts[0],
        shared,
        gate="mlp.router.gate",
        offsets="mlp.expert_bias",
        bias=mlp_bias,
    )
    dense, mixed = (
        block(its, mlp, qkv_bias=bias, output_bias=bias, inside=inside)
        for mlp in (gated_mlp(its.hidden, width, bias=mlp_bias), sparse)
    )
    layers = attention_layers(its, [dense if kind == "dense" else mixed for kind in mlps])
    return decoder(keys, its, layers, intermediate=width, experts=experts)
