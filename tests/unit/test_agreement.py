"""A page whose first line and table differ stops the build."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kvreport.errors import InputError
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.site.pages import agreement

MODEL: Any = SimpleNamespace(id="maker/model")
GPU: Any = SimpleNamespace(id="h100")


def grid(*anchors: str, number: int = 1, users: int = 3) -> Table:
    """A table with a row for each anchor, on so many devices."""
    cells = (Cell(str(number)), Cell(str(users), value=users))
    rows = tuple(Row(Cell(name), cells, anchor=name) for name in anchors)
    return Table("caption", Column("head"), (Column("GPUs"),), rows)


def series(users: int) -> Any:
    """A series of one context."""
    config = SimpleNamespace(gpu="h100", tensor_parallel=1)
    return SimpleNamespace(config=config, users=(users,), contexts=(8192,))


def test_a_page_that_agrees_passes():
    agreement.of_model(MODEL, series(3), 0, SimpleNamespace(max_concurrent_requests=3), grid("on-h100"))  # type: ignore[arg-type]
    agreement.of_model(MODEL, None, None, None, grid())
    agreement.of_gpu(GPU, 2, grid("of-a", "of-b"))


@pytest.mark.parametrize(
    ("users", "rows"), [(4, ("on-h100",)), (3, ("on-h200",))], ids=["another number", "another device"]
)
def test_a_first_line_that_the_table_does_not_have_stops_the_build(users, rows):
    with pytest.raises(InputError, match="maker/model"):
        agreement.of_model(MODEL, series(users), 0, SimpleNamespace(max_concurrent_requests=3), grid(*rows))  # type: ignore[arg-type]


@pytest.mark.parametrize("shown", [{"number": 2}, {"users": 4}], ids=["on more devices", "other requests"])
def test_a_row_of_the_device_that_says_something_else_stops_the_build(shown):
    with pytest.raises(InputError, match="the table"):
        agreement.of_model(
            MODEL,
            series(3),
            0,
            SimpleNamespace(max_concurrent_requests=3),  # type: ignore[arg-type]
            grid("on-h100", **shown),
        )


def test_nothing_serves_it_and_rows_below_stop_the_build():
    with pytest.raises(InputError, match="nothing serves it"):
        agreement.of_model(MODEL, None, None, None, grid("on-h100"))


def test_a_count_that_the_list_does_not_have_stops_the_build():
    with pytest.raises(InputError, match="counts 3 models"):
        agreement.of_gpu(GPU, 3, grid("of-a"))
