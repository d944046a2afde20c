"""``kvreport validate``: predictions against start-up observations."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kvreport.cli.output import table, write_answer


def run(options: argparse.Namespace) -> int:
    """Carry out the command."""
    from kvreport.catalog.load import open_catalog
    from kvreport.evidence.judgment import judge
    from kvreport.evidence.observation_files import read_observations

    observations = [one for name in options.file for one in read_observations(Path(name))]
    found = judge(open_catalog(options.data), observations)
    write_answer(options.format, lambda: found, lambda: text(found))
    return 0


def text(found: dict[str, Any]) -> list[str]:
    """Lay the judgment out: every comparison, starts that were told wrong, what was left out, the summary."""
    lines = []
    if found["comparisons"]:
        rows = [("log", "quantity", "observed", "predicted", "error", "")]
        rows += [
            (
                row["id"],
                row["quantity"],
                f"{row['observed']:,.2f}",
                f"{row['predicted']:,.2f}",
                "" if row["error"] is None else f"{row['error']:+.2%}",
                row["unit"],
            )
            for row in found["comparisons"]
        ]
        lines += [*table(rows, "<<>>><"), ""]
    for row in found["starts"]:
        if row["observed"] != row["predicted"]:
            said = {True: "starts", False: "refuses"}
            lines.append(
                f"  {row['id']}: {said[row['observed']]}, and we predict that it {said[row['predicted']]}"
            )
    lines += [f"  {row['id']}: not compared: {row['reason']}" for row in found["not_compared"]]
    for name, label in (("complete", "Logs that state all flags"), ("all", "All logs")):
        lines.append(f"{label}: {_summary(found['summary'][name])}")
    return lines


def _summary(row: dict[str, Any]) -> str:
    if not row["logs"]:
        return "nothing could be predicted end to end"
    said = f"{row['logs']} end to end, median error {row['median_error']:.2%}, 90th percentile {row['p90_error']:.2%}"
    said += f"; {row['starts_right']} of {row['starts']} starts and refusals right"
    return said + f"; {row['bands_holding']} of {row['bands']} pools inside their 80% band"
