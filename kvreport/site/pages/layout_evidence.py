"""The evidence page's table of errors by layout."""

from __future__ import annotations

import math
from typing import Final

from kvreport.evidence.by_layout import KINDS, Errors, by_layout
from kvreport.evidence.validation import Validation
from kvreport.site.kit.tables import Cell, Column, Row, Table, count_cell

_WORDS: Final = KINDS | {"any": "any of the above", "tensor": "tensor parallel or one device only"}


def tables(found: Validation) -> list[Table]:
    """Errors of logs with data, expert, decode context or pipeline parallelism, drafts or adapters."""
    rows = tuple(
        Row(
            Cell(_WORDS[one.kind]),
            (count_cell(one.logs), *_cells(one.from_flags), *_cells(one.from_pool)),
        )
        for one in by_layout(found)
    )
    return [
        Table(
            "Relative errors of tokens or concurrency, by parallel layout; a log can be in several rows",
            Column("Layout", numeric=False),
            (
                Column("Logs"),
                Column("From flags alone: logs"),
                Column("Median error"),
                Column("90th percentile"),
                Column("From the printed pool: logs"),
                Column("Median error"),
                Column("90th percentile"),
            ),
            rows,
        )
    ]


def _cells(errors: Errors) -> tuple[Cell, ...]:
    shares = (
        Cell("", "kv-num") if math.isnan(value) else Cell(f"{value * 100:.2f}%", "kv-num", value=value)
        for value in (errors.median, errors.p90)
    )
    return count_cell(errors.count), *shares
