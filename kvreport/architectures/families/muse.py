"""Muse Glimmer and Muse Spark: gated attention, three windows for one full layer, encoders of pictures and sound."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import outer_tied
from kvreport.architectures.keys import Keys
from kvreport.architectures.layered import read_layered
from kvreport.architectures.parts import part
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors
from kvreport.architectures.vision import MAX_DEPTH, section_or_default

_BASE: Final = "model.language_model"


@reads(
    "MuseSparkForConditionalGeneration",
    "MuseSparkForCausalLM",
    family="Muse",
    model_types=("muse_spark", "muse_spark_text"),
)
def muse_spark(keys: Keys) -> Blueprint:
    """Experts between two projections, and encoders of pictures and sound."""
    if keys.outer is keys:
        return read_layered("muse_spark", keys, tie=outer_tied(keys))
    hidden = keys.whole("hidden_size")
    # The composite ties nothing, whatever its config says (5.24, ``modular_muse_spark.py``: ``_tied_weights_keys``).
    outer_tied(keys)
    extra = (*_vision(keys, hidden), *_audio(keys, hidden))
    return read_layered("muse_spark", keys, tie=False, base=_BASE, extra=extra)


def _audio(keys: Keys, text_hidden: int) -> Tensors:
    """A pyramid of convolutions over the samples of a waveform."""
    audio = section_or_default(keys.outer, "audio_config", "spark_audio")
    audio.has("out_hidden_size", "num_hidden_layers")
    widths = audio.wholes("hidden_sizes") or []
    steps = audio.wholes("patch_sizes", length=len(widths)) or []
    depths = audio.wholes("depths", length=len(widths), high=MAX_DEPTH) or []
    ratio = audio.number("mlp_ratio", default=4.0, low=0.01, high=64)
    tensors: Tensors = ()
    before = 1
    for stage, (width, step, depth) in enumerate(zip(widths, steps, depths, strict=True)):
        given = {"stage": stage, "width": width, "before": before, "step": step, "depth": depth}
        tensors += part("muse_audio_stage", audio, "model.audio_tower", mlp_ratio=ratio, **given)
        before = width
    end = part("muse_audio_end", audio, "model.audio_tower", width=before, text_hidden=text_hidden)
    return (*tensors, *end)


def _vision(keys: Keys, text_hidden: int) -> Tensors:
    outer = keys.outer.with_defaults(published("muse_outer"))
    vision = section_or_default(keys.outer, "vision_config", "muse_vision")
    given = {"projected": outer.whole("projector_hidden_size"), "joined": outer.whole("out_hidden_size")}
    return part("muse_vision", vision, "model", text_hidden=text_hidden, **given)
