"""Whose word counts on tied embeddings where configs are silent, and what tying leaves."""

from __future__ import annotations

from typing import Any

import pytest

from kvreport.accounting.weights import parameters
from kvreport.architectures.reader import read_config, read_config_report

# Mistral Small 3.1 as released (transformers 4.50): no key of ties in either part, and a head in its files.
SMALL: dict[str, Any] = {
    "architectures": ["Mistral3ForConditionalGeneration"],
    "model_type": "mistral3",
    "image_token_index": 10,
    "multimodal_projector_bias": False,
    "spatial_merge_size": 2,
    "text_config": {
        "head_dim": 128,
        "hidden_size": 5120,
        "intermediate_size": 32_768,
        "max_position_embeddings": 131_072,
        "model_type": "mistral",
        "num_attention_heads": 32,
        "num_hidden_layers": 40,
        "num_key_value_heads": 8,
        "sliding_window": None,
        "vocab_size": 131_072,
    },
    "torch_dtype": "bfloat16",
    "vision_config": {
        "head_dim": 64,
        "hidden_size": 1024,
        "image_size": 1540,
        "intermediate_size": 4096,
        "model_type": "pixtral",
        "num_attention_heads": 16,
        "num_channels": 3,
        "num_hidden_layers": 24,
        "patch_size": 14,
    },
}


def test_mistral_small_has_a_head_though_its_config_does_not_say_so() -> None:
    report = read_config_report(SMALL, id="local/small")
    assert parameters(report.model) == 24_011_361_280
    assert any("tie_word_embeddings = false" in line for line in report.assumptions)


@pytest.mark.parametrize(("key", "heads"), [(True, 0), (False, 131_072 * 5120)])
@pytest.mark.parametrize("inside", [True, False])
def test_its_config_may_say_otherwise_in_either_part(key: bool, heads: int, inside: bool) -> None:
    stated = {"tie_word_embeddings": key}
    config = {**SMALL, "text_config": {**SMALL["text_config"], **stated}} if inside else {**SMALL, **stated}
    plain = parameters(read_config(config, id="local/small"))
    assert plain == 24_011_361_280 - 131_072 * 5120 + heads


FSMT: dict[str, Any] = {
    "architectures": ["FSMTForConditionalGeneration"],
    "model_type": "fsmt",
    "d_model": 64,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 128,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "encoder_layers": 2,
    "max_position_embeddings": 32,
    "src_vocab_size": 300,
    "tgt_vocab_size": 500,
}


def test_a_tied_translator_keeps_the_words_of_its_target_alone() -> None:
    """transformers 5.24, ``modeling_fsmt.py``: encoder's and head's matrices become the decoder's."""
    apart = parameters(read_config({**FSMT, "tie_word_embeddings": False}, id="local/fsmt"))
    tied = parameters(read_config({**FSMT, "tie_word_embeddings": True}, id="local/fsmt"))
    assert apart - tied == (300 + 500) * 64


def test_a_bare_transcriber_has_neither_of_its_heads() -> None:
    """transformers 5.24, ``modeling_nemotron3_5_transcribe.py``: words and their times have a head each."""
    config = {"text_config": {"hybrid_override_pattern": "M*-", "hidden_size": 64, "vocab_size": 500}}
    whole, bare = (
        read_config(
            {**config, "architectures": [f"Nemotron3_5Transcribe{ending}"]},
            id="local/transcribe",
            assume_defaults=True,
        )
        for ending in ("ForConditionalGeneration", "Model")
    )
    heads = {row.name for row in whole.weights} - {row.name for row in bare.weights}
    assert heads == {"lm_head.weight", "word_timestamp_head.weight", "word_timestamp_head.bias"}


OVIS_TEXT: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 64,
    "intermediate_size": 128,
    "max_position_embeddings": 256,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "vocab_size": 500,
}


@pytest.mark.parametrize(
    ("saved", "inner", "head"),
    [
        ("4.56.1", None, True),  # Qwen2's own default, which transformers 4 left out
        ("4.56.1", True, False),
        ("4.56.1", False, True),
        ("5.2.0", None, False),  # the default of the composite's class
        (None, None, False),
    ],
)
def test_a_listed_composite_that_transformers_4_saved_follows_its_text_part(
    saved: str | None, inner: bool | None, head: bool
) -> None:
    text = OVIS_TEXT if inner is None else {**OVIS_TEXT, "tie_word_embeddings": inner}
    config: dict[str, Any] = {"architectures": ["Ovis2ForConditionalGeneration"], "text_config": text}
    if saved:
        config["transformers_version"] = saved
    model = read_config(config, id="local/ovis", assume_defaults=True)
    assert any(row.name == "lm_head.weight" for row in model.weights) is head
