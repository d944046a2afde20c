"""Qwen2.5-Omni and Qwen3-Omni: what an engine serves of them, the thinker with its two towers."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.keys import Keys
from kvreport.architectures.layered import read_layered
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import section_or_default

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
    vision = section_or_default(keys.outer, "vision_config", "omni_vision")
    audio = section_or_default(keys.outer, "audio_config", "qwen_omni_audio")
    extra = (
        *part("qwen2_5_vision", vision, "visual"),
        *part("qwen2_5_omni_audio", audio, "audio_tower"),
    )
    return _told(read_layered("Qwen2ForCausalLM", keys, extra=extra))


@reads(
    "Qwen3OmniMoeForConditionalGeneration",
    "Qwen3OmniMoeThinkerForConditionalGeneration",
    family="Qwen3-Omni",
    model_types=("qwen3_omni_moe", "qwen3_omni_moe_thinker"),
)
def qwen3_omni(keys: Keys) -> Blueprint:
    """Qwen3's mixture with the tower of Qwen3-VL and one for sound that starts with convolutions."""
    vision = section_or_default(keys.outer, "vision_config", "qwen3_vision")
    audio = section_or_default(keys.outer, "audio_config", "qwen_omni_audio")
    mergers = {"deep_mergers": "merger_list", "norm": "ln_q", "first": "mlp.0", "second": "mlp.2"}
    extra = (
        *part("qwen3_vision", vision, "visual", **mergers),
        *part("qwen3_omni_audio", audio, "audio_tower"),
    )
    return _told(read_layered("Qwen3MoeForCausalLM", keys, extra=extra))


def _told(blueprint: Blueprint) -> Blueprint:
    blueprint.notes.append(_TALKER)
    return blueprint
