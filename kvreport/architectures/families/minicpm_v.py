"""MiniCPM-V: a text model that its version names, SigLIP, and a resampler or a merger of patches."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.families.beside import text_model
from kvreport.architectures.keys import Keys
from kvreport.architectures.parts import part
from kvreport.architectures.published import published
from kvreport.architectures.registry import find_architecture, reads
from kvreport.architectures.vision import merge_area, section_or_default

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
    text = Keys(
        {**keys.data, "architectures": [_TEXT_OF_VERSION[version]]},
        keys.where,
        keys.path,
        None,
        keys.trail,
    )
    architecture = find_architecture(text)
    blueprint = architecture.read(text.with_defaults(architecture.defaults))
    blueprint.outer = [replace(tensor, name=f"llm.{tensor.name}") for tensor in blueprint.outer]
    blueprint.prefix = f"llm.{blueprint.prefix}"
    vision = keys.section("vision_config", defaults=published("minicpm_v_vision"))
    if vision is None:
        raise keys.fault("vision_config", None, "an object that describes SigLIP")
    depth = vision.whole("num_hidden_layers", low=2, high=500)
    if keys.flag("drop_vision_last_layer", default=False):
        vision = Keys(
            {**vision.data, "num_hidden_layers": depth - 1},
            vision.where,
            vision.path,
            vision.defaults,
            vision.trail,
        )
    blueprint.outer += part("siglip", vision, "vpm")
    blueprint.outer += part(
        "minicpm_resampler",
        vision,
        width=blueprint.hidden_size,
        patch_width=vision.whole("hidden_size"),
        queries=keys.whole("query_num", high=1 << 16),
    )
    return blueprint


@reads(
    "MiniCPMV4_6ForConditionalGeneration",
    "MiniCPMV4_7ForConditionalGeneration",
    family="MiniCPM",
    model_types=("minicpmv4_6", "minicpmv4_7"),
)
def minicpm_v4_6(keys: Keys) -> Blueprint:
    """MiniCPM-V 4.6 and 4.7: Qwen3.5 behind SigLIP; patches are merged inside the tower and behind it."""
    blueprint = text_model(keys, "qwen3_5_text")
    vision = section_or_default(keys.outer, "vision_config", "minicpm_v_vision")
    hidden = vision.whole("hidden_size")
    # Attention inside each window of patches, then one vector of the whole window.
    area = merge_area(vision, "window_kernel_size")
    inside = {"inputs": area * hidden, "inner": area * vision.whole("intermediate_size"), "outputs": hidden}
    blueprint.outer += part("siglip", vision, "vision_tower")
    blueprint.outer += part("minicpm_window_merger", vision, "vision_tower.vit_merger")
    blueprint.outer += part("minicpm_merger", vision, "vision_tower.vit_merger", **inside)
    merges = keys.outer.whole("merger_times", default=1, high=16)
    for index in range(merges):
        out = blueprint.hidden_size if index == merges - 1 else hidden
        behind = {"inputs": 4 * hidden, "inner": 4 * hidden, "outputs": out}
        blueprint.outer += part("minicpm_merger", vision, f"merger.mlp.{index}", **behind)
    return blueprint
