"""The rows of a table as HTML.

``_table.html`` asks for them: a page of five hundred models has thousands of cells, and a template takes ten times as
long for each as plain Python does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from markupsafe import Markup, escape

from kvreport.site.kit.tables import Cell, Row, Table

_COUNT: Final = re.compile(r"([\d,]+(?:\.\d+)?)([KMBTk])?", re.ASCII)
_SCALES: Final = {"K": 2**10, "k": 1e3, "M": 2**20, "B": 1e9, "T": 1e12}


def rows(table: Table, link: Callable[[str], str]) -> Markup:
    """Return the body rows of a table, each with its line break; those of a long table in two bodies.

    Args:
        table: The table. A cell has its sort value where its text is not that number. Cells of a dense table have no sort
            values and hints, but sizes keep their bytes.
        link: Returns the address of a page, relative to the one that the table stands on.

    Only what is sorted, or found by its name, has sort values.
    """
    numeric = () if table.dense else tuple(column.numeric for column in table.columns)
    columns = len(table.columns)
    made = [
        row.made
        or row_html(
            row,
            link,
            dense=table.dense,
            columns=columns,
            numeric=numeric,
            valued=table.sortable or bool(table.name),
        )
        for row in table.rows
    ]
    if table.first < len(made):
        made.insert(table.first, '</tbody>\n<tbody class="kv-rest">\n')
    return Markup("".join(made))  # noqa: S704 (every text is escaped below)


def row_html(
    row: Row,
    link: Callable[[str], str],
    *,
    dense: bool,
    columns: int = 1,
    numeric: tuple[bool, ...] = (),
    valued: bool = True,
) -> str:
    """Return one row.

    Args:
        row: The row.
        link: As for :func:`rows`.
        dense: Whether the table is.
        columns: Columns beside the head, for a row that gives a reason in their place.
        numeric: Whether each of them holds numbers, which stand at the right like its head.
        valued: Whether cells have sort values.
    """
    cells = _cells(row, columns, link, hints=not dense, valued=valued and not dense, numeric=numeric)
    return "".join((*_start(row, link, valued=valued), *cells, "</tr>\n"))


def _start(row: Row, link: Callable[[str], str], *, valued: bool) -> Iterator[str]:
    head = row.head
    yield f'<tr id="{_text(row.anchor)}"' if row.anchor else "<tr"
    for key, value in row.keys:
        yield f' data-{_text(key)}="{_text(value)}"'
    if row.search:
        yield f' data-search="{_text(row.search)}"'
    value = "" if head.value is None or not valued else f' data-value="{_text(str(head.value))}"'
    yield f'><th scope="row"{value}>{_shown(head, link)}'
    if head.hint:
        yield f" <small>{_text(head.hint)}</small>"
    yield "</th>"


def _cells(
    row: Row,
    columns: int,
    link: Callable[[str], str],
    *,
    hints: bool,
    valued: bool,
    numeric: tuple[bool, ...],
) -> Iterator[str]:
    if row.why:
        yield f'<td class="kv-no kv-why" colspan="{columns}">{_text(row.why)}</td>'
        return
    place = 0
    for cell in row.cells:
        opening = f'<td colspan="{cell.span}"' if cell.span > 1 else "<td"
        css = cell.css or ("kv-num" if place < len(numeric) and numeric[place] and not cell.href else "")
        place += cell.span
        if css:
            opening += f' class="{_text(css)}"'
        is_size = "kv-size" in cell.css
        if cell.value is not None and (is_size or (valued and _number(cell.text) != cell.value)):
            opening += f' data-value="{_text(str(cell.value))}"'
        if cell.hint and hints:
            opening += f' title="{_text(cell.hint)}"'
        yield f"{opening}>{_shown(cell, link)}</td>"


def _shown(cell: Cell, link: Callable[[str], str]) -> str:
    if not cell.href:
        return _text(cell.text)
    return f'<a href="{_text(link(cell.href))}">{_text(cell.text)}</a>'


@lru_cache(maxsize=1 << 14)
def _number(text: str) -> float | None:
    """Return the number that the page's script sorts a text by (``told`` of ``kv-index.js``)."""
    found = _COUNT.fullmatch(text)
    return float(found[1].replace(",", "")) * _SCALES.get(found[2], 1) if found else None


@lru_cache(maxsize=1 << 14)
def _text(text: str) -> str:
    """Escape a text, unless it is finished HTML."""
    return str.__str__(escape(text))
