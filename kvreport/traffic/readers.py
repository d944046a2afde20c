"""Read traces in the forms that people have, line by line.

- Mooncake JSONL (``timestamp`` in ms, ``input_length``, ``output_length``, ``hash_ids`` of 512 tokens) and the
  Bailian traces of the same shape (``chat_id``, seconds, 16 tokens);
- kv-cache-tester sessions (``hash_ids`` of 64 tokens, local to a session, sub-agents nested), one file or a
  folder of them;
- CSV with a header (Azure, BurstGPT, Vidur) or without one (lengths), with commas, semicolons or tabs;
- request logs that state ``prompt_tokens`` and ``completion_tokens`` (SGLang's ``--log-requests``, JSON lines of
  an OpenAI-compatible server);
- kvreport's own compact form (:mod:`kvreport.traffic.compact_traces`), plain or gzip.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TextIO

from kvreport.budgets import TRACE, guard
from kvreport.errors import InputError, shorten
from kvreport.traffic.compact_traces import MAGIC, read_compact
from kvreport.traffic.csv_traces import csv_requests
from kvreport.traffic.fields import BLANKS
from kvreport.traffic.hashed_traces import _PROBE_LINES, hashed, number_of, valid_ids, whole_of
from kvreport.traffic.trace import Trace, TracedRequest, build
from kvreport.traffic.usage_log import Entry, array_entries, entries, log_requests

MAX_LINE: Final = TRACE.row_bytes
"""Longest line read, in characters."""

MAX_DOCUMENT: Final = 1 << 26
"""Longest JSON document over several lines, in characters: it is held in memory as a whole."""

_FORMS: Final = "a trace: Mooncake or Bailian JSON lines, sessions, CSV or a log of token counts"


def read_trace(
    path: str | Path, *, block_tokens: int | None = None, rate: float | None = None, limit: int | None = None
) -> Trace:
    """Read a trace of any known form.

    Args:
        path: A file, or a folder of session files.
        block_tokens: Tokens of one prefix block, where the trace does not state it.
        rate: Requests (sessions, for session files) per second, for traces without times; None: all at once.
        limit: Read at most this many requests.

    Raises:
        InputError: If the file is no trace, or one of its requests is impossible; if a rate is stated for a trace that
            has times.
    """
    where = Path(path)
    if rate is not None and not rate > 0:
        raise InputError(f"rate: found {rate}; allowed: requests per second above 0")
    if limit is not None and limit < 1:
        raise InputError(f"limit: found {limit}; allowed: 1 or more requests")
    if where.is_dir():
        return _folder(where, rate, limit)
    if not where.is_file():
        raise InputError(f"trace: found no file {str(where)!r}; allowed: a file, or a folder of sessions")
    if limit is None:
        _survey(where)
    with _open(where) as lines:
        return read_lines(_checked(lines, where.name), where.name, block_tokens, rate, limit)


def read_lines(
    lines: Iterable[str],
    name: str,
    block_tokens: int | None = None,
    rate: float | None = None,
    limit: int | None = None,
) -> Trace:
    """Read a trace from lines of text, called ``name`` in messages; the other arguments are those of :func:`read_trace`.

    Raises:
        InputError: If a line is faulty, or the format is not known.
    """
    numbered = _Numbered(lines)
    with guard(lambda: f"{name}: line {numbered.number:,}", _FORMS):
        return _read(numbered, name, block_tokens, rate, limit)


class _Numbered:
    """Lines with the number of the last one taken, without a mark of the byte order."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.number += 1
        return line.removeprefix("\ufeff") if self.number == 1 else line


