"""Ling and Ring with linear attention: 2.0-linear, 2.5 (lightning), 3.0 (Kimi Delta Attention).

The last layer of every group of ``layer_group_size`` attends; the others are linear.
"""

from __future__ import annotations

from typing import Final

from kvreport.architectures.attention import attention_cache, head_dim, latent_cache, listed_mixtures
from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import (
    Sizes,
    decoder,
    dense_mlp,
    expert_counts,
    latent_sizes,
    prediction_layers,
    sizes,
)
from kvreport.architectures.families.deepseek import latent_tensors, named_mixture
from kvreport.architectures.families.kimi import kda_state, kda_tensors
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors, linear, norm
from kvreport.catalog.caches import Cache, RecurrentState, StateTensor

_UNCOUNTED: Final = "Its layers for multi-token prediction, which only speculation loads, are not counted."


@reads(
    "BailingMoeV3ForCausalLM",
    "BailingHybridForCausalLM",
    family="Ling",
    model_types=("bailing_hybrid",),
)
def bailing_v3(keys: Keys) -> Blueprint:
    """Ling 3.0: Kimi Delta Attention, then latent attention with an output gate; the last layers attend."""
    if keys.flag("use_mla_nope"):
        raise keys.fault("use_mla_nope", "true", "false (no published model of the kind is known)")
    its, rank, rope = latent_sizes(keys)
    # The maker's own files say the linear heads' width as head_dim; transformers writes it under its own
    # name and puts the rotary width there (configuration_bailing_hybrid.py, __post_init__).
    width = keys.optional("linear_head_dim", low=1, high=1 << 14) or head_dim(keys, its.hidden, its.heads)
    heads = keys.whole("linear_num_heads", default=its.heads, high=1 << 14)
    full_rank = keys.flag("no_kda_lora")
    around = part("pre_norms", keys, hidden=its.hidden)
    latent = (*latent_tensors(keys, its, rank, rope), *_output_gate(keys, its))
    kernel = keys.optional("linear_conv_kernel_dim", low=2, high=1 << 10) or keys.whole(
        "short_conv_kernel_size", low=2, high=1 << 10
    )
    dims = heads, width, kernel
    delta = (*around, *kda_tensors(keys, its.hidden, dims, full_gate=full_rank, full_decay=full_rank))
    group = keys.whole("layer_group_size", high=MAX_LAYERS)
    # The maker's own class lets the layers of an incomplete group attend; transformers' class does not.
    written = keys.outer.texts("architectures") or ()
    tail = its.layers if "BailingHybridForCausalLM" in written else its.layers // group * group
    full = _listed(keys, its.layers) or [
        (index + 1) % group == 0 or index >= tail for index in range(its.layers)
    ]
    layers = [
        (latent_cache(rank, rope), latent) if attends else (kda_state(*dims), delta) for attends in full
    ]
    return _model(keys, its, layers, tie=False, predicting=latent)


@reads("BailingMoeV2_5ForCausalLM", family="Ling")
def bailing_v2_5(keys: Keys) -> Blueprint:
    """Ling and Ring 2.5: lightning attention, then latent attention."""
    its, rank, rope = latent_sizes(keys)
    latent = latent_cache(rank, rope), latent_tensors(keys, its, rank, rope)
    return _lightning_model(keys, its, latent, predicts=True)


@reads(
    "BailingMoeLinearV2ForCausalLM",
    "BailingMoeLinearForCausalLM",
    family="Ling",
    model_types=("bailing_moe_linear",),
)
def bailing_linear(keys: Keys) -> Blueprint:
    """Ring-linear 2.0: lightning attention, then Ling 2.0's grouped queries."""
    its = sizes(keys)
    softmax = (
        attention_cache("full", its.kv_heads, its.head_dim),
        _grouped_attention(keys, its, bias=keys.flag("use_bias")),
    )
    return _lightning_model(keys, its, softmax)


_Kept = tuple[str, tuple[Cache, ...]]


def _lightning_model(
    keys: Keys, its: Sizes, attends: tuple[_Kept, Tensors], *, predicts: bool = False
) -> Blueprint:
    """Lightning attention in all layers of a group but the last."""
    group = keys.whole("layer_group_size", high=MAX_LAYERS)
    # The maker's class lets the layers of an incomplete group attend, an engine's does not.
    keys.divide("num_hidden_layers", its.layers, "layer_group_size", group)
    width = head_dim(keys, its.hidden, its.heads)
    state = StateTensor(name="recurrent", channels=its.heads, columns=width * width)
    kept: _Kept = "lightning attention", (RecurrentState(mechanism="lightning", tensors=(state,)),)
    linear_layer = kept, _lightning(keys, its, width)
    layers = [linear_layer if (index + 1) % group else attends for index in range(its.layers)]
    return _model(keys, its, layers, predicting=attends[1] if predicts else ())


