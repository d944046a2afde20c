"""Llama 4: three chunked layers for one that reads everything, one expert a token, a shared one."""

from __future__ import annotations

from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import inner_tied
from kvreport.architectures.keys import Keys
from kvreport.architectures.layered import read_layered
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import check_heads, section_or_default
from kvreport.architectures.weights import (
    Tensors,
)


@reads(
    "Llama4ForConditionalGeneration",
    "Llama4ForCausalLM",
    family="Llama 4",
    model_types=("llama4", "llama4_text"),
)
def llama4(keys: Keys) -> Blueprint:
    """Read the text model, and the encoder beside it where the config is that of the whole."""
    if keys.outer is keys:
        return read_layered("llama4", keys, tie=inner_tied(keys))
    vision = _vision(keys, keys.whole("hidden_size"))
    names = {"base": "language_model.model", "head": "language_model.lm_head"}
    return read_layered("llama4", keys, tie=inner_tied(keys), extra=vision, **names)


def _vision(keys: Keys, text_hidden: int) -> Tensors:
    vision = section_or_default(keys.outer, "vision_config", "llama4_vision")
    check_heads(vision, vision.whole("hidden_size"), "num_attention_heads")
    return part("llama4_vision", vision, text_hidden=text_hidden)
