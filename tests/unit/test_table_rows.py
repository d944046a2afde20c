"""Rows of tables: one that is kept as HTML is printed as it is kept."""

from __future__ import annotations

from functools import partial

import pytest

from kvreport.site.kit.page import link
from kvreport.site.kit.table_rows import row_html, rows
from kvreport.site.kit.tables import Cell, Column, Row, Table, user_cells

LINK = partial(link, "gpus/one/")


def test_a_kept_row_is_the_row_that_is_made():
    made = Row(Cell("A & B", href="models/a/", hint="maker"), (Cell("1", "kv-num", value=1),), anchor="of-a")
    html = row_html(made, LINK, dense=True)
    assert '<a href="../../models/a/">A &amp; B</a>' in html

    def shown(row: Row) -> str:
        return rows(Table("t", Column("Model"), (Column("GPUs"),), (row,), dense=True), LINK)

    assert shown(Row(Cell("other"), (Cell("2"),), made=html)) == shown(made) == html


def test_what_nobody_sorts_has_no_sort_values():
    """A table of speeds had 17 digits for each of three."""
    row = Row(
        Cell("2K", value=2048),
        (Cell("36.6", "kv-num", value=36.61961694951021), Cell("9.3", "kv-size", value=9.9e9)),
    )

    def shown(**said: object) -> str:
        return rows(Table("t", Column("Context"), (Column("Speed"), Column("Size")), (row,), **said), LINK)

    assert shown().count("data-value") == 1
    assert 'class="kv-size" data-value="9900000000.0"' in shown()
    assert shown(sortable=True) == shown(name="speeds")
    assert shown(sortable=True).count("data-value") == 3


def test_numbers_stand_at_the_right_like_their_heads():
    columns = (
        Column("Engine", numeric=False),
        Column("Logs"),
        Column("Reason", numeric=False),
        Column("Error"),
    )
    row = Row(Cell("a"), (Cell("vLLM"), Cell("3"), Cell("none", span=2)))
    html = rows(Table("t", Column("Model"), columns, (row,)), LINK)
    assert html.count('class="kv-num"') == 1
    assert '<td class="kv-num">3</td>' in html
    after = Row(Cell("a"), (Cell("x", span=3), Cell("4")))
    assert '<td class="kv-num">4</td>' in rows(Table("t", Column("Model"), columns, (after,)), LINK)


@pytest.mark.parametrize(
    ("text", "value", "stated"),
    [("1,024", 1024, False), ("40K", 40 << 10, False), ("1M", 1 << 20, False), ("70.6B", 70.6e9, False),
     ("70.6B", 70_553_706_496, True), ("2.4 GiB short", 0, True), ("–", -1, True), ("40.2%", 0.402, True)],
)  # fmt: skip
def test_a_cell_states_what_it_sorts_by_where_its_text_is_another_number(
    text: str, value: float, stated: bool
) -> None:
    """The script of the page reads the same numbers (test_pages.py sorts by them)."""
    html = row_html(Row(Cell("a"), (Cell(text, value=value),)), LINK, dense=False)
    assert (f'data-value="{value}"' in html) is stated


def test_a_size_keeps_its_bytes() -> None:
    html = row_html(Row(Cell("a"), (Cell("0", "kv-num kv-size", value=0),)), LINK, dense=True)
    assert 'data-value="0"' in html


@pytest.mark.parametrize("beyond", [0, 1, 3])
def test_contexts_beyond_the_model_are_one_cell_as_wide_as_they_are_many(beyond: int) -> None:
    verdicts = ["fits", "tight", "cache_exceeds_pool", *["context_exceeds_model"] * beyond]
    cells = user_cells([40, 2, 0, *[7] * beyond], verdicts, [0, 0, 5 << 30, *[0] * beyond])
    assert [cell.value for cell in cells] == [40, 2, 0, *([0] if beyond else [])]
    assert [cell.span for cell in cells] == [1, 1, 1, *([beyond] if beyond else [])]
    assert sum(cell.span for cell in cells) == len(verdicts)
    assert {cell.text for cell in cells[3:]} == ({"over limit"} if beyond else set())


def test_a_context_beyond_the_model_between_others_has_its_own_cell() -> None:
    cells = user_cells([1, 0, 1], ["fits", "context_exceeds_model", "fits"])
    assert [cell.span for cell in cells] == [1, 1, 1]
