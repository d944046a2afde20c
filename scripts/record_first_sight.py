"""Record how well new logs are predicted before any rule is changed for them.

    python scripts/record_first_sight.py FILE... --day 2026-11-22 --revision 1a2b3c4
    python scripts/record_first_sight.py --local log-501 log-502 ...
    python scripts/record_first_sight.py --worse log-501 ... --reason "why a rule that was changed since misses them by more"

The first form adds one run to ``data/first_seen.yaml``. The second writes ``first_error`` to logs of local engines in
``data/llama_cpp/logs.yaml``. A log that has one already is passed over: a first sight is only once. The third names logs that are
missed by more than at first sight, and why: a second prediction stands beside the first, which stays as it is. A test lets no
other log become worse.
"""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path
from typing import Any

import yaml

from kvreport.atomic.files import write_whole
from kvreport.catalog.first_predictions import FirstSeen
from kvreport.catalog.load import load_catalog
from kvreport.catalog.local_logs import LocalLogs
from kvreport.catalog.observation import load_observations
from kvreport.evidence.judged_local_logs import judge_log
from kvreport.evidence.judgment import end_to_end
from kvreport.evidence.observation_files import read_observations
from kvreport.evidence.validation import Compared, validate
from kvreport.resources import data_dir

_NO_POOL = "from flags: the source states neither pool nor tokens"


def row(case: Compared) -> dict[str, Any]:
    """What is kept of one log."""
    one = end_to_end(case)
    told = one is not None and math.isfinite(one.error)
    found = {
        "id": case.observation.id,
        "complete": case.observation.complete,
        "rules": case.release,
        "quantity": one.quantity if one is not None and told else None,
        "error": round(one.error, 5) if one is not None and told else None,
        "covered": case.within_band,
        "starts_observed": case.starts_observed,
        "starts_predicted": case.starts_predicted,
    }
    return {name: value for name, value in found.items() if value is not None}


def with_first_errors(text: str, errors: dict[str, float]) -> str:
    """The text of ``llama_cpp/logs.yaml`` with these errors after the last line of their logs."""
    for name, error in errors.items():
        entry = rf"(  - id: {re.escape(name)}\n(?:    .*\n)+)"
        text = re.sub(entry, rf"\g<1>    first_error: {error:.4f}\n", text, count=1)
    return text


def record_local(names: list[str]) -> None:
    """Write the errors of local engines' logs as they are predicted now."""
    catalog = load_catalog()
    wanted = [log for log in LocalLogs.need().logs if log.id in names and log.first_error is None]
    found = {log.id: judge_log(log, catalog).total_error for log in wanted}
    path = data_dir() / LocalLogs.FILE
    told = {name: error for name, error in found.items() if error is not None}
    write_whole(path, with_first_errors(path.read_text(encoding="utf-8"), told).encode())


def record_worse(names: list[str], reason: str) -> None:
    """Write what the rules of today say of logs beside their first sight, and why they are missed by more."""
    path = data_dir() / "first_seen.yaml"
    content = yaml.safe_load(path.read_text())
    observations = [one for one in load_observations(data_dir()) if one.id in names]
    cases = {case.observation.id: case for case in validate(load_catalog(), observations).cases}
    for run in content["runs"]:
        for log in run["logs"]:
            if log["id"] in cases:
                found = {one.quantity: one.error for one in cases[log["id"]].comparisons}
                log["second"] = {"error": round(found[log["quantity"]], 5), "reason": reason}
    write_whole(path, yaml.safe_dump(content, sort_keys=False, width=110).encode())


def main() -> None:
    """Add a run."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("file", nargs="*", type=Path)
    arguments.add_argument("--day")
    arguments.add_argument("--revision")
    arguments.add_argument("--local", nargs="+", default=[], metavar="ID", help="logs of local engines")
    arguments.add_argument(
        "--worse", nargs="+", default=[], metavar="ID", help="logs that are missed by more now"
    )
    arguments.add_argument("--reason", help="why they are")
    given = arguments.parse_args()
    if given.worse:
        if not given.reason:
            arguments.error("say with --reason why these logs are missed by more")
        record_worse(given.worse, given.reason)
        return
    if given.local:
        record_local(given.local)
        return
    if not (given.file and given.day and given.revision):
        arguments.error("name files with --day and --revision, or logs with --local")
    known = FirstSeen.read(data_dir())
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