def _read(
    stream: Iterator[str], name: str, block_tokens: int | None, rate: float | None, limit: int | None
) -> Trace:
    head = next((line for line in stream if line.strip(BLANKS)), None)
    if head is None:
        raise InputError(f"{name}: found an empty file; allowed: a trace")
    rest: Iterator[str] = itertools.chain([head], stream)
    if head.startswith(MAGIC):
        tokens, requests = read_compact(rest, name)
        return build(requests, name=name, block_tokens=tokens, limit=limit, rate=rate)
    if _ARRAY.match(head):
        return _array(_document(rest, name), name, block_tokens, rate, limit)
    first = _json(head)
    if first is None and head.lstrip(BLANKS).startswith("{") and not _mentions_usage(head):
        # A document over several lines: a session file, or one request.
        return _array([_document(rest, name)], name, block_tokens, rate, limit)
    if isinstance(first, dict) and isinstance(first.get("requests"), list):
        documents = itertools.chain(
            [first], (_json(line) for line in rest if line.strip(BLANKS) and line != head)
        )
        return _sessions(((name, doc) for doc in documents), name, rate, limit)
    if isinstance(first, dict) and ("hash_ids" in first or "hash_ranges" in first or "input_length" in first):
        return hashed(_objects(rest, name), name, block_tokens, rate, limit)
    if isinstance(first, dict) or _mentions_usage(head):
        return _logged(entries(rest), name, rate, limit)
    probe = list(itertools.islice(rest, _PROBE_LINES))
    rest = itertools.chain(probe, rest)
    if any(_mentions_usage(line) for line in probe) and not head.lower().count(","):
        return _logged(entries(rest), name, rate, limit)
    requests, timed = csv_requests(rest, name)
    return build(requests, name=name, limit=limit, timed=timed, rate=rate)


def _array(
    found: object, name: str, block_tokens: int | None, rate: float | None, limit: int | None
) -> Trace:
    """A JSON array of what the lines of a file may be."""
    if not isinstance(found, list) or not found:
        raise InputError(f"{name}: found no JSON array of objects; allowed: {_FORMS}")
    for number, row in enumerate(found, 1):
        if not isinstance(row, dict):
            raise InputError(f"{name}: element {number:,}: found {shorten(row)}; allowed: a JSON object")
    first = found[0]
    if isinstance(first.get("requests"), list):
        return _sessions(((name, document) for document in found), name, rate, limit)
    if "hash_ids" in first or "hash_ranges" in first or "input_length" in first:
        return hashed(iter(found), name, block_tokens, rate, limit)
    return _logged(array_entries(found), name, rate, limit)


def _logged(found: Iterable[Entry], name: str, rate: float | None, limit: int | None) -> Trace:
    requests, timed = log_requests(found, name)
    return build(requests, name=name, limit=limit, timed=timed, rate=rate)


def _open(path: Path) -> TextIO:
    if _is_packed(path):
        return gzip.open(path, "rt", encoding="utf-8", errors="replace", newline=None)
    return path.open("r", encoding="utf-8", errors="replace", newline=None)


def _is_packed(path: Path) -> bool:
    with path.open("rb") as raw:
        return raw.read(2) == b"\x1f\x8b"


_ARCHIVE_ERRORS: Final = (OSError, EOFError, zlib.error)
"""What Python's gzip raises for a damaged archive."""


def _survey(path: Path) -> None:
    """Refuse a file beyond the budget before any of its lines is read: bytes and line ends are counted alone."""
    size = rows = 0
    try:
        with gzip.open(path, "rb") if _is_packed(path) else path.open("rb") as raw:
            while chunk := raw.read(1 << 20):
                size += len(chunk)
                rows += chunk.count(b"\n")
                if size > TRACE.bytes or rows > TRACE.rows:
                    raise _beyond(path.name, "bytes" if size > TRACE.bytes else "lines")
    except _ARCHIVE_ERRORS as error:
        raise _damaged(path.name, error) from error


def _beyond(name: str, what: str) -> InputError:
    most = TRACE.bytes if what == "bytes" else TRACE.rows
    return InputError(
        f"{name}: found more than {most:,} {what}; allowed: a part of it, or the first N requests (limit)"
    )


def _damaged(name: str, error: BaseException) -> InputError:
    return InputError(f"{name}: found a damaged archive ({error}); allowed: text, or gzip of it")


def _checked(lines: TextIO, name: str) -> Iterator[str]:
    """Lines of bounded length and number, so that no file fills memory or keeps a reader for ever."""
    number = size = 0
    try:
        while line := lines.readline(MAX_LINE + 1):
            number += 1
            size += len(line)
            if number > TRACE.rows or size > TRACE.bytes:
                raise _beyond(name, "lines" if number > TRACE.rows else "bytes")
            if len(line) > MAX_LINE:
                raise InputError(
                    f"{name}: line {number:,}: found over {MAX_LINE:,} characters; allowed: a trace"
                )
            if "\0" in line:
                raise InputError(f"{name}: line {number:,}: found a binary file; allowed: text")
            yield line
    except _ARCHIVE_ERRORS as error:
        raise _damaged(name, error) from error


