"""Traces in CSV: Azure, BurstGPT and Vidur by their headers, and plain columns of lengths."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kvreport.errors import InputError, shorten
from kvreport.traffic.fields import BLANKS, Clock, beside, number, plain, ranked
from kvreport.traffic.trace import TracedRequest


@dataclass(frozen=True, slots=True)
class _NamedColumns:
    prompt: int
    output: int | None
    session: int | None
    times: dict[str, int]
    cached: tuple[int, ...] = ()  # What a prompt has besides.
    decimal_comma: bool = False  # Whether 0,5 is half a second.


_SEPARATORS: Final = ",;\t"


def _separator(head: str) -> str:
    """What separates the columns: the sign of these that the first line has most of, outside quotes."""
    bare = re.sub(r'"[^"]*"', "", head)
    return max(_SEPARATORS, key=bare.count)


def csv_requests(lines: Iterable[str], name: str) -> tuple[Iterator[TracedRequest], bool]:
    """Read requests from CSV, whose columns commas, semicolons or tabs separate.

    Numbers of seconds may have a decimal comma between semicolons; a comma in a number of tokens is refused. Without a header,
    one column is prompt lengths, two are prompt and output lengths, three are arrival seconds, prompt and output. Times are
    counted from the first row.

    Returns:
        The requests, and whether they have times.

    Raises:
        InputError: If a row cannot be read; BurstGPT's rows of failed requests (no output) are kept.
    """
    stream = iter(lines)
    first_line = next(stream, "")
    separator = _separator(first_line)
    table = csv.reader(itertools.chain([first_line], stream), strict=True, delimiter=separator)
    rows: Iterator[tuple[int, list[str]]] = (
        (line, row) for line, row in enumerate(table, 1) if any(cell.strip(BLANKS) for cell in row)
    )
    number, head = next(rows, (0, []))
    columns = _header(head, name)
    if columns is None:
        columns = _by_position(head, name)
        rows = itertools.chain([(number, head)], rows)
    columns = replace(columns, decimal_comma=separator == ";")
    first = next(rows, None)
    if first is None:
        return iter(()), bool(columns.times)
    clock = Clock(_times(columns, first[1]), from_first=True)
    return _requests(itertools.chain([first], rows), columns, clock, name), clock.name is not None


def _times(columns: _NamedColumns, row: Sequence[str]) -> dict[str, str]:
    found = {name: row[at] for name, at in columns.times.items() if at < len(row)}
    if not columns.decimal_comma:
        return found
    return {name: re.sub(r"^([ +-]*[0-9]+),([0-9]+ *)$", r"\1.\2", cell) for name, cell in found.items()}


def _requests(
    rows: Iterable[tuple[int, list[str]]], columns: _NamedColumns, clock: Clock, name: str
) -> Iterator[TracedRequest]:
    for line, row in rows:
        where = f"{name}: line {line:,}"
        yield TracedRequest(
            arrival_s=clock.at(_times(columns, row), where),
            prompt_tokens=_whole(_cell(row, columns.prompt, where), where, "prompt tokens")
            + sum(_whole(_cell(row, one, where) or "0", where, "cached tokens") for one in columns.cached),
            output_tokens=(
                0
                if columns.output is None
                else _whole(_cell(row, columns.output, where), where, "output tokens")
            ),
            session=(_cell(row, columns.session, where).strip(BLANKS) or None)
            if columns.session is not None
            else None,
        )


def _header(cells: Sequence[str], name: str) -> _NamedColumns | None:
    if all(re.fullmatch(r"[0-9.]*", re.sub(r"[ \t\n\v\f\r,+-]", "", cell)) for cell in cells):
        return None
    places: dict[str, int] = {}
    for at, cell in enumerate(cells):
        places.setdefault(plain(cell), at)

    def place(field: str) -> int | None:
        return next((places[known] for known in ranked(places, field)), None)

    prompt = place("prompt")
    if prompt is None:
        raise InputError(
            f"{name}: line 1: found the columns {shorten(', '.join(cells))}; allowed: a column of prompt "
            "lengths (ContextTokens, num_prefill_tokens, Request tokens, prompt_tokens or input_length)"
        )
    times = {known: places[known] for known in ranked(places, "time")}
    cached = tuple(places[one] for one in beside(ranked(places, "prompt")[0]) if one in places)
    return _NamedColumns(prompt, place("output"), place("session"), times, cached)


def _by_position(cells: Sequence[str], name: str) -> _NamedColumns:
    if len(cells) == 1:
        return _NamedColumns(0, None, None, {})
    if len(cells) == 2:
        return _NamedColumns(0, 1, None, {})
    if len(cells) == 3:
        return _NamedColumns(1, 2, None, {"time": 0})
    raise InputError(
        f"{name}: line 1: found {len(cells)} columns without a header; allowed: 1 (prompt), 2 (prompt, output) "
        "or 3 (seconds, prompt, output)"
    )


def _cell(row: Sequence[str], column: int, where: str) -> str:
    if column >= len(row):
        raise InputError(f"{where}: found {len(row)} columns; allowed: at least {column + 1}")
    return row[column]


def _whole(text: str, where: str, field: str) -> int:
    value = number(text)
    if value is None or not value.is_integer() or value < 0:
        raise InputError(f"{where}: {field}: found {shorten(text)}; allowed: a whole number from 0")
    return int(value)
