"""Qwen3-Next, Qwen3.5, 3.6 and 3.8: three Gated DeltaNet layers for one of attention."""

from __future__ import annotations

from kvreport.architectures.attention import (
    attention_cache,
    gated_deltanet_state,
    layer_kinds,
    precision,
)
from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import (
    Sizes,
    decoder,
    dense_mlp,
    expert_counts,
    sizes,
    text_base,
    whole_tied,
)
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors, linear, norms, placed
from kvreport.architectures.vision import qwen3_vision, section_or_default


def sparse_layers(keys: Keys, layers: int) -> list[bool]:
    """Tell for each layer whether it is a mixture: every ``decoder_sparse_step``-th, with exceptions."""
    step = keys.whole("decoder_sparse_step", high=MAX_LAYERS)
    dense = set(keys.wholes("mlp_only_layers", high=MAX_LAYERS) or [])
    return [index not in dense and (index + 1) % step == 0 for index in range(layers)]


def mixture(keys: Keys, hidden: int, routed: int) -> Tensors:
    """Router, routed experts and one gated shared expert."""
    given = {"hidden": hidden, "routed": routed, "expert_width": keys.whole("moe_intermediate_size")}
    return part(
        "qwen_mixture", keys, "mlp", **given, shared_width=keys.whole("shared_expert_intermediate_size")
    )


def gated_deltanet(keys: Keys, hidden: int, *, fused: bool) -> tuple[tuple[int, int, int, int, int], Tensors]:
    """Return the dimensions and the tensors of a Gated DeltaNet mixer; Qwen3-Next's input projections are fused into two matrices."""
    key_heads = keys.whole("linear_num_key_heads", high=1 << 14)
    value_heads = keys.whole("linear_num_value_heads", high=1 << 14)
    key_dim = keys.whole("linear_key_head_dim", high=1 << 14)
    value_dim = keys.whole("linear_value_head_dim", high=1 << 14)
    kernel = keys.whole("linear_conv_kernel_dim", low=2, high=1 << 10)
    keys.divide("linear_num_value_heads", value_heads, "linear_num_key_heads", key_heads)
    values = value_heads * value_dim
    given = {"hidden": hidden, "fused": fused, "key_heads": key_heads, "value_heads": value_heads}
    given |= {"value_dim": value_dim, "values": values, "convolved": 2 * key_heads * key_dim + values}
    tensors = part("gated_deltanet", keys, "linear_attn", **given, kernel=kernel)
    return (key_heads, value_heads, key_dim, value_dim, kernel), tensors


def _layers(keys: Keys, its: Sizes, mlps: list[Tensors], *, fused: bool) -> list[Layer]:
    interval = keys.whole("full_attention_interval", default=4, high=MAX_LAYERS)
    kinds = layer_kinds(
        keys, its.layers, lambda i: "linear" if (i + 1) % interval else "full", ("full", "linear")
    )
    bias = keys.flag("attention_bias")
    dims, mixer = gated_deltanet(keys, its.hidden, fused=fused)
    state = gated_deltanet_state(*dims, precision(keys, "mamba_ssm_dtype"))
    full = attention_cache("full", its.kv_heads, its.head_dim)
    attention = part("gated_query_attention", keys, "self_attn", **its.given, bias=bias)
    around = part("pre_norms", keys, hidden=its.hidden)
    return [
        Layer(
            *(full if kind == "full" else state), (*around, *(attention if kind == "full" else mixer), *mlp)
        )
        for kind, mlp in zip(kinds, mlps, strict=True)
    ]


def _vision(keys: Keys) -> Tensors:
    if keys.outer is keys:
        return ()
    return qwen3_vision(section_or_default(keys.outer, "vision_config", published("qwen3_5_vision")))


def _mtp(keys: Keys, its: Sizes, mlp: Tensors) -> Tensors:
    """The layers for multi-token prediction, which only speculative decoding loads."""
    count = keys.whole("mtp_num_hidden_layers", "num_nextn_predict_layers", default=0, low=0, high=MAX_LAYERS)
    if not count:
        return ()
    block = (
        *part("pre_norms", keys, hidden=its.hidden),
        *part("gated_query_attention", keys, "self_attn", **its.given, bias=False),
        *mlp,
    )
    ends = norms("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", width=its.hidden)
    return (
        *placed(block, "mtp.layers.*.", component="mtp", times=count),
        *linear("mtp.fc", "mtp", its.hidden, 2 * its.hidden),
        *placed(ends, "mtp.", component="mtp"),
    )


@reads(
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5ForCausalLM",
    family="Qwen3.5",
    model_types=("qwen3_5", "qwen3_5_text"),
)
def qwen3_5(keys: Keys) -> Blueprint:
    """Dense: a gated MLP after every mixer."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    mlp = dense_mlp(keys, its.hidden, width)
    layers = _layers(keys, its, [mlp] * its.layers, fused=False)
    extra = (*_vision(keys), *_mtp(keys, its, mlp))
    return decoder(
        keys, its, layers, tie=whole_tied(keys), base=text_base(keys), intermediate=width, extra=extra
    )


@reads(
    "Qwen3_5MoeForConditionalGeneration",
    "Qwen3_5MoeForCausalLM",
    family="Qwen3.5",
    model_types=("qwen3_5_moe", "qwen3_5_moe_text"),
)
def qwen3_5_moe(keys: Keys) -> Blueprint:
    """A mixture with one gated shared expert in every layer."""
    its = sizes(keys)
    routed, per_token = expert_counts(keys, "num_experts")
    mlp = mixture(keys, its.hidden, routed)
    layers = _layers(keys, its, [mlp] * its.layers, fused=False)
    extra = (*_vision(keys), *_mtp(keys, its, mlp))
    return decoder(
        keys,
        its,
        layers,
        tie=whole_tied(keys),
        base=text_base(keys),
        experts=(routed, per_token),
        extra=extra,
    )


@reads("Qwen3NextForCausalLM", family="Qwen3-Next", model_types=("qwen3_next",))
def qwen3_next(keys: Keys) -> Blueprint:
    """As Qwen3.5's mixtures, with fused input projections; its state is in the model's own type."""
    its = sizes(keys)
    routed, per_token = expert_counts(keys, "num_experts")
    width = keys.whole("intermediate_size")
    mixed = mixture(keys, its.hidden, routed)
    dense = dense_mlp(keys, its.hidden, width)
    mlps = [mixed if sparse else dense for sparse in sparse_layers(keys, its.layers)]
    layers = _layers(keys, its, mlps, fused=True)
    return decoder(
        keys, its, layers, intermediate=width, experts=(routed, per_token), extra=_mtp(keys, its, mixed)
    )
