"""Composites by listings: encoders beside a text part, sections and their defaults, formulas over the whole config."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_configs import CONFIGS

from kvreport.architectures import listing, read_config
from kvreport.catalog.model import Model
from kvreport.errors import InputError

TEXT: dict[str, Any] = CONFIGS["composites"]["TEXT"]
TOWER: dict[str, Any] = {
    "hidden_size": 32,
    "image_size": 56,
    "intermediate_size": 48,
    "num_channels": 3,
    "num_hidden_layers": 3,
    "patch_size": 14,
}


def read(name: str, text: dict[str, Any] = TEXT, vision: dict[str, Any] = TOWER, **outer: object) -> Model:
    config = {"architectures": [name], "text_config": text, "vision_config": vision, **outer}
    return read_config(config, assume_defaults=True)


def shapes(model: Model, ending: str) -> list[tuple[int, ...]]:
    return [row.shape for row in model.weights if row.name.endswith(ending)]


def test_a_line_names_part_module_section_defaults_values_and_condition() -> None:
    text = "encoder: siglip tower vision_config given/absent width=2*hidden name='norm' if nested\nsection: ffn some"
    encoder, section = listing.read_listing("Example", text).encoders
    assert (encoder.part, encoder.module, encoder.section) == ("siglip", "tower", "vision_config")
    assert (encoder.defaults, encoder.absent) == ("given", "absent")
    assert encoder.given == {"width": "2*hidden", "name": "'norm'"}
    assert encoder.condition == "nested"
    assert (section.part, section.module, section.section, section.absent) == ("", "", "ffn", "some")


@pytest.mark.parametrize(
    ("named", "own"),
    [
        ({}, "vision_tower.vision_model.pre_layrnorm.weight"),
        ({"model_type": "clip_vision_model"}, "vision_tower.vision_model.pre_layrnorm.weight"),
        ({"model_type": "siglip_vision_model"}, "vision_tower.vision_model.head.probe"),
        ({"model_type": "pixtral"}, "vision_tower.patch_conv.weight"),
    ],
)
def test_the_encoder_is_that_of_the_section(named: dict[str, Any], own: str) -> None:
    model = read("LlavaForConditionalGeneration", vision={**TOWER, **named})
    assert own in {row.name for row in model.weights}
    assert shapes(model, "multi_modal_projector.linear_1.weight") == [(64, 32)]


def test_keys_of_the_whole_decide_and_have_defaults() -> None:
    model = read("LlavaForConditionalGeneration", vision_feature_layer=[-2, -5, -8])
    assert shapes(model, "linear_1.weight") == [(64, 96)]
    assert shapes(model, "linear_1.bias") == [(64,)]
    assert not shapes(read("LlavaForConditionalGeneration", multimodal_projector_bias=False), "linear_1.bias")


def test_a_config_without_the_section_has_the_encoder_that_its_class_builds() -> None:
    stated = read(
        "PaliGemmaForConditionalGeneration", vision={**TOWER, "patch_size": None}, projection_dim=64
    )
    bare = read("PaliGemmaForConditionalGeneration", vision=None, projection_dim=64)  # type: ignore[arg-type]
    ending = "vision_model.embeddings.patch_embedding.weight"
    assert shapes(stated, ending) == [(32, 3, 16, 16)]
    assert shapes(bare, ending) == [(1152, 3, 14, 14)]


def test_sides_of_a_picture_may_be_a_pair_of_equal_ones() -> None:
    pair = read("InternVLForConditionalGeneration", vision={**TOWER, "image_size": [56, 56]})
    assert pair.weights == read("InternVLForConditionalGeneration").weights
    with pytest.raises(InputError, match=r"image_size: found \[56, 28\]; allowed: two equal sides"):
        read("InternVLForConditionalGeneration", vision={**TOWER, "image_size": [56, 28]})


def test_a_class_of_text_and_whole_has_its_encoder_with_sections_only() -> None:
    flat = read_config({"architectures": ["Gemma3ForConditionalGeneration"], **TEXT}, assume_defaults=True)
    whole = read("Gemma3ForConditionalGeneration")
    assert "vision" not in {row.component for row in flat.weights}
    assert {row.name for row in flat.weights if row.component == "embedding"} == {"model.embed_tokens.weight"}
    assert shapes(whole, "mm_input_projection_weight") == [(32, 64)]
    assert shapes(whole, "language_model.model.embed_tokens.weight")


def test_the_last_merger_of_several_leads_into_the_text_model() -> None:
    text = {"model_type": "llama", **TEXT}
    model = read("MiniCPMV4_6ForConditionalGeneration", text=text, merger_times=3)
    assert shapes(model, "merger.mlp.2.linear_2.weight") == [(64, 128)]
    (row,) = (row for row in model.weights if row.name == "merger.mlp.*.linear_2.weight")
    assert (row.shape, row.count) == ((32, 128), 2)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("KimiK25ForConditionalGeneration", "merge_kernel_size"),
        ("Kimi_K25ForConditionalGeneration", "merge_kernel_size"),
        ("KimiVLForConditionalGeneration", "merge_kernel_size"),
        ("MiniCPMV4_6ForConditionalGeneration", "window_kernel_size"),
        ("MiniCPMV4_7ForConditionalGeneration", "window_kernel_size"),
        ("MiniCPMOcrForConditionalGeneration", "window_kernel_size"),
    ],
)
@pytest.mark.parametrize(
    "sides", [[2], [], [2, 2, 2], 2, [2, "2"], [2, 0], [2, None], [2, 2.0], [True, 2], [2, 1025]]
)
def test_a_window_of_patches_that_is_malformed_is_named_by_its_key(
    name: str, key: str, sides: object
) -> None:
    message = rf"vision_config\.{key}: found .+; allowed: a list of 2 whole numbers from 1 to 1,024$"
    with pytest.raises(InputError, match=message):
        read(name, vision={**TOWER, key: sides})


def test_a_window_of_patches_may_have_sides_of_its_own() -> None:
    usual = read("MiniCPMV4_6ForConditionalGeneration")
    wide = read("MiniCPMV4_6ForConditionalGeneration", vision={**TOWER, "window_kernel_size": [2, 4]})
    assert shapes(usual, "vit_merger.linear_1.weight") == [(4 * 48, 4 * 32)]
    assert shapes(wide, "vit_merger.linear_1.weight") == [(8 * 48, 8 * 32)]
