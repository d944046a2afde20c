"""Qwen2.5-Omni and Qwen3-Omni: what an engine serves of them, the thinker with its two towers."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvreport.architectures.blueprint import Blueprint, Tensor
from kvreport.architectures.families.qwen import dense, sparse
from kvreport.architectures.keys import Keys
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import (
    MAX_DEPTH,
    qwen2_5_vision,
    qwen3_vision,
    section_or_default,
    times,
)
from kvreport.architectures.weights import Tensors, linear, norm

_AUDIO: Final = "audio_tower"
_TALKER: Final = (
    "Only the thinker is counted: the parts that turn its words into speech are not served with it."
)


@reads(
    "Qwen2_5OmniForConditionalGeneration",
    "Qwen2_5OmniModel",
    "Qwen2_5OmniThinkerForConditionalGeneration",
    family="Qwen2.5-Omni",
    model_types=("qwen2_5_omni", "qwen2_5_omni_thinker"),
)
def qwen2_5_omni(keys: Keys) -> Blueprint:
    """Qwen2.5 with the tower of Qwen2.5-VL and a Whisper-like one."""
    vision = section_or_default(keys.outer, "vision_config", published("omni_vision"))
    audio = section_or_default(keys.outer, "audio_config", published("qwen_omni_audio"))
    extra = (*qwen2_5_vision(vision, "visual"), *_whisper(audio))
    return _told(dense(keys, qkv_bias=True, qk_norm=False, extra=extra))


@reads(
    "Qwen3OmniMoeForConditionalGeneration",
    "Qwen3OmniMoeThinkerForConditionalGeneration",
    family="Qwen3-Omni",
    model_types=("qwen3_omni_moe", "qwen3_omni_moe_thinker"),
)
def qwen3_omni(keys: Keys) -> Blueprint:
    """Qwen3's mixture with the tower of Qwen3-VL and one for sound that starts with convolutions."""
    vision = section_or_default(keys.outer, "vision_config", published("qwen3_vision"))
    audio = section_or_default(keys.outer, "audio_config", published("qwen_omni_audio"))
    tower = tuple(replace(tensor, name=_renamed(tensor.name)) for tensor in qwen3_vision(vision, "visual"))
    bias = keys.flag("attention_bias", default=False)
    extra = (*tower, *_audio(audio))
    return _told(sparse(keys, qkv_bias=bias, qk_norm=True, extra=extra))


def _told(blueprint: Blueprint) -> Blueprint:
    blueprint.notes.append(_TALKER)
    return blueprint


def _renamed(name: str) -> str:
    """Return a tensor's name in Qwen3-Omni, whose mergers are called otherwise than in Qwen3-VL."""
    if "merger" not in name:
        return name
    name = name.replace("deepstack_merger_list", "merger_list").replace(".norm.", ".ln_q.")
    return name.replace("linear_fc1", "mlp.0").replace("linear_fc2", "mlp.2")


def _layers(audio: Keys, *, key_bias: bool) -> Tensors:
    hidden = audio.whole("d_model")
    width = audio.whole("encoder_ffn_dim")
    path = f"{_AUDIO}.layers.*"
    each: Tensors = (
        *norm(f"{path}.self_attn_layer_norm", hidden, bias=True, component="audio"),
        *norm(f"{path}.final_layer_norm", hidden, bias=True, component="audio"),
        *linear(f"{path}.self_attn.q_proj", "audio", hidden, hidden, "columns", bias=True),
        *linear(f"{path}.self_attn.k_proj", "audio", hidden, hidden, "columns", bias=key_bias),
        *linear(f"{path}.self_attn.v_proj", "audio", hidden, hidden, "columns", bias=True),
        *linear(f"{path}.self_attn.out_proj", "audio", hidden, hidden, "rows", bias=True),
        *linear(f"{path}.fc1", "audio", width, hidden, "columns", bias=True),
        *linear(f"{path}.fc2", "audio", hidden, width, "rows", bias=True),
    )
    return (
        *times(audio.whole("encoder_layers", high=MAX_DEPTH), each),
        *norm(f"{_AUDIO}.ln_post", hidden, bias=True, component="audio"),
    )


def _convolution(name: str, *shape: int) -> Tensors:
    return (
        Tensor(f"{_AUDIO}.{name}.weight", "audio", shape),
        Tensor(f"{_AUDIO}.{name}.bias", "audio", shape[:1]),
    )


def _whisper(audio: Keys) -> Tensors:
    hidden, out = audio.whole("d_model"), audio.whole("output_dim")
    return (
        *_convolution("conv1", hidden, audio.whole("num_mel_bins", high=1 << 16), 3),
        *_convolution("conv2", hidden, hidden, 3),
        *_layers(audio, key_bias=False),
        Tensor(f"{_AUDIO}.audio_bos_eos_token.weight", "audio", (2, out)),
        *linear(f"{_AUDIO}.proj", "audio", out, hidden, bias=True),
    )


def _audio(audio: Keys) -> Tensors:
    hidden, out = audio.whole("d_model"), audio.whole("output_dim")
    wide = audio.whole("downsample_hidden_size")
    bands = audio.whole("num_mel_bins", high=1 << 16)
    for _ in range(3):
        bands = (bands + 1) // 2
    return (
        *_convolution("conv2d1", wide, 1, 3, 3),
        *_convolution("conv2d2", wide, wide, 3, 3),
        *_convolution("conv2d3", wide, wide, 3, 3),
        *linear(f"{_AUDIO}.conv_out", "audio", hidden, wide * bands),
        *_layers(audio, key_bias=True),
        *linear(f"{_AUDIO}.proj1", "audio", hidden, hidden, bias=True),
        *linear(f"{_AUDIO}.proj2", "audio", out, hidden, bias=True),
    )
