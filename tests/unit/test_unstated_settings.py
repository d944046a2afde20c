"""What a published log does not state and its day, its lines and its figures tell: its release, and where tables lie."""

from __future__ import annotations

from typing import Any

import pytest
from record_files import observation

from kvreport.catalog.load import open_catalog
from kvreport.evidence.validation import compare


def compared(log: str) -> Any:
    """A published log against what is computed of it."""
    return compare(open_catalog(), observation(log))


@pytest.mark.parametrize(
    ("log", "rules"),
    [
        ("finch-038", "vllm 0.17.0"),  # Qwen3.5's class is in no release before it.
        ("finch-108", "vllm 0.26.0"),  # Qwen3.8 is of August 2026.
        ("finch-116", "vllm 0.20.0"),  # Up to 0.19.1, fewer graphs are captured instead of a refusal.
        ("finch-104", "vllm 0.28.0"),  # An image of a whole day serves a class that no release serves yet.
    ],
)
def test_a_log_is_no_older_than_its_model_and_its_lines(log: str, rules: str) -> None:
    assert compared(log).release == rules


@pytest.mark.parametrize(
    ("log", "rules"),
    [
        ("finch-101", "vllm 0.28.0"),  # dev1108 of 0.26.1rc1 needs 7.0 GiB, as 0.28.0 does; 0.27 needs 6.85.
        ("merle-030", "vllm 0.26.0"),  # dev1229 of 0.23.1rc1, of 17 July, after 0.25.0 was built.
        ("seen-006", "vllm 0.20.2rc1.dev253+g1ff9d3353"),  # The release that was cut after it is the next.
    ],
)
def test_a_build_of_the_main_branch_follows_the_releases_that_were_cut_from_it(log: str, rules: str) -> None:
    assert compared(log).release == rules


@pytest.mark.parametrize("log", ["finch-116", "finch-134", "finch-141"])
def test_a_refusal_for_blocks_of_state_is_predicted_without_a_stated_release(log: str) -> None:
    assert compared(log).starts_predicted is False


def test_an_encoder_that_each_rank_has_whole_is_loaded_whole() -> None:
    """Eight ranks of Kimi-K2.5 print 72.02 GiB with ``mm-encoder-tp-mode data``; a divided encoder makes 71.10."""
    (loaded,) = (one for one in compared("finch-041").comparisons if one.quantity == "weights")
    assert loaded.observed == 72.02
    assert abs(loaded.error) < 0.003


def test_tables_that_loading_had_no_room_for_lie_on_the_host() -> None:
    """81.8 GiB were loaded of a copy whose tables of n-grams alone are 95.4 GiB."""
    judged = compared("finch-048")
    assert judged.starts_predicted is True
    assert judged.within_band is True
