"""Step 3.5's config as its maker writes it: other query heads in windows, its own names of counts and gates."""

from __future__ import annotations

from typing import Any

from huggingface_configs import CONFIGS

from kvreport.accounting.weights import parameters
from kvreport.architectures.reader import ConfigReading, read_config_report

# sgl-project/sglang-jax, issue 1367, "verified against config.json"; keys as vLLM 0.33 reads them (``step3p5.py``).
STEP: dict[str, Any] = CONFIGS["step_3_5"]["STEP"]
HEADS = 12 * 64 + 33 * 96


def read(**changed: object) -> ConfigReading:
    return read_config_report({**STEP, **changed}, id="local/step")


def test_every_key_that_decides_bytes_is_read_and_nothing_is_assumed_of_them() -> None:
    reading = read()
    assert reading.not_read == ()
    assert not any("moe_top_k" in line or "num_experts_per_tok" in line for line in reading.assumptions)
    assert reading.model.experts is not None
    assert (reading.model.experts.routed, reading.model.experts.per_token) == (288, 8)
    hidden, experts, shared = 4096, 288, 1
    attention = 2 * HEADS * 128 * hidden + 45 * 2 * 8 * 128 * hidden + HEADS * hidden
    mixtures = 42 * ((experts + shared) * 3 * hidden * 1280 + experts * (hidden + 1))
    dense, ends = 3 * 3 * hidden * 11264, 2 * 128896 * hidden
    norms = 45 * (2 * hidden + 2 * 128) + hidden
    assert parameters(reading.model) == attention + mixtures + dense + ends + norms


def test_without_gates_there_are_no_matrices_of_them() -> None:
    assert parameters(read().model) - parameters(read(use_head_wise_attn_gate=False).model) == HEADS * 4096


def test_a_setting_of_other_layers_does_not_change_those_of_windows() -> None:
    other = {**STEP["attention_other_setting"], "attention_type": "full_attention"}
    changed = 33 * (96 - 64) * (2 * 128 + 1) * 4096
    assert parameters(read().model) - parameters(read(attention_other_setting=other).model) == changed


def test_prediction_layers_are_counted_apart() -> None:
    """Three blocks with a window's heads, a dense MLP, the glue and a head each: the 2.4B that the files have besides."""
    model, hidden, heads = read(num_nextn_predict_layers=3).model, 4096, 96
    ahead = [row for row in model.weights if row.component == "mtp"]
    attention = (2 * heads + 2 * 8) * 128 * hidden + heads * hidden + 2 * 128 + 2 * hidden
    glue = 2 * hidden * hidden + 3 * hidden + 128896 * hidden
    assert (
        sum(row.parameters for row in ahead) == 3 * (attention + 3 * hidden * 11264 + glue) == 2_428_171_008
    )
    assert parameters(model) == parameters(read().model)
    full = read(num_nextn_predict_layers=3, layer_types=["full_attention"] * 48).model
    queries = [row.shape for row in full.weights if row.component == "mtp" and "q_proj" in row.name]
    assert queries == [(64 * 128, hidden)]
