"""A tower and a small projector beside a text model of its own class: LLaVA, PaliGemma, SmolVLM, Pixtral."""

from __future__ import annotations

from typing import Final, Literal

from kvreport.architectures.blueprint import Blueprint, Tensor
from kvreport.architectures.families.beside import text_model
from kvreport.architectures.keys import Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import section_or_default
from kvreport.architectures.weights import linear

_TOWER: Final = "vision_tower"
_PROJECTOR: Final = "multi_modal_projector"


@reads("LlavaForConditionalGeneration", family="LLaVA", model_types=("llava",))
def llava(keys: Keys) -> Blueprint:
    """LLaVA 1.5, Pixtral: CLIP (or another tower) and a projector of two matrices."""
    return _llava(keys, "llama", "clip_vision_model", "llava_vision")


@reads("LlavaNextForConditionalGeneration", family="LLaVA", model_types=("llava_next",))
def llava_next(keys: Keys) -> Blueprint:
    """LLaVA 1.6: as LLaVA, with a learned end of a row of patches."""
    return _llava(keys, "llama", "clip_vision_model", "llava_vision", newline=True, ties="alone")


@reads("LlavaOnevisionForConditionalGeneration", family="LLaVA", model_types=("llava_onevision",))
def llava_onevision(keys: Keys) -> Blueprint:
    """LLaVA-OneVision: as LLaVA 1.6, with SigLIP and Qwen2 where the config does not say otherwise."""
    return _llava(keys, "qwen2", "siglip_vision_model", "llava_onevision_vision", newline=True)


def _llava(
    keys: Keys,
    text: str,
    tower: str,
    defaults: str,
    *,
    newline: bool = False,
    ties: Literal["either", "alone"] = "either",
) -> Blueprint:
    blueprint = text_model(keys, text, ties=ties)
    outer = keys.outer
    found = outer.section("vision_config")
    name = (found.text("model_type") if found is not None else None) or tower
    towers = {
        "clip_vision_model": ("clip", "clip_vision"),
        "siglip_vision_model": ("siglip", "siglip_vision"),
        "pixtral": ("pixtral", "pixtral_vision"),
    }
    if found is not None and name not in towers:
        raise found.fault("model_type", name, f"one of {', '.join(towers)}")
    listed, usual = towers[name]
    vision = section_or_default(outer, "vision_config", usual if found is not None else defaults)
    blueprint.outer += part(listed, vision, _TOWER if listed == "pixtral" else f"{_TOWER}.vision_model")
    hidden, bias = blueprint.hidden_size, outer.flag("multimodal_projector_bias", default=True)
    chosen = outer.raw("vision_feature_layer")
    picked = len(chosen) if isinstance(chosen, list) else 1
    if not 1 <= picked <= 64:
        raise outer.fault("vision_feature_layer", f"a list of {picked}", "1 to 64 layers")
    width = vision.whole("hidden_size") * picked
    blueprint.outer += linear(f"{_PROJECTOR}.linear_1", "vision", hidden, width, "columns", bias=bias)
    blueprint.outer += linear(f"{_PROJECTOR}.linear_2", "vision", hidden, hidden, "rows", bias=bias)
    if newline:
        blueprint.outer.append(Tensor("image_newline", "vision", (hidden,)))
    return blueprint


@reads("PaliGemmaForConditionalGeneration", family="PaliGemma", model_types=("paligemma",))
def paligemma(keys: Keys) -> Blueprint:
    """PaliGemma 1 and 2: SigLIP and one matrix in front of Gemma or Gemma 2."""
    blueprint = text_model(keys, "gemma")
    outer = keys.outer
    given = outer.section("vision_config") is not None
    vision = section_or_default(outer, "vision_config", "siglip_vision" if given else "paligemma_vision")
    width = outer.whole("projection_dim", default=2048)
    if width != blueprint.hidden_size:
        raise outer.fault("projection_dim", width, f"the text model's width, {blueprint.hidden_size}")
    blueprint.outer += part("siglip", vision, f"{_TOWER}.vision_model")
    blueprint.outer += linear(f"{_PROJECTOR}.linear", "vision", width, vision.whole("hidden_size"), bias=True)
    return blueprint


@reads("Idefics3ForConditionalGeneration", family="Idefics", model_types=("idefics3",))
def idefics3(keys: Keys) -> Blueprint:
    """Idefics3: SigLIP and one matrix over squares of patches in front of Llama."""
    return _idefics(keys)


@reads("SmolVLMForConditionalGeneration", family="SmolVLM", model_types=("smolvlm",))
def smolvlm(keys: Keys) -> Blueprint:
    """SmolVLM: as Idefics3."""
    return _idefics(keys)


def _idefics(keys: Keys) -> Blueprint:
    blueprint = text_model(keys, "llama")
    vision = section_or_default(keys.outer, "vision_config", "idefics3_vision")
    side = keys.outer.whole("scale_factor", default=2, high=64)
    merged = vision.whole("hidden_size") * side * side
    blueprint.outer += part("siglip", vision, "model.vision_model")
    blueprint.outer += linear(
        "model.connector.modality_projection.proj", "vision", blueprint.hidden_size, merged
    )
    return blueprint
