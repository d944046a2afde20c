"""Tables as values: what a cell says, how it is coloured, what it sorts by.

A table is made here and laid out by ``templates/_table.html`` or ``_grid.html``. Users have one
single-hue scale with a step per half decade, so that 1, 10 and 100 are equally far apart; a cell
that holds no user says why, in neutral words.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Generic, TypeVar

from kvreport import units
from kvreport.words import CELLS, NO_REQUEST, REQUEST_STEPS

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell.

    Attributes:
        css: Classes that give it its colour and alignment.
        value: What it sorts by, or None to sort by its text.
        hint: What a pointer over it and a screen reader say, or "".
        href: Where it leads, or "".
    """

    text: str
    css: str = ""
    value: float | None = None
    hint: str = ""
    href: str = ""
    span: int = 1


@dataclass(frozen=True, slots=True)
class Column:
    """A column's head: what it holds and its unit."""

    title: str
    unit: str = ""
    numeric: bool = True
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its head, its cells, and what a filter looks at.

    Attributes:
        anchor: Fragment that leads to this row, or "".
        keys: Facet name to value, for filtering in the browser.
        search: Lower-case text that a text filter looks in.
        why: If the row has no cells: the reason, across all columns.
        made: The row as HTML, where that is kept; the rest is then not printed.
    """

    head: Cell
    cells: tuple[Cell, ...] = ()
    anchor: str = ""
    keys: tuple[tuple[str, str], ...] = ()
    search: str = ""
    why: str = ""
    made: str = ""


FIRST_ROWS: Final = 24
"""Rows of a long table that are drawn at once. A phone lays thousands of cells out in seconds."""
_FEW_MORE: Final = 16
"""So many rows more are drawn, too, rather than put behind a click."""


SHORT: Final = ("cache_exceeds_pool", "weights_exceed_memory", "may_fit")
"""Verdicts whose shortfall a cell can say."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its caption.

    Attributes:
        caption: What it shows and under which conditions.
        name: Identifier that scripts find it by, or "".
        dense: Whether cells go without sort values and hints, which a legend makes up for.
        noun: What its rows are, in the plural.
    """

    caption: str
    head: Column
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    name: str = ""
    css: str = ""
    sortable: bool = False
    dense: bool = False
    noun: str = "rows"

    @property
    def first(self) -> int:
        """How many rows are drawn at once; the others are in the page and are shown on demand.

        >>> short, long = (Table("", Column(""), (), (Row(Cell("")),) * n) for n in (40, 41))
        >>> short.first, long.first
        (40, 24)
        """
        return FIRST_ROWS if len(self.rows) > FIRST_ROWS + _FEW_MORE else len(self.rows)


@dataclass(frozen=True, slots=True)
class ListColumn(Generic[T]):
    """A column of a list: its head, and what it says of each thing; a number is a count, and None is unknown."""

    head: Column
    say: Callable[[T], Cell | str | int | None]

    def cell(self, one: T) -> Cell:
        """Return the cell of one thing."""
        said = self.say(one)
        return said if isinstance(said, Cell) else Cell(said) if isinstance(said, str) else count_cell(said)


def texts(title: str, say: Callable[[T], Cell | str | int | None], *, hint: str = "") -> ListColumn[T]:
    """Return a column of texts."""
    return ListColumn(Column(title, numeric=False, hint=hint), say)


def numbers(
    title: str, say: Callable[[T], Cell | str | int | None], unit: str = "", *, hint: str = ""
) -> ListColumn[T]:
    """Return a column of numbers, which stand at the right."""
    return ListColumn(Column(title, unit, hint=hint), say)


def listing(
    caption: str,
    things: Iterable[T],
    head: ListColumn[T],
    *columns: ListColumn[T],
    name: str = "",
    css: str = "",
    sortable: bool = False,
    noun: str = "rows",
) -> Table:
    """Return a table with a row for each thing, which ``head`` names; options are those of :class:`Table`."""
    rows = tuple(Row(head.cell(one), tuple(column.cell(one) for column in columns)) for one in things)
    heads = tuple(column.head for column in columns)
    return Table(caption, head.head, heads, rows, name=name, css=css, sortable=sortable, noun=noun)


def step(users: int) -> int:
    """Return the colour step of a number of users, 1 to 8; 0 for none.

    >>> [step(n) for n in (0, 1, 2, 3, 10, 99, 100, 5000)]
    [0, 1, 1, 2, 3, 4, 5, 8]
    """
    return bisect_right(REQUEST_STEPS, users)


@lru_cache(maxsize=1 << 16)
def users_cell(users: int, verdict: str, short: int | None = None) -> Cell:
    """Return the cell for a number of concurrent requests.

    Args:
        users: Requests that run at once.
        verdict: The verdict on one request.
        short: Bytes per device that one request lacks, where the cell is to say so.
    """
    if verdict == "context_exceeds_model" or users < 1:
        word, reason = NO_REQUEST.get(verdict, ("0", "no request fits"))
        if short and verdict in SHORT:
            word = CELLS["short"].format(short=units.shortfall(short))
        return Cell(word, "kv-no", value=0, hint=reason)
    css = f"kv-u{step(users)}" + (" kv-tight" if verdict == "tight" else "")
    return Cell(units.count(users), css, value=users, hint="tight" if verdict == "tight" else "")


def user_cells(users: Sequence[int], verdicts: Sequence[str], short: Sequence[int] = ()) -> tuple[Cell, ...]:
    """Return the cells of a row; what lies beyond the model's limit is one cell at its end."""
    inside = len(verdicts)
    while inside and verdicts[inside - 1] == "context_exceeds_model":
        inside -= 1
    missing = short or [0] * len(users)
    cells = [
        users_cell(*one) for one in zip(users[:inside], verdicts[:inside], missing[:inside], strict=True)
    ]
    beyond = len(verdicts) - inside
    if beyond:
        word, reason = NO_REQUEST["context_exceeds_model"]
        cells.append(Cell(word, "kv-no", value=0, hint=reason, span=beyond))
    return tuple(cells)


def size_cell(size_bytes: int | None, digits: int = 2) -> Cell:
    """Return the cell for a size: GiB, with the bytes kept for sorting and for the GB switch."""
    if size_bytes is None:
        return Cell("–", "kv-num", value=-1, hint="unknown")
    return Cell(units.gib(size_bytes, digits), "kv-num kv-size", value=size_bytes)


def count_cell(value: int | None) -> Cell:
    """Return the cell for a whole number."""
    if value is None:
        return Cell("–", "kv-num", value=-1, hint="unknown")
    return Cell(units.count(value), "kv-num", value=value)


def share_cell(value: float) -> Cell:
    """Return the cell for a share, in percent."""
    return Cell(f"{value:.1%}", "kv-num", value=value)


def context_columns(contexts: Sequence[int]) -> tuple[Column, ...]:
    """Return one column per context, its tokens written the way the field does."""
    return tuple(Column(units.human_tokens(n)) for n in contexts)
