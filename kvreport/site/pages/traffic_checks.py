"""The evidence page's section about replays: another simulator's hits and published figures, beside ours."""

from __future__ import annotations

from typing import Any

from kvreport import units
from kvreport.publish.traffic_data import hits_of
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.traffic.hits import DEFINITIONS
from kvreport.traffic.shipped import published_checks, shipped_traces


def tables() -> tuple[Table, ...]:
    """The section's tables."""
    checks = published_checks()
    return _simulator(checks["simulator"]), _published(checks)


def _simulator(simulator: dict[str, Any]) -> Table:
    rows = []
    for run in simulator["runs"]:
        sizes = [blocks for blocks, _, _ in run["points"]]
        ours = hits_of(run["trace"], sizes, warmup=0.5)
        gaps = [abs(one - hits) for one, (_, hits, _) in zip(ours, run["points"], strict=True)]
        equal = sum(gap == 0 for gap in gaps)
        cells = (
            Cell(f"{equal} of {len(gaps)}", "kv-num", equal),
            Cell(units.count(max(gaps)), "kv-num", max(gaps)),
            Cell(f"{units.count(min(sizes))} to {units.count(max(sizes))}", "kv-num"),
        )
        rows.append(Row(Cell(shipped_traces()[run["trace"]].label), cells))
    return Table(
        f"Hit tokens of LRU compared with {simulator['name']}, last half of each trace",
        Column("Trace", numeric=False),
        (
            Column("Cache sizes with equal hits"),
            Column("Largest difference (tokens)"),
            Column("Cache sizes (blocks)"),
        ),
        tuple(rows),
    )


def _published(checks: dict[str, Any]) -> Table:
    rows = [
        Row(
            Cell(check["source"]),
            (
                Cell(f"{check['quantity']}; {DEFINITIONS[check['definition']]}"),
                Cell(str(check["published"]), "kv-num"),
                Cell(f"{check['found']:.1f}", "kv-num"),
                Cell(check.get("why", "agrees").strip()),
            ),
        )
        for check in checks["published"]
    ]
    rows += [
        Row(
            Cell(record["source"]),
            (
                Cell(record["quantity"]),
                Cell(record["published"], "kv-num"),
                Cell(record["found"], "kv-num"),
                Cell(record["why"]),
            ),
        )
        for record in checks["recorded"]
    ]
    return Table(
        "Published figures about traffic, compared with ours",
        Column("Source", numeric=False),
        (
            Column("Quantity", numeric=False),
            Column("Published"),
            Column("Recomputed"),
            Column("Reason for the difference", numeric=False),
        ),
        tuple(rows),
    )
