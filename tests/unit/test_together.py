"""The explorer's numbers of all tensor-parallel sizes in one file: what is said once, and what is left as it is."""

from __future__ import annotations

from typing import Any

from kvreport.accounting.kernel import error_bytes
from kvreport.publish.explorer_data import _reserves
from kvreport.publish.tensor_size_deltas import together

SIZES = (1, 2, 4)


def plan(size: int, *, left: int = 0) -> list[Any]:
    return [8192 // size + left, 1, 4096 // size, [[8192 // size, 16, 0]]]


def spread(grouped: dict[str, Any]) -> list[list[Any]]:
    return [[grouped["each"][place][n] for place in grouped["of"]] for n in range(len(SIZES))]


def test_weights_are_said_by_what_ranks_copy():
    # 100 bytes that ranks divide and 12 that each has; one that does not divide, and two that some sizes lack.
    columns = ([112, 101, None, 40], [62, 60, 30, 20], [37, 41, 15, None])
    made = together("weights", [{"weights": column} for column in columns], SIZES)
    assert made == {"weights": [[112, 101, None, 40], [12, 19, 30, 0], [0, 4 * 41 - 101 - 3 * 19, 15, None]]}


def test_what_loading_adds_is_said_by_what_changes():
    columns = ([5, None, 7], [5, 6, 3], [8, 6, None])
    made = together("added", [{"added": column} for column in columns], SIZES)
    assert made == {"added": [[5, None, 7], [0, 6, -4], [3, 0, None]]}


def test_plans_that_an_earlier_size_has_are_said_by_its_place():
    kept, odd = [plan(1)], [plan(4, left=1)]
    pools = [[8192, 1, 0, [], [1, 2]]]
    columns = (
        [kept, kept, kept, pools, []],
        [[plan(2)], kept, kept, [[4096, 1, 0, [], [1, 2]]], [plan(1)]],
        [[plan(4)], kept, odd, pools, []],
    )
    files = [{"plans": plans} for plans in columns]
    made = together("cache", [one | {"plan": [0, n, n, 0, 0]} for n, one in enumerate(files)], SIZES)
    assert spread(made["plan"]) == [[0, n, n, 0, 0] for n in range(len(SIZES))]
    assert made["plan"] == {"each": [[0, 0, 0], [0, 1, 2]], "of": [0, 1, 1, 0, 0]}
    plans = spread(made["plans"])
    assert plans[0] == list(columns[0])
    assert plans[1] == [1, -1, -1, columns[1][3], [plan(1)]]
    assert plans[2] == [2, -2, odd, -1, []]


def test_rates_are_said_by_the_fields_that_change():
    files = [
        {"reserve": [10, None], "spared": {}, "rates": {"0": [1, 2.5, 3]}},
        {"reserve": [7, 9], "spared": {"1": 4}, "rates": {"0": [1, 5.0, 3], "1": [4, 5, 6]}},
    ]
    assert together("reserve", files, (1, 2)) == {
        "reserve": {"each": [[10, -3], [None, 9]], "of": [0, 1]},
        "spared": {"each": [[0, 0], [0, 4]], "of": [0, 1]},
        "rates": {"each": [[[1, 2.5, 3], {"1": 5.0}], [None, [4, 5, 6]]], "of": [0, 1]},
    }


def test_what_copies_of_a_model_have_in_common_is_said_once():
    kept = {"reserve": [5, 5, 9], "spared": {"0": 7, "1": 7}, "rates": {"0": [1, 2], "1": [1, 2]}}
    made = together("reserve", [kept, kept], (1, 2))
    assert made["spared"] == {"each": [[7, 0], [0, 0]], "of": [0, 0, 1]}
    assert made["rates"] == {"each": [[[1, 2], {}], [None, None]], "of": [0, 0, 1]}


def test_an_error_is_the_band_of_its_reserve_and_what_is_said_apart():
    """``kv-matrix.js`` and ``kv-capacity.js`` add what is spared to the band of the reserve's own formula."""
    band, kept = (0.25, 1000.0), [[8000, 3000], None, [8000, 3300], [100, 1025], [100, 900]]
    said = _reserves(kept, band)
    for place, one in enumerate(kept):
        if one is not None:
            reserve = said["reserve"][place]
            found = error_bytes(*band, reserve) + said["spared"].get(str(place), 0)
            assert [reserve, found] == one
    assert said["reserve"][1] is None
    assert set(said["spared"]) == {"2", "4"}
