"""Read traces in the forms that people have, line by line.

- Mooncake JSONL (``timestamp`` in ms, ``input_length``, ``output_length``, ``hash_ids`` of 512 tokens) and the
  Bailian traces of the same shape (``chat_id``, seconds, 16 tokens);
- kv-cache-tester sessions (``hash_ids`` of 64 tokens, local to a session, sub-agents nested), one file or a
  folder of them;
- CSV with a header (Azure, BurstGPT, Vidur) or without one (lengths);
- request logs that state ``prompt_tokens`` and ``completion_tokens`` (SGLang's ``--log-requests``, JSON lines of
  an OpenAI-compatible server);
- kvreport's own compact form (:mod:`kvreport.traffic.compact`), plain or gzip.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

from kvreport.errors import InputError, shorten
from kvreport.traffic.compact import MAGIC, read_compact
from kvreport.traffic.tables import csv_requests
from kvreport.traffic.trace import Trace, TracedRequest, build
from kvreport.traffic.usage_log import log_requests

_BLOCK_SIZES: Final = (512, 16, 32, 64, 128, 256, 1024)
"""Block sizes tried where a trace does not state its own; Mooncake's comes first."""

_PROBE_LINES: Final = 200
"""Requests that the block size is inferred from."""

MAX_LINE: Final = 1 << 24
"""Longest line read, in characters: a request of a million tokens in 16-token blocks has 0.7 million."""


