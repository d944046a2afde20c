"""Gemma 3, with SigLIP beside it where the config is that of the whole."""

from __future__ import annotations

from kvreport.architectures.blueprint import Blueprint, Tensor
from kvreport.architectures.decoder import either_tied
from kvreport.architectures.keys import Keys
from kvreport.architectures.layered import read_layered
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import section_or_default
from kvreport.architectures.weights import Tensors


@reads(
    "Gemma3ForConditionalGeneration",
    "Gemma3ForCausalLM",
    family="Gemma 3",
    model_types=("gemma3", "gemma3_text"),
)
def gemma3(keys: Keys) -> Blueprint:
    """Five windows, then one layer that reads everything; queries and keys are normalised.

    Variants with bidirectional attention hold half the window, plus one.
    """
    # ShieldGemma 2 asks its text part where its own config says no (configuration_shieldgemma2.py).
    shield = {"tie": either_tied(keys)} if keys.outer.text("model_type") == "shieldgemma2" else {}
    if keys.outer is keys:
        return read_layered("gemma3", keys, **shield)
    names = {"base": "language_model.model", "head": "language_model.lm_head"}
    return read_layered("gemma3", keys, extra=_vision(keys), **names, **shield)


def _vision(keys: Keys) -> Tensors:
    section = section_or_default(keys.outer, "vision_config", "siglip_vision")
    width = section.whole("hidden_size")
    return (
        *part("siglip", section, "vision_tower.vision_model"),
        Tensor(
            "multi_modal_projector.mm_input_projection_weight", "vision", (width, keys.whole("hidden_size"))
        ),
        Tensor("multi_modal_projector.mm_soft_emb_norm.weight", "vision", (width,)),
    )
