"""Readers of documents: HunyuanOCR, Florence 2 and Granite 4 Vision."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.blueprint import Blueprint, Weight
from kvreport.architectures.composites import text_model
from kvreport.architectures.keys import Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import read_named, reads
from kvreport.architectures.tensor_builders import Tensors
from kvreport.architectures.vision import MAX_DEPTH, section_or_default

PRENORM: Final = (False, True, True, True)
"""Where Florence 2 normalizes before it convolves: in all stages but the first."""
_OFFSETS: Final = 4


@reads("HunYuanVLForConditionalGeneration", family="Hunyuan", model_types=("hunyuan_vl",))
def hunyuan_vl(keys: Keys) -> Blueprint:
    """HunyuanOCR: a text model whose keys may stand at the top, as its checkpoints have them, or in a section."""
    outer = keys.outer
    data = {**keys.data, "model_type": "hunyuan_v1_dense"}
    data.pop("architectures", None)
    if not keys.has("vocab_size") and keys.has("org_vocab_size"):
        data["vocab_size"] = keys.raw("org_vocab_size")
    # transformers 5.23, configuration_hunyuan_vl.py: both parts are tied unless one says otherwise.
    inner = keys.flag("tie_word_embeddings", default=True)
    data["tie_word_embeddings"] = inner if keys is outer else _tied_by_default(keys)
    blueprint = read_named(keys, data)
    vision = section_or_default(outer, "vision_config", "hunyuan_vision")
    vision.has("out_hidden_size", "text_hidden_size", "num_key_value_heads")
    vision.whole("num_attention_heads", high=vision.whole("hidden_size"))
    blueprint.outer += part("hunyuan_vision", vision, "model.vision_tower", text_hidden=blueprint.hidden_size)
    return blueprint


def _tied_by_default(keys: Keys) -> bool:
    """Tell whether one of a composite's two parts ties the head, where both do so unless told."""
    return keys.outer.flag("tie_word_embeddings", default=True) or keys.flag(
        "tie_word_embeddings", default=True
    )


@reads("Florence2ForConditionalGeneration", family="Florence", model_types=("florence2",))
def florence2(keys: Keys) -> Blueprint:
    """BART behind DaViT, whose blocks attend within windows and between channels in turn."""
    if keys.outer is keys:
        raise keys.fault("text_config", None, "an object that describes the text model")
    for place in (keys.outer, keys):
        if not place.flag("tie_word_embeddings", default=True):
            raise place.fault("tie_word_embeddings", "false", "true: embedding and head are one")
    data = {**keys.data, "architectures": ["BartForConditionalGeneration"], "tie_word_embeddings": True}
    blueprint = read_named(keys, data)
    vision = section_or_default(keys.outer, "vision_config", "davit_vision")
    widths = vision.wholes("embed_dim" if vision.data.get("dim_embed") is None else "dim_embed") or []
    count = len(widths)
    patches = vision.wholes("patch_size", length=count, high=1 << 10) or []
    depths = vision.wholes("depths", length=count, high=MAX_DEPTH) or []
    before_convolution = vision.raw("patch_prenorm") or PRENORM
    if not isinstance(before_convolution, list | tuple):
        raise vision.fault("patch_prenorm", before_convolution, "a list, one entry per stage")
    ratio = vision.number("mlp_ratio", default=4.0, low=0.01, high=64)
    channels = vision.whole("in_channels", high=64)
    for stage, (width, patch, depth) in enumerate(zip(widths, patches, depths, strict=True)):
        prenorm = stage < len(before_convolution) and bool(before_convolution[stage])
        given = {"stage": stage, "width": width, "patch": patch, "depth": depth, "channels": channels}
        normed = channels if prenorm else width
        blueprint.outer += part(
            "davit_stage", vision, "model.vision_tower", normed=normed, mlp_ratio=ratio, **given
        )
        channels = width
    blueprint.outer += part("florence_projector", vision, "model.multi_modal_projector", width=channels)
    return blueprint


@reads("Granite4VisionForConditionalGeneration", family="Granite", model_types=("granite4_vision",))
def granite4_vision(keys: Keys) -> Blueprint:
    """Granite behind a tower from several of whose layers small Q-Formers feed several layers of the text."""
    blueprint = text_model(keys, "granite", ties="whole")
    outer = keys.outer
    section = outer.section("vision_config")
    is_siglip = section is not None and "siglip" in (section.text("model_type") or "")
    vision = section_or_default(outer, "vision_config", "siglip_vision" if is_siglip else "granite_vision")
    blueprint.outer += part("siglip" if is_siglip else "clip", vision, "model.vision_tower")
    blueprint.outer.append(Weight("model.image_newline", "vision", (blueprint.hidden_size,)))
    layer_map = outer.raw("deepstack_layer_map")
    if not isinstance(layer_map, list):
        raise outer.fault("deepstack_layer_map", layer_map, "a list of pairs of layers")
    # One for each of the four places of a window (transformers 5.23, modeling_granite4_vision.py).
    outer.has("spatial_target_layers", "spatial_vision_layer", "vision_feature_layer")
    given = {"hidden": vision.whole("hidden_size"), "text_hidden": blueprint.hidden_size}
    for name, count in (("layerwise_projectors", len(layer_map)), ("spatial_projectors", _OFFSETS)):
        blueprint.outer += _q_former(outer, f"model.{name}.*", count=count, **given)
    return blueprint


def _q_former(outer: Keys, path: str, **given: int) -> Tensors:
    """Queries of a small window that read the keys of a larger one."""
    sides = (outer.text("downsample_rate") or "").split("/")
    if len(sides) != 2 or not all(side.isdecimal() and 0 < int(side) <= 1 << 10 for side in sides):
        raise outer.fault("downsample_rate", outer.raw("downsample_rate"), "a fraction such as 1/2")
    config = section_or_default(outer, "qformer_config", "q_former")
    config.has("hidden_size", "encoder_hidden_size", "num_attention_heads", "max_position_embeddings")
    given |= {"query_side": int(sides[0]), "key_side": int(sides[1])}
    text_input = config.flag("use_qformer_text_input", default=False)
    return part("q_former", config, path, text_input=text_input, **given)
