"""Text parts of composites as releases write them: flat, and under the maker's own type."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_configs import CONFIGS

from kvreport.accounting.weights import parameters
from kvreport.architectures import read_config, read_config_report

# rhymes-ai/Aria: the text part is of the maker's own type; rhymes-ai/Aria-Base-8K states the experts' width apart.
ARIA: dict[str, Any] = CONFIGS["text_halves"]["ARIA"]


def test_aria_is_read_as_released() -> None:
    model = read_config({"architectures": ["AriaForConditionalGeneration"], "text_config": ARIA})
    base = {**ARIA, "intermediate_size": 13_568, "moe_intermediate_size": 1664}
    other = read_config({"architectures": ["AriaForConditionalGeneration"], "text_config": base})
    assert parameters(model) == parameters(other)
    # 64 experts of three matrices in each layer: 22.9 billion of the 24.9 that the maker names.
    routed = sum(row.parameters for row in model.weights if row.component == "routed_experts")
    assert routed == 28 * 64 * 3 * 2560 * 1664


@pytest.mark.parametrize(
    "name", ["Cosmos3EdgeTextModel", "GlmOcrTextModel", "GraniteDoclingTextModel", "Molmo2TextModel"]
)
def test_the_text_half_of_a_composite_is_read_from_its_own_config(name: str) -> None:
    whole = name.removesuffix("TextModel") + "ForConditionalGeneration"
    nested = read_config({"architectures": [whole], "text_config": {}}, assume_defaults=True)
    reading = read_config_report({"architectures": [name]}, assume_defaults=True)
    half = {row.name: row.parameters for row in reading.model.weights}
    text = {
        row.name: row.parameters
        for row in nested.weights
        if row.component not in ("vision", "audio", "output_head")
    }
    assert half == {row: count for row, count in text.items() if "projector" not in row or row in half}
    assert not any("vision" in sentence for sentence in reading.assumptions)
    # A decoder keeps what it keeps inside the whole; what looks both ways keeps nothing.
    kept = [layer.caches for layer in reading.model.layers]
    assert kept == [layer.caches for layer in nested.layers] or not any(kept)


APERTUS: dict[str, Any] = CONFIGS["text_halves"]["APERTUS"]


@pytest.mark.parametrize("name", ["Apertus1p5TextModel", "Apertus1p5TextForCausalLM"])
def test_a_listed_class_of_text_reads_the_text_part_of_a_composite(name: str) -> None:
    flat = read_config({"architectures": [name], **APERTUS})
    reading = read_config_report(
        {"architectures": [name], "model_type": "apertus1p5", "text_config": APERTUS}
    )
    assert reading.model.weights == flat.weights
    assert reading.model.layers == flat.layers
    assert reading.not_read == ()


@pytest.mark.parametrize(
    ("name", "encoder"),
    [
        ("VideoLlavaForConditionalGeneration", ("model.video_tower.", "model.image_tower.")),
        ("Pix2StructForConditionalGeneration", ("encoder.",)),
        ("PPFormulaNetForConditionalGeneration", ("model.encoder.",)),
    ],
)
def test_an_encoder_of_images_counts_as_one(name: str, encoder: tuple[str, ...]) -> None:
    model = read_config(
        {"architectures": [name], "text_config": {}, "vision_config": {}}, assume_defaults=True
    )
    inside = [row for row in model.weights if row.name.startswith(encoder)]
    assert inside
    assert {row.component for row in inside} == {"vision"}
