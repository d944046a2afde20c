"""Hold the tests' coverage of each room against its floor; `make coverage` runs it.

    python scripts/coverage_floors.py .cache/coverage.json

The floors stand in ``pyproject.toml``, ``[tool.kvreport.coverage-floors]``: per cent of statements and
branches that the tests without a browser and without a whole site reach. A room without a floor of its own has the default one; a
floor without a room is a fault, too.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def room_of(path: str) -> str:
    """Return the room of a file: its folder below ``kvreport/``, or the module's name.

    >>> room_of("kvreport/site/kit/fonts.py"), room_of("kvreport/units.py")
    ('site', 'units')
    """
    return path.split("/")[1].removesuffix(".py")


def measured(report: dict[str, Any]) -> dict[str, float]:
    """Return the per cent reached of each room, from coverage's JSON."""
    reached: defaultdict[str, int] = defaultdict(int)
    total: defaultdict[str, int] = defaultdict(int)
    for path, file in report["files"].items():
        summary = file["summary"]
        room = room_of(path.replace("\\", "/"))
        reached[room] += summary["covered_lines"] + summary.get("covered_branches", 0)
        total[room] += summary["num_statements"] + summary.get("num_branches", 0)
    return {room: 100 * reached[room] / total[room] for room in sorted(total) if total[room]}


def main(report: Path) -> int:
    """Print every room and return 0 if each is at its floor or above."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    floors: dict[str, float] = settings["tool"]["kvreport"]["coverage-floors"]
    rooms = measured(json.loads(report.read_text(encoding="utf-8")))
    default = floors.pop("default")
    gone = sorted(floors.keys() - rooms.keys())
    faults = [f"{room}: no such room; take its floor out of pyproject.toml" for room in gone]
    for room, share in rooms.items():
        floor = floors.get(room, default)
        print(f"{room:16} {share:5.1f}%   floor {floor}")
        if share < floor:
            faults.append(f"{room}: found {share:.1f}%; allowed: {floor}% or more; test what is new")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
