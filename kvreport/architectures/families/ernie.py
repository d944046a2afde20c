"""ERNIE 4.5: grouped queries, tied embeddings; dense, or a mixture with joint shared experts."""

from __future__ import annotations

from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import decoder, expert_counts, sizes
from kvreport.architectures.dense import attention_layers, block
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import (
    Tensors,
    correction_bias,
    gated_mlp,
    routed_experts,
    router,
)


@reads("Ernie4_5ForCausalLM", family="ERNIE 4.5", model_types=("ernie4_5",))
def ernie(keys: Keys) -> Blueprint:
    """Dense, as Llama with one switch for all biases."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("use_bias")
    mlp = gated_mlp(its.hidden, width, bias=bias)
    tensors = block(its, mlp, qkv_bias=bias, output_bias=bias)
    return decoder(keys, its, attention_layers(its, tensors), intermediate=width)


@reads("Ernie4_5_MoeForCausalLM", family="ERNIE 4.5", model_types=("ernie4_5_moe",))
def ernie_moe(keys: Keys) -> Blueprint:
    """Every ``moe_layer_interval``-th layer from a first to a last one is a mixture."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("use_bias")
    experts = expert_counts(
        keys, "moe_num_experts", "num_experts", per_token=("moe_k", "num_experts_per_tok")
    )
    dense = block(its, gated_mlp(its.hidden, width, bias=bias), qkv_bias=bias, output_bias=bias)
    mixed = block(its, _mixture(keys, its.hidden, experts[0], bias=bias), qkv_bias=bias, output_bias=bias)
    start = keys.whole("moe_layer_start_index", default=1, low=0, high=MAX_LAYERS)
    last = keys.whole("moe_layer_end_index", default=-1, low=-1, high=MAX_LAYERS)
    end = its.layers - 1 if last == -1 else last
    every = keys.whole("moe_layer_interval", default=1, high=MAX_LAYERS)
    each = [
        mixed if (index + 1) % every == 0 and start <= index <= end else dense for index in range(its.layers)
    ]
    return decoder(
        keys, its, attention_layers(its, each), head_bias=bias, intermediate=width, experts=experts
    )


def _mixture(keys: Keys, hidden: int, routed: int, *, bias: bool) -> Tensors:
    """Router with learned offsets, experts, and the shared ones as one MLP of their joint width."""
    width = keys.whole("moe_intermediate_size")
    shared = keys.whole("moe_num_shared_experts", low=0, high=1 << 10)
    joint = gated_mlp(hidden, width * shared, "mlp.shared_experts", "shared_experts", bias=bias)
    return (
        *router(hidden, routed),
        *correction_bias(routed, "mlp.moe_statics.e_score_correction_bias"),
        *routed_experts(hidden, width, routed),
        *(joint if shared else ()),
    )
