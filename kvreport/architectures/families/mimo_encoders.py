"""MiMo-V2.5's encoders: a vision tower with grouped queries, and a small transformer over audio codes.

Shapes: vLLM, ``model_executor/models/mimo_v2_omni.py`` and ``mimo_audio.py``. The tokenizer that turns
sound into codes is a folder of its own (``audio_tokenizer/``) with its own config, and is not counted.
"""

from __future__ import annotations

from typing import Final

from kvreport.architectures.blueprint import Weight
from kvreport.architectures.keys import MAX_VOCABULARY, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.tensor_builders import Tensors
from kvreport.architectures.vision import MAX_DEPTH

TOKENIZER_NOTE: Final = (
    "The audio tokenizer is a separate checkpoint (audio_tokenizer/). The config does not state its size, so the"
    " weights here do not include it."
)


def vision_tower(vision: Keys) -> Tensors:
    """Return the vision tower: windows with a sink per head, and a merger of 2x2 patches."""
    depth = vision.whole("depth", high=MAX_DEPTH)
    full = vision.wholes("fullatt_block_indexes", high=MAX_DEPTH) or []
    windowed = max(0, depth - len(set(full))) if vision.flag("use_sink") else 0
    return part("mimo_vision", vision, "visual", windowed=windowed)


def audio_encoder(audio: Keys) -> Tensors:
    """Return the audio encoder: a table of codes per channel, a local transformer, a projection."""
    width = audio.whole("input_local_dim")
    audio.whole("projection_layers", high=2)
    tables = tuple(
        Weight(f"audio_encoder.speech_embeddings.{channel}.weight", "audio", (rows, width), looked_up=True)
        for channel, rows in enumerate(_code_counts(audio))
    )
    return (*tables, *part("mimo_audio", audio, "audio_encoder"))


def _code_counts(audio: Keys) -> list[int]:
    """Return the codes of each channel: one number for all, or one for each, joined by dashes."""
    channels = audio.whole("audio_channels", high=1 << 8)
    stated = audio.raw("speech_vocab_size")
    counts = str(1280 if stated is None else stated).split("-")
    if not all(text.isdecimal() and 0 < int(text[:9]) < MAX_VOCABULARY for text in counts):
        raise audio.fault("speech_vocab_size", stated, "a number of codes, or one for each channel")
    sizes = [int(text) for text in counts]
    if len(sizes) not in (1, channels):
        raise audio.fault("speech_vocab_size", stated, f"1 or {channels} numbers")
    return sizes * channels if len(sizes) == 1 else sizes
