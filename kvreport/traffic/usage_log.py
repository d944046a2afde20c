"""Requests from a server's own log: lines that state prompt and completion tokens.

SGLang writes them with ``--log-requests`` (``Finish: obj=GenerateReqInput(received_time=…), out={'meta_info':
{'prompt_tokens': …, 'completion_tokens': …}}``); gateways and OpenAI-compatible servers write JSON lines with a
``usage`` object. A line without both counts is passed over. vLLM's own request log does not state output
lengths, so it cannot be replayed.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from math import isnan, nan
from typing import Any, Final

from kvreport.errors import InputError, shorten
from kvreport.traffic.fields import (
    BLANKS,
    NAMES,
    count_of,
    flat,
    line_counts,
    line_time,
    line_times,
    ranked,
    times_of,
)
from kvreport.traffic.trace import TracedRequest

Entry = tuple[str, Any]
"""A line and what it is as JSON, or None."""


def entries(lines: Iterable[str]) -> Iterator[Entry]:
    """Yield every line with what it is as JSON."""
    for line in lines:
        record = None
        if line.lstrip(BLANKS).startswith("{"):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
        yield line, record


def log_requests(found: Iterable[Entry], name: str) -> tuple[Iterator[TracedRequest], bool]:
    """Read requests from a log, in the order of their arrival where the log states it.

    A line's time is the arrival (``received_time``, ``created``), else the time of the line less the
    request's latency. All requests are held until the end, because a log is in order of completion.

    Returns:
        The requests, and whether they have times.

    Raises:
        InputError: If no line states both counts, or some requests have a time and others none.
    """
    prompts, outputs, times = array("q"), array("q"), array("d")
    sessions: list[str | None] = []
    chosen: str | None = None
    first: dict[str, Any] | None = None
    for line, record in found:
        first = first or (record if isinstance(record, dict) else None)
        read = _json_entry(record, line) or _text_entry(line)
        if read is None:
            continue
        (prompt, output), at, session = read
        if not prompts:
            chosen = next(iter(at), None)
        prompts.append(_bounded(prompt))
        outputs.append(_bounded(output))
        times.append(nan if chosen is None else at.get(chosen, nan))
        sessions.append(session)
    if not prompts:
        among = f" among {shorten(', '.join(first))}" if first else ""
        raise InputError(
            f"{name}: found no line with prompt_tokens and completion_tokens{among}; allowed: Mooncake JSONL, "
            f"sessions, CSV with lengths, or a log that states both counts (prompts: {', '.join(NAMES['prompt'])}; answers: "
            f"{', '.join(NAMES['output'])})"
        )
    missing = sum(map(isnan, times)) if chosen is not None else 0
    if missing:
        raise InputError(
            f"{name}: found {missing:,} of {len(times):,} requests without the time "
            f"{chosen or 'of the line'} that the first has; allowed: a time for every request, or for none"
        )
    return _in_order(prompts, outputs, times, sessions, timed=chosen is not None), chosen is not None


_MOST: Final = 1 << 62


def _bounded(tokens: int) -> int:
    """A number that a column can hold; one beyond it is refused where its request is checked."""
    return max(min(tokens, _MOST), -_MOST)


def _in_order(
    prompts: array[int], outputs: array[int], times: array[float], sessions: list[str | None], *, timed: bool
) -> Iterator[TracedRequest]:
    order = sorted(range(len(prompts)), key=times.__getitem__) if timed else range(len(prompts))
    first = times[order[0]] if timed else 0.0
    for row in order:
        arrival = times[row] - first if timed else 0.0
        yield TracedRequest(arrival, prompts[row], outputs[row], session=sessions[row])


def _json_entry(record: object, line: str) -> tuple[tuple[int, int], Mapping[str, float], str | None] | None:
    if not isinstance(record, dict):
        return None
    fields = flat(record)
    prompt, output = count_of(fields, "prompt"), count_of(fields, "output")
    if prompt is None or output is None:
        return None
    session = next((str(fields[name]) for name in ranked(fields, "session")), None)
    return (prompt, output), times_of(fields) or line_time(line), session


def _text_entry(line: str) -> tuple[tuple[int, int], Mapping[str, float], str | None] | None:
    counts = line_counts(line)
    return None if counts is None else (counts, line_times(line), None)


def array_entries(records: Iterable[object]) -> Iterator[Entry]:
    """Yield the elements of a JSON array as :func:`entries` yields lines."""
    return zip(("" for _ in count()), records, strict=False)
