"""Phi-3-vision and Phi-4-multimodal: Phi-3's text model beside a tower for images and one for speech."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvreport.architectures.blueprint import Blueprint, Weight
from kvreport.architectures.keys import Keys
from kvreport.architectures.layered import read_layered
from kvreport.architectures.parts import part
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors, linear
from kvreport.architectures.vision import section_or_default

_CLIP: Final = "openai/clip-vit-large-patch14-336"
_IMAGES: Final = "model.embed_tokens_extend.image_embed"
_SPEECH: Final = "model.embed_tokens_extend.audio_embed"


@reads("Phi3VForCausalLM", family="Phi", model_types=("phi3_v",))
def phi3_vision(keys: Keys) -> Blueprint:
    """Phi-3 and Phi-3.5 vision: CLIP's large tower, whose patches are merged four to one."""
    named = keys.section("img_processor")
    if named is None or named.text("model_name") != _CLIP:
        found = None if named is None else named.raw("model_name")
        raise keys.fault("img_processor.model_name", found, f"{_CLIP}, whose dimensions are known")
    blueprint = read_layered("Phi3ForCausalLM", keys)
    tower = Keys({}, keys.where, keys.field("img_processor"), published("clip_l_336"))
    path = "model.vision_embed_tokens"
    hidden, merged = blueprint.hidden_size, 4 * 1024
    blueprint.outer += (
        *part("clip", tower, f"{path}.img_processor.vision_model"),
        *linear(f"{path}.img_projection.0", "vision", hidden, merged, bias=True),
        *linear(f"{path}.img_projection.2", "vision", hidden, hidden, bias=True),
        Weight(f"{path}.glb_GN", "vision", (1, 1, merged)),
        Weight(f"{path}.sub_GN", "vision", (1, 1, 1, merged)),
    )
    return blueprint


@reads(
    "Phi4MultimodalForCausalLM",
    family="Phi",
    model_types=("phi4_multimodal",),
)
def phi4_multimodal(keys: Keys) -> Blueprint:
    """Phi-4-multimodal as the library's class has it: SigLIP with its head, a conformer, four projections."""
    blueprint = read_layered("Phi3ForCausalLM", keys)
    vision = section_or_default(keys, "vision_config", "phi4_vision")
    audio = section_or_default(keys, "audio_config", "phi4_audio")
    hidden, seen = blueprint.hidden_size, vision.whole("hidden_size")
    heard = audio.whole("hidden_size") * audio.whole("downsample_rate", high=64)
    blueprint.outer += (
        Weight(f"{_IMAGES}.global_img_feature_extensor", "vision", (1, 1, seen)),
        Weight(f"{_IMAGES}.sub_img_feature_extensor", "vision", (1, 1, 1, seen)),
        *part("siglip", vision, f"{_IMAGES}.img_processor"),
        *linear(f"{_IMAGES}.img_projection_up", "vision", hidden, seen, bias=True),
        *linear(f"{_IMAGES}.img_projection_down", "vision", hidden, hidden, bias=True),
        *_conformer(audio, f"{_SPEECH}.encoder"),
        *part("phi4_projections", audio, _SPEECH, text_hidden=hidden, heard=heard),
    )
    return blueprint


def _conformer(audio: Keys, path: str) -> Tensors:
    """A convolution that thins the frames out, positions as biases, and blocks of attention and convolution."""
    channels = audio.whole("nemo_conv_channels", high=1 << 16)
    halvings = audio.whole("time_reduction", low=2, high=1 << 10).bit_length() - 1
    bands = audio.whole("input_size", high=1 << 16)
    for _ in range(halvings):
        bands = (bands + 1) // 2
    thinning = _convolution(f"{path}.embed.conv.0", channels, 1, 3)
    for step in range(1, halvings):
        thinning += _convolution(f"{path}.embed.conv.{3 * step - 1}", channels, 1, 3)
        thinning += _convolution(f"{path}.embed.conv.{3 * step}", channels, channels, 1)
    return (*thinning, *part("phi4_audio", audio, path, bands=bands))


def _convolution(name: str, outputs: int, inputs: int, side: int) -> Tensors:
    weight = Weight(f"{name}.weight", "audio", (outputs, inputs, side, side))
    return (weight, replace(weight, name=f"{name}.bias", shape=(outputs,)))
