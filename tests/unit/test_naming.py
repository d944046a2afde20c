"""Names of quantized copies that have none of their own."""

from __future__ import annotations

from collections import Counter

import pytest

from kvreport.catalog.load import open_catalog
from kvreport.catalog.naming import copy_name
from kvreport.estimation.home_names import engine_of


@pytest.mark.parametrize(
    ("copy_id", "original_id", "original_name", "name"),
    [
        ("casperhansen/llama-3.3-70b-instruct-awq", "meta-llama/Llama-3.3-70B-Instruct", "Llama 3.3 70B", "Llama 3.3 70B AWQ"),
        ("mlx-community/gemma-3-12b-it-4bit", "google/gemma-3-12b-it", "Gemma 3 12B", "Gemma 3 12B MLX 4-bit"),
        ("mlx-community/x-26b-it-8bit", "google/x-26b", "X 26B", "X 26B MLX 8-bit"),
        ("org/Model-7B-0324-GPTQ-Int4", "maker/Model-7B", "Model 7B", "Model 7B 0324 GPTQ INT4"),
        ("org/Model-7B", "maker/Model-7B", "Model 7B", "Model 7B"),
    ],
)  # fmt: skip
def test_a_copy_is_called_after_its_original(
    copy_id: str, original_id: str, original_name: str, name: str
) -> None:
    assert copy_name(copy_id, original_id, original_name) == name


def test_every_model_has_a_name_of_its_own_that_is_no_slug() -> None:
    names = [model.name for model in open_catalog().models.values()]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    # Lower case throughout only where the maker writes it so, with its hyphens.
    assert {name for name in names if name == name.lower() and " " in name} == set()


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("TheBloke/Llama-2-7B-GGUF", "llama-cpp"),
        ("unsloth/Qwen3-8B-GGUF:Q4_K_M", "llama-cpp"),
        ("mlx-community/Qwen3-8B-4bit", "mlx"),
        ("lmstudio-community/Qwen3-8B-MLX-4bit", "mlx"),
        ("Qwen/Qwen3-8B-AWQ", None),
        ("Qwen/Qwen3-8B", None),
    ],
)
def test_a_name_implies_the_only_engine_that_reads_its_files(name: str, engine: str | None) -> None:
    assert engine_of(name).get("engine") == engine
