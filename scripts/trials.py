"""What was tried against the project and with what result: data/trials.yaml, and its tables in a page.

    python scripts/trials.py                write the tables of docs/about/reliability.md from data/trials.yaml
    python scripts/trials.py --drop fuzz    forget the runs of the fuzzer, before those of other code

``scripts/fuzz.py``, ``scripts/variation.py`` and ``scripts/kills.py`` write their results with ``--write``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import fcntl
import hashlib
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
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


def package() -> str:
    """The first half of the digest of the package's code: two runs with the same were given the same program."""
    code = hashlib.sha256()
    for path in sorted((ROOT / "kvreport").rglob("*.py")):
        code.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return code.hexdigest()[:32]


def stamp() -> dict[str, Any]:
    """What every record has: its day, its Python and its code."""
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "python": platform.python_version(),
        "package": package(),
    }


def write(known: dict[str, Any]) -> None:
    """Write the records, and the page's tables from them."""
    text = yaml.safe_dump(known, sort_keys=False, allow_unicode=True, width=118)
    DATA.write_text(HEAD + text, encoding="utf-8")
    write_page()


def record(kind: str, result: dict[str, Any]) -> None:
    """Record a result in place of the last one."""
    with _alone():
        write(read() | {kind: [stamp() | result]})


def add_counts(first_seed: int, targets: dict[str, dict[str, int]]) -> None:
    """Add one run of the fuzzer to those of the same day, Python and code; runs may end at the same time."""
    with _alone():
        known, made = read(), stamp()
        runs = known.setdefault("fuzz", [])
        own = next((run for run in runs if made.items() <= run.items()), None)
        if own is None:
            own = made | {"runs": 0, "first_seed": first_seed, "targets": {}}
            runs.append(own)
        own["runs"] += 1
        own["first_seed"] = min(own["first_seed"], first_seed)
        for name, counts in targets.items():
            held = own["targets"].setdefault(name, dict.fromkeys(counts, 0))
            for key, number in counts.items():
                held[key] += number
        write(known)


@contextmanager
def _alone() -> Iterator[None]:
    """Let one process write at a time."""
    with Path(f"{DATA}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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
    seeds = "\n".join(
        f"{run['date']}: {run['runs']:,} run{'s' * (run['runs'] != 1)} with seeds from {run['first_seed']:,}, "
        f"package {run['package'][:16]}"
        for run in runs
    )
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
    options = argparse.ArgumentParser(description="Write the tables of docs/about/reliability.md.")
    options.add_argument("--drop", choices=sorted(TABLES), help="forget the records of this kind first")
    if (dropped := options.parse_args().drop) is not None:
        write({kind: runs for kind, runs in read().items() if kind != dropped})
    write_page()
