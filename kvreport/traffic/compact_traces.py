"""kvreport's compact form of a trace: one line per request, prefix blocks as ranges.

    kvreport-trace 1 block=512 time=ms requests=12031 source=…
    0,6758,500;+14
    0,7322,490;0 +14
    3000,6100,12,7;0-5 9 +6

A line holds the time since the line before, prompt tokens, output tokens and (where known) the session's
number; after the semicolon the path of prefix blocks: known blocks as numbers or inclusive ranges, ``+n`` for
``n`` blocks seen for the first time, which are numbered in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from kvreport.errors import InputError, shorten
from kvreport.traffic.fields import BLANKS
from kvreport.traffic.trace import MAX_NODES, TracedRequest

MAGIC: Final = "kvreport-trace "

_HEAD: Final = re.compile(r"kvreport-trace 1 block=(\d{1,7}) time=ms\b")
_ROW: Final = re.compile(r"(\d{1,12}),(\d{1,10}),(\d{1,10})(?:,(\d{1,9}))?(?:;([\d+ -]*))?")


def read_compact(lines: Iterable[str], name: str) -> tuple[int, Iterator[TracedRequest]]:
    """Read the compact form.

    Returns:
        The tokens of one block, and the requests.

    Raises:
        InputError: If the first line is not a header of version 1; while reading, for a faulty line.
    """
    stream = iter(lines)
    head = next(stream)
    match = _HEAD.match(head)
    if not match:
        raise InputError(
            f"{name}: line 1: found {shorten(head.strip(BLANKS))}; allowed: kvreport-trace 1 block=N time=ms"
        )
    return int(match[1]), _rows(stream, name)


def _rows(lines: Iterator[str], name: str) -> Iterator[TracedRequest]:
    time, known = 0, 0
    for number, line in enumerate(lines, 2):
        if not line.strip(BLANKS):
            continue
        match = _ROW.fullmatch(line.strip(BLANKS))
        if not match:
            raise InputError(
                f"{name}: line {number:,}: found {shorten(line.strip(BLANKS))}; allowed: time,prompt,output;path"
            )
        time += int(match[1])
        blocks, known = _path(match[5] or "", known, f"{name}: line {number:,}")
        yield TracedRequest(time / 1e3, int(match[2]), int(match[3]), blocks, match[4])


def _path(text: str, known: int, where: str) -> tuple[list[int], int]:
    blocks: list[int] = []
    for word in text.split():
        try:
            if word.startswith("+"):
                low, high = known, known + int(word[1:]) - 1
                known = high + 1
            else:
                first, _, last = word.partition("-")
                low, high = int(first), int(last or first)
        except ValueError:
            low, high = 1, 0
        if not 0 <= low <= high < known or known > MAX_NODES:
            raise InputError(
                f"{where}: path: found {shorten(word)}; allowed: known blocks, ranges of them, or +n"
            )
        blocks.extend(range(low, high + 1))
    return blocks, known
