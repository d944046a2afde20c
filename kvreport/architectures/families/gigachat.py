"""GigaChat 3.5: latent attention with an output gate in some layers, Gated DeltaNet in the others, norms with gates."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvreport.architectures.attention import (
    LAYER_TYPES,
    Kind,
    gated_deltanet_state,
    latent_cache,
    mixture_pattern,
    precision,
)
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.decoder import (
    Sizes,
    decoder,
    dense_mlp,
    expert_counts,
    latent_sizes,
    prediction_layers,
)
from kvreport.architectures.families.deepseek import latent_tensors, mixture
from kvreport.architectures.families.qwen_hybrid import gated_deltanet
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors, linear, norms

_GATE_RANK: Final = 16
"""Width of the bottleneck of a norm's gate (SGLang 0.5.23, ``models/gigachat35.py``, ``_GATED_NORM_LOW_RANK``)."""

_NORMS: Final = {
    "LlamaRMSNorm": False,
    "ZeroCenteredRMSNorm": False,
    "GatedNorm": True,
    "ZeroCenteredGatedNorm": True,
}
"""Kinds of norms, and whether they have a gate."""


@reads("GigaChat35ForCausalLM", family="GigaChat", model_types=("gigachat3_5",))
def gigachat35(keys: Keys) -> Blueprint:
    """Three Gated DeltaNet layers for one of latent attention, a mixture in most (SGLang 0.5.23, ``models/gigachat35.py``)."""
    its, rank, rope = latent_sizes(keys)
    width = keys.whole("intermediate_size")
    routed, per_token = expert_counts(keys, "n_routed_experts")
    attention = _latent(keys, its, rank, rope)
    dims, mixer = gated_deltanet(keys, its.hidden, fused=True)
    linear_layer = (
        *part("pre_norms", keys, hidden=its.hidden),
        *(replace(tensor, name=tensor.name.replace("linear_attn.", "self_attn.")) for tensor in mixer),
    )
    caches = {
        "full": latent_cache(rank, rope),
        "linear": gated_deltanet_state(*dims, precision(keys, "mamba_ssm_dtype")),
    }
    dense = dense_mlp(keys, its.hidden, width)
    mlps = {True: mixture(keys, its.hidden, routed), False: dense}
    after = _after(keys, its.hidden)
    layers = [
        Layer(
            *caches[kind],
            _gated(keys, (*(attention if kind == "full" else linear_layer), *after, *mlps[sparse])),
        )
        for kind, sparse in zip(_kinds(keys, its.layers), mixture_pattern(keys, its.layers), strict=True)
    ]
    ahead = prediction_layers(
        keys,
        its,
        (*attention, *after, *mlps[keys.flag("nextn_is_sparse", default=False)]),
        "model.layers",
    )
    return decoder(
        keys,
        its,
        layers,
        intermediate=width,
        experts=(routed, per_token),
        extra=(*_gate(keys, "model.norm", its.hidden), *_gated(keys, ahead)),
    )


def _kinds(keys: Keys, layers: int) -> list[Kind]:
    """Read which layers attend: a word for each layer, or a list of those that do."""
    if keys.null("linear_attention_type"):
        return ["full"] * layers
    words = {name: kind for name, kind in LAYER_TYPES.items() if kind in ("full", "linear")}
    listed = keys.texts("layer_types", length=layers, of=tuple(words))
    if listed is not None:
        return [words[word] for word in listed]
    chosen = keys.wholes("full_attention_layers", low=0, high=MAX_LAYERS)
    if chosen is None:
        raise keys.fault("full_attention_layers", None, "which layers have latent attention (or layer_types)")
    return ["full" if index in chosen else "linear" for index in range(layers)]


def _latent(keys: Keys, its: Sizes, rank: int, rope: int) -> Tensors:
    gate = keys.flag("gated_attention", default=True)
    values = its.heads * keys.whole("v_head_dim", high=1 << 14)
    return (
        *latent_tensors(keys, its, rank, rope),
        *(
            linear("self_attn.gate_proj", "attention", values, its.hidden, "heads", heads=its.heads)
            if gate
            else ()
        ),
    )


def _after(keys: Keys, hidden: int) -> Tensors:
    """Norms behind attention and MLP, which a layer has beside those before them."""
    placed = keys.text("layernorm_type", default="pre_post") or "pre"
    if placed not in ("pre", "post", "pre_post"):
        raise keys.fault("layernorm_type", placed, "pre, post or pre_post")
    return (
        ()
        if placed == "pre"
        else norms("post_self_attn_layernorm", "post_feedforward_layernorm", width=hidden)
    )


def _gated(keys: Keys, tensors: Tensors) -> Tensors:
    """Add the gates of all norms but those of states."""
    gates = [
        gate
        for tensor in tensors
        if len(tensor.shape) == 1
        and "norm" in tensor.name
        and tensor.component in ("norms", "mtp", "attention")
        for gate in _gate(keys, tensor.name.removesuffix(".weight"), tensor.shape[0], tensor)
    ]
    return (*tensors, *gates)


def _gate(keys: Keys, name: str, width: int, like: Weight | None = None) -> Tensors:
    kind = keys.text("norm_type", default="ZeroCenteredGatedNorm") or "LlamaRMSNorm"
    if kind not in _NORMS:
        raise keys.fault("norm_type", kind, f"one of {', '.join(_NORMS)}")
    if not _NORMS[kind]:
        return ()
    made = (
        Weight(f"{name}.gate_up_projection.weight", "norms", (_GATE_RANK, width)),
        Weight(f"{name}.gate_down_projection.weight", "norms", (width, _GATE_RANK)),
    )
    return tuple(replace(one, component=like.component, count=like.count) for one in made) if like else made
