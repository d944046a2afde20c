"""Voxtral and Qwen2-Audio: Whisper's encoder before a text model of any class that is read here."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.blueprint import Blueprint, Tensor
from kvreport.architectures.families.beside import text_model
from kvreport.architectures.keys import Keys
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import MAX_DEPTH, section_or_default, times
from kvreport.architectures.weights import Tensors, linear, norm

_TOWER: Final = "audio_tower"
_PROJECTOR: Final = "multi_modal_projector"


@reads("VoxtralForConditionalGeneration", family="Voxtral", model_types=("voxtral",))
def voxtral(keys: Keys) -> Blueprint:
    """Mistral's text model; as many frames as make up the encoder's inner width become one vector."""
    blueprint = text_model(keys, "llama", ties="never")
    audio = section_or_default(keys.outer, "audio_config", published("whisper_audio"))
    hidden = blueprint.hidden_size
    blueprint.outer += (
        *_whisper(audio),
        *linear(f"{_PROJECTOR}.linear_1", "audio", hidden, _inner(audio)),
        *linear(f"{_PROJECTOR}.linear_2", "audio", hidden, hidden),
    )
    return blueprint


@reads("Qwen2AudioForConditionalGeneration", family="Qwen2-Audio", model_types=("qwen2_audio",))
def qwen2_audio(keys: Keys) -> Blueprint:
    """Qwen2 behind one matrix from the encoder's width."""
    blueprint = text_model(keys, "qwen2", ties="never")
    audio = section_or_default(keys.outer, "audio_config", published("whisper_audio"))
    blueprint.outer += (
        *_whisper(audio),
        *linear(f"{_PROJECTOR}.linear", "audio", blueprint.hidden_size, _width(audio), bias=True),
    )
    return blueprint


def _width(audio: Keys) -> int:
    return audio.whole("hidden_size", "d_model")


def _inner(audio: Keys) -> int:
    return audio.whole("intermediate_size", "encoder_ffn_dim")


def _whisper(audio: Keys) -> Tensors:
    """Two convolutions over mel bands, learned positions, blocks whose keys alone have no bias."""
    hidden, inner = _width(audio), _inner(audio)
    path = f"{_TOWER}.layers.*"
    block: Tensors = ()
    for name in ("self_attn_layer_norm", "final_layer_norm"):
        block += norm(f"{path}.{name}", hidden, bias=True, component="audio")
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        block += linear(f"{path}.self_attn.{name}", "audio", hidden, hidden, bias=name != "k_proj")
    block += linear(f"{path}.fc1", "audio", inner, hidden, bias=True)
    block += linear(f"{path}.fc2", "audio", hidden, inner, bias=True)
    bands = audio.whole("num_mel_bins", high=1 << 16)
    return (
        Tensor(f"{_TOWER}.conv1.weight", "audio", (hidden, bands, 3)),
        Tensor(f"{_TOWER}.conv1.bias", "audio", (hidden,)),
        Tensor(f"{_TOWER}.conv2.weight", "audio", (hidden, hidden, 3)),
        Tensor(f"{_TOWER}.conv2.bias", "audio", (hidden,)),
        Tensor(f"{_TOWER}.embed_positions.weight", "audio", (audio.whole("max_source_positions"), hidden)),
        *times(audio.whole("num_hidden_layers", "encoder_layers", high=MAX_DEPTH), block),
        *norm(f"{_TOWER}.layer_norm", hidden, bias=True, component="audio"),
    )
