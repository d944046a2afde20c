"""The evidence page's table of errors by layout."""

from __future__ import annotations

import math
from typing import Final

from kvreport.evidence.by_layout import KINDS, by_layout
from kvreport.evidence.validation import Validation
from kvreport.site.kit.tables import Cell, Table, listing, numbers, texts

_WORDS: Final = KINDS | {"any": "any of the above", "tensor": "tensor parallelism, or one device"}


def tables(found: Validation) -> list[Table]:
    """Errors of logs with data, expert, decode context or pipeline parallelism, drafts or adapters."""
    return [
        listing(
            "Relative errors of tokens or concurrency, by layout and feature; a log can be in several rows",
            by_layout(found),
            texts("Layout", lambda one: _WORDS[one.kind]),
            numbers("Logs", lambda one: one.logs),
            numbers("Logs, from flags alone", lambda one: one.from_flags.count),
            numbers("Median error", lambda one: _share(one.from_flags.median)),
            numbers("90th percentile", lambda one: _share(one.from_flags.p90)),
            numbers("Logs, from the logged pool", lambda one: one.from_pool.count),
            numbers("Median error", lambda one: _share(one.from_pool.median)),
            numbers("90th percentile", lambda one: _share(one.from_pool.p90)),
        )
    ]


def _share(value: float) -> Cell:
    return Cell("") if math.isnan(value) else Cell(f"{value * 100:.2f}%", value=value)
