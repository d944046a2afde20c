"""The cache profile: one reduction that everything downstream evaluates."""

import numpy as np
import pytest

from kvreport.accounting.profile import UNBOUNDED, CacheProfile, Term


def test_a_plain_cache_grows_by_its_rate_with_every_token() -> None:
    profile = CacheProfile.of([Term("full", 131_072)])
    assert profile.request_bytes(8192) == 2**30
    assert profile.marginal_bytes(8192) == 131_072


def test_a_window_stops_growing_at_its_cap() -> None:
    profile = CacheProfile.of([Term("sliding", 10, cap_tokens=128)])
    assert profile.request_bytes([127, 128, 129, 10_000]).tolist() == [1270, 1280, 1280, 1280]
    assert profile.marginal_bytes([127, 128]).tolist() == [10.0, 0.0]


def test_steps_are_paid_when_they_start() -> None:
    profile = CacheProfile.of([Term("full", 1600, step_tokens=16)])
    assert profile.request_bytes([0, 1, 16, 17]).tolist() == [0, 1600, 1600, 3200]
    assert profile.marginal_bytes(100) == 100.0


def test_constants_are_held_at_any_length() -> None:
    profile = CacheProfile.of([Term("state", constant_bytes=7), Term("full", 2)])
    assert profile.request_bytes([0, 5]).tolist() == [7, 17]
    assert profile.constant_bytes == 7


def test_terms_of_the_same_shape_are_merged_and_empty_ones_dropped() -> None:
    profile = CacheProfile.of([Term("full", 2), Term("full", 3, constant_bytes=1), Term("state")])
    assert profile.terms == (Term("full", 5, constant_bytes=1),)


def test_a_window_stops_growing_and_full_attention_does_not() -> None:
    window = CacheProfile.of([Term("sliding", 2, cap_tokens=9)])
    assert window.request_bytes([9, 1 << 30]).tolist() == [18, 18]
    assert int(CacheProfile.of([Term("full", 2)]).request_bytes(1 << 30)) == 2 << 30
    assert UNBOUNDED > 1 << 30


def test_the_longest_context_is_the_last_one_that_fits() -> None:
    profile = CacheProfile.of([Term("full", 160, step_tokens=16), Term("state", constant_bytes=40)])
    pools = np.array([39, 40, 199, 200, 359, 360, 10**9])
    assert profile.longest_context(pools, 1000).tolist() == [0, 0, 0, 16, 16, 32, 1000]


def test_evaluation_keeps_the_shape_it_is_given() -> None:
    profile = CacheProfile.of([Term("full", 3)])
    assert profile.request_bytes(np.ones((2, 3, 4), dtype=np.int64)).shape == (2, 3, 4)


@pytest.mark.parametrize(
    "bad", [{"rate_bytes": -1}, {"constant_bytes": -1}, {"step_tokens": 0}, {"cap_tokens": -1}]
)
def test_terms_that_could_make_bytes_negative_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="term"):
        Term("full", **bad)
