"""Numbers on the command line: every flag that takes one says which it takes."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from typing import Final

from kvreport.errors import shorten

MOST_WHOLE: Final = 1 << 30
"""Largest count that a flag takes where it has no limit of its own."""
MOST_REAL: Final = 1e9
"""Largest number with a fraction, such as seconds or a rate."""

_WHOLE: Final = re.compile(r"\s*[+-]?[0-9]+(_[0-9]+)*\s*", re.ASCII)
_REAL: Final = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*", re.ASCII)


def whole(low: int = 1, high: int = MOST_WHOLE) -> Callable[[str], int]:
    """Return what reads a whole number for :mod:`argparse`.

    Returns:
        A function that raises :class:`argparse.ArgumentTypeError` for anything else.
    """

    def read(text: str) -> int:
        value = int(text) if len(text) <= 40 and _WHOLE.fullmatch(text) else None
        if value is None or not low <= value <= high:
            allowed = f"a whole number from {low:,} to {high:,}"
            raise argparse.ArgumentTypeError(f"found {shorten(text)}; allowed: {allowed}")
        return value

    return read


def real(low: float = 0, high: float = MOST_REAL) -> Callable[[str], float]:
    """Return what reads a number for :mod:`argparse`; arguments and result as for :func:`whole`.

    What must be above 0 is refused where its meaning is known.
    """

    def read(text: str) -> float:
        value = finite(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(
                f"found {shorten(text)}; allowed: a number from {low:,.0f} to {high:,.0f}"
            )
        return value

    return read


def share(text: str) -> float:
    """Read a share for :mod:`argparse`: above 0, at most 1."""
    value = finite(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"found {shorten(text)}; allowed: a share above 0 and at most 1")
    return value


def finite(text: str) -> float:
    """Return a number written in ASCII digits; NaN, which no range holds, for anything else."""
    value = float(text) if len(text) <= 40 and _REAL.fullmatch(text) else math.nan
    return value if math.isfinite(value) else math.nan
