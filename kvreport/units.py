"""Bytes, GiB, GB and token counts: parsed and printed here and nowhere else.

Inside kvreport a size is a whole number of bytes and a context is a whole number of tokens.
Units exist only at the edges. ``GiB`` is 2^30 bytes and ``GB`` is 10^9 bytes; a bare ``K`` in
a token count is 1,024 (the field says "128K" for 131,072).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kvreport.errors import InputError, shorten

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
TIB: Final = 1 << 40
KB: Final = 10**3
MB: Final = 10**6
GB: Final = 10**9
TB: Final = 10**12

MAX_CONTEXT_TOKENS: Final = 1 << 30
"""Longest context accepted; far beyond any model, and safe in 64-bit byte arithmetic."""
MAX_BYTES: Final = 1 << 60

_BYTE_UNITS: Final = {
    "": 1,
    "b": 1,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": TIB,
    "kb": KB,
    "mb": MB,
    "gb": GB,
    "tb": TB,
}
_TOKEN_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20}
_NUMBER: Final = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", re.ASCII)


def parse_bytes(text: str | int) -> int:
    """Read a size such as ``40GiB``, ``80 GB`` or ``1048576`` into bytes.

    Raises:
        InputError: If the text is not a positive size with a known unit.
    """
    value = _parse(text, _BYTE_UNITS, "a size such as 40GiB, 40GB or a whole number of bytes")
    if not 0 < value <= MAX_BYTES:
        raise InputError(f"size {shorten(text)} is out of range; allowed: 1 byte to {MAX_BYTES}")
    return value


def parse_tokens(text: str | int) -> int:
    """Read a token count such as ``8192``, ``32K`` (32,768) or ``1M`` (1,048,576).

    Raises:
        InputError: If the text is not a token count from 1 to 2^30.
    """
    value = _parse(text, _TOKEN_UNITS, "a token count such as 8192, 32K or 1M")
    if not 0 < value <= MAX_CONTEXT_TOKENS:
        raise InputError(f"token count {shorten(text)} is out of range; allowed: 1 to {MAX_CONTEXT_TOKENS:,}")
    return value


def _parse(text: str | int, units: dict[str, int], allowed: str) -> int:
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise InputError(f"found {repr(text)[:40]}; allowed: {allowed}")
    if isinstance(text, int):
        return text
    match = _NUMBER.fullmatch(text) if len(text) <= 40 else None
    if match is None or match[2].lower() not in units:
        raise InputError(f"found {shorten(text)}; allowed: {allowed}")
    number = match[1].replace(",", "").replace("_", "")
    factor = units[match[2].lower()]
    value = float(number) * factor if "." in number else int(number) * factor
    if value != int(value) and factor == 1:
        raise InputError(f"found {shorten(text)}, not a whole number; allowed: {allowed}")
    return int(value)


def gib(size_bytes: float, digits: int = 2) -> str:
    """Print bytes as GiB without the unit: ``gib(1610612736) == '1.50'``."""
    return f"{size_bytes / GIB:,.{digits}f}"


def shortfall(size_bytes: float) -> str:
    """Print missing bytes as GiB with one digit; what is missing is never printed as nothing.

    >>> shortfall(5 * GIB), shortfall(1)
    ('5.0', '0.1')
    """
    return gib(max(size_bytes, GIB / 10), 1)


def gb(size_bytes: float, digits: int = 2) -> str:
    """Print bytes as GB (10^9) without the unit."""
    return f"{size_bytes / GB:,.{digits}f}"


def human_bytes(size_bytes: float) -> str:
    """Print bytes in the binary unit that keeps three or four digits: ``128 KiB``."""
    for unit, factor in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(size_bytes) >= factor:
            value = size_bytes / factor
            digits = 0 if value >= 100 or value == int(value) else 1 if value >= 10 else 2
            return f"{value:,.{digits}f} {unit}"
    return f"{size_bytes:,.0f} B"


def human_tokens(tokens: int) -> str:
    """Print a context the way the field says it: ``131072`` is ``128K``, ``6000`` is ``6,000``."""
    if tokens >= 1 << 20 and tokens % (1 << 20) == 0:
        return f"{tokens >> 20}M"
    if tokens >= 1 << 10 and tokens % (1 << 10) == 0:
        return f"{tokens >> 10}K"
    return f"{tokens:,}"


def count(value: float) -> str:
    """Print a whole number with thousands separated."""
    return f"{value:,.0f}"


def human_parameters(parameters: int) -> str:
    """Print a parameter count as ``8.03B``, ``270M``."""
    for unit, factor in (("T", 10**12), ("B", 10**9), ("M", 10**6)):
        if parameters >= factor:
            value = parameters / factor
            return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}{unit}"
    return f"{parameters:,}"


def columns(rows: Sequence[Sequence[str]], align: str) -> list[str]:
    """Lay rows out in columns.

    Args:
        rows: Cells, every row of the same length.
        align: One of ``<`` and ``>`` per column.

    Returns:
        One line per row, indented by two spaces.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(align))]
    return [
        "  "
        + "   ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
