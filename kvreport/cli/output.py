"""Text for a terminal: aligned tables, JSON, and nothing that could steer the terminal."""

from __future__ import annotations

import argparse
import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any, Final, TextIO

from kvreport.units import columns

REQUIREMENT_NOT_MET: Final = 3
"""Exit status where something is answered and falls short of what was required."""

_COLORS: Final = {"good": "32", "warning": "33", "bad": "31"}
_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def cut(text: str, limit: int = 300) -> str:
    """Return a text, or its beginning: an argument may be as long as a shell lets it be."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def paint(text: str, role: str, stream: TextIO | None = None) -> str:
    """Return a :func:`plain` text in the color of its role, where a person reads it on a terminal that has colors."""
    if not has_color(stream or sys.stdout):
        return text
    return f"\x1b[{_COLORS[role]}m{text}\x1b[0m"


def has_color(stream: TextIO) -> bool:
    """Whether a stream shows colors: a terminal, and nothing says no (https://no-color.org)."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def plain(text: str) -> str:
    """Return ``text`` without control and direction characters: catalog texts are untrusted."""
    if text.isascii() and text.isprintable():
        return text
    return "".join("\ufffd" if unicodedata.category(sign) in _UNSAFE else sign for sign in text)


def write(text: str = "", stream: TextIO | None = None) -> None:
    """Print one line."""
    print(plain(text), file=stream or sys.stdout)


def figure(value: object) -> str:
    """Return a number with its thousands separated, a word as it is, and a dash for nothing."""
    return "-" if value is None else f"{value:,}" if type(value) in (int, float) else str(value)


def progress(words: str) -> None:
    """Show how far a long command is, on a terminal; no words clear the line."""
    if sys.stderr.isatty():
        print(f"\r{plain(words):<60}\r", end="", file=sys.stderr, flush=True)


def write_text(text: str) -> None:
    """Print several lines."""
    for line in text.splitlines():
        write(line)


def write_answer(form: str, value: Callable[[], object], lines: Callable[[], Iterable[str]]) -> None:
    """Print an answer as JSON or in lines; only what is printed is made."""
    if form == "json":
        write_json(value())
        return
    for line in lines():
        write(line)


def given(options: argparse.Namespace, names: str) -> dict[str, Any]:
    """Return some options by name, for a function whose arguments are called so."""
    return {name: getattr(options, name) for name in names.split()}


def write_json(value: object) -> None:
    """Print an object; JSON escapes whatever is not ASCII, and has no infinities."""
    print(json.dumps(value, indent=2, allow_nan=False))


table = columns
"""Rows laid out in columns."""
