"""The page of every published start-up log: what the engine printed, what was predicted, and what cannot be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kvreport import units
from kvreport.catalog.load import RELEASED
from kvreport.catalog.observation import Observation
from kvreport.evidence.validation import Compared, Validation
from kvreport.publish.attention_types import cache_kind
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.tables import Cell, Table, listing, numbers, texts
from kvreport.site.kit.templating import render
from kvreport.site.pages.index import facet_values
from kvreport.site.pages.measured import share
from kvreport.startup_log.start import Comparison
from kvreport.words import engine_name

if TYPE_CHECKING:
    from kvreport.catalog.load import Catalog

URI: Final = "evidence/logs/"
PARENT: Final = "evidence/"
_FACETS: Final = (
    ("quantity", "Quantity"),
    ("engine", "Engine"),
    ("format", "Weight format"),
    ("layers", "Layers"),
    ("kind", "Attention type"),
    ("flags", "Flags"),
)


def page(found: Validation, quantities: Mapping[str, str], catalog: Catalog) -> Page:
    """Return the page of one validation's logs."""
    cases = _cases(found, quantities, catalog)
    names = {
        "table": cases,
        "facets": _FACETS,
        "noun": "figure|figures",
        "example": "h200",
        "index_help": "Words of a row, such as a model, a device or a release. All words must match.",
        "summary": "quantity",
        "late": True,
    }
    printed = render("validation/logs_table.html", URI, {**names, "facet_values": facet_values(names)})
    conclusion = (
        f"{units.count(len(cases.rows))} printed figures of {units.count(len(found.cases))} published start-up logs, "
        "each with its prediction, its error and its source"
    )
    return Page(
        uri=URI,
        kind="tool",
        title="Every start-up log with its prediction",
        heading="Every start-up log with its prediction",
        description=f"{conclusion}.",
        lead=render("validation/logs_lead.html", URI, {"conclusion": conclusion, "summary": PARENT}),
        sections=(
            Section("logs", "Printed and predicted", printed),
            Section(
                "excluded",
                "Logs that cannot be compared",
                render("_table.html", URI, {"table": _excluded(found), "late": True}),
            ),
        ),
        names=("start-up logs", "observations"),
    )


def _cases(found: Validation, quantities: Mapping[str, str], catalog: Catalog) -> Table:
    def engine(of: Observation) -> str:
        return f"{engine_name(of.engine)} {of.engine_version or '(release not stated)'}"

    printed = [(case, case.observation, one) for case in found.cases for one in case.comparisons]

    def keys(case: Compared, quantity: str) -> tuple[tuple[str, str], ...]:
        model = catalog.models.get(case.model or "")
        experts = "unknown" if model is None else "Mixture of experts" if model.experts else "Dense"
        return (
            ("quantity", quantities[quantity]),
            ("engine", engine_name(case.observation.engine)),
            ("format", _format(case)),
            ("layers", experts),
            ("kind", "unknown" if model is None else cache_kind(model)),
            ("flags", "all known" if case.observation.complete else "in part"),
        )

    table = listing(
        "Printed figures with their predictions",
        printed,
        texts("Model, as named in the log", lambda row: Cell(row[1].model, hint=row[1].id)),
        texts("Engine", lambda row: engine(row[1])),
        texts("Device", lambda row: row[1].devices_named),
        texts("Quantity", lambda row: quantities[row[2].quantity]),
        numbers("Logged", lambda row: _value(row[2], row[2].observed)),
        numbers("Predicted", lambda row: _value(row[2], row[2].predicted)),
        numbers("Error", lambda row: Cell(share(row[2].error), value=row[2].error)),
        texts("Flags", lambda row: "all known" if row[0].observation.complete else "in part"),
        texts("Source", lambda row: Cell(row[1].origin.kind, href=row[1].origin.url or "")),
        name="logs-table",
        css="kv-logs",
        noun="figures",
    )
    rows = zip(table.rows, printed, strict=True)
    return replace(table, rows=tuple(replace(row, keys=keys(one[0], one[2].quantity)) for row, one in rows))


def _format(case: Compared) -> str:
    """The weight format of what ran; "another copy" where that is no release, and the log's own words name it."""
    seen = case.observation
    converted = seen.engine.endswith("llama.cpp") and seen.weight_format in (None, RELEASED)
    if converted or (seen.quantization and seen.weight_format is None):
        return "another copy"
    return "unknown" if case.weights is None else case.weights.upper()


def _excluded(found: Validation) -> Table:
    return listing(
        "Logs, or parts of logs, with too little information",
        (case for case in found.cases if case.excluded),
        texts(
            "Model, as named in the log", lambda case: Cell(case.observation.model, hint=case.observation.id)
        ),
        texts("Engine", lambda case: engine_name(case.observation.engine)),
        texts("Reason", lambda case: "; ".join(one.removeprefix("all: ") for one in case.excluded)),
    )


def _value(comparison: Comparison, value: float) -> Cell:
    digits = 0 if comparison.unit == "tokens" else 2
    return Cell(f"{value:,.{digits}f} {comparison.unit}", value=value)
