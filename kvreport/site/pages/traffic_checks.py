"""The evidence page's section about replays: another simulator's hits and published figures, beside ours."""

from __future__ import annotations

from typing import Any

from kvreport import units
from kvreport.publish.traffic_data import hits_of
from kvreport.site.kit.tables import Cell, Table, listing, numbers, texts
from kvreport.traffic.hits import DEFINITIONS
from kvreport.traffic.shipped import published_checks, shipped_traces


def tables() -> tuple[Table, ...]:
    """The section's tables."""
    checks = published_checks()
    return _simulator(checks["simulator"]), _published(checks)


def _simulator(simulator: dict[str, Any]) -> Table:
    def sizes(run: dict[str, Any]) -> list[int]:
        return [blocks for blocks, _, _ in run["points"]]

    gaps = {
        run["trace"]: [
            abs(one - hits)
            for one, (_, hits, _) in zip(
                hits_of(run["trace"], sizes(run), warmup=0.5), run["points"], strict=True
            )
        ]
        for run in simulator["runs"]
    }
    return listing(
        f"Tokens hit with LRU, compared with {simulator['name']}, second half of each trace",
        simulator["runs"],
        texts("Trace", lambda run: shipped_traces()[run["trace"]].label),
        numbers("Cache sizes with equal hits", lambda run: _equal(gaps[run["trace"]])),
        numbers("Largest difference (tokens)", lambda run: max(gaps[run["trace"]])),
        numbers(
            "Cache sizes (blocks)",
            lambda run: f"{units.count(min(sizes(run)))} to {units.count(max(sizes(run)))}",
        ),
    )


def _equal(gaps: list[int]) -> Cell:
    return Cell(f"{gaps.count(0)} of {len(gaps)}", value=gaps.count(0))


def _published(checks: dict[str, Any]) -> Table:
    recomputed = [
        {
            "source": check["source"],
            "quantity": f"{check['quantity']}; {DEFINITIONS[check['definition']]}",
            "published": str(check["published"]),
            "found": f"{check['found']:.1f}",
            "why": check.get("why", "agrees").strip(),
        }
        for check in checks["published"]
    ]
    return listing(
        "Published figures about traffic, compared with ours",
        [*recomputed, *checks["recorded"]],
        texts("Source", lambda check: check["source"]),
        texts("Quantity", lambda check: check["quantity"]),
        numbers("Published", lambda check: check["published"]),
        numbers("Recomputed", lambda check: check["found"]),
        texts("Reason for the difference", lambda check: check["why"]),
    )
