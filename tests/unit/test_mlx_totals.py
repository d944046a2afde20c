"""Copies for MLX by their names alone, against the bytes that others list for their repositories.

The totals are those of exo's model cards (``resources/inference_model_cards`` at b5375f8c), which state
``in_bytes``; cards whose figure is a rounded number of GB or MB are left out.
"""

from __future__ import annotations

import pytest

from kvreport.accounting.weights import weight_bytes
from kvreport.architectures.repository_names import quantized_name
from kvreport.catalog.load import open_catalog
from kvreport.estimation import estimate
from kvreport.estimation.conclusion import headline
from kvreport.estimation.named import open_model

CATALOG = open_catalog()

TOTALS = {
    "mlx-community/DeepSeek-V3.2-4bit": 378.09,
    "mlx-community/GLM-4.7-6bit": 286.74,
    "mlx-community/GLM-4.7-8bit-gs32": 396.96,
    "mlx-community/GLM-5-MXFP4-Q8": 405.48,
    "mlx-community/MiniMax-M2.1-3bit": 100.09,
    "mlx-community/MiniMax-M2.7-4bit-mxfp4": 121.54,
    "mlx-community/MiniMax-M2.7-5bit": 157.26,
    "mlx-community/NVIDIA-Nemotron-3-Nano-30B-A3B-MLX-4Bit": 17.78,
    "mlx-community/NVIDIA-Nemotron-3-Nano-30B-A3B-MLX-MXFP4": 16.79,
    "mlx-community/NVIDIA-Nemotron-Nano-9B-v2-6bit": 7.22,
    "mlx-community/Qwen3.5-122B-A10B-6bit": 100.12,
    "mlx-community/Qwen3.5-397B-A17B-4bit": 223.86,
    "mlx-community/Qwen3.6-35B-A3B-5bit": 24.73,
    "mlx-community/gemma-4-31b-it-6bit": 26.09,
}
"""Bytes in units of 10^9."""

WITH_A_TABLE = {
    "mlx-community/gemma-4-e2b-it-4bit": 3.58,
    "mlx-community/gemma-4-e2b-it-8bit": 5.90,
    "mlx-community/gemma-4-e4b-it-4bit": 5.22,
    "mlx-community/gemma-4-e4b-it-6bit": 7.09,
    "mlx-community/gemma-4-e4b-it-8bit": 8.96,
}
"""Models with a table for every layer; their files also have projections that no layer reads (1%)."""


def counted(name: str) -> float:
    model = open_model(name, CATALOG).model
    return weight_bytes(model, None, CATALOG.weight_formats) / 1e9


@pytest.mark.parametrize("name", TOTALS)
def test_bytes_by_a_name_are_those_of_the_repository(name: str) -> None:
    assert counted(name) == pytest.approx(TOTALS[name], rel=0.001)


@pytest.mark.parametrize("name", ["mlx-community/Qwen3-32B-4bit-DWQ", "mlx-community/Qwen3-32B-MLX-4bit-AWQ"])
def test_a_learned_copy_is_a_range_around_the_converters_bytes(name: str) -> None:
    plain = CATALOG.model("mlx-community/Qwen3-32B-4bit")
    found = estimate(name, gpu="m4-max-64", context_tokens=8192)
    least, most = found.range_of("weight_bytes_per_gpu")
    assert least < weight_bytes(plain, None, CATALOG.weight_formats) < most
    assert "weights MLX4-g64 by its name: 16.21 to 22.61 GiB per GPU" in found.formats
    assert "14 to 17 requests" in headline(found)
    stated = estimate(name.replace("4bit", "4bit-gs32"), gpu="m4-max-64", context_tokens=8192)
    assert stated.range_of("weight_bytes_per_gpu")[0] > least


def test_a_copy_that_nobody_read_is_not_said_to_be_as_released() -> None:
    asked = {"gpu": "m4-max-64", "context_tokens": 8192}
    found = estimate("lmstudio-community/Qwen3-32B-MLX-4bit", **asked)
    assert "weights MLX4-g64 by its name" in found.formats
    assert "in MLX4-g64 by its name" in "\n".join(found.explanation)
    assert "as released" not in found.formats + "\n".join(found.explanation)
    known = estimate("mlx-community/Qwen3-32B-4bit", **asked)
    assert "as released (MLX4-g64)" in known.formats


@pytest.mark.parametrize("name", WITH_A_TABLE)
def test_mlx_converts_the_tables_of_single_layers_too(name: str) -> None:
    assert counted(name) == pytest.approx(WITH_A_TABLE[name], rel=0.013)


def test_experts_of_mxfp4_have_everything_else_in_eight_bits() -> None:
    said = quantized_name("mlx-community/gpt-oss-20b-MXFP4-Q8")
    assert said is not None
    assert (said.weights, said.experts) == ("mlx8-g64", "mxfp4")
    # exo lists 12.03 GB, where biases of the experts are counted otherwise.
    assert counted("mlx-community/gpt-oss-20b-MXFP4-Q8") == pytest.approx(12.03, rel=0.005)
