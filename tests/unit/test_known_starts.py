"""Documented starts and refusals of others, predicted by the code of every estimate."""

from __future__ import annotations

from collections import Counter

import pytest
import yaml
from record_files import observed

from kvreport.catalog.documented_starts import KnownStart, KnownStarts
from kvreport.catalog.load import open_catalog
from kvreport.catalog.shelf import validate
from kvreport.errors import CatalogError
from kvreport.evidence.starts import judge_starts
from kvreport.evidence.validation import compare

MOST_WRONG = 7
"""Three in a hundred of the cases that there were with releases that are too old to be computed now, and the two of
those found last that were missed at first sight."""
WORST = 0.94
"""Share of each kind that is told right: 71 of 75 refusals (95 %), of which two were found last and missed at first sight
(states-7, a build between releases; memory-63, whose release is not stated). They stay counted as wrong."""
LEAST = 40


@pytest.fixture(scope="module")
def judged():
    return judge_starts(open_catalog())


def test_there_are_enough_of_both_and_all_are_sourced(judged):
    counts = Counter(one.case.starts for one in judged)
    assert min(counts[True], counts[False]) >= LEAST
    assert len({one.case.id for one in judged}) == len(judged)
    assert len({one.case.url for one in judged if not one.case.starts}) >= LEAST


def test_starts_and_refusals_are_predicted(judged):
    wrong = [f"{one.case.id}: {one.verdict} {one.reason}" for one in judged if not one.right]
    assert len(wrong) <= MOST_WRONG, wrong
    for starts in (True, False):
        chosen = [one for one in judged if one.case.starts is starts]
        assert sum(one.right for one in chosen) >= WORST * len(chosen), wrong


def test_what_was_met_last_says_how_it_was_predicted_at_first_sight(judged):
    met = [one for one in judged if one.case.first_sight is not None]
    assert len(met) >= LEAST
    assert sum(one.case.first_sight for one in met) < sum(one.right for one in met)


def test_every_refusal_that_memory_does_not_decide_says_why(judged):
    for one in judged:
        if one.right and not one.case.starts and one.case.about not in ("memory", "states", "context"):
            assert one.reason, one.case.id


def test_a_wrong_prediction_counts_as_wrong():
    case = KnownStart(
        id="turned-1",
        starts=False,
        about="memory",
        engine="vllm",
        model="Qwen/Qwen3-8B",
        gpu="h100-sxm-80gb",
        options={"context_tokens": 4096},
        says="nothing of the kind",
        url="https://example.org/",
    )
    (one,) = judge_starts(open_catalog(), [case])
    assert one.starts
    assert not one.right


def test_a_case_without_a_source_is_a_fault():
    catalog = open_catalog()
    assert KnownStarts.read(catalog.folder) is not None
    data = yaml.safe_load((catalog.folder / "starts.yaml").read_text(encoding="utf-8"))
    del data["cases"][0]["url"]
    with pytest.raises(CatalogError, match="url"):
        validate(KnownStarts, data, "starts.yaml")


@pytest.mark.parametrize(
    ("name", "starts"),
    [
        ("wren-014", False),  # vLLM 0.19: eight ranks cut the experts' blocks of FP8
        ("wren-103", False),  # SGLang: the same
        ("wren-035", False),  # 32,768 tokens of a model of 16,384
        ("wren-030", False),  # three ranks do not divide the vocabulary
        ("moon-105", True),  # YaRN allows a longer context
        ("held-038", True),  # a branch has kernels that the release has not
        ("obs-112", True),  # four computers, which the source does not call machines
    ],
)
def test_what_a_release_refuses_whatever_the_memory_does_not_start(name, starts):
    (found,) = [one for one in observed() if one.id == name]
    assert compare(open_catalog(), found).starts_predicted is starts
