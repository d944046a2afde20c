"""Mistral Small 3.1 and later, Devstral, Ministral 3 (with Pixtral's tower), and Mistral 4 (MLA)."""

from __future__ import annotations

from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.keys import Keys
from kvreport.architectures.layered import read_layered
from kvreport.architectures.parts import part
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import section_or_default
from kvreport.architectures.weights import Tensors


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
        four = keys.with_defaults(published("Mistral4ForCausalLM"))
        return read_layered("Mistral4ForCausalLM", four, base="model.language_model", extra=extra)
    return read_layered("Ministral3ForCausalLM", keys, base="model.language_model", extra=extra)


def pixtral(keys: Keys, vision: Keys, text_hidden: int) -> Tensors:
    """Pixtral's tower and a projector that merges 2x2 patches."""
    given = {"side": keys.outer.whole("spatial_merge_size", default=2, high=64), "text_hidden": text_hidden}
    bias = keys.outer.flag("multimodal_projector_bias", default=False)
    return (
        *part("pixtral", vision, "model.vision_tower"),
        *part("mistral3_projector", vision, "model.multi_modal_projector", with_bias=bias, **given),
    )
