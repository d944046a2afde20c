"""Whose word counts on tied embeddings where configs are silent, and what tying leaves."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_configs import CONFIGS

from kvreport.accounting.weights import parameters
from kvreport.architectures.reader import read_config, read_config_report

# Mistral Small 3.1 as released (transformers 4.50): no key of ties in either part, and a head in its files.
SMALL: dict[str, Any] = CONFIGS["huggingface_ties"]["SMALL"]


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


FSMT: dict[str, Any] = CONFIGS["huggingface_ties"]["FSMT"]


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


OVIS_TEXT: dict[str, Any] = CONFIGS["huggingface_ties"]["OVIS_TEXT"]


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
