"""What was tried against the project and with what result: data/trials.yaml, and its tables in a page.

    python scripts/trials.py      write the tables of docs/about/reliability.md from data/trials.yaml

``scripts/fuzz.py``, ``scripts/variation.py`` and ``scripts/kills.py`` write their results with ``--write``.
"""

from __future__ import annotations

import datetime as dt
import platform
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "data/trials.yaml"
PAGE = ROOT / "docs/about/reliability.md"
HEAD = "# Written by scripts/fuzz.py, scripts/variation.py and scripts/kills.py with --write; shown by docs/about/reliability.md.\n"


def read() -> dict[str, Any]:
    """Return what is recorded."""
    return dict(yaml.safe_load(DATA.read_text(encoding="utf-8"))) if DATA.is_file() else {}


def record(kind: str, result: dict[str, Any], *, add: bool = False) -> None:
    """Record a result with its day and Python, in place of the last one or after it, and write the page's tables."""
    known = read()
    made = {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "python": platform.python_version(),
    }
    made |= result
    known[kind] = [*known.get(kind, []), made] if add else [made]
    text = yaml.safe_dump(known, sort_keys=False, allow_unicode=True, width=118)
    DATA.write_text(HEAD + text, encoding="utf-8")
    write_page()


def write_page() -> None:
    """Put the tables into the page."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), read()), encoding="utf-8")


def filled(page: str, known: dict[str, Any]) -> str:
    """Return a page in which each block of ```` ```text trials:KIND ```` holds its table."""
    for kind, table in TABLES.items():
        if kind not in known:
            continue
        page = re.sub(
            rf"(<!-- trials: {kind} -->\n```text\n).*?(```\n)",
            lambda found, kind=kind, table=table: found[1] + table(known[kind]) + found[2],
            page,
            flags=re.DOTALL,
        )
    return page


def fuzz_table(runs: list[dict[str, Any]]) -> str:
    """A line for each target, over all runs."""
    total: dict[str, list[int]] = {}
    for run in runs:
        for name, one in run["targets"].items():
            held = total.setdefault(name, [0, 0, 0])
            for at, key in enumerate(("inputs", "refused", "broken")):
                held[at] += one[key]
    lines = [("target", "inputs", "refused", "broke")]
    lines += [(name, f"{all_:,}", f"{no:,}", f"{bad:,}") for name, (all_, no, bad) in total.items()]
    sums = [sum(one[at] for one in total.values()) for at in range(3)]
    lines.append(("all", *(f"{number:,}" for number in sums)))
    seeds = ", ".join(f"{run['date']}: seeds from {run['first_seed']:,}" for run in runs)
    return "".join(f"{a:<22}{b:>12}{c:>12}{d:>8}\n" for a, b, c, d in lines) + f"{seeds}\n"


def variation_table(runs: list[dict[str, Any]]) -> str:
    """The digest, and what was varied."""
    run = runs[-1]
    same = [f"{one['digest'][:16]}  {one['name']}\n" for one in run["builds"]]
    return "".join(same) + f"{run['date']}: {run['files']} files, sha256 {run['sha256']}\n"


def kills_table(runs: list[dict[str, Any]]) -> str:
    """How many were killed, and what was wrong after it."""
    run = runs[-1]
    lines = [f"{number:>5}  {name}\n" for name, number in run["counts"].items()]
    return "".join(lines) + f"{run['date']}: seed {run['seed']}, {run['wrong']} wrong\n"


TABLES = {"fuzz": fuzz_table, "variation": variation_table, "kills": kills_table}

if __name__ == "__main__":
    write_page()
