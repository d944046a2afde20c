"""Calls functions of generated JavaScript in a real engine, for the tests."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kvreport.accounting import kernel
from kvreport.publish.javascript import camel

_RUN = """
const revive = (_, value) => value && typeof value === "object" && "number" in value ? Number(value.number) : value;
const plain = (_, value) => typeof value === "number" && !Number.isFinite(value) ? { number: String(value) } : value;
const calls = JSON.parse(await new Response(Deno.stdin.readable).text(), revive);
console.log(JSON.stringify(calls.map(([name, given]) => kvKernel[name](...given)), plain));
"""
_NUMBERS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def deno() -> str:
    """The JavaScript engine that the lock pins; it comes as a wheel. None is a failure, as for Chromium."""
    found = Path(sys.executable).with_name("deno")
    if not found.is_file():
        pytest.fail(f"no Deno at {found}: run `make test`, which installs the lock's, or pip install deno")
    return str(found)


def run(program: str, given: object) -> Any:
    """Run a program that prints JSON, with JSON on its input."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "run.js")
        file.write_text(program, encoding="utf-8")
        done = subprocess.run(
            [deno(), "run", "--quiet", "--no-config", "--no-check", file],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def call(script: str, calls: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
    """Return what the script's functions answer; they are named and given as in Python."""
    answers: list[Any] = _revived(
        run(script + _RUN, [[camel(name), _plain(list(given))] for name, given in calls])
    )
    return answers


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it; a record becomes an object under its JavaScript names."""
    if hasattr(value, "_asdict") and not isinstance(value, kernel.ReserveRates):
        return {camel(name): _plain(one) for name, one in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": _NUMBERS[str(value)]}
    return value


def _revived(found: Any) -> Any:
    if isinstance(found, dict):
        return (
            float(found["number"])
            if "number" in found
            else {name: _revived(one) for name, one in found.items()}
        )
    return [_revived(one) for one in found] if isinstance(found, list) else found


_SEARCH = """
const { index, asked } = JSON.parse(await new Response(Deno.stdin.readable).text());
const held = kvSearch.setUp(index);
console.log(JSON.stringify(asked.map((query) => kvSearch.search(held, query))));
"""


def searched(index: dict[str, Any], asked: Sequence[str]) -> list[list[list[dict[str, Any]]]]:
    """Return what the site's search finds for each query: pages, each with its sections."""
    engine = Path(__file__).parents[1] / "docs/assets/kv-search.js"
    program = engine.read_text(encoding="utf-8") + _SEARCH
    answers: list[list[list[dict[str, Any]]]] = run(program, {"index": index, "asked": list(asked)})
    return answers
