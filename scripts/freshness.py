"""Say how old the facts are: newest release of each engine, newest model, newest log, and files that nobody checked lately.

    python scripts/freshness.py [--older-than 90] [--on 2026-11-28] [--data data] [--write]

A file's day is the day of the last commit that changed it, as Git says. The exit status is 3 where a file is older than
``--older-than`` days. With ``--write`` the facts go into ``data/freshness.yaml``, which the site's data page shows. Nothing that is built or tested asks for today's date; this report does, for a person to read.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

import yaml
from sync import DISTRIBUTIONS
from sync import published as releases

from kvreport.catalog.freshness import Checked, Freshness, Newest, newest
from kvreport.catalog.load import open_catalog

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


def facts(published: Mapping[str, str], days: Mapping[str, date], on: date) -> Freshness:
    """Return the record of one check, which the site shows.

    Args:
        published: The newest release that the registry has of each engine that was asked for.
        days: The day of each file.
        on: The day of the check.
    """
    folders: dict[str, list[tuple[date, str]]] = {}
    for name, changed in days.items():
        folders.setdefault(name.split("/")[0], []).append((changed, name))
    data = tuple(
        Checked(
            name=folder,
            files=len(many),
            newest=max(many)[0].isoformat(),
            oldest=min(many)[0].isoformat(),
            oldest_file=min(many)[1],
        )
        for folder, many in folders.items()
        if folder != Freshness.FILE
    )
    return Freshness(checked=on.isoformat(), published=dict(published), data=data)


def report(found: Freshness, rows: Iterable[Newest], days: Mapping[str, date], limit: int) -> list[str]:
    """Return the report, in Markdown."""
    on = date.fromisoformat(found.checked)
    lines = [
        f"# Age of the facts on {found.checked}",
        "",
        "| newest | name | published | of | days |",
        "| --- | --- | --- | --- | ---: |",
    ]
    for row in rows:
        whole = f"{row.day}-01" if row.day and len(row.day) == 7 else row.day or ""
        age = f"{(on - date.fromisoformat(whole)).days:,}" if len(whole) == 10 else "not known"
        kind = row.kind.replace("release", f"release of {row.family}")
        lines.append(
            f"| {kind} | {row.name} | {found.published.get(row.family, '-')} | {row.day or 'not stated'} | {age} |"
        )
    lines += ["", "| data | files | last changed | oldest file, days |", "| --- | ---: | --- | ---: |"]
    lines += [
        f"| {one.name} | {one.files:,} | {one.newest} | {(on - date.fromisoformat(one.oldest)).days:,} |"
        for one in found.data
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
    parser.add_argument("--write", action="store_true", help=f"write {Freshness.FILE}, which the site shows")
    given = parser.parse_args(words)
    on, days = given.on or datetime.now(tz=UTC).date(), checked(given.data)
    published = {family: known[-1] for family, name in DISTRIBUTIONS.items() if (known := releases(name))}
    found = facts(published, days, on)
    print("\n".join(report(found, newest(open_catalog(given.data)), days, given.older_than)))
    if given.write:
        text = yaml.safe_dump(found.model_dump(exclude_none=True, mode="json"), sort_keys=False, width=120)
        (given.data / Freshness.FILE).write_text(
            f"# Written by scripts/freshness.py --write.\n{text}", encoding="utf-8"
        )
        return 0
    return 3 if old(days, on, given.older_than) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
