"""MiniCPM-V: a text model that its version names, SigLIP, and a resampler or a merger of patches."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.keys import Keys
from kvreport.architectures.parts import part
from kvreport.architectures.published import published
from kvreport.architectures.registry import read_named, reads
from kvreport.architectures.tensor_builders import placed

_TEXT_OF_VERSION: Final = {
    "2.5": "LlamaForCausalLM",
    "2.6": "Qwen2ForCausalLM",
    "4.0": "LlamaForCausalLM",
    "4.5": "Qwen3ForCausalLM",
}
"""The text model's class; the config's own dimensions are those of the text model."""


@reads("MiniCPMV", family="MiniCPM", model_types=("minicpmv",))
def minicpm_v(keys: Keys) -> Blueprint:
    """MiniCPM-V 2.5 to 4.5: a fixed number of queries attends to the patches of a slice."""
    version = str(keys.raw("version"))
    if version not in _TEXT_OF_VERSION:
        found = keys.raw("version")
        raise keys.fault("version", found, f"one of {', '.join(_TEXT_OF_VERSION)}")
    blueprint = read_named(keys, {**keys.data, "architectures": [_TEXT_OF_VERSION[version]]})
    blueprint.outer = [*placed(tuple(blueprint.outer), "llm.")]
    blueprint.prefix = f"llm.{blueprint.prefix}"
    vision = keys.section("vision_config", defaults=published("minicpm_v_vision"))
    if vision is None:
        raise keys.fault("vision_config", None, "an object that describes SigLIP")
    depth = vision.whole("num_hidden_layers", low=2, high=500)
    if keys.flag("drop_vision_last_layer", default=False):
        fewer = {**vision.data, "num_hidden_layers": depth - 1}
        vision = Keys(fewer, vision.where, vision.path, vision.defaults, vision.trail)
    blueprint.outer += part("siglip", vision, "vpm")
    blueprint.outer += part(
        "minicpm_resampler",
        vision,
        width=blueprint.hidden_size,
        patch_width=vision.whole("hidden_size"),
        queries=keys.whole("query_num", high=1 << 16),
    )
    return blueprint
