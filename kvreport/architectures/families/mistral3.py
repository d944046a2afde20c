"""Mistral Small 3.1 and later, Devstral, Ministral 3 (with Pixtral's tower), and Mistral 4 (MLA)."""

from __future__ import annotations

from kvreport.architectures.attention import Kind, layer_kinds, window
from kvreport.architectures.blueprint import Blueprint, Tensor
from kvreport.architectures.decoder import decoder, sizes, tied
from kvreport.architectures.dense import attention_layers, block
from kvreport.architectures.families.deepseek import latent_mixture
from kvreport.architectures.keys import Keys
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import MAX_DEPTH, section_or_default, times
from kvreport.architectures.weights import Tensors, gated_mlp, linear, norm


@reads("MinistralForCausalLM", family="Ministral", model_types=("ministral",))
def ministral(keys: Keys) -> Blueprint:
    """Mistral with a kind per layer."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    no_window = keys.null("sliding_window")
    span = None if no_window else window(keys)
    default: Kind = "sliding" if span else "full"
    kinds = layer_kinds(keys, its.layers, lambda _index: default, ("full", "sliding"))
    tensors = block(its, gated_mlp(its.hidden, width))
    return decoder(keys, its, attention_layers(its, tensors, kinds=kinds, span=span), intermediate=width)


@reads("Ministral3ForCausalLM", family="Ministral 3", model_types=("ministral3",))
def ministral3(keys: Keys) -> Blueprint:
    """Mistral with rotary scaling built in; no window unless the config has one."""
    return _text(keys, "model", "lm_head", ())


@reads("Mistral3ForConditionalGeneration", family="Mistral Small", model_types=("mistral3",))
def mistral3(keys: Keys) -> Blueprint:
    """Mistral's text model, of either class, behind Pixtral's tower and a merger of 2x2 patches.

    Where the config says nothing of ties, the text model's default holds: releases of transformers before 5 leave it
    out when they save, their files have a head (Mistral Small 3.1 and 3.2), and engines build the text model from its
    own section (vLLM 0.33, ``mistral3.py``).
    """
    if keys.raw("model_type") == "ministral3":
        keys = keys.with_defaults(published("Ministral3ForCausalLM"))
    vision = section_or_default(keys.outer, "vision_config", published("pixtral_vision"))
    extra = pixtral(keys, vision, keys.whole("hidden_size"))
    if keys.raw("model_type") == "mistral4":
        return latent_mixture(
            keys.with_defaults(published("Mistral4ForCausalLM")),
            correction=False,
            base="model.language_model",
            extra=extra,
        )
    return _text(keys, "model.language_model", "lm_head", extra, tie=tied(keys))


def _text(keys: Keys, base: str, head: str, extra: Tensors, *, tie: bool | None = None) -> Blueprint:
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    span = window(keys)
    kinds: list[Kind] = ["sliding" if span else "full"] * its.layers
    tensors = block(its, gated_mlp(its.hidden, width))
    return decoder(
        keys,
        its,
        attention_layers(its, tensors, kinds=kinds, span=span),
        base=base,
        head=head,
        tie=tie,
        intermediate=width,
        extra=extra,
    )


def pixtral_tower(vision: Keys, tower: str) -> Tensors:
    """Pixtral's tower: rotary positions, RMSNorm, a gated MLP, no biases."""
    hidden = vision.whole("hidden_size")
    patch = vision.whole("patch_size", high=1 << 12)
    path = f"{tower}.transformer.layers.*"
    layer: Tensors = (
        *norm(f"{path}.attention_norm", hidden, component="vision"),
        *norm(f"{path}.ffn_norm", hidden, component="vision"),
        *gated_mlp(hidden, vision.whole("intermediate_size"), f"{path}.feed_forward", "vision"),
    )
    for name in ("q_proj", "k_proj", "v_proj"):
        layer += linear(f"{path}.attention.{name}", "vision", hidden, hidden, "columns")
    layer += linear(f"{path}.attention.o_proj", "vision", hidden, hidden, "rows")
    channels = vision.whole("num_channels", high=64)
    return (
        Tensor(f"{tower}.patch_conv.weight", "vision", (hidden, channels, patch, patch)),
        *norm(f"{tower}.ln_pre", hidden, component="vision"),
        *times(vision.whole("num_hidden_layers", high=MAX_DEPTH), layer),
    )


def pixtral(keys: Keys, vision: Keys, text_hidden: int) -> Tensors:
    """Pixtral's tower and a projector that merges 2x2 patches."""
    hidden = vision.whole("hidden_size")
    side = keys.outer.whole("spatial_merge_size", default=2, high=64)
    bias = keys.outer.flag("multimodal_projector_bias", default=False)
    projector = "model.multi_modal_projector"
    return (
        *pixtral_tower(vision, "model.vision_tower"),
        *norm(f"{projector}.norm", hidden, component="vision"),
        *linear(f"{projector}.patch_merger.merging_layer", "vision", hidden, hidden * side * side),
        *linear(f"{projector}.linear_1", "vision", text_hidden, hidden, "columns", bias=bias),
        *linear(f"{projector}.linear_2", "vision", text_hidden, text_hidden, "rows", bias=bias),
    )


@reads("Mistral4ForCausalLM", family="Mistral 4", model_types=("mistral4",))
def mistral4(keys: Keys) -> Blueprint:
    """DeepSeek-V3's layers with a smaller latent; the router has no offsets."""
    return latent_mixture(keys, correction=False)
