"""Configs of public repositories whose indexes state the bytes of their weights.

Each total is ``metadata.total_size`` of the ``model.safetensors.index.json`` next to the config, in a repository on GitHub
that is named at it.
"""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_configs import CONFIGS

from kvreport.accounting.weights import released_bytes
from kvreport.architectures.reader import ConfigReading, read_config_report
from kvreport.catalog.load import open_catalog

# Mistral Small 4 converted by mlx-lm: delsakov/mcp_tests.
MISTRAL_4: dict[str, Any] = CONFIGS["published_indexes"]["MISTRAL_4"]
MISTRAL_4_BYTES = 66_949_842_944
IN_FOURS = {"quantization": {"group_size": 64, "bits": 4, "mode": "affine"}}

# deepseek-ai/DeepSeek-OCR as it stands in wxiangqi1202-cpu/deskocr2-ascend, folder model.
DEEPSEEK_OCR: dict[str, Any] = CONFIGS["published_indexes"]["DEEPSEEK_OCR"]
DEEPSEEK_OCR_BYTES = 6_672_212_480

# IDLEOAK/openpangu-lightweight-methods. Its file keeps the rotary frequencies of 34 layers as well: 64 numbers of four bytes each.
PANGU: dict[str, Any] = CONFIGS["published_indexes"]["PANGU"]
PANGU_BYTES = 16_061_784_576 - 34 * 64 * 4

# In bitsandbytes' NF4: reubzdubz/Molmo7B_D_NF4Quant. Its file also keeps what the quantizer writes of each matrix's shape, 7,336 bytes.
MOLMO: dict[str, Any] = CONFIGS["published_indexes"]["MOLMO"]
MOLMO_BYTES = 6_661_964_712 - 7_336

QWEN_NEXT: dict[str, Any] = CONFIGS["published_indexes"]["QWEN_NEXT"]


def read(config: dict[str, Any]) -> ConfigReading:
    return read_config_report(config, id="local/published")


def stored(config: dict[str, Any]) -> int:
    return released_bytes(read(config).model, open_catalog().weight_formats)


def components(config: dict[str, Any]) -> set[str]:
    return {row.component for row in read(config).model.weights}


@pytest.mark.parametrize(
    ("config", "total"),
    [(DEEPSEEK_OCR, DEEPSEEK_OCR_BYTES), (PANGU, PANGU_BYTES), (MOLMO, MOLMO_BYTES)],
    ids=["DeepSeek-OCR", "openPangu-Embedded-7B", "Molmo-7B-D"],
)
def test_bytes_equal_those_of_the_published_index(config: dict[str, Any], total: int) -> None:
    assert stored(config) == total


def test_a_decoder_without_latents_keeps_keys_and_values() -> None:
    caches = [cache.kind for group in read(DEEPSEEK_OCR).model.layers for cache in group.caches]
    assert set(caches) == {"full"}


@pytest.mark.parametrize(
    ("name", "base"),
    [("TeleChat3ForCausalLM", "LlamaForCausalLM"), ("LlamaBidirectionalModel", "LlamaModel")],
)
def test_classes_that_are_another_under_a_name_of_their_own(name: str, base: str) -> None:
    config = {
        key: value for key, value in PANGU.items() if key not in ("architectures", "model_type", "bias")
    }
    assert stored(config | {"architectures": [name]}) == stored(config | {"architectures": [base]})


def test_a_model_converted_for_mlx_as_text_alone_has_no_image_encoder() -> None:
    # mlx-lm takes vision_config out of the config that it writes; the class's defaults are no tower of it.
    reading = read(MISTRAL_4 | IN_FOURS)
    assert released_bytes(reading.model, open_catalog().weight_formats) == MISTRAL_4_BYTES
    assert not [sentence for sentence in reading.assumptions if "vision" in sentence]
    assert any("text alone" in note for note in reading.model.notes)


def test_an_unconverted_model_keeps_its_image_encoder() -> None:
    assert "vision" in components(MISTRAL_4)


def test_a_model_converted_for_mlx_has_no_prediction_layers() -> None:
    assert "mtp" in components(QWEN_NEXT)
    assert "mtp" not in components(QWEN_NEXT | IN_FOURS)
