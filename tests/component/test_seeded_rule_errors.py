"""A wrong rule moves the figures that are published of all starts: five are seeded, one at a time, and each is noticed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from record_files import observed

from kvreport.accounting.engines.vllm import plan, reserve
from kvreport.catalog.engine import Engine
from kvreport.catalog.load import open_catalog
from kvreport.catalog.observation import Observation
from kvreport.evidence.judgment import judge

ASKED = 48
"""Starts that are judged: enough that one of them cannot move a figure alone, and few enough for a test."""
FIGURES = ("median_error", "p90_error", "bands_holding", "starts_right")
LEAST = 0.0005
"""What an error of the published figures has to move by: half of the last digit that pages print."""


def _scaled(name: str, factor: float) -> Callable[[pytest.MonkeyPatch], None]:
    def seed(patch: pytest.MonkeyPatch) -> None:
        right = getattr(reserve, name)
        patch.setattr(reserve, name, lambda *given, **named: factor * right(*given, **named))

    return seed


def _entries_twice(patch: pytest.MonkeyPatch) -> None:
    right = plan.pair_bytes
    patch.setattr(plan, "pair_bytes", lambda *given, **named: 2 * right(*given, **named))


def _no_lists(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Engine, "lists", lambda *_given, **_named: False)


SEEDED: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a cached token costs twice its bytes": _entries_twice,
    "the output head's logits are left out": _scaled("logit_bytes", 0),
    "a token of a step takes three times the working memory": _scaled("forward_bytes_per_token", 3),
    "compiling takes five copies of the embedding table": _scaled("compiling_bytes", 5),
    "no list of classes names any": _no_lists,
}


@pytest.fixture(scope="module")
def starts() -> list[Observation]:
    """Complete starts of vLLM with a pool and tokens, spread over the collection."""
    known = [
        one
        for one in observed()
        if one.engine == "vllm" and one.completeness == "full" and one.printed.kv_tokens
    ]
    return known[:: max(len(known) // ASKED, 1)]


def figures(starts: list[Observation]) -> Mapping[str, Any]:
    """What is published of them; of a catalog of its own, because catalogs keep what they were asked."""
    return judge(open_catalog(), starts)["summary"]["all"]


@pytest.mark.parametrize("said", SEEDED)
def test_a_seeded_error_moves_what_is_published(starts, said):
    right = figures(starts)
    with pytest.MonkeyPatch.context() as patch:
        SEEDED[said](patch)
        wrong = figures(starts)
    moved = [name for name in FIGURES if abs(wrong[name] - right[name]) >= LEAST]
    assert moved, (right, wrong)
    assert figures(starts) == right
