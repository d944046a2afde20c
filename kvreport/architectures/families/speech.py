"""Voxtral and Qwen2-Audio: Whisper's encoder before a text model of any class that is read here."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.families.beside import text_model
from kvreport.architectures.keys import Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import section_or_default
from kvreport.architectures.weights import linear

_PROJECTOR: Final = "multi_modal_projector"


@reads("VoxtralForConditionalGeneration", family="Voxtral", model_types=("voxtral",))
def voxtral(keys: Keys) -> Blueprint:
    """Mistral's text model; as many frames as make up the encoder's inner width become one vector."""
    blueprint = text_model(keys, "llama", ties="never")
    audio = section_or_default(keys.outer, "audio_config", "whisper_audio")
    hidden = blueprint.hidden_size
    blueprint.outer += (
        *part("whisper", audio, "audio_tower"),
        *linear(
            f"{_PROJECTOR}.linear_1", "audio", hidden, audio.whole("intermediate_size", "encoder_ffn_dim")
        ),
        *linear(f"{_PROJECTOR}.linear_2", "audio", hidden, hidden),
    )
    return blueprint


@reads("Qwen2AudioForConditionalGeneration", family="Qwen2-Audio", model_types=("qwen2_audio",))
def qwen2_audio(keys: Keys) -> Blueprint:
    """Qwen2 behind one matrix from the encoder's width."""
    blueprint = text_model(keys, "qwen2", ties="never")
    audio = section_or_default(keys.outer, "audio_config", "whisper_audio")
    blueprint.outer += (
        *part("whisper", audio, "audio_tower"),
        *linear(
            f"{_PROJECTOR}.linear",
            "audio",
            blueprint.hidden_size,
            audio.whole("hidden_size", "d_model"),
            bias=True,
        ),
    )
    return blueprint
