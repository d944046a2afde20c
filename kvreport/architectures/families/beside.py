"""Towers beside a text model of any class that is read here: InternVL, LFM2-VL, Aya and Command vision.

The text part says itself what class it is (``model_type``), so it is read by that class's own function;
only the tensors' paths change, and a tower and a projector come on top.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from kvreport.architectures.blueprint import Blueprint, Tensor
from kvreport.architectures.decoder import outer_tied
from kvreport.architectures.keys import Keys
from kvreport.architectures.published import published
from kvreport.architectures.registry import find_architecture, reads
from kvreport.architectures.vision import (
    MAX_DEPTH,
    plain_block,
    section_or_default,
    siglip,
    times,
)
from kvreport.architectures.weights import Tensors, linear, norm

_PROJECTOR: Final = "multi_modal_projector"


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
    vision = section_or_default(keys.outer, "vision_config", published("cohere2_vision"))
    blueprint.outer += siglip(vision, "vision_tower.vision_model")
    blueprint.outer += _gated_projector(keys, vision, blueprint.hidden_size, 36864)
    return blueprint


@reads("AyaVisionForConditionalGeneration", family="Aya", model_types=("aya_vision",))
def aya_vision(keys: Keys) -> Blueprint:
    """Aya Vision: as Command A Vision, with a norm in front of the projector."""
    blueprint = text_model(keys, "cohere2")
    vision = section_or_default(keys.outer, "vision_config", published("aya_vision"))
    merged = vision.whole("hidden_size") * _factor(keys) ** 2
    blueprint.outer += siglip(vision, "vision_tower.vision_model")
    blueprint.outer += norm(f"{_PROJECTOR}.layernorm", merged, bias=True, component="vision")
    blueprint.outer += _gated_projector(keys, vision, blueprint.hidden_size, blueprint.hidden_size)
    return blueprint


def _factor(keys: Keys) -> int:
    return keys.outer.whole("downsample_factor", default=2, high=64)


def _gated_projector(keys: Keys, vision: Keys, hidden: int, usual: int) -> Tensors:
    merged = vision.whole("hidden_size") * _factor(keys) ** 2
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
    vision = section_or_default(outer, "vision_config", published("siglip2_vision"))
    merged = vision.whole("hidden_size") * _factor(keys) ** 2
    inner = outer.whole("projector_hidden_size", default=2560)
    bias = outer.flag("projector_bias", default=True)
    blueprint.outer += _siglip2(vision, "vision_tower.vision_model")
    if outer.flag("projector_use_layernorm", default=True):
        blueprint.outer += norm(f"{_PROJECTOR}.layer_norm", merged, bias=True, component="vision")
    blueprint.outer += linear(f"{_PROJECTOR}.linear_1", "vision", inner, merged, bias=bias)
    blueprint.outer += linear(f"{_PROJECTOR}.linear_2", "vision", blueprint.hidden_size, inner, bias=bias)
    return blueprint


def _siglip2(vision: Keys, prefix: str) -> Tensors:
    """SigLIP 2 (NaFlex): a linear layer over flattened patches, and a fixed number of positions."""
    hidden = vision.whole("hidden_size")
    area = vision.whole("patch_size", high=1 << 12) ** 2 * vision.whole("num_channels", high=64)
    # The rest is SigLIP's; a square image of the same number of patches stands for its positions.
    plain = Keys(
        {**vision.data, "image_size": vision.whole("patch_size")},
        vision.where,
        vision.path,
        vision.defaults,
        vision.trail,
    )
    rest = tuple(tensor for tensor in siglip(plain, prefix) if ".embeddings." not in tensor.name)
    return (
        *linear(f"{prefix}.embeddings.patch_embedding", "vision", hidden, area, bias=True),
        Tensor(
            f"{prefix}.embeddings.position_embedding.weight",
            "vision",
            (vision.whole("num_patches", high=1 << 24), hidden),
        ),
        *rest,
    )


@reads("InternVLForConditionalGeneration", family="InternVL", model_types=("internvl",))
def internvl(keys: Keys) -> Blueprint:
    """InternVL 3 in the library's own layout: InternViT, and a projector that merges patches."""
    blueprint = text_model(keys, "qwen2")
    vision = section_or_default(keys.outer, "vision_config", published("intern_vision"))
    ratio = keys.outer.number("downsample_ratio", default=0.5, low=0.01, high=1)
    hidden = blueprint.hidden_size
    merged = vision.whole("hidden_size") * int(1 / ratio) ** 2
    blueprint.outer += _internvit(vision, "vision_tower")
    blueprint.outer += norm(f"{_PROJECTOR}.layer_norm", merged, bias=True, component="vision")
    blueprint.outer += linear(f"{_PROJECTOR}.linear_1", "vision", hidden, merged, bias=True)
    blueprint.outer += linear(f"{_PROJECTOR}.linear_2", "vision", hidden, hidden, bias=True)
    return blueprint


