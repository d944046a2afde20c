"""Where facts come from, in words a reader understands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvreport.catalog.accelerator import Figure
from kvreport.catalog.base import Evidence, Source
from kvreport.resources import read_table
from kvreport.site.kit.tables import Cell
from kvreport.site.kit.templating import Names

EVIDENCE: Final[dict[Evidence, str]] = read_table("evidence")

FIELDS: Final[dict[str, str]] = read_table("record fields")
"""Fields of records in words; the others are words as they stand."""


def source_lines(sources: Sequence[Source]) -> tuple[Names, ...]:
    """Return the sources of a record, as its file has them."""
    return tuple(
        {
            "title": source.title,
            "url": source.url or "",
            "covers": ", ".join(field_words(field) for field in source.covers),
            "evidence": source.evidence,
            "revision": source.revision or "",
            "note": source.note or "",
        }
        for source in sources
    )


def field_words(field: str) -> str:
    """Return a field of a record in words.

    >>> field_words("memory.usable"), field_words("weight_format")
    ('usable memory', 'weight format')
    """
    return FIELDS.get(field, field.replace("_", " ").replace(".", " "))


def evidence_cell(figure: Figure | None) -> Cell:
    """Return the cell that says how far a figure can be trusted."""
    if figure is None:
        return Cell("unknown", hint="no source found")
    return Cell(figure.evidence, hint=EVIDENCE[figure.evidence])


def source_cell(figure: Figure | None) -> Cell:
    """Return the cell that names a figure's source, with its words where it was quoted."""
    if figure is None:
        return Cell("–")
    source = figure.source or ""
    if source.startswith(("https://", "http://")):
        shown = source.split("://", 1)[1]
        return Cell(shown, "kv-words", hint=figure.quote or "", href=source)
    return Cell(source or "–", "kv-words", hint=figure.quote or "")
