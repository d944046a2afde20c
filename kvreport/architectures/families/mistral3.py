"""Mistral Small 3.1 and later, Devstral, Ministral 3 (with Pixtral's tower), and Mistral 4 (MLA)."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.keys import Keys
from kvreport.architectures.layered import read_layered
from kvreport.architectures.parts import part
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors
from kvreport.architectures.vision import section_or_default

_TEXTS: Final = {"ministral3": "Ministral3ForCausalLM", "mistral4": "Mistral4ForCausalLM"}
"""The class of the text model by its ``model_type``."""


@reads("Mistral3ForConditionalGeneration", family="Mistral Small", model_types=("mistral3",))
def mistral3(keys: Keys) -> Blueprint:
    """Mistral's text model, of either class, behind Pixtral's tower and a merger of 2x2 patches.

    Where the config says nothing of ties, the text model's default holds: releases of transformers before 5 leave it
    out when they save, their files have a head (Mistral Small 3.1 and 3.2), and engines build the text model from its
    own section (vLLM 0.33, ``mistral3.py``).
    """
    named = str(keys.raw("model_type"))
    if named in _TEXTS:
        keys = keys.with_defaults(published(_TEXTS[named]))
    vision = section_or_default(keys.outer, "vision_config", "pixtral_vision")
    extra = pixtral(keys, vision, keys.whole("hidden_size"))
    text = _TEXTS.get(named, _TEXTS["ministral3"])
    return read_layered(text, keys, base="model.language_model", extra=extra)


def pixtral(keys: Keys, vision: Keys, text_hidden: int) -> Tensors:
    """Pixtral's tower and a projector that merges 2x2 patches."""
    given = {"side": keys.outer.whole("spatial_merge_size", default=2, high=64), "text_hidden": text_hidden}
    bias = keys.outer.flag("multimodal_projector_bias", default=False)
    return (
        *part("pixtral", vision, "model.vision_tower"),
        *part("mistral3_projector", vision, "model.multi_modal_projector", with_bias=bias, **given),
    )
