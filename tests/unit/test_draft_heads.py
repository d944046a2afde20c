"""Weights of draft heads that no catalog has: what a log says that they add."""

from __future__ import annotations

import pytest

from kvreport.accounting.extras import eagle3_bytes
from kvreport.book.quantities import quantities
from kvreport.catalog.load import open_catalog
from kvreport.errors import InputError


def test_a_head_of_eagle_3_takes_what_a_log_says_it_adds() -> None:
    """vLLM 0.24 logs 15.8 GiB with yuhuili/EAGLE3-LLaMA3.1-Instruct-8B, and 15.0 GiB without (siskin-046, siskin-045)."""
    found = eagle3_bytes(open_catalog().model("llama-3.1-8b"))
    assert found is not None
    assert 0.75 < found / 2**30 < 0.85


@pytest.mark.parametrize(
    ("name", "width", "heads", "kv_heads", "inner"),
    [
        # configs/llama3-70B-ealge3.json and configs/mistral-small-24B-eagle3.json of sgl-project/SpecForge: heads of 128,
        # 32,000 words.
        ("llama-3.3-70b", 8192, 64, 8, 28672),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", 5120, 32, 8, 32768),
    ],
)
def test_a_head_has_the_sizes_that_its_trainer_publishes(
    name: str, width: int, heads: int, kv_heads: int, inner: int
) -> None:
    attention = 2 * width * 128 * (heads + 2 * kv_heads) + 128 * heads * width
    matrices = attention + 3 * width * inner + 32000 * width + 3 * width * width
    assert eagle3_bytes(open_catalog().model(name)) == 2 * matrices


def test_the_matrix_that_joins_hidden_states_is_on_every_gpu() -> None:
    model = open_catalog().model("llama-3.3-70b")
    whole, shared = eagle3_bytes(model), eagle3_bytes(model, 8)
    assert whole is not None
    assert shared is not None
    joining = 2 * 3 * model.hidden_size**2
    assert shared - joining == -(-(whole - joining) // 2 // 8) * 2


@pytest.mark.parametrize("name", ["gpt-oss-120b", "deepseek-v3", "qwen3.6-27b", "gemma-3-27b"])
def test_a_head_for_a_model_of_another_kind_is_not_guessed(name: str) -> None:
    assert eagle3_bytes(open_catalog().model(name)) is None
    with pytest.raises(InputError, match="sizes of a head"):
        quantities().draft_weights(name)


def test_errors_of_an_engine_are_those_of_its_first_predictions() -> None:
    q = quantities()
    for engine in ("vllm", "sglang", "llama_cpp"):
        assert q.first_sight(engine, "logs") >= 5
        assert 0 < q.first_sight(engine, "median") <= q.first_sight(engine, "p90")
    with pytest.raises(InputError, match="enough logs"):
        q.first_sight("tensorrt_llm", "median")