def _json(line: str) -> Any:  # noqa: ANN401 - whatever the line holds
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _document(lines: Iterable[str], name: str) -> Any:  # noqa: ANN401 - whatever the file holds
    text, size = [], 0
    for line in lines:
        size += len(line)
        if size > MAX_DOCUMENT:
            raise InputError(
                f"{name}: found a JSON document over {MAX_DOCUMENT:,} characters; allowed: JSON lines"
            )
        text.append(line)
    found = _json("".join(text))
    if found is None:
        raise InputError(f"{name}: found no valid JSON; allowed: JSON lines, a session file or CSV")
    return found


_ARRAY: Final = re.compile(r"\s*\[\s*(?:\{|$)", re.ASCII)
"""A JSON array of objects begins so; a line of a log may begin with a date in brackets."""

_HEADER: Final = re.compile(r'[\w "]+([,;\t][\w "]+)+\s*', re.ASCII)


def _mentions_usage(line: str) -> bool:
    """True if a line states token counts. The header of a CSV file only names the columns of counts."""
    if _HEADER.fullmatch(line):
        return False
    return "prompt_tokens" in line and ("completion_tokens" in line or "output_tokens" in line)


def _objects(lines: Iterable[str], name: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        if not line.strip(BLANKS):
            continue
        row = _json(line)
        if not isinstance(row, dict):
            raise InputError(
                f"{name}: line {number:,}: found {shorten(line.strip(BLANKS))}; allowed: a JSON object"
            )
        yield row


# --- sessions of kv-cache-tester ---------------------------------------------------------------------


def _folder(path: Path, rate: float | None, limit: int | None) -> Trace:
    files = sorted(path.glob("*.json"))
    if not files:
        raise InputError(f"trace: found no .json file in {str(path)!r}; allowed: a folder of session files")

    def documents() -> Iterator[tuple[str, Any]]:
        for file in files:
            with _open(file) as lines:
                yield file.name, _document(_Numbered(_checked(lines, file.name)), file.name)

    with guard(str(path), _FORMS):
        return _sessions(documents(), path.name, rate, limit)


def _sessions(
    documents: Iterable[tuple[str, Any]], name: str, rate: float | None, limit: int | None
) -> Trace:
    documents = iter(documents)
    head = next(documents)
    tokens = head[1].get("block_size", 64) if isinstance(head[1], dict) else 64
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        raise InputError(f"{name}: block_size: found {shorten(tokens)}; allowed: a whole number of tokens")
    every = itertools.chain([head], documents)
    found = build(_session_requests(every, tokens, rate), name=name, block_tokens=tokens, limit=limit)
    # Times of a session count from its own beginning.
    several = len(set(found.session)) > 1
    return replace(found, arrivals="rate" if rate else "sessions_at_once" if several else "recorded")


def _session_requests(
    documents: Iterable[tuple[str, Any]], tokens: int, rate: float | None
) -> Iterator[TracedRequest]:
    for number, (name, document) in enumerate(documents):
        if not isinstance(document, dict) or not isinstance(document.get("requests"), list):
            raise InputError(f"{name}: found no list of requests; allowed: a session of kv-cache-tester")
        if document.get("block_size", tokens) != tokens:
            raise InputError(
                f"{name}: block_size: found {document['block_size']}; the first session has {tokens}"
            )
        session = str(document.get("id", name))
        scope = "" if document.get("hash_id_scope") == "global" else f"{session}/"
        start = number / rate if rate else 0.0
        yield from _turns(document["requests"], session, scope, start, name, depth=0)


def _turns(
    turns: Sequence[Any], session: str, scope: str, start: float, name: str, depth: int
) -> Iterator[TracedRequest]:
    if depth > 8:
        raise InputError(f"{name}: found sub-agents nested deeper than 8; allowed: at most 8 levels")
    for number, turn in enumerate(turns, 1):
        where = f"{name}: request {number:,}"
        if not isinstance(turn, dict):
            raise InputError(f"{where}: found {shorten(turn)}; allowed: an object")
        if isinstance(turn.get("requests"), list):
            yield from _turns(turn["requests"], session, scope, start, name, depth + 1)
            continue
        prompt = whole_of(turn, ("in",), where)
        if not prompt:
            # An aborted call: nothing was read.
            continue
        yield TracedRequest(
            arrival_s=start + number_of(turn, ("t",), where),
            prompt_tokens=prompt,
            output_tokens=whole_of(turn, ("out",), where, default=0),
            blocks=[f"{scope}{one}" for one in valid_ids(turn, where)],
            session=session,
            think_s=number_of(turn, ("think_time",), where),
        )
