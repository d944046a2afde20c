"""Record how well new logs are predicted before any rule is changed for them.

    python scripts/record_first_sight.py FILE... --day 2026-11-22 --revision 1a2b3c4

Adds one run to ``data/first_seen.yaml``. A log that an earlier run has is passed over: a first sight is only once.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import yaml

from kvreport.catalog.first_seen import load_first_seen
from kvreport.catalog.load import load_catalog
from kvreport.evidence.judgment import end_to_end
from kvreport.evidence.records import read_observations
from kvreport.evidence.validation import Case, validate
from kvreport.resources import data_dir

_NO_POOL = "end to end: the source states neither pool nor tokens"


def row(case: Case) -> dict[str, Any]:
    """What is kept of one log."""
    one = end_to_end(case)
    told = one is not None and math.isfinite(one.error)
    found = {
        "id": case.observation.id,
        "complete": case.complete,
        "rules": case.release,
        "quantity": one.quantity if one is not None and told else None,
        "error": round(one.error, 5) if one is not None and told else None,
        "covered": case.within_band,
        "starts_observed": case.starts_observed,
        "starts_predicted": case.starts_predicted,
    }
    return {name: value for name, value in found.items() if value is not None}


def main() -> None:
    """Add a run."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("file", nargs="+", type=Path)
    arguments.add_argument("--day", required=True)
    arguments.add_argument("--revision", required=True)
    given = arguments.parse_args()
    known = load_first_seen(data_dir())
    runs = [] if known is None else [run.model_dump(exclude_none=True) for run in known.runs]
    seen = {log["id"] for run in runs for log in run["logs"]} | {
        name for run in runs for name in run.get("not_predicted", {})
    }
    observations = [one for path in given.file for one in read_observations(path) if one.id not in seen]
    cases = validate(load_catalog(), observations).cases
    predicted = [case for case in cases if case.starts_predicted is not None or end_to_end(case)]
    runs.append(
        {
            "recorded": given.day,
            "revision": given.revision,
            "not_predicted": {
                case.observation.id: (case.excluded or (_NO_POOL,))[0]
                for case in cases
                if case not in predicted
            },
            "logs": [row(case) for case in predicted],
        }
    )
    content = {"schema_version": 1, "runs": runs}
    path = data_dir() / "first_seen.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False, width=110))


if __name__ == "__main__":
    main()
