"""Readers of documents: HunyuanOCR, Florence 2 and Granite 4 Vision."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.blueprint import Blueprint, Tensor
from kvreport.architectures.families.beside import text_model
from kvreport.architectures.keys import Keys
from kvreport.architectures.published import published
from kvreport.architectures.registry import find_architecture, reads
from kvreport.architectures.vision import (
    MAX_DEPTH,
    clip,
    plain_block,
    section_or_default,
    siglip,
    times,
)
from kvreport.architectures.weights import Tensors, linear, norm

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
    text = Keys(data, keys.where, keys.path, None, keys.trail)
    architecture = find_architecture(text)
    blueprint = architecture.read(text.with_defaults(architecture.defaults))
    blueprint.outer += _hunyuan_vision(outer, blueprint.hidden_size)
    return blueprint


def _tied_by_default(keys: Keys) -> bool:
    """Tell whether one of a composite's two parts ties the head, where both do so unless told."""
    return keys.outer.flag("tie_word_embeddings", default=True) or keys.flag(
        "tie_word_embeddings", default=True
    )


def _hunyuan_vision(outer: Keys, text_hidden: int) -> Tensors:
    vision = section_or_default(outer, "vision_config", published("hunyuan_vision"))
    vision.has("out_hidden_size", "text_hidden_size", "num_key_value_heads")
    hidden = vision.whole("hidden_size")
    heads = vision.whole("num_attention_heads", high=hidden)
    patch = vision.whole("patch_size", high=1 << 12)
    places = (vision.whole("max_image_size", high=1 << 16) // patch) ** 2 + 1
    merge = vision.whole("spatial_merge_size", high=64)
    tower, merger = "model.vision_tower", "model.vision_tower.patch_merger"
    block = plain_block(
        f"{tower}.layers.*",
        hidden,
        vision.whole("intermediate_size"),
        output="self_attn.o_proj",
        inner=hidden // heads * heads,
    )
    channels = vision.whole("num_channels", high=64)
    return (
        Tensor(f"{tower}.embeddings.patch_embedding.weight", "vision", (hidden, channels, patch, patch)),
        Tensor(f"{tower}.embeddings.patch_embedding.bias", "vision", (hidden,)),
        Tensor(f"{tower}.embeddings.position_embedding.weight", "vision", (places, hidden)),
        *times(vision.whole("num_hidden_layers", high=MAX_DEPTH), block),
        Tensor(f"{merger}.image_newline", "vision", (4 * hidden,)),
        *(
            Tensor(f"{merger}.{name}", "vision", (text_hidden,))
            for name in ("image_begin", "image_end", "image_sep")
        ),
        *norm(f"{merger}.before_rms", hidden, component="vision"),
        *norm(f"{merger}.after_rms", text_hidden, component="vision"),
        Tensor(f"{merger}.proj_conv.weight", "vision", (2 * hidden, hidden, merge, merge)),
        Tensor(f"{merger}.proj_conv.bias", "vision", (2 * hidden,)),
        Tensor(f"{merger}.proj_out.weight", "vision", (4 * hidden, 2 * hidden, 1, 1)),
        Tensor(f"{merger}.proj_out.bias", "vision", (4 * hidden,)),
        *linear(f"{merger}.mlp", "vision", text_hidden, 4 * hidden, bias=True),
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
    text = Keys(data, keys.where, keys.path, None, keys.trail)
    architecture = find_architecture(text)
    blueprint = architecture.read(text.with_defaults(architecture.defaults))
    vision = section_or_default(keys.outer, "vision_config", published("davit_vision"))
    widths = vision.wholes("embed_dim" if vision.data.get("dim_embed") is None else "dim_embed") or []
    count = len(widths)
    patches = vision.wholes("patch_size", length=count, high=1 << 10) or []
    depths = vision.wholes("depths", length=count, high=MAX_DEPTH) or []
    before_convolution = vision.raw("patch_prenorm") or PRENORM
    if not isinstance(before_convolution, list | tuple):
        raise vision.fault("patch_prenorm", before_convolution, "a list, one entry per stage")
    ratio = vision.number("mlp_ratio", default=4.0, low=0.01, high=64)
    tower, projector = "model.vision_tower", "model.multi_modal_projector"
    channels = vision.whole("in_channels", high=64)
    tensors: Tensors = ()
    for stage, (width, patch, depth) in enumerate(zip(widths, patches, depths, strict=True)):
        entry = f"{tower}.convs.{stage}"
        prenorm = stage < len(before_convolution) and bool(before_convolution[stage])
        tensors += (
            Tensor(f"{entry}.conv.weight", "vision", (width, channels, patch, patch)),
            Tensor(f"{entry}.conv.bias", "vision", (width,)),
            *norm(f"{entry}.norm", channels if prenorm else width, bias=True, component="vision"),
        )
        for half in ("spatial_block", "channel_block"):
            attention = "window_attn" if half == "spatial_block" else "channel_attn"
            tensors += times(
                depth, _davit(vision, f"{tower}.blocks.{stage}.*.{half}", attention, width, ratio)
            )
        channels = width
    projected = vision.whole("projection_dim")
    places = vision.whole("max_position_embeddings", high=1 << 14)
    half_width = channels // 2
    position = f"{projector}.image_position_embed"
    blueprint.outer += (
        *tensors,
        *linear(f"{projector}.image_projection", "vision", projected, channels),
        *norm(f"{projector}.image_proj_norm", projected, bias=True, component="vision"),
        Tensor(f"{position}.row_embeddings.weight", "vision", (places, half_width)),
        Tensor(f"{position}.column_embeddings.weight", "vision", (places, channels - half_width)),
    )
    return blueprint


def _davit(vision: Keys, path: str, attention: str, width: int, ratio: float) -> Tensors:
    inner = int(width * ratio)
    bias = vision.flag("qkv_bias")
    tensors: Tensors = ()
    for number in (1, 2):
        tensors += (
            Tensor(f"{path}.conv{number}.weight", "vision", (width, 1, 3, 3)),
            Tensor(f"{path}.conv{number}.bias", "vision", (width,)),
            *norm(f"{path}.norm{number}", width, bias=True, component="vision"),
        )
    return (
        *tensors,
        *linear(f"{path}.{attention}.qkv", "vision", 3 * width, width, bias=bias),
        *linear(f"{path}.{attention}.proj", "vision", width, width, bias=True),
        *linear(f"{path}.ffn.fc1", "vision", inner, width, "columns", bias=True),
        *linear(f"{path}.ffn.fc2", "vision", width, inner, "rows", bias=True),
    )


@reads("Granite4VisionForConditionalGeneration", family="Granite", model_types=("granite4_vision",))
def granite4_vision(keys: Keys) -> Blueprint:
    """Granite behind a tower from several of whose layers small Q-Formers feed several layers of the text."""
    blueprint = text_model(keys, "granite")
    outer = keys.outer
    section = outer.section("vision_config")
    is_siglip = section is not None and "siglip" in (section.text("model_type") or "")
    vision = section_or_default(
        outer, "vision_config", published("siglip_vision") if is_siglip else published("granite_vision")
    )
    tower = "model.vision_tower"
    blueprint.outer += siglip(vision, tower) if is_siglip else clip(vision, tower)
    blueprint.outer.append(Tensor("model.image_newline", "vision", (blueprint.hidden_size,)))
    layer_map = outer.raw("deepstack_layer_map")
    if not isinstance(layer_map, list):
        raise outer.fault("deepstack_layer_map", layer_map, "a list of pairs of layers")
    # One for each of the four places of a window (transformers 5.23, modeling_granite4_vision.py).
    outer.has("spatial_target_layers", "spatial_vision_layer", "vision_feature_layer")
    spatial = _OFFSETS
    projector = _q_former(outer, vision.whole("hidden_size"), blueprint.hidden_size)
    for name, count in (("layerwise_projectors", len(layer_map)), ("spatial_projectors", spatial)):
        blueprint.outer += [
            Tensor(
                f"model.{name}.*.{tensor.name}",
                "vision",
                tensor.shape,
                count=tensor.count * count,
                linear=tensor.linear,
            )
            for tensor in projector
            if count
        ]
    return blueprint


def _q_former(outer: Keys, hidden: int, text_hidden: int) -> Tensors:
    """Queries of a small window that read the keys of a larger one."""
    sides = (outer.text("downsample_rate") or "").split("/")
    if len(sides) != 2 or not all(side.isdecimal() and 0 < int(side) <= 1 << 10 for side in sides):
        raise outer.fault("downsample_rate", outer.raw("downsample_rate"), "a fraction such as 1/2")
    query_side, key_side = (int(side) for side in sides)
    config = section_or_default(outer, "qformer_config", published("q_former"))
    config.has("hidden_size", "encoder_hidden_size", "num_attention_heads", "max_position_embeddings")
    width = config.whole("intermediate_size")
    depth = config.whole("num_hidden_layers", high=MAX_DEPTH)
    every = config.whole("cross_attention_frequency", high=MAX_DEPTH)
    layer = "qformer.encoder.layer.*"
    crossed = (depth + every - 1) // every
    tensors: Tensors = ()
    for name, count in (("attention", depth), ("crossattention", crossed)):
        each: Tensors = (
            *linear(f"{layer}.{name}.output.dense", "vision", hidden, hidden, bias=True),
            *norm(f"{layer}.{name}.output.LayerNorm", hidden, bias=True, component="vision"),
        )
        for part in ("query", "key", "value"):
            each += linear(f"{layer}.{name}.attention.{part}", "vision", hidden, hidden, bias=True)
        tensors += times(count, each)
    for enabled, suffix in ((True, "_query"), (config.flag("use_qformer_text_input", default=False), "")):
        if enabled:
            tensors += times(
                depth,
                (
                    *linear(f"{layer}.intermediate{suffix}.dense", "vision", width, hidden, bias=True),
                    *linear(f"{layer}.output{suffix}.dense", "vision", hidden, width, bias=True),
                    *norm(f"{layer}.output{suffix}.LayerNorm", hidden, bias=True, component="vision"),
                ),
            )
    return (
        Tensor("query", "vision", (1, query_side**2, hidden)),
        Tensor("image_positions", "vision", (1, key_side**2, hidden)),
        *norm("qformer.layernorm", hidden, bias=True, component="vision"),
        *norm("norm", hidden, bias=True, component="vision"),
        *tensors,
        *linear("out_linear", "vision", text_hidden, hidden, bias=True),
    )
