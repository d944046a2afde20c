"""Drafts that predict a block of tokens at once, against the parameters of the classes that train them.

The counts are those of SpecForge's own classes (8 August 2026) on the meta device, for the configs in its repository.
"""

from __future__ import annotations

from typing import Any

from huggingface_configs import CONFIGS

from kvreport import estimate
from kvreport.architectures import read_config

QWEN3_8B: dict[str, Any] = CONFIGS["drafts"]["QWEN3_8B"]
LAYERS = {"target_layer_ids": [1, 9, 17, 25, 33], "mask_token_id": 151669}
MARKOV = {
    "confidence_head_alpha": 1.0,
    "confidence_head_with_markov": True,
    "enable_confidence_head": True,
    "markov_head_type": "vanilla",
    "markov_rank": 256,
}
DSPARK = {**QWEN3_8B, "architectures": ["DSparkDraftModel"], "dflash_config": LAYERS | MARKOV}
DOMINO = {
    **QWEN3_8B,
    "architectures": ["DominoDraftModel"],
    "dflash_config": LAYERS | {"projector_type": "domino", "emb_dim": 256, "gru_hidden_dim": 1024},
}
PLAIN = 1_048_626_432
"""The five layers, and the matrix in front of them."""


def parameters(config: dict[str, Any]) -> int:
    return sum(row.parameters for row in read_config(config).weights)


def test_a_dspark_draft_has_its_head_whether_its_keys_are_nested_or_not() -> None:
    assert parameters(DSPARK) == 1_126_422_017
    flat = {**QWEN3_8B, **MARKOV, "architectures": ["Qwen3DSparkModel"], "dflash_config": LAYERS}
    assert parameters(flat) == 1_126_422_017


def test_a_gated_head_and_a_recurrent_one_have_one_matrix_more() -> None:
    for kind, more in (("gated", 256 * (4096 + 256) + 256), ("rnn", 768 * (4096 + 512) + 768)):
        config = {**DSPARK, "dflash_config": LAYERS | MARKOV | {"markov_head_type": kind}}
        assert parameters(config) == 1_126_422_017 + more


def test_a_domino_draft_has_a_recurrent_layer() -> None:
    assert parameters(DOMINO) == 1_104_561_408


def test_a_dflash_config_that_names_a_head_is_not_read_without_it() -> None:
    for config in (DSPARK, DOMINO):
        assert parameters(config | {"architectures": ["DFlashDraftModel"]}) == parameters(config)
    plain = {**QWEN3_8B, "architectures": ["DFlashDraftModel"], "dflash_config": LAYERS}
    assert parameters(plain) == PLAIN


def test_dflash_2_has_convolutions_and_a_choice_among_candidates() -> None:
    more = {"conv_kernel_size": 4, "conv_group_size": 64, "selector_rank": 128, "selector_top_k": 8}
    config = {**QWEN3_8B, "architectures": ["DFlash2DraftModel"], "dflash_config": LAYERS | more}
    # By hand, from vLLM 0.33.0 (qwen3_dflash2.py): two convolutions a layer, two tables and a matrix.
    convolution = 2 * 4 * 4096 + 2 * 4 * (4096 // 64) * 4096
    assert parameters(config) == PLAIN + 10 * convolution + 2 * 151936 * 128 + 128 * 4096


def test_prediction_layers_of_a_class_in_the_transformers_backend_are_refused() -> None:
    asked = {"engine": "sglang", "gpu": "h200-sxm-141gb", "context_tokens": 8192}
    answer = estimate("LGAI-EXAONE/EXAONE-4.5-33B", draft="mtp", **asked)
    assert answer.verdict == "engine_does_not_run"
    assert "Transformers backend, which has no MTP layers" in answer.verdict_reason
    assert estimate("LGAI-EXAONE/EXAONE-4.5-33B", **asked).verdict == "fits"
    assert (
        estimate("LGAI-EXAONE/EXAONE-4.5-33B", draft="mtp", **{**asked, "engine": "vllm"}).verdict == "fits"
    )
