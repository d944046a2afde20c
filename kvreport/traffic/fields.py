"""Fields of a request by their names, and moments as people write them: one rule for CSV, JSON and logs.

The names stand in ``words.json`` (``trace``), which ``docs/assets/kv-traffic.js`` reads too, so that command and browser
read the same files alike. Names are compared by their letters and digits alone, in lower case.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kvreport import words
from kvreport.errors import InputError, shorten

NAMES: Final[Mapping[str, list[str]]] = words.ALL["trace"]["names"]
"""Names of each field, the likeliest first: of two times, that of the arrival comes before that of the log line."""

UNITS: Final[Mapping[str, int]] = words.ALL["trace"]["units"]
"""What a name of a time may end in, and how many of it a second has; 1 leaves the unit to the number's size."""

EPOCHS: Final[tuple[tuple[float, int], ...]] = tuple(
    (float(least), per_second) for least, per_second in words.ALL["trace"]["epochs"]
)
"""Numbers from so much on are times since 1970 in units of which a second has so many."""

SINCE_1970: Final = 1e8
"""Seconds from so much on (1973) are times since 1970; smaller ones count from the trace's own beginning."""

BLANKS: Final = " \t\n\v\f\r"
"""What is cut from the ends of a text: ASCII, because Python and JavaScript have different further blanks."""

MAX_DEPTH: Final = 4
_MAX_FIELDS: Final = 1000

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_DATE: Final = re.compile(
    r"([0-9]{4})[-/]([0-9]{2})[-/]([0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,12}))?)?"
    r" ?(?:Z|z|UTC|GMT|([+-])([0-9]{2}):?([0-9]{2})?)?",
    re.ASCII,
)
_PAIR: Final = re.compile(
    r"""\b([A-Za-z_][A-Za-z0-9_]{0,40})["']?[ \t]*[:=][ \t]*["']?([0-9]{9,20}(?:\.[0-9]{1,12})?(?![0-9])|"""
    r"""[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[T ][0-9]{2}:[0-9]{2}[0-9:.,]{0,16}(?: ?(?:Z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2}))?)""",
    re.ASCII,
)
_LINE_DATE: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,12})?"
)
_LATENCY: Final = re.compile(r"""["']?e2e_latency["']?[ \t]*[:=][ \t]*([0-9]{1,9}(?:\.[0-9]{1,12})?)""")
_PROMPT: Final = re.compile(
    r"""(?<![A-Za-z_])["']?(?:prompt_tokens|input_tokens)["']?\s*[:=]\s*(-?[0-9]{1,18})(?![0-9])""", re.ASCII
)
_OUTPUT: Final = re.compile(
    r"""["']?(?:completion_tokens|output_tokens)["']?\s*[:=]\s*(-?[0-9]{1,18})(?![0-9])""", re.ASCII
)

LINE: Final = ""
"""Where a log's line states a time without a name."""


def plain(name: str) -> str:
    """Return the letters and digits of a name, in lower case."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def ranked(names: Iterable[str], field: str) -> list[str]:
    """Return the names that may be a field's (``time``, ``prompt``, ``output``, ``session``), as :func:`plain` makes them, likeliest first."""
    present = set(names)
    units = ("", *UNITS) if field == "time" else ("",)
    return list(
        dict.fromkeys(name + unit for name in NAMES[field] for unit in units if name + unit in present)
    )


def beside(name: str) -> list[str]:
    """Return the plain names of what a prompt has besides the tokens under one name.

    ``input_tokens`` leaves out what a cache held and what was written to it, where these are stated.
    """
    return NAMES["cached"] if name == "inputtokens" else []


def _per_second(name: str) -> int:
    if name in NAMES["time"]:
        return 1
    return next((many for unit, many in UNITS.items() for one in NAMES["time"] if name == one + unit), 1)


def number(text: str) -> float | None:
    """Return the number that a text is; None if it is none. Infinity is none either."""
    plain_text = text.strip(BLANKS)
    if len(plain_text) > 40 or not _NUMBER.fullmatch(plain_text):
        return None
    value = float(plain_text)
    return value if math.isfinite(value) else None


