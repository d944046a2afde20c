"""Where facts come from, in words a reader understands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvreport.catalog.accelerator import Figure
from kvreport.catalog.base import Evidence, Source
from kvreport.site.kit.elements import SourceLine
from kvreport.site.kit.tables import Cell

EVIDENCE: Final[dict[Evidence, str]] = {
    "verbatim": "copied from the primary file",
    "observed": "read off a real machine",
    "documented": "the maker's own document",
    "derived": "follows from other facts by arithmetic",
    "secondary": "restated by somebody else",
    "unverified": "believed, not checked",
}


def source_lines(sources: Sequence[Source]) -> tuple[SourceLine, ...]:
    """Return the sources of a record, as its file has them."""
    return tuple(
        SourceLine(
            title=source.title,
            url=source.url or "",
            covers=", ".join(field.replace("_", " ") for field in source.covers),
            evidence=source.evidence,
            revision=source.revision or "",
            note=source.note or "",
        )
        for source in sources
    )


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
