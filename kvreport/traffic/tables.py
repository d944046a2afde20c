"""Traces in CSV: Azure, BurstGPT and Vidur by their headers, and plain columns of lengths."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from kvreport.errors import InputError, shorten
from kvreport.traffic.trace import TracedRequest

_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "time": ("timestamp", "arrivedat", "arrival", "arrivals", "arrivaltime", "time", "timestampms", "t"),
    "prompt": (
        "contexttokens",
        "numprefilltokens",
        "requesttokens",
        "prompttokens",
        "inputlength",
        "inputtokens",
        "prompt",
        "input",
        "promptlength",
        "in",
    ),
    "output": (
        "generatedtokens",
        "numdecodetokens",
        "responsetokens",
        "completiontokens",
        "outputlength",
        "outputtokens",
        "output",
        "completion",
        "out",
    ),
    "session": ("sessionid", "session", "conversation", "conversationid"),
}
"""Column names (letters and digits, lower case) of Azure, Vidur, BurstGPT and everybody else."""

_FRACTION: Final = re.compile(r"(\.\d{6})\d+")


@dataclass(frozen=True, slots=True)
class _Columns:
    prompt: int
    output: int | None
    time: int | None
    session: int | None
    milliseconds: bool


def csv_requests(lines: Iterable[str], name: str, rate: float | None) -> Iterator[TracedRequest]:
    """Read requests from CSV.

    Without a header, one column is prompt lengths, two are prompt and output lengths, three are arrival
    seconds, prompt and output. Times are counted from the first row.

    Args:
        lines: Lines of text.
        name: The file's name, for messages.
        rate: Requests per second where there are no times; None: all at once.

    Raises:
        InputError: If a row cannot be read; BurstGPT's rows of failed requests (no output) are kept.
    """
    rows: Iterator[tuple[int, list[str]]] = enumerate(csv.reader(lines), 1)
    number, head = next(((n, row) for n, row in rows if any(cell.strip() for cell in row)), (0, []))
    columns = _header(head, name)
    start: float | None = None
    if columns is None:
        columns = _by_position(head, name)
        rows = _again(number, head, rows)
    count = 0
    for line, row in rows:
        if not any(cell.strip() for cell in row):
            continue
        where = f"{name}: line {line:,}"
        if columns.time is None:
            arrival = count / rate if rate else 0.0
        else:
            seconds = _seconds(_cell(row, columns.time, where), where)
            seconds *= 1e-3 if columns.milliseconds else 1.0
            start = seconds if start is None else start
            # Times before the first row's are set right by sorting; a record's time starts at 0.
            arrival = seconds - start
            if arrival < 0:
                raise InputError(f"{where}: time: found a time before the first row's; sort the rows by time")
        yield TracedRequest(
            arrival_s=arrival,
            prompt_tokens=_whole(_cell(row, columns.prompt, where), where, "prompt tokens"),
            output_tokens=(
                0
                if columns.output is None
                else _whole(_cell(row, columns.output, where), where, "output tokens")
            ),
            session=(_cell(row, columns.session, where).strip() or None)
            if columns.session is not None
            else None,
        )
        count += 1


def _again(
    number: int, head: list[str], rows: Iterator[tuple[int, list[str]]]
) -> Iterator[tuple[int, list[str]]]:
    yield number, head
    yield from rows


def _header(cells: Sequence[str], name: str) -> _Columns | None:
    plain = [re.sub(r"[^a-z0-9]", "", cell.lower()) for cell in cells]
    if all(re.fullmatch(r"[\d.]*", re.sub(r"[\s,+-]", "", cell)) for cell in cells):
        return None
    found = {
        field: next((plain.index(known) for known in names if known in plain), None)
        for field, names in _NAMES.items()
    }
    if found["prompt"] is None:
        raise InputError(
            f"{name}: line 1: found the columns {shorten(', '.join(cells))}; allowed: a column of prompt "
            "lengths (ContextTokens, num_prefill_tokens, Request tokens, prompt_tokens or input_length)"
        )
    return _Columns(
        prompt=found["prompt"],
        output=found["output"],
        time=found["time"],
        session=found["session"],
        milliseconds=found["time"] is not None and plain[found["time"]] == "timestampms",
    )


def _by_position(cells: Sequence[str], name: str) -> _Columns:
    if len(cells) == 1:
        return _Columns(0, None, None, None, milliseconds=False)
    if len(cells) == 2:
        return _Columns(0, 1, None, None, milliseconds=False)
    if len(cells) == 3:
        return _Columns(1, 2, 0, None, milliseconds=False)
    raise InputError(
        f"{name}: line 1: found {len(cells)} columns without a header; allowed: 1 (prompt), 2 (prompt, output) "
        "or 3 (seconds, prompt, output)"
    )


def _cell(row: Sequence[str], column: int, where: str) -> str:
    if column >= len(row):
        raise InputError(f"{where}: found {len(row)} columns; allowed: at least {column + 1}")
    return row[column]


def _whole(text: str, where: str, field: str) -> int:
    try:
        value = float(text)
        whole = int(value)
    except (ValueError, OverflowError):
        whole, value = -1, 0.0
    if whole != value or whole < 0:
        raise InputError(f"{where}: {field}: found {shorten(text)}; allowed: a whole number from 0")
    return whole


def _seconds(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(_FRACTION.sub(r"\1", text.strip()))
    except ValueError as error:
        raise InputError(
            f"{where}: time: found {shorten(text)}; allowed: seconds, or a date and time"
        ) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