def _lightning(keys: Keys, its: Sizes, width: int) -> Tensors:
    """Return the tensors of a layer of lightning attention without its MLP."""
    bias = keys.flag("use_bias")
    given = {"hidden": its.hidden, "heads": its.heads, "head_dim": width, "bias": bias}
    given |= {"bias_qkv": bias or keys.flag("use_qkv_bias"), "normed": keys.flag("use_qk_norm")}
    return (
        *part("pre_norms", keys, hidden=its.hidden),
        *part("lightning_attention", keys, "attention", **given),
    )


def _listed(keys: Keys, layers: int) -> list[bool] | None:
    kinds = keys.texts("layer_types", length=layers, of=("linear_attention", "full_attention"))
    return None if kinds is None else [kind == "full_attention" for kind in kinds]


def _output_gate(keys: Keys, its: Sizes) -> Tensors:
    grain = "gated_attention_proj_granularity_type"
    kind = None if keys.null(grain) else keys.text(grain)
    if kind is None:
        return ()
    if kind not in ("head_wise", "element_wise"):
        raise keys.fault(grain, kind, "head_wise, element_wise or null")
    each = keys.whole("v_head_dim", high=1 << 14) if kind == "element_wise" else 1
    return linear("attention.g_proj", "attention", its.heads * each, its.hidden, "heads", heads=its.heads)


def _model(
    keys: Keys,
    its: Sizes,
    mixers: list[tuple[_Kept, Tensors]],
    *,
    tie: bool | None = None,
    predicting: Tensors = (),
) -> Blueprint:
    """Put the layers between both ends.

    ``predicting`` is the attention of a prediction layer (vLLM 0.33, ``bailing_moe_v3_mtp.py`` and ``bailing_moe_mtp.py``), empty
    where it is not known; its checkpoints have no copies of embedding and head.
    """
    width = keys.whole("intermediate_size")
    experts = expert_counts(
        keys, "num_experts", "num_local_experts", per_token=("num_experts_per_tok", "num_experts_per_token")
    )
    bias = keys.flag("use_bias")
    first = keys.whole("first_k_dense_replace", low=0, high=MAX_LAYERS)
    dense = dense_mlp(keys, its.hidden, width, bias=bias)
    mixed = _mixture(keys, its.hidden, experts[0], bias=bias)
    sparse = listed_mixtures(keys, its.layers) or [index >= first for index in range(its.layers)]
    layers = [
        Layer(*kept, (*tensors, *(mixed if mixes else dense)))
        for mixes, (kept, tensors) in zip(sparse, mixers, strict=True)
    ]
    extra = (
        prediction_layers(keys, its, (*predicting, *mixed), "model.layers", ends=False) if predicting else ()
    )
    predicts = keys.whole("num_nextn_predict_layers", "num_mtp_layers", default=0, low=0, high=64)
    return decoder(
        keys,
        its,
        layers,
        embed="word_embeddings",
        tie=tie,
        intermediate=width,
        experts=experts,
        extra=extra,
        notes=[_UNCOUNTED] if predicts and not extra else [],
    )


def _grouped_attention(keys: Keys, its: Sizes, *, bias: bool) -> Tensors:
    """Grouped queries in one matrix, and the norms of the layer."""
    each: Tensors = ()
    if keys.flag("use_qk_norm"):
        plain = keys.flag("use_rmsnorm")
        for name in ("attention.query_layernorm", "attention.key_layernorm"):
            each += norm(name, its.head_dim, bias=not plain)
    its_sizes = {**its.given, "bias_qkv": bias or keys.flag("use_qkv_bias"), "bias_out": bias}
    return (
        *part("pre_norms", keys, hidden=its.hidden),
        *part("fused_query_key_value", keys, "attention.query_key_value", **its_sizes),
        *part("attention_output", keys, "attention.dense", **its_sizes),
        *each,
    )


def _mixture(keys: Keys, hidden: int, routed: int, *, bias: bool) -> Tensors:
    """Router with learned offsets, routed experts, and the shared ones as one MLP of their joint width."""
    width = keys.whole("moe_intermediate_size")
    shared = keys.whole("num_shared_experts", low=0, high=1 << 10)
    joint = shared * keys.whole("moe_shared_expert_intermediate_size", default=width)
    offsets = keys.flag("moe_router_enable_expert_bias")
    given = {"hidden": hidden, "routed": routed, "expert_width": width, "shared_width": joint, "bias": bias}
    return named_mixture(keys, "mlp", "gate", "gate.expert_bias" if offsets else "", given)
