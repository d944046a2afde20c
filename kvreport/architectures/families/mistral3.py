"""Mistral Small 3.1 and later, Devstral, Ministral 3 (with Pixtral's tower), and Mistral 4 (MLA)."""

from __future__ import annotations

from kvreport.architectures.attention import Kind, layer_kinds, window
from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import decoder, sizes, tied
from kvreport.architectures.dense import attention_layers, block
from kvreport.architectures.families.deepseek import latent_mixture
from kvreport.architectures.keys import Keys
from kvreport.architectures.parts import part
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import section_or_default
from kvreport.architectures.weights import Tensors, gated_mlp


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
    vision = section_or_default(keys.outer, "vision_config", "pixtral_vision")
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


def pixtral(keys: Keys, vision: Keys, text_hidden: int) -> Tensors:
    """Pixtral's tower and a projector that merges 2x2 patches."""
    given = {"side": keys.outer.whole("spatial_merge_size", default=2, high=64), "text_hidden": text_hidden}
    bias = keys.outer.flag("multimodal_projector_bias", default=False)
    return (
        *part("pixtral", vision, "model.vision_tower"),
        *part("mistral3_projector", vision, "model.multi_modal_projector", with_bias=bias, **given),
    )


@reads("Mistral4ForCausalLM", family="Mistral 4", model_types=("mistral4",))
def mistral4(keys: Keys) -> Blueprint:
    """DeepSeek-V3's layers with a smaller latent; the router has no offsets."""
    return latent_mixture(keys, correction=False)
