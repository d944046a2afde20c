"""Phi-3-vision and Phi-4-multimodal: Phi-3's text model beside a tower for images and one for speech."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvreport.architectures.blueprint import Blueprint, Tensor
from kvreport.architectures.families.phi import phi3
from kvreport.architectures.keys import Keys
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import MAX_DEPTH, clip, section_or_default, siglip, times
from kvreport.architectures.weights import Tensors, linear, norm

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
    blueprint = phi3(keys)
    tower = Keys({}, keys.where, keys.field("img_processor"), published("clip_l_336"))
    path = "model.vision_embed_tokens"
    hidden, merged = blueprint.hidden_size, 4 * 1024
    blueprint.outer += (
        *clip(tower, f"{path}.img_processor.vision_model"),
        *linear(f"{path}.img_projection.0", "vision", hidden, merged, bias=True),
        *linear(f"{path}.img_projection.2", "vision", hidden, hidden, bias=True),
        Tensor(f"{path}.glb_GN", "vision", (1, 1, merged)),
        Tensor(f"{path}.sub_GN", "vision", (1, 1, 1, merged)),
    )
    return blueprint


@reads(
    "Phi4MultimodalForCausalLM",
    family="Phi",
    model_types=("phi4_multimodal",),
)
def phi4_multimodal(keys: Keys) -> Blueprint:
    """Phi-4-multimodal as the library's class has it: SigLIP with its head, a conformer, four projections."""
    blueprint = phi3(keys)
    vision = section_or_default(keys, "vision_config", published("phi4_vision"))
    audio = section_or_default(keys, "audio_config", published("phi4_audio"))
    hidden, seen = blueprint.hidden_size, vision.whole("hidden_size")
    heard = audio.whole("hidden_size") * audio.whole("downsample_rate", high=64)
    blueprint.outer += (
        Tensor(f"{_IMAGES}.global_img_feature_extensor", "vision", (1, 1, seen)),
        Tensor(f"{_IMAGES}.sub_img_feature_extensor", "vision", (1, 1, 1, seen)),
        *siglip(vision, f"{_IMAGES}.img_processor"),
        *linear(f"{_IMAGES}.img_projection_up", "vision", hidden, seen, bias=True),
        *linear(f"{_IMAGES}.img_projection_down", "vision", hidden, hidden, bias=True),
        *_conformer(audio, f"{_SPEECH}.encoder"),
    )
    for what in ("speech", "vision_speech"):
        blueprint.outer += (
            *linear(f"{_SPEECH}.up_proj_for_{what}", "audio", hidden, heard, bias=True),
            *linear(f"{_SPEECH}.down_proj_for_{what}", "audio", hidden, hidden, bias=True),
        )
    return blueprint


def _conformer(audio: Keys, path: str) -> Tensors:
    """A convolution that thins the frames out, positions as biases, and blocks of attention and convolution."""
    hidden = audio.whole("hidden_size")
    channels = audio.whole("nemo_conv_channels", high=1 << 16)
    halvings = audio.whole("time_reduction", low=2, high=1 << 10).bit_length() - 1
    bands = audio.whole("input_size", high=1 << 16)
    for _ in range(halvings):
        bands = (bands + 1) // 2
    bands = audio.whole("nemo_final_size", default=bands, high=1 << 16)
    buckets = audio.whole("bias_max_distance", high=1 << 20)
    buckets *= 1 if audio.flag("bias_symmetric") else 2
    heads = audio.whole("num_attention_heads", high=1 << 12)
    thinning = _convolution(f"{path}.embed.conv.0", channels, 1, 3, 3)
    for step in range(1, halvings):
        thinning += _convolution(f"{path}.embed.conv.{3 * step - 1}", channels, 1, 3, 3)
        thinning += _convolution(f"{path}.embed.conv.{3 * step}", channels, channels, 1, 1)
    return (
        *thinning,
        *linear(f"{path}.embed.out", "audio", hidden, channels * bands, bias=True),
        Tensor(f"{path}.relative_attention_bias_layer.bias_values.weight", "audio", (buckets, heads)),
        *times(audio.whole("num_blocks", high=MAX_DEPTH), _conformer_block(audio, f"{path}.encoders.*")),
    )


def _conformer_block(audio: Keys, path: str) -> Tensors:
    hidden = audio.whole("hidden_size")
    width = audio.whole("intermediate_size")
    kernel = audio.whole("kernel_size", high=1 << 10)
    outputs = audio.whole("ext_pw_out_channel")
    between = audio.whole("depthwise_separable_out_channel")
    deep = hidden * audio.whole("depthwise_multiplier", high=64)
    tensors: Tensors = ()
    for name in ("layer_norm_att", "layer_norm", "conv.layer_norm"):
        tensors += norm(f"{path}.{name}", hidden, bias=True, component="audio")
    for name in ("feed_forward_in", "feed_forward_out"):
        tensors += (
            *norm(f"{path}.{name}.layer_norm", hidden, bias=True, component="audio"),
            *linear(f"{path}.{name}.gate_up_proj", "audio", 2 * width, hidden, bias=True),
            *linear(f"{path}.{name}.down_proj", "audio", hidden, width, bias=True),
        )
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        tensors += linear(f"{path}.self_attn.{name}", "audio", hidden, hidden, bias=True)
    gate = tuple(Tensor(f"{path}.conv.glu.{name}", "audio", (1, outputs, 1)) for name in ("b1", "b2"))
    return (
        *tensors,
        *_convolution(f"{path}.conv.glu.ext_pw_conv_1d", 2 * outputs, hidden, 1),
        *gate,
        *_convolution(f"{path}.conv.dw_sep_conv_1d.dw_conv", deep, 1, kernel),
        *_convolution(f"{path}.conv.dw_sep_conv_1d.pw_conv", between, deep, 1),
        *_convolution(f"{path}.conv.ext_pw_conv_1d", outputs, hidden, 1),
    )


def _convolution(name: str, outputs: int, inputs: int, *kernel: int) -> Tensors:
    weight = Tensor(f"{name}.weight", "audio", (outputs, inputs, *kernel))
    return (weight, replace(weight, name=f"{name}.bias", shape=(outputs,)))