def moment(value: object, name: str = LINE) -> float | None:
    """Return a time in seconds, since 1970 where it says so; None if it is no time.

    The ``value`` is a number or a text with a number or a date (ISO 8601; without a zone it is UTC), and the ``name`` may state the
    unit (``timestamp_ms``).
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        text = value.strip(BLANKS)
        value = number(text)
        if value is None:
            return _date(text)
    if not isinstance(value, int | float):
        return None
    try:
        at = float(value)
    except OverflowError:
        return None
    if not math.isfinite(at):
        return None
    stated = _per_second(name)
    if stated != 1:
        return at / stated
    return at / next((per_second for least, per_second in EPOCHS if abs(at) >= least), 1)


def _date(text: str) -> float | None:
    match = _DATE.fullmatch(text) if len(text) <= 60 else None
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    try:
        at = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        if match[8]:
            offset = timedelta(hours=int(match[9]), minutes=int(match[10] or 0))
            at = at - offset if match[8] == "+" else at + offset
    except (ValueError, OverflowError):
        return None
    return (at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() + float(f"0.{match[7] or 0}")


def flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's plain values by plain names, of objects inside it too; the outermost of a name counts."""
    found: dict[str, Any] = {}
    level: list[Mapping[str, Any]] = [record]
    for _ in range(MAX_DEPTH):
        below: list[Mapping[str, Any]] = []
        for part in level:
            for name, value in part.items():
                if isinstance(value, dict):
                    below.append(value)
                elif isinstance(value, str | int | float) and not isinstance(value, bool):
                    found.setdefault(plain(name), value)
            if len(found) > _MAX_FIELDS or len(below) > _MAX_FIELDS:
                return found
        level = below
    return found


def times_of(fields: Mapping[str, Any]) -> dict[str, float]:
    """Return every time that a record states, by name, the likeliest first."""
    found = {name: moment(fields[name], name) for name in ranked(fields, "time")}
    return {name: at for name, at in found.items() if at is not None}


def count_of(fields: Mapping[str, Any], field: str) -> int | None:
    """Return a record's number of tokens; None if it states none."""
    for name in ranked(fields, field):
        value = _whole(fields[name])
        if value is not None:
            more = beside(name) if field == "prompt" else []
            return value + sum(_whole(fields.get(one)) or 0 for one in more)
    return None


def _whole(value: object) -> int | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def line_counts(line: str) -> tuple[int, int] | None:
    """Return prompt and output tokens that a line of a log states; None unless it states both."""
    prompt, output = _PROMPT.search(line), _OUTPUT.search(line)
    return (int(prompt[1]), int(output[1])) if prompt and output else None


def line_times(line: str) -> dict[str, float]:
    """Return every time that a line of a log states, by name; that of the line itself comes last.

    A line is written when its request has ended: its time is taken back by the request's latency, if stated.
    """
    pairs: dict[str, str] = {}
    for match in _PAIR.finditer(line):
        pairs.setdefault(plain(match[1]), match[2])
    return times_of(pairs) | line_time(line)


def line_time(line: str) -> dict[str, float]:
    """Return the time that stands in a line without a name."""
    date = _LINE_DATE.search(line)
    at = None if date is None else _date(date[0])
    if at is None:
        return {}
    latency = _LATENCY.search(line)
    return {LINE: at - (float(latency[1]) if latency else 0.0)}


MOMENTS: Final = "seconds, a time since 1970 in s, ms, us or ns, or a date and time (ISO 8601)"


class Clock:
    """The field that a trace states its arrivals in, chosen at the first request and read from every one."""

    def __init__(
        self, first: Mapping[str, Any], *, from_first: bool = False, milliseconds: bool = False
    ) -> None:
        """Choose by the first request: of the names that may be a time's, the likeliest whose value is one.

        Times count from the first request's where ``from_first`` says so, and numbers may be ``milliseconds``; times since 1970 are
        neither.
        """
        names = ranked(first, "time")
        readable = [name for name in names if moment(first[name], name) is not None]
        # Plain name of the field; None without times.
        self.name: str | None = next(iter((*readable, *names)), None)
        self._label = "time" if from_first else self.name
        self._milliseconds = False
        self._start = 0.0
        if self.name is not None:
            value = first[self.name]
            self._milliseconds = milliseconds and isinstance(value, int | float) and -1e9 < value < 1e9
            at = self._read(value)
            if at is not None and (from_first or abs(at) >= SINCE_1970):
                self._start = at

    def _read(self, value: object) -> float | None:
        if self._milliseconds and isinstance(value, int | float) and not isinstance(value, bool):
            return self._finite(value) / 1000
        return moment(value, self.name or LINE)

    @staticmethod
    def _finite(value: float) -> float:
        try:
            return float(value)
        except OverflowError:
            return math.inf

    def at(self, fields: Mapping[str, Any], where: str) -> float:
        """Return when a request arrives, in seconds since the trace began; 0 where the trace has no times.

        Raises:
            InputError: If the request states no time though the first does, or none that can be read.
        """
        if self.name is None:
            return 0.0
        value = fields.get(self.name)
        at = self._read(value)
        if at is None:
            if self.name in fields:
                raise InputError(f"{where}: {self._label}: found {shorten(value)}; allowed: {MOMENTS}")
            raise InputError(
                f"{where}: found no {self._label}, which the first request has; allowed: a time for every request, or "
                "for none"
            )
        if self._start and at < self._start:
            raise InputError(f"{where}: time: found a time before the first row's; sort the rows by time")
        return at - self._start