def read_trace(
    path: str | Path, *, block_tokens: int | None = None, rate: float | None = None, limit: int | None = None
) -> Trace:
    """Read a trace of any known form.

    Args:
        path: A file, or a folder of session files.
        block_tokens: Tokens of one prefix block, where the trace does not state it.
        rate: Requests (sessions, for session files) per second, for traces without times; None: all at once.
        limit: Read no more than so many requests.

    Raises:
        InputError: If the file is no trace, or one of its requests is impossible.
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
    with _open(where) as lines:
        return read_lines(_checked(lines, where.name), where.name, block_tokens, rate, limit)


def read_lines(
    lines: Iterable[str],
    name: str,
    block_tokens: int | None = None,
    rate: float | None = None,
    limit: int | None = None,
) -> Trace:
    """Read a trace from lines of text; see :func:`read_trace`.

    Args:
        lines: The lines.
        name: Name of the source, for messages.
        block_tokens: Tokens per block; None for what the format says.
        rate: Requests (sessions, for session files) per second, for traces without times; None for all at once.
        limit: The most requests to read; None for all.

    Raises:
        InputError: If a line is faulty, or the format is not known.
    """
    stream = iter(lines)
    head = next((line for line in stream if line.strip()), None)
    if head is None:
        raise InputError(f"{name}: found an empty file; allowed: a trace")
    rest: Iterator[str] = itertools.chain([head], stream)
    if head.startswith(MAGIC):
        tokens, requests = read_compact(rest, name)
        return build(requests, name=name, block_tokens=tokens, limit=limit)
    first = _json(head)
    if first is None and head.lstrip().startswith("{") and not _mentions_usage(head):
        # A document over several lines: a session file.
        first = _document(rest, name)
        rest = iter(())
    if isinstance(first, dict) and isinstance(first.get("requests"), list):
        documents = itertools.chain([first], (_json(line) for line in rest if line.strip() and line != head))
        return _sessions(((name, doc) for doc in documents), name, rate, limit)
    if isinstance(first, dict) and ("hash_ids" in first or "hash_ranges" in first):
        return _hashed(rest, name, block_tokens, limit)
    if isinstance(first, dict) and "input_length" in first:
        return build(_plain_json(rest, name), name=name, limit=limit)
    logged = log_requests(rest, name) if _mentions_usage(head) or isinstance(first, dict) else None
    if logged is not None:
        return build(logged, name=name, limit=limit)
    probe = list(itertools.islice(rest, _PROBE_LINES))
    rest = itertools.chain(probe, rest)
    if any(_mentions_usage(line) for line in probe) and not head.lower().count(","):
        return build(log_requests(rest, name), name=name, limit=limit)
    return build(csv_requests(rest, name, rate), name=name, limit=limit)


def _open(path: Path) -> TextIO:
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
    if packed:
        return gzip.open(path, "rt", encoding="utf-8", errors="replace", newline=None)
    return path.open("r", encoding="utf-8", errors="replace", newline=None)


def _checked(lines: TextIO, name: str) -> Iterator[str]:
    """Lines of bounded length, so that a file without line ends does not fill memory."""
    number = 0
    try:
        while line := lines.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise InputError(
                    f"{name}: line {number:,}: found over {MAX_LINE:,} characters; allowed: a trace"
                )
            if "\0" in line:
                raise InputError(f"{name}: line {number:,}: found a binary file; allowed: text")
            yield line.removeprefix("\ufeff") if number == 1 else line
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        raise InputError(
            f"{name}: found a damaged archive ({error}); allowed: text, or gzip of it"
        ) from error


def _json(line: str) -> Any:  # noqa: ANN401 - whatever the line holds
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _document(lines: Iterable[str], name: str) -> Any:  # noqa: ANN401 - whatever the file holds
    text, size = [], 0
    for line in lines:
        size += len(line)
        if size > 16 * MAX_LINE:
            raise InputError(
                f"{name}: found a JSON document over {16 * MAX_LINE:,} characters; allowed: JSON lines"
            )
        text.append(line)
    found = _json("".join(text))
    if found is None:
        raise InputError(f"{name}: found no valid JSON; allowed: JSON lines, a session file or CSV")
    return found


_HEADER: Final = re.compile(r'[\w "]+(,[\w "]+)+\s*')


def _mentions_usage(line: str) -> bool:
    """True if a line states token counts. The header of a CSV file only names the columns of counts."""
    if _HEADER.fullmatch(line):
        return False
    return "prompt_tokens" in line and ("completion_tokens" in line or "output_tokens" in line)


def _hashed(lines: Iterable[str], name: str, block_tokens: int | None, limit: int | None) -> Trace:
    """JSON lines with block ids: Mooncake, Bailian, or ids as ranges."""
    parsed = _objects(lines, name)
    probe = list(itertools.islice(parsed, _PROBE_LINES))
    stated = next(
        (row.get("block_size", row.get("block")) for row in probe if "block_size" in row or "block" in row),
        None,
    )
    tokens = stated if stated is not None else block_tokens
    if tokens is None:
        tokens = _infer_block(probe, name)
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        raise InputError(
            f"{name}: block size: found {shorten(tokens)}; allowed: a whole number of tokens from 1"
        )
    rows = itertools.chain(probe, parsed)
    return build(_hashed_requests(rows, name), name=name, block_tokens=tokens, limit=limit)


def _objects(lines: Iterable[str], name: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = _json(line)
        if not isinstance(row, dict):
            raise InputError(
                f"{name}: line {number:,}: found {shorten(line.strip())}; allowed: a JSON object"
            )
        yield row


def _infer_block(rows: Sequence[dict[str, Any]], name: str) -> int:
    """The block size under which every prompt has as many blocks as ids."""
    pairs = []
    for row in rows:
        length, ids = row.get("input_length"), block_ids(row)
        if isinstance(length, int) and ids:
            pairs.append((length, len(ids)))
    fits = {size: sum(-(-length // size) == count for length, count in pairs) for size in _BLOCK_SIZES}
    best = max(_BLOCK_SIZES, key=fits.__getitem__)
    # A single faulty request is better named than made a reason to guess another size.
    if 2 * fits[best] >= max(len(pairs), 1):
        return best
    raise InputError(
        f"{name}: found no block size that fits lengths and numbers of ids; state it with --block-tokens"
    )


def block_ids(row: dict[str, Any]) -> list[int | str]:
    """Block ids of a record, ranges (inclusive) written out."""
    ids = row.get("hash_ids")
    if isinstance(ids, list):
        return ids
    found: list[int | str] = []
    for pair in row.get("hash_ranges") or ():
        found.extend(range(int(pair[0]), int(pair[1]) + 1))
    return found


def _hashed_requests(rows: Iterable[dict[str, Any]], name: str) -> Iterator[TracedRequest]:
    roots: dict[Any, str] = {}
    for number, row in enumerate(rows, 1):
        where = f"{name}: request {number:,}"
        chat, parent = row.get("chat_id"), row.get("parent_chat_id", -1)
        session = row.get("session")
        if chat is not None:
            session = roots.setdefault(chat, roots.get(parent, str(chat)))
        # Mooncake's times are milliseconds; the Bailian traces (chat_id) and sessions (t) are in seconds.
        scale = 1.0 if chat is not None or "t" in row else 1e-3
        ids = _valid_ids(row, where)
        if session is not None and "hash_ranges" in row:
            ids = [f"{session}/{one}" for one in ids]
        yield TracedRequest(
            arrival_s=number_of(row, ("timestamp", "t"), where) * scale,
            prompt_tokens=whole_of(row, ("input_length", "in"), where),
            output_tokens=whole_of(row, ("output_length", "out"), where, default=0),
            blocks=ids,
            session=None if session is None else str(session),
            think_s=number_of(row, ("think_time",), where) if "think_time" in row else None,
        )


def _valid_ids(row: dict[str, Any], where: str) -> list[int | str]:
    try:
        ids = block_ids(row)
    except (TypeError, ValueError, IndexError, MemoryError) as error:
        raise InputError(
            f"{where}: hash_ranges: found {shorten(row.get('hash_ranges'))}; allowed: pairs"
        ) from error
    for one in ids:
        if isinstance(one, bool) or not isinstance(one, int | str):
            raise InputError(f"{where}: hash_ids: found {shorten(one)}; allowed: whole numbers or strings")
    return ids


def number_of(row: dict[str, Any], names: Sequence[str], where: str, default: float = 0.0) -> float:
    """A number of a record under any of some names.

    Args:
        row: The record.
        names: Names that the number may have.
        where: Place of the record, for messages.
        default: What a missing one is; None to refuse it.

    Raises:
        InputError: If it is not a finite number.
    """
    for name in names:
        if name in row and row[name] is not None:
            value = row[name]
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError(f"{where}: {name}: found {shorten(value)}; allowed: a number")
            return float(value)
    return default


def whole_of(row: dict[str, Any], names: Sequence[str], where: str, default: int | None = None) -> int:
    """A whole number of a record under any of some names.

    Args:
        row: The record.
        names: Names that the number may have.
        where: Place of the record, for messages.
        default: What a missing one is; None to refuse it.

    Raises:
        InputError: If it is missing without a default, or no whole number.
    """
    for name in names:
        if name in row and row[name] is not None:
            value = row[name]
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if isinstance(value, bool) or not isinstance(value, int):
                raise InputError(
                    f"{where}: {name}: found {shorten(value)}; allowed: a whole number of tokens"
                )
            return value
    if default is not None:
        return default
    raise InputError(f"{where}: found no {names[0]}; allowed: a whole number of tokens")


def _plain_json(lines: Iterable[str], name: str) -> Iterator[TracedRequest]:
    for number, row in enumerate(_objects(lines, name), 1):
        where = f"{name}: request {number:,}"
        yield TracedRequest(
            arrival_s=number_of(row, ("timestamp",), where) * 1e-3,
            prompt_tokens=whole_of(row, ("input_length",), where),
            output_tokens=whole_of(row, ("output_length",), where, default=0),
        )


# --- sessions of kv-cache-tester ---------------------------------------------------------------------


def _folder(path: Path, rate: float | None, limit: int | None) -> Trace:
    files = sorted(path.glob("*.json"))
    if not files:
        raise InputError(f"trace: found no .json file in {str(path)!r}; allowed: a folder of session files")

    def documents() -> Iterator[tuple[str, Any]]:
        for file in files:
            with _open(file) as lines:
                yield file.name, _document(_checked(lines, file.name), file.name)

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
    return build(_session_requests(every, tokens, rate), name=name, block_tokens=tokens, limit=limit)


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
            blocks=[f"{scope}{one}" for one in _valid_ids(turn, where)],
            session=session,
            think_s=number_of(turn, ("think_time",), where),
        )
