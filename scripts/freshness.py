"""Say how old the facts are: newest release of each engine, newest model, newest log, and files that nobody checked lately.

    python scripts/freshness.py [--older-than 90] [--on 2026-11-28] [--data data]

A file's day is the day of the last commit that changed it, as Git says. The exit status is 3 where a file is older than
``--older-than`` days. Nothing that is built or tested asks for today's date; this report does, for a person to read.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from kvreport.catalog.engine_classes import ClassLists
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.catalog.shelf import read_yaml

ROOT: Final = Path(__file__).resolve().parents[1]
WRITTEN_ONCE: Final = ("measurements", "releases", "traffic")
"""Folders of what was measured or published once, and is never checked again."""


def checked(data: Path) -> dict[str, date]:
    """Return the day of the last commit of each file of a catalog, by its path inside it."""
    command = ["git", "-C", str(data), "log", "--format=%x00%cs", "--name-only", "--relative", "--", "."]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    days: dict[str, date] = {}
    for commit in said.split("\0")[1:]:
        day, *names = commit.split("\n")
        for name in filter(None, names):
            days.setdefault(name, date.fromisoformat(day))
    return {name: day for name, day in sorted(days.items()) if (data / name).is_file()}


def old(days: Mapping[str, date], on: date, limit: int) -> list[tuple[int, str]]:
    """Return the files that were checked more than so many days ago, the oldest first, with their age in days.

    >>> old({"a.yaml": date(2026, 1, 1), "b.yaml": date(2026, 3, 1)}, date(2026, 4, 2), 90)
    [(91, 'a.yaml')]
    """
    ages = (((on - day).days, name) for name, day in days.items() if name.split("/")[0] not in WRITTEN_ONCE)
    return sorted(((age, name) for age, name in ages if age > limit), key=lambda one: (-one[0], one[1]))


def newest(catalog: Catalog) -> Iterator[tuple[str, str, str]]:
    """Yield what is newest of each kind: what it is, its name, and its day or month; empty where nobody stated it."""
    lists = ClassLists(catalog.folder)
    for path in sorted((catalog.folder / "engines").glob("*/classes.yaml")):
        family = path.parent.name
        read = lists.of(family)
        if read is None:
            continue
        release = read.changes[-1].at[-1]
        dated = catalog.folder / f"{family}_releases.yaml"
        built = read_yaml(dated, dated.name)["releases"].get(release, {}) if dated.is_file() else {}  # type: ignore[index]
        yield f"release of {family} that was read", release, str(built.get("built", ""))
    models = max((model.release or "", model.id) for model in catalog.models.values())
    yield "model", models[1], models[0]
    gpus = max((gpu.release or "", gpu.id) for gpu in catalog.accelerators.values())
    yield "accelerator", gpus[1], gpus[0]


def report(rows: Iterable[tuple[str, str, str]], days: Mapping[str, date], on: date, limit: int) -> list[str]:
    """Return the report, in Markdown."""
    lines = [
        f"# Age of the facts on {on.isoformat()}",
        "",
        "| newest | name | of | days |",
        "| --- | --- | --- | ---: |",
    ]
    for kind, name, day in rows:
        whole = f"{day}-01" if len(day) == 7 else day
        age = f"{(on - date.fromisoformat(whole)).days:,}" if len(whole) == 10 else "not known"
        lines.append(f"| {kind} | {name} | {day or 'not stated'} | {age} |")
    folders: dict[str, list[date]] = {}
    for name, changed in days.items():
        folders.setdefault(name.split("/")[0], []).append(changed)
    lines += ["", "| data | files | last changed | oldest file, days |", "| --- | ---: | --- | ---: |"]
    lines += [
        f"| {folder} | {len(many):,} | {max(many).isoformat()} | {(on - min(many)).days:,} |"
        for folder, many in folders.items()
    ]
    late = old(days, on, limit)
    lines += ["", f"{len(late):,} of {len(days):,} files were checked more than {limit} days ago."]
    return [*lines, *(f"- {name}: {age} days" for age, name in late)]


def main(words: list[str]) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--older-than", type=int, default=90, metavar="DAYS", help="days after which a file is listed"
    )
    parser.add_argument(
        "--on", type=date.fromisoformat, default=None, metavar="DATE", help="the day to count from (today)"
    )
    parser.add_argument("--data", type=Path, default=ROOT / "data", help="the catalog, in a Git checkout")
    given = parser.parse_args(words)
    on, days = given.on or datetime.now(tz=UTC).date(), checked(given.data)
    print("\n".join(report(newest(open_catalog(given.data)), days, on, given.older_than)))
    return 3 if old(days, on, given.older_than) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
