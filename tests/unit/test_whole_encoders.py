"""Encoders that are whole on each tensor-parallel rank (``--mm-encoder-tp-mode data``)."""

from __future__ import annotations

import pytest

from kvreport.accounting.engines.vllm.towers import Tower, encoding, whole_encoding
from kvreport.catalog.load import open_catalog
from kvreport.catalog.release import release_at
from kvreport.errors import InputError
from kvreport.estimation import estimate

QWEN = "Qwen/Qwen2.5-VL-72B-Instruct"


def test_each_rank_has_the_encoder_whole_and_encodes_an_image_alone() -> None:
    asked = {"gpu": "h100-sxm-80gb", "tensor_parallel": 4, "context_tokens": 8192}
    divided, whole = (estimate(QWEN, mm_encoder_tp_mode=mode, **asked) for mode in ("weights", "data"))
    rows = [row for row in open_catalog().model(QWEN).weights if row.component == "vision"]
    vision = sum(2 * row.parameters for row in rows)
    assert whole.weights_by_component["vision"] == vision
    part = divided.weights_by_component["vision"]
    assert whole.budget.weights - divided.budget.weights == vision - part > 0
    # What a rank keeps of the text is the same, and the pass over one image is not divided any more.
    assert whole.budget.activations > divided.budget.activations
    assert whole.max_concurrent_requests_by_memory < divided.max_concurrent_requests_by_memory
    assert "--mm-encoder-tp-mode data" in whole.to_dict()["command"]
    assert any("no log of a start confirms" in line for line in whole.to_dict()["assumptions"])


def test_on_one_rank_nothing_changes() -> None:
    asked = {"gpu": "h200-sxm-141gb", "context_tokens": 8192}
    divided, whole = (
        estimate("Qwen/Qwen2.5-VL-7B-Instruct", mm_encoder_tp_mode=mode, **asked)
        for mode in ("weights", "data")
    )
    assert divided.budget == whole.budget


def test_outputs_are_gathered_from_as_many_parts_as_ranks() -> None:
    tower, now = Tower.of(open_catalog().model(QWEN)), release_at("vllm", (0, 33))
    alone, shared = encoding(tower, 8192, now), whole_encoding(tower, 8192, now, 8)
    assert shared.kept == 8 * alone.kept
    assert shared.per_token == alone.per_token / 8
    assert shared.image >= max(alone.image, shared.kept)


@pytest.mark.parametrize(
    ("model", "engine"),
    [
        ("Qwen/Qwen2.5-VL-72B-Instruct", "vllm@0.30"),
        ("Qwen/Qwen2.5-VL-72B-Instruct", "vllm@0.20"),
        ("moonshotai/Kimi-K3", "vllm"),
        ("moonshotai/Kimi-K3", "vllm@0.27"),
        ("MiniMaxAI/MiniMax-M3", "vllm"),
    ],
)
def test_every_class_that_has_it_in_a_release_is_served_so(model: str, engine: str) -> None:
    """``supports_encoder_tp_data`` of each class, read in 0.11.0 to 0.33.0."""
    asked = {"gpu": "b300", "tensor_parallel": 8, "engine": engine, "context_tokens": 8192}
    divided, whole = (estimate(model, mm_encoder_tp_mode=mode, **asked) for mode in ("weights", "data"))
    assert whole.budget.weights > divided.budget.weights
    assert not whole.to_dict()["not_followed"]


def test_what_does_not_have_it_is_refused_or_divided_as_the_engine_does() -> None:
    """vLLM 0.33 warns and falls back to weights (``config/model.py::ModelConfig.__post_init__``)."""
    asked = {"gpu": "h100-sxm-80gb", "tensor_parallel": 2, "context_tokens": 8192}
    divided, fallen = (
        estimate("google/gemma-3-27b-it", mm_encoder_tp_mode=mode, **asked) for mode in ("weights", "data")
    )
    assert divided.budget == fallen.budget
    (said,) = fallen.to_dict()["not_followed"]
    assert said["effect"].startswith("no effect: vLLM 0.33 falls back to weights for Gemma3ForCond")
    with pytest.raises(InputError, match=r"mm encoder tp mode: found data.*allowed: weights"):
        estimate(QWEN, mm_encoder_tp_mode="data", engine="sglang", **asked)
