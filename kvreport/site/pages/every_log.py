"""The page of every published start-up log: what the engine printed, what was predicted, and what cannot be compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from markupsafe import Markup

from kvreport import units
from kvreport.evidence.validation import Validation
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.site.kit.templating import render
from kvreport.site.pages.measured import share
from kvreport.startup_log.start import Comparison
from kvreport.words import engine_name

URI: Final = "evidence/logs/"
PARENT: Final = "evidence/"


def page(found: Validation, quantities: Mapping[str, str]) -> Page:
    """Return the page of one validation's logs."""
    cases = _cases(found, quantities)
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
            Section("logs", "Printed and predicted", _table(cases)),
            Section("excluded", "Logs that cannot be compared", _table(_excluded(found))),
        ),
        names=("start-up logs", "observations"),
    )


def _table(table: Table) -> Markup:
    return render("_table.html", URI, {"table": table, "late": True})


def _cases(found: Validation, quantities: Mapping[str, str]) -> Table:
    rows: list[Row] = []
    for case in found.cases:
        observation = case.observation
        ranks = f", {observation.devices} devices" if (observation.devices or 1) > 1 else ""
        source = observation.origin
        rows += [
            Row(
                Cell(observation.model, hint=observation.id),
                (
                    Cell(
                        f"{engine_name(observation.engine)} {observation.engine_version or '(release not stated)'}"
                    ),
                    Cell(f"{observation.gpu_named}{ranks}"),
                    Cell(quantities[comparison.quantity]),
                    _value(comparison, comparison.observed),
                    _value(comparison, comparison.predicted),
                    Cell(share(comparison.error), "kv-num", value=comparison.error),
                    Cell("all known" if case.complete else "in part"),
                    Cell(source.kind, href=source.url or ""),
                ),
            )
            for comparison in case.comparisons
        ]
    return Table(
        "Printed figures with their predictions",
        Column("Model, as named in the log", numeric=False),
        (
            Column("Engine", numeric=False),
            Column("Device", numeric=False),
            Column("Quantity", numeric=False),
            Column("Printed"),
            Column("Predicted"),
            Column("Error"),
            Column("Flags", numeric=False),
            Column("Source", numeric=False),
        ),
        tuple(rows),
        css="kv-logs",
        sortable=True,
    )


def _excluded(found: Validation) -> Table:
    rows = tuple(
        Row(
            Cell(case.observation.model, hint=case.observation.id),
            (Cell(engine_name(case.observation.engine)), Cell("; ".join(case.excluded))),
        )
        for case in found.cases
        if case.excluded
    )
    return Table(
        "Logs, or parts of logs, with too little information",
        Column("Model, as named in the log", numeric=False),
        (Column("Engine", numeric=False), Column("Reason", numeric=False)),
        rows,
    )


def _value(comparison: Comparison, value: float) -> Cell:
    digits = 0 if comparison.unit == "tokens" else 2
    return Cell(f"{value:,.{digits}f} {comparison.unit}", "kv-num", value=value)
