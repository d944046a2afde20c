"""GigaChat 3.5: latent attention and Gated DeltaNet, norms with gates, three prediction layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_configs import CONFIGS

from kvreport.accounting.weights import released_bytes
from kvreport.architectures.reader import read_config
from kvreport.catalog.load import open_catalog
from kvreport.catalog.model import Model
from kvreport.estimation import estimate

# The sizes of ai-sage/GigaChat3.5-432B-A28B-Reasoning: those of its config.json that differ from the class's defaults, and
# vLLM's own defaults of the class (``configs/gigachat3_5.py``) for the rest.
RELEASED: dict[str, Any] = CONFIGS["gigachat"]["RELEASED"]
FP8 = {
    "quant_method": "fp8",
    "weight_block_size": [128, 128],
    "modules_to_not_convert": ["lm_head", "in_proj_ba"],
}


def read(**changes: object) -> Model:
    return read_config({**RELEASED, **changes}, id="local/x")


def parameters(model: Model, *, ahead: bool = False) -> int:
    return sum(row.parameters for row in model.weights if (row.component == "mtp") is ahead)


def test_the_published_weights_are_met_to_the_byte() -> None:
    # The total that the weight map of the Reasoning release states. The two small projections of states are at 16 bits, and
    # each prediction layer holds embedding and head.
    total = released_bytes(read(quantization_config=FP8), open_catalog().weight_formats)
    assert total == 445_994_440_544


def test_one_layer_of_four_keeps_a_latent_and_the_others_a_state() -> None:
    (states, latents) = read().layers
    assert (states.count, latents.count) == (30, 10)
    assert [cache.kind for cache in states.caches] == ["state"]
    assert [cache.kind for cache in latents.caches] == ["latent"]
    words = ["linear_attention", "linear_attention", "linear_attention", "attention"] * 10
    listed = [word.replace("attention", "full_attention") if word == "attention" else word for word in words]
    assert read(layer_types=listed).layers == read().layers
    (alone,) = read(linear_attention_type=None).layers
    assert alone.count == 40


def test_norms_and_gates_are_counted_as_stated() -> None:
    whole = parameters(read())
    norms = 40 * 4 * 7168 + 7168 + 10 * (1536 + 512)
    assert whole - parameters(read(norm_type="LlamaRMSNorm")) == 2 * 16 * norms
    assert whole - parameters(read(layernorm_type="pre")) == 40 * 2 * 7168 * (1 + 2 * 16)
    assert whole - parameters(read(gated_attention=False)) == 10 * 64 * 128 * 7168
    assert parameters(read(num_nextn_predict_layers=0), ahead=True) == 0
    sparse = parameters(read(nextn_is_sparse=True), ahead=True)
    dense = 3 * 7168 * 18432
    assert sparse - parameters(read(), ahead=True) == 3 * (257 * 3 * 7168 * 2048 + 256 * 7168 + 256 - dense)


@pytest.mark.parametrize(
    ("engine", "runs"), [("vllm", False), ("sglang", True), ("sglang@0.5.20", False), ("sglang@0.5.21", True)]
)
def test_releases_without_the_class_do_not_run_it(tmp_path: Path, engine: str, *, runs: bool) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**RELEASED, "quantization_config": FP8}), encoding="utf-8")
    found = estimate(path, gpu="8xH200", tensor_parallel=8, engine=engine, context_tokens=32_768)
    assert (found.verdict != "engine_does_not_run") is runs