@reads("InternVLChatModel", family="InternVL", model_types=("internvl_chat",))
def internvl_chat(keys: Keys) -> Blueprint:
    """InternVL in its makers' layout: the text model stands under ``llm_config``."""
    blueprint = text_model(keys, "llama", ties="inner")
    vision = section_or_default(keys.outer, "vision_config", published("intern_chat_vision"))
    ratio = keys.outer.number("downsample_ratio", default=0.5, low=0.01, high=1)
    hidden = blueprint.hidden_size
    merged = vision.whole("hidden_size") * int(1 / ratio) ** 2
    blueprint.outer += _internvit_chat(vision, "vision_model")
    blueprint.outer += norm("mlp1.0", merged, bias=True, component="vision")
    blueprint.outer += linear("mlp1.1", "vision", hidden, merged, bias=True)
    blueprint.outer += linear("mlp1.3", "vision", hidden, hidden, bias=True)
    return blueprint


def _internvit_chat(vision: Keys, prefix: str) -> Tensors:
    hidden = vision.whole("hidden_size")
    patch = _side(vision, "patch_size", 1 << 12)
    patches = (_side(vision, "image_size", 1 << 16) // patch) ** 2
    path = f"{prefix}.encoder.layers.*"
    layer_norms = vision.text("norm_type") == "layer_norm"
    bias = vision.flag("qkv_bias")
    each = plain_block(
        path,
        hidden,
        vision.whole("intermediate_size"),
        names=("attn.qkv",),
        output="attn.proj",
        block_norms=("norm1", "norm2"),
        bias=bias,
        norm_bias=layer_norms,
    )
    if not bias:
        each += (Tensor(f"{path}.attn.proj.bias", "vision", (hidden,)),)
    if vision.flag("qk_normalization"):
        each += norm(f"{path}.attn.q_norm", hidden, component="vision")
        each += norm(f"{path}.attn.k_norm", hidden, component="vision")
    each += tuple(Tensor(f"{path}.{name}", "vision", (hidden,)) for name in ("ls1", "ls2"))
    channels = vision.whole("num_channels", high=64)
    return (
        Tensor(f"{prefix}.embeddings.class_embedding", "vision", (1, 1, hidden)),
        Tensor(f"{prefix}.embeddings.patch_embedding.weight", "vision", (hidden, channels, patch, patch)),
        Tensor(f"{prefix}.embeddings.patch_embedding.bias", "vision", (hidden,)),
        Tensor(f"{prefix}.embeddings.position_embedding", "vision", (1, patches + 1, hidden)),
        *times(vision.whole("num_hidden_layers", high=MAX_DEPTH), each),
    )


def _side(vision: Keys, name: str, high: int) -> int:
    """Read a size that may be one number or a pair of equal ones."""
    if isinstance(vision.raw(name), list):
        pair = vision.wholes(name, length=2, low=1, high=high) or [0, 0]
        if pair[0] != pair[1]:
            raise vision.fault(name, pair, "two equal sides")
        return pair[0]
    return vision.whole(name, high=high)


def _internvit(vision: Keys, prefix: str) -> Tensors:
    """A plain tower with a class token and two learned scales per block."""
    hidden = vision.whole("hidden_size")
    patch = _side(vision, "patch_size", 1 << 12)
    patches = (_side(vision, "image_size", 1 << 16) // patch) ** 2
    path = f"{prefix}.encoder.layer.*"
    layer_norms = vision.text("norm_type") == "layer_norm"
    each = plain_block(
        path,
        hidden,
        vision.whole("intermediate_size"),
        names=("attention.q_proj", "attention.k_proj", "attention.v_proj"),
        output="attention.projection_layer",
        block_norms=("layernorm_before", "layernorm_after"),
        bias=vision.flag("attention_bias"),
        norm_bias=layer_norms,
    )
    if not vision.flag("attention_bias"):
        each += (Tensor(f"{path}.attention.projection_layer.bias", "vision", (hidden,)),)
    if vision.flag("use_qk_norm"):
        each += norm(f"{path}.attention.q_norm", hidden, component="vision")
        each += norm(f"{path}.attention.k_norm", hidden, component="vision")
    each += tuple(Tensor(f"{path}.{name}", "vision", (hidden,)) for name in ("lambda_1", "lambda_2"))
    channels = vision.whole("num_channels", high=64)
    embeddings: Tensors = (
        Tensor(f"{prefix}.embeddings.cls_token", "vision", (1, 1, hidden)),
        Tensor(
            f"{prefix}.embeddings.patch_embeddings.projection.weight",
            "vision",
            (hidden, channels, patch, patch),
        ),
        Tensor(f"{prefix}.embeddings.patch_embeddings.projection.bias", "vision", (hidden,)),
    )
    if vision.flag("use_mask_token"):
        embeddings += (Tensor(f"{prefix}.embeddings.mask_token", "vision", (1, 1, hidden)),)
    if vision.flag("use_absolute_position_embeddings"):
        embeddings += (
            Tensor(f"{prefix}.embeddings.position_embeddings", "vision", (1, patches + 1, hidden)),
        )
    last = (
        ()
        if vision.flag("use_mean_pooling")
        else norm(f"{prefix}.layernorm", hidden, bias=True, component="vision")
    )
    return (*embeddings, *times(vision.whole("num_hidden_layers", high=MAX_DEPTH), each), *last)


_READERS: Final = (cohere2_vision, aya_vision, lfm2_vl, internvl, internvl_chat)
