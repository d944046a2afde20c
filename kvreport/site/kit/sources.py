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

FIELDS: Final = {
    "bandwidth_bytes_per_s": "memory bandwidth",
    "context_tokens": "maximum context",
    "devices_per_node": "GPUs per server",
    "form_factor": "form factor",
    "interconnect_bytes_per_s": "interconnect",
    "kv_format": "KV cache format",
    "layers": "layers",
    "licence": "license",
    "memory.advertised": "advertised memory",
    "memory.driver_visible": "memory that the driver reports",
    "memory.free_at_start": "memory free at start",
    "memory.free_most": "most memory free",
    "memory.settable_to": "largest setting of shared memory",
    "memory.usable": "usable memory",
    "memory_type": "memory type",
    "native_formats": "formats with kernels",
    "pcie": "PCIe",
    "power_watts": "power",
    "network_bytes_per_s": "network ports",
    "published_total": "published total of the weights",
    "rates.bf16": "16-bit rate",
    "rates.fp4": "FP4 rate",
    "rates.fp8": "FP8 rate",
    "rates.int4": "INT4 rate",
    "rates.int8": "INT8 rate",
    "release": "release date",
    "rented_as": "clouds that rent it out",
    "slices": "slices (MIG)",
    "weight_format": "weight format",
    "weights": "weights",
}
"""Fields of records in words; the others are words as they stand."""


def source_lines(sources: Sequence[Source]) -> tuple[SourceLine, ...]:
    """Return the sources of a record, as its file has them."""
    return tuple(
        SourceLine(
            title=source.title,
            url=source.url or "",
            covers=", ".join(field_words(field) for field in source.covers),
            evidence=source.evidence,
            revision=source.revision or "",
            note=source.note or "",
        )
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
