"""Towers beside a text model of any class that is read here: InternVL, LFM2-VL, Aya and Command vision.

The text part says itself what class it is (``model_type``), so it is read by that class's own function;
only the tensors' paths change, and a tower and a projector come on top.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import outer_tied
from kvreport.architectures.keys import Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import find_architecture, reads
from kvreport.architectures.vision import section_or_default
from kvreport.architectures.weights import Tensors, linear, norm

_PROJECTOR: Final = "multi_modal_projector"
_SIGLIP: Final = "vision_tower.vision_model"


def text_model(
    keys: Keys,
    usual: str,
    *,
    ties: Literal["outer", "either", "inner", "alone", "never"] = "outer",
) -> Blueprint:
    """Read the text part by its own class.

    Args:
        keys: The text part.
        usual: The ``model_type`` that a text part without one has.
        ties: Whose word counts on whether the head is the embedding: that of the whole where it has
            one, that of either part, only that of the text part or of the whole, or nobody's. Where neither part
            says it, the text's own default holds, which a release of transformers before 5 leaves out when it saves.
    """
    if keys.outer is keys:
        raise keys.fault("text_config", None, "an object that describes the text model")
    data = dict(keys.data)
    if not keys.has("model_type", "architectures"):
        data["model_type"] = usual
    tied_inside = ties == "either" and keys.raw("tie_word_embeddings") is True
    if ties in ("alone", "never"):
        data["tie_word_embeddings"] = ties == "alone" and outer_tied(keys)
    elif ties != "inner" and keys.outer.has("tie_word_embeddings") and not tied_inside:
        data["tie_word_embeddings"] = keys.outer.raw("tie_word_embeddings")
    text = Keys(data, keys.where, keys.path, None, keys.trail)
    architecture = find_architecture(text)
    if architecture.read in _READERS:
        raise keys.fault("model_type", architecture.name, "the class of a text model")
    blueprint = architecture.read(text.with_defaults(architecture.defaults))
    blueprint.outer = [replace(tensor, name=f"language_model.{tensor.name}") for tensor in blueprint.outer]
    blueprint.prefix = f"language_model.{blueprint.prefix}"
    return blueprint


@reads("Cohere2VisionForConditionalGeneration", family="Command", model_types=("cohere2_vision",))
def cohere2_vision(keys: Keys) -> Blueprint:
    """Command A Vision: SigLIP, and a projector that gates by half of its width."""
    blueprint = text_model(keys, "cohere2")
    vision = section_or_default(keys.outer, "vision_config", "cohere2_vision")
    blueprint.outer += part("siglip", vision, _SIGLIP)
    blueprint.outer += _gated_projector(keys, _merged(keys, vision), blueprint.hidden_size, 36864)
    return blueprint


@reads("AyaVisionForConditionalGeneration", family="Aya", model_types=("aya_vision",))
def aya_vision(keys: Keys) -> Blueprint:
    """Aya Vision: as Command A Vision, with a norm in front of the projector."""
    blueprint = text_model(keys, "cohere2")
    hidden = blueprint.hidden_size
    vision = section_or_default(keys.outer, "vision_config", "aya_vision")
    merged = _merged(keys, vision)
    blueprint.outer += part("siglip", vision, _SIGLIP)
    blueprint.outer += norm(f"{_PROJECTOR}.layernorm", merged, bias=True, component="vision")
    blueprint.outer += _gated_projector(keys, merged, hidden, hidden)
    return blueprint


def _merged(keys: Keys, vision: Keys) -> int:
    """Width of a square of patches side by side."""
    return vision.whole("hidden_size") * keys.outer.whole("downsample_factor", default=2, high=64) ** 2


def _gated_projector(keys: Keys, merged: int, hidden: int, usual: int) -> Tensors:
    inner = keys.outer.whole("alignment_intermediate_size", default=usual)
    half = keys.divide("alignment_intermediate_size", inner, "its two halves", 2)
    return (
        *linear(f"{_PROJECTOR}.linear_1", "vision", inner, merged, bias=True),
        *linear(f"{_PROJECTOR}.linear_2", "vision", hidden, half, bias=True),
    )


@reads("Lfm2VlForConditionalGeneration", family="LFM2", model_types=("lfm2_vl",))
def lfm2_vl(keys: Keys) -> Blueprint:
    """LFM2-VL: SigLIP 2 over patches as vectors, and a projector of its own width."""
    blueprint = text_model(keys, "lfm2")
    outer = keys.outer
    vision = section_or_default(outer, "vision_config", "siglip2_vision")
    merged = _merged(keys, vision)
    inner = outer.whole("projector_hidden_size", default=2560)
    bias = outer.flag("projector_bias", default=True)
    blueprint.outer += part("siglip2", vision, _SIGLIP)
    if outer.flag("projector_use_layernorm", default=True):
        blueprint.outer += norm(f"{_PROJECTOR}.layer_norm", merged, bias=True, component="vision")
    blueprint.outer += linear(f"{_PROJECTOR}.linear_1", "vision", inner, merged, bias=bias)
    blueprint.outer += linear(f"{_PROJECTOR}.linear_2", "vision", blueprint.hidden_size, inner, bias=bias)
    return blueprint


@reads("InternVLForConditionalGeneration", family="InternVL", model_types=("internvl",))
def internvl(keys: Keys) -> Blueprint:
    """InternVL 3 in the library's own layout: InternViT, and a projector that merges patches."""
    blueprint = text_model(keys, "qwen2")
    vision = section_or_default(keys.outer, "vision_config", "intern_vision")
    blueprint.outer += part("internvit", vision, "vision_tower", **_sides(vision))
    names = {"norm": "layer_norm", "first": "linear_1", "second": "linear_2"}
    return _merging(keys, blueprint, vision, _PROJECTOR, names)


@reads("InternVLChatModel", family="InternVL", model_types=("internvl_chat",))
def internvl_chat(keys: Keys) -> Blueprint:
    """InternVL in its makers' layout: the text model stands under ``llm_config``."""
    blueprint = text_model(keys, "llama", ties="inner")
    vision = section_or_default(keys.outer, "vision_config", "intern_chat_vision")
    blueprint.outer += part("internvit_chat", vision, "vision_model", **_sides(vision))
    return _merging(keys, blueprint, vision, "mlp1", {"norm": "0", "first": "1", "second": "3"})


def _merging(
    keys: Keys, blueprint: Blueprint, vision: Keys, projector: str, names: dict[str, str]
) -> Blueprint:
    ratio = keys.outer.number("downsample_ratio", default=0.5, low=0.01, high=1)
    merged = vision.whole("hidden_size") * int(1 / ratio) ** 2
    blueprint.outer += part(
        "internvl_projector", vision, projector, text_hidden=blueprint.hidden_size, merged=merged, **names
    )
    return blueprint


def _sides(vision: Keys) -> dict[str, int]:
    """Read sizes that may be one number or a pair of equal ones."""
    sides = {}
    for name, high in (("patch_size", 1 << 12), ("image_size", 1 << 16)):
        if isinstance(vision.raw(name), list):
            pair = vision.wholes(name, length=2, low=1, high=high) or [0, 0]
            if pair[0] != pair[1]:
                raise vision.fault(name, pair, "two equal sides")
            sides[name] = pair[0]
        else:
            sides[name] = vision.whole(name, high=high)
    return sides


_READERS: Final = (cohere2_vision, aya_vision, lfm2_vl, internvl, internvl_chat)
