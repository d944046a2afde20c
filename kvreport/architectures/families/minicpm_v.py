"""MiniCPM-V: a text model that its version names, SigLIP, and a resampler or a merger of patches."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvreport.architectures.blueprint import Blueprint, Tensor
from kvreport.architectures.families.beside import text_model
from kvreport.architectures.keys import Keys
from kvreport.architectures.published import published
from kvreport.architectures.registry import find_architecture, reads
from kvreport.architectures.vision import plain_block, section_or_default, siglip
from kvreport.architectures.weights import Tensors, linear, norm, norms

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
    blueprint.outer += siglip(vision, "vpm")
    blueprint.outer += _resampler(
        blueprint.hidden_size, vision.whole("hidden_size"), keys.whole("query_num", high=1 << 16)
    )
    return blueprint


def _resampler(width: int, patch_width: int, queries: int) -> Tensors:
    """Learned queries that attend to patches of another width, all in the text model's width."""
    return (
        Tensor("resampler.query", "vision", (queries, width)),
        *(linear("resampler.kv_proj", "vision", width, patch_width) if patch_width != width else ()),
        Tensor("resampler.attn.in_proj_weight", "vision", (3 * width, width)),
        Tensor("resampler.attn.in_proj_bias", "vision", (3 * width,)),
        *linear("resampler.attn.out_proj", "vision", width, width, bias=True),
        *(
            replace(tensor, component="vision")
            for tensor in norms(
                "resampler.ln_q", "resampler.ln_kv", "resampler.ln_post", width=width, bias=True
            )
        ),
        Tensor("resampler.proj", "vision", (width, width)),
    )


@reads(
    "MiniCPMV4_6ForConditionalGeneration",
    "MiniCPMV4_7ForConditionalGeneration",
    family="MiniCPM",
    model_types=("minicpmv4_6", "minicpmv4_7"),
)
def minicpm_v4_6(keys: Keys) -> Blueprint:
    """MiniCPM-V 4.6 and 4.7: Qwen3.5 behind SigLIP; patches are merged inside the tower and behind it."""
    blueprint = text_model(keys, "qwen3_5_text")
    vision = section_or_default(keys.outer, "vision_config", published("minicpm_v_vision"))
    hidden = vision.whole("hidden_size")
    tower = "vision_tower"
    blueprint.outer += siglip(vision, tower)
    blueprint.outer += _window_merger(vision, f"{tower}.vit_merger", hidden)
    merges = keys.outer.whole("merger_times", default=1, high=16)
    for index in range(merges):
        out = blueprint.hidden_size if index == merges - 1 else hidden
        blueprint.outer += _merger(f"merger.mlp.{index}", 4 * hidden, 4 * hidden, out)
    return blueprint


def _window_merger(vision: Keys, path: str, hidden: int) -> Tensors:
    """Attention inside each window of patches, then one vector of the whole window."""
    window = vision.wholes("window_kernel_size", length=2, low=1, high=64) or [2, 2]
    area = window[0] * window[1]
    inner = area * vision.whole("intermediate_size")
    attention = tuple(tensor for tensor in plain_block(path, hidden, hidden) if ".mlp." not in tensor.name)
    return (
        *(tensor for tensor in attention if "layer_norm2" not in tensor.name),
        *_merger(path, area * hidden, inner, hidden),
    )


def _merger(path: str, inputs: int, inner: int, outputs: int) -> Tensors:
    return (
        *norm(f"{path}.pre_norm", inputs, bias=True, component="vision"),
        *linear(f"{path}.linear_1", "vision", inner, inputs, "columns", bias=True),
        *linear(f"{path}.linear_2", "vision", outputs, inner, "rows", bias=True),
    )
