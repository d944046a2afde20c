"""OLMo Hybrid: three Gated DeltaNet layers for one of attention, in OLMo's manner."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.attention import (
    Kind,
    attention_cache,
    gated_deltanet_state,
    layer_kinds,
    precision,
)
from kvreport.architectures.blueprint import Blueprint, Layer, Tensor
from kvreport.architectures.decoder import Sizes, decoder, sizes
from kvreport.architectures.dense import PRE_NORMS, block
from kvreport.architectures.keys import Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import Tensors, gated_mlp, linear, norm, norms, out_linear

_BEHIND: Final = ("post_attention_layernorm", "post_feedforward_layernorm")


@reads("OlmoHybridForCausalLM", family="OLMo", model_types=("olmo_hybrid",))
def olmo_hybrid(keys: Keys) -> Blueprint:
    """Norms stand behind attention, but before the recurrent mixer."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("attention_bias")
    last = its.layers - 1

    def pattern(index: int) -> Kind:
        # With fewer than four layers the class reads the last one in full.
        return "full" if index % 4 == 3 or (last < 3 and index == last) else "linear"

    kinds = layer_kinds(keys, its.layers, pattern, ("full", "linear"))
    mlp = gated_mlp(its.hidden, width)
    dims, mixer = _mixer(keys, its)
    inside = (
        *norms("self_attn.q_norm", width=its.heads * its.head_dim),
        *norms("self_attn.k_norm", width=its.kv_heads * its.head_dim),
    )
    full = Layer(
        *attention_cache("full", its.kv_heads, its.head_dim),
        block(its, mlp, around=_BEHIND, qkv_bias=bias, output_bias=bias, inside=inside),
    )
    recurrent = Layer(
        *gated_deltanet_state(*dims, precision(keys, "mamba_ssm_dtype")),
        (*norms(*PRE_NORMS, width=its.hidden), *mixer, *mlp),
    )
    layers = [full if kind == "full" else recurrent for kind in kinds]
    return decoder(keys, its, layers, intermediate=width)


def _mixer(keys: Keys, its: Sizes) -> tuple[tuple[int, int, int, int, int], Tensors]:
    """Return the dimensions and the tensors of the mixer; what is not stated follows from the width."""
    key_heads = keys.whole("linear_num_key_heads", default=its.heads, high=1 << 14)
    value_heads = keys.whole("linear_num_value_heads", default=its.heads, high=1 << 14)
    keys.divide("linear_num_value_heads", value_heads, "linear_num_key_heads", key_heads)
    key_dim = keys.whole(
        "linear_key_head_dim", default=max(1, its.hidden * 3 // (4 * key_heads)), high=1 << 14
    )
    value_dim = keys.whole("linear_value_head_dim", default=2 * key_dim, high=1 << 15)
    kernel = keys.whole("linear_conv_kernel_dim", low=2, high=1 << 10)
    queries, values = key_heads * key_dim, value_heads * value_dim

    def into(name: str, outputs: int, heads: int) -> Tensors:
        return linear(f"linear_attn.{name}", "recurrent", outputs, its.hidden, "heads", heads=heads)

    tensors = (
        *into("q_proj", queries, key_heads),
        *into("k_proj", queries, key_heads),
        *into("v_proj", values, value_heads),
        *into("a_proj", value_heads, value_heads),
        *into("b_proj", value_heads, value_heads),
        *into("g_proj", values, value_heads),
        Tensor(
            "linear_attn.conv1d.weight", "recurrent", (2 * queries + values, 1, kernel), "heads", key_heads
        ),
        Tensor("linear_attn.A_log", "recurrent", (value_heads,), "heads", value_heads),
        Tensor("linear_attn.dt_bias", "recurrent", (value_heads,), "heads", value_heads),
        *norm("linear_attn.o_norm", value_dim, component="recurrent"),
        *out_linear("linear_attn.o_proj", "recurrent", its.hidden, values, value_heads),
    )
    return (key_heads, value_heads, key_dim, value_dim, kernel), tensors
