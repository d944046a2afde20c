"""Hold the answers of two versions against each other: the net under a refactoring.

    python scripts/compare_answers.py record BEFORE.jsonl      # 300 varied questions, asked on the command line
    python scripts/compare_answers.py record AFTER.jsonl
    python scripts/compare_answers.py compare BEFORE.jsonl AFTER.jsonl
    python scripts/compare_answers.py datasets BEFORE.parquet AFTER.parquet

``record`` asks whichever kvreport is imported. ``compare`` and ``datasets`` allow what is new (keys, columns,
rows whose key columns are new) and name everything else that differs; the exit status is 1 if anything does.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import sys
from pathlib import Path
from typing import Any

QUESTIONS = 300
_SHOWN = 20
_FLAGS: list[list[str]] = [
    [],
    ["--kv", "fp8"],
    ["--weights", "fp8"],
    ["--weights", "int4", "--kv", "fp8"],
    ["--engine", "sglang"],
    ["--engine", "ceiling"],
    ["--engine", "vllm@0.11.0"],
    ["--engine", "vllm@0.19.0", "--eager"],
    ["--max-batched-tokens", "4096", "--max-seqs", "64"],
    ["--utilization", "0.8"],
    ["--kv-pool", "20GiB"],
    ["--block-size", "32"],
    ["--no-prefix-caching"],
    ["--speculative", "2"],
]


def questions() -> list[list[str]]:
    """The same questions every time: models, devices, sizes, contexts and flags drawn with a seed."""
    from kvreport.catalog.load import open_catalog

    known = open_catalog()
    draw = random.Random(20261122)  # noqa: S311 - a sample, not a secret
    models, gpus = sorted(known.models), sorted(known.accelerators)
    return [
        [
            "estimate",
            draw.choice(models),
            "--gpu",
            draw.choice(gpus),
            "--tensor-parallel",
            str(draw.choice([1, 1, 2, 4, 8])),
            "--context",
            draw.choice(["1K", "8K", "32K", "128K"]),
            *draw.choice(_FLAGS),
            "--format",
            "json",
        ]
        for _ in range(QUESTIONS)
    ]


def record(out: Path) -> int:
    """Ask every question and write its answer, or its error, a line each."""
    from kvreport.cli import main

    lines = []
    for words in questions():
        printed, complained = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complained):
            status = main(words)
        answer = json.loads(printed.getvalue()) if status == 0 else complained.getvalue()
        lines.append(json.dumps({"asked": words, "status": status, "answer": answer}))
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


def compare(before: Path, after: Path) -> int:
    """Print what differs, key by key."""
    old, new = (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for path in (before, after)
    )
    differing = 0
    for was, now in zip(old, new, strict=True):
        faults = (
            list(_differences("", was["answer"], now["answer"]))
            if was["status"] == now["status"]
            else [f"exit {was['status']} -> {now['status']}"]
        )
        differing += bool(faults)
        if faults and differing <= _SHOWN:
            print(" ".join(was["asked"]), *faults[:5], sep="\n    ")
    print(f"{len(old) - differing} of {len(old)} answers equal")
    return 1 if differing else 0


def _differences(place: str, was: Any, now: Any) -> Any:
    if isinstance(was, dict) and isinstance(now, dict):
        for key in was:
            if key not in now:
                yield f"{place}.{key}: gone"
            else:
                yield from _differences(f"{place}.{key}", was[key], now[key])
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for number, (one, other) in enumerate(zip(was, now, strict=True)):
            yield from _differences(f"{place}[{number}]", one, other)
    elif was != now:
        yield f"{place}: {was!r} -> {now!r}"


def datasets(before: Path, after: Path) -> int:
    """Join two datasets on the key columns of the older one and compare every column that both have."""
    import duckdb

    con = duckdb.connect()
    con.execute("SET preserve_insertion_order=false")
    old, new = (f"read_parquet('{path}')" for path in (before, after))
    shared = [
        row[0]
        for row in con.execute(
            f"SELECT column_name FROM (DESCRIBE SELECT * FROM {old}) INTERSECT "  # noqa: S608 - local files
            f"SELECT column_name FROM (DESCRIBE SELECT * FROM {new})"
        ).fetchall()
    ]
    key = [
        name
        for name in (
            "model",
            "gpu",
            "engine",
            "layout",
            "tensor_parallel",
            "weight_format",
            "kv_format",
            "context_tokens",
        )
        if name in shared
    ]
    rest = [name for name in shared if name not in key]
    on = " AND ".join(f"o.{name} = n.{name}" for name in key)
    count = con.execute(f"SELECT count(*) FROM {old}").fetchone()  # noqa: S608
    joined = con.execute(
        "SELECT count(*), "  # noqa: S608
        + ", ".join(f"count(*) FILTER (o.{name} IS DISTINCT FROM n.{name})" for name in rest)
        + f" FROM {old} o JOIN {new} n ON {on}"
    ).fetchone()
    assert count is not None
    assert joined is not None
    print(f"rows before {count[0]:,}, with the same key after {joined[0]:,}")
    differing = {name: number for name, number in zip(rest, joined[1:], strict=True) if number}
    print("columns that differ:", differing or "none")
    return 1 if differing or joined[0] != count[0] else 0


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("record", "compare", "datasets"))
    parser.add_argument("files", nargs="+", type=Path)
    asked = parser.parse_args()
    if asked.action == "record":
        return record(asked.files[0])
    return (compare if asked.action == "compare" else datasets)(asked.files[0], asked.files[1])


if __name__ == "__main__":
    sys.exit(main())
