"""Traces whose requests name the blocks of their prompts: Mooncake, Bailian, and ranges of such names."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kvreport.errors import InputError, shorten
from kvreport.traffic.fields import Clock, flat, ranked
from kvreport.traffic.trace import MAX_BLOCKS, Trace, TracedRequest, build

_BLOCK_SIZES: Final = (512, 16, 32, 64, 128, 256, 1024)
"""Block sizes tried where a trace does not state its own; Mooncake's comes first."""


_PROBE_LINES: Final = 200
"""Requests that the block size is inferred from."""


def hashed(
    parsed: Iterator[dict[str, Any]],
    name: str,
    block_tokens: int | None,
    rate: float | None,
    limit: int | None,
) -> Trace:
    """JSON objects with lengths and block ids: Mooncake, Bailian, ids as ranges, or without any ids.

    ``parsed``: the objects, one a request. ``limit``: most requests; None for all.
    """
    probe = list(itertools.islice(parsed, _PROBE_LINES))
    rows = itertools.chain(probe, parsed)
    clock = Clock(flat(probe[0]), milliseconds=_is_in_milliseconds(probe))
    tokens = 0
    if "hash_ids" in probe[0] or "hash_ranges" in probe[0]:
        tokens = _block_tokens(probe, name, block_tokens)
    requests = _hashed_requests(rows, clock, name, shares=bool(tokens))
    return build(
        requests, name=name, block_tokens=tokens, limit=limit, timed=clock.name is not None, rate=rate
    )


def _is_in_milliseconds(probe: Sequence[dict[str, Any]]) -> bool:
    """Whether times are in milliseconds, as Mooncake's are; those of the Bailian traces (chat_id) are seconds.

    Mooncake's are whole. Parts of one, without Mooncake's block ids, are those of seconds.
    """
    first = probe[0]
    blocks = "hash_ids" in first or "hash_ranges" in first
    parts = any(isinstance(at := row.get("timestamp"), float) and not at.is_integer() for row in probe)
    return (
        "timestamp" in first and first.get("chat_id") is None and "t" not in first and (blocks or not parts)
    )


def _block_tokens(probe: Sequence[dict[str, Any]], name: str, block_tokens: int | None) -> int:
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
    return tokens


def _infer_block(rows: Sequence[dict[str, Any]], name: str) -> int:
    """The block size under which every prompt has as many blocks as ids."""
    pairs = []
    for row in rows:
        length, count = row.get("input_length"), _count_ids(row)
        if isinstance(length, int) and count:
            pairs.append((length, count))
    fits = {size: sum(-(-length // size) == count for length, count in pairs) for size in _BLOCK_SIZES}
    best = max(_BLOCK_SIZES, key=fits.__getitem__)
    # A single faulty request is better named than made a reason to guess another size.
    if 2 * fits[best] >= max(len(pairs), 1):
        return best
    raise InputError(
        f"{name}: found no block size that fits lengths and numbers of ids; state it with --block-tokens"
    )


def _count_ids(row: dict[str, Any]) -> int:
    """Number of a record's block ids, without writing its ranges out; 0 where they are faulty."""
    ids = row.get("hash_ids")
    if isinstance(ids, list):
        return len(ids)
    try:
        return sum(high - low + 1 for low, high in _ranges(row))
    except (TypeError, ValueError):
        return 0


def _ranges(row: dict[str, Any]) -> list[tuple[int, int]]:
    """Ranges of a record's block ids (inclusive).

    Raises:
        TypeError: If they are no list of pairs.
        ValueError: If a pair is no range of whole numbers.
    """
    found = []
    for low, high in row.get("hash_ranges") or ():
        if type(low) is not int or type(high) is not int or low > high + 1:
            raise ValueError("no range")
        found.append((low, high))
    return found


def _hashed_requests(
    rows: Iterable[dict[str, Any]], clock: Clock, name: str, *, shares: bool
) -> Iterator[TracedRequest]:
    roots: dict[Any, str] = {}
    for number, row in enumerate(rows, 1):
        where = f"{name}: request {number:,}"
        fields = flat(row)
        chat, parent = row.get("chat_id"), row.get("parent_chat_id", -1)
        session = row.get("session", next((fields[one] for one in ranked(fields, "session")), None))
        if chat is not None:
            session = roots.setdefault(_plain_id(chat, where), roots.get(_plain_id(parent, where), str(chat)))
        ids = valid_ids(row, where) if shares else []
        if session is not None and "hash_ranges" in row:
            ids = [f"{session}/{one}" for one in ids]
        yield TracedRequest(
            arrival_s=clock.at(fields, where),
            prompt_tokens=whole_of(row, ("input_length", "in"), where),
            output_tokens=whole_of(row, ("output_length", "out"), where, default=0),
            blocks=ids,
            session=None if session is None else str(session),
            think_s=number_of(row, ("think_time",), where) if "think_time" in row else None,
        )


def _plain_id(value: object, where: str) -> int | float | str | None:
    if value is not None and not isinstance(value, int | float | str):
        raise InputError(f"{where}: chat_id: found {shorten(value)}; allowed: a number or a string")
    return value


def valid_ids(row: dict[str, Any], where: str) -> list[int | str]:
    """The names of a prompt's blocks, each a number or a text.

    Raises:
        InputError: If they are anything else.
    """
    ids = row.get("hash_ids")
    if isinstance(ids, list):
        for one in ids:
            if isinstance(one, bool) or not isinstance(one, int | str):
                raise InputError(
                    f"{where}: hash_ids: found {shorten(one)}; allowed: whole numbers or strings"
                )
    try:
        ranges = [] if isinstance(ids, list) else _ranges(row)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{where}: hash_ranges: found {shorten(row.get('hash_ranges'))}; allowed: pairs of whole numbers"
        ) from error
    # Counted before it is written out: a hundred bytes may name a billion ids.
    count = len(ids) if isinstance(ids, list) else sum(high - low + 1 for low, high in ranges)
    if count > MAX_BLOCKS:
        raise InputError(f"{where}: found {count:,} block ids; allowed: at most {MAX_BLOCKS:,}")
    return ids if isinstance(ids, list) else [one for low, high in ranges for one in range(low, high + 1)]


def number_of(row: dict[str, Any], names: Sequence[str], where: str) -> float:
    """A number of a record under any of some names; 0 where it is missing.

    Raises:
        InputError: If it is not a finite number.
    """
    for name in names:
        if name in row and row[name] is not None:
            value = row[name]
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError(f"{where}: {name}: found {shorten(value)}; allowed: a number")
            try:
                return float(value)
            except OverflowError as error:
                raise InputError(f"{where}: {name}: found {shorten(value)}; allowed: a number") from error
    return 0.0


def whole_of(row: dict[str, Any], names: Sequence[str], where: str, default: int | None = None) -> int:
    """A whole number of a record (``row``) under any of some ``names``; a missing one is ``default``. Messages name ``where``.

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
