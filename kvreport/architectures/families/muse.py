"""Muse Glimmer and Muse Spark: gated attention, three windows for one full layer, encoders of pictures and sound."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.attention import Kind, layer_kinds, window
from kvreport.architectures.blueprint import Blueprint, Tensor
from kvreport.architectures.decoder import Sizes, decoder, expert_counts, outer_tied, sizes
from kvreport.architectures.dense import attention_layers, block
from kvreport.architectures.families.gemma import FOUR_NORMS
from kvreport.architectures.keys import Keys
from kvreport.architectures.parts import part
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import MAX_DEPTH, section_or_default
from kvreport.architectures.weights import (
    Tensors,
    correction_bias,
    gated_mlp,
    linear,
    norm,
    routed_experts,
    router,
)

SPARK_NORMS: Final = ("input_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")


@reads(
    "MuseGlimmerForConditionalGeneration",
    "MuseGlimmerForCausalLM",
    family="Muse",
    model_types=("muse_glimmer", "muse_glimmer_text"),
)
def muse_glimmer(keys: Keys) -> Blueprint:
    """Every fourth layer, counted from the last, reads everything; norms stand on both sides."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("attention_bias")
    kinds = _kinds(keys, its)
    gate = _gate(its)
    tensors = block(
        its,
        gated_mlp(its.hidden, width),
        around=FOUR_NORMS,
        qkv_bias=bias,
        output_bias=bias,
        inside=gate,
    )
    nested = keys.outer is not keys
    return decoder(
        keys,
        its,
        attention_layers(its, tensors, kinds=kinds, span=window(keys)),
        base="model.language_model" if nested else "model",
        tie=outer_tied(keys),
        intermediate=width,
        extra=_vision(keys, its.hidden) if nested else (),
    )


@reads(
    "MuseSparkForConditionalGeneration",
    "MuseSparkForCausalLM",
    family="Muse",
    model_types=("muse_spark", "muse_spark_text"),
)
def muse_spark(keys: Keys) -> Blueprint:
    """Experts run at half of the width, between two projections; residuals pass through learned gates."""
    its = sizes(keys)
    bias = keys.flag("attention_bias")
    dense_width = keys.whole("intermediate_size")
    inner = keys.whole("moe_hidden_size")
    chosen = expert_counts(keys, "num_local_experts", "num_experts")
    sparse: Tensors = (
        *router(its.hidden, chosen[0]),
        *correction_bias(chosen[0]),
        *linear("mlp.pre_expert_proj", "dense_mlp", inner, its.hidden),
        *norm("mlp.pre_expert_norm", inner),
        *norm("mlp.experts.post_expert_norm", inner),
        *routed_experts(inner, keys.whole("moe_intermediate_size"), chosen[0]),
        *linear("mlp.post_expert_proj", "dense_mlp", its.hidden, inner),
    )
    inside: Tensors = (
        *_gate(its),
        Tensor("post_attention_residual_gate.gate", "norms", (its.hidden,)),
        Tensor("post_feedforward_residual_gate.gate", "norms", (its.hidden,)),
    )
    types = keys.texts("mlp_layer_types", length=its.layers, of=("dense", "sparse"))
    dense = gated_mlp(its.hidden, dense_width)
    layers = [
        block(
            its,
            dense if types is not None and types[index] == "dense" else sparse,
            around=SPARK_NORMS,
            qkv_bias=bias,
            output_bias=bias,
            inside=inside,
        )
        for index in range(its.layers)
    ]
    nested = keys.outer is not keys
    return decoder(
        keys,
        its,
        attention_layers(its, layers, kinds=_kinds(keys, its), span=window(keys)),
        base="model.language_model" if nested else "model",
        # The composite ties nothing, whatever its config says (5.24, ``modular_muse_spark.py``: ``_tied_weights_keys``).
        tie=outer_tied(keys) and not nested,
        intermediate=dense_width,
        experts=chosen,
        extra=(*_vision(keys, its.hidden), *_audio(keys, its.hidden)) if nested else (),
    )


def _kinds(keys: Keys, its: Sizes) -> list[Kind]:
    """Every fourth layer, counted from the last, reads everything."""
    return layer_kinds(
        keys, its.layers, lambda i: "sliding" if (its.layers - 1 - i) % 4 else "full", ("full", "sliding")
    )


def _gate(its: Sizes) -> Tensors:
    return linear(
        "self_attn.gate_proj", "attention", its.heads * its.head_dim, its.hidden, "heads", heads=its.heads
    )


def _audio(keys: Keys, text_hidden: int) -> Tensors:
    """A pyramid of convolutions over the samples of a waveform."""
    audio = section_or_default(keys.outer, "audio_config", "spark_audio")
    audio.has("out_hidden_size", "num_hidden_layers")
    widths = audio.wholes("hidden_sizes") or []
    steps = audio.wholes("patch_sizes", length=len(widths)) or []
    depths = audio.wholes("depths", length=len(widths), high=MAX_DEPTH) or []
    ratio = audio.number("mlp_ratio", default=4.0, low=0.01, high=64)
    tensors: Tensors = ()
    before = 1
    for stage, (width, step, depth) in enumerate(zip(widths, steps, depths, strict=True)):
        given = {"stage": stage, "width": width, "before": before, "step": step, "depth": depth}
        tensors += part("muse_audio_stage", audio, "model.audio_tower", mlp_ratio=ratio, **given)
        before = width
    end = part("muse_audio_end", audio, "model.audio_tower", width=before, text_hidden=text_hidden)
    return (*tensors, *end)


def _vision(keys: Keys, text_hidden: int) -> Tensors:
    outer = keys.outer.with_defaults(published("muse_outer"))
    vision = section_or_default(keys.outer, "vision_config", "muse_vision")
    given = {"projected": outer.whole("projector_hidden_size"), "joined": outer.whole("out_hidden_size")}
    return part("muse_vision", vision, "model", text_hidden=text_hidden, **given)
