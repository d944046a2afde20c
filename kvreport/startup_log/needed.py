"""The text that a line must contain for a pattern to match it: found in a hundredth of the time that the pattern takes.

Two hundred patterns are tried on every line. A file that is no log, or a log of something else, would take minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any


def needed(expression: str) -> tuple[str, ...]:
    """Return texts of which one stands in everything that an expression matches; ``("",)`` if there are none.

    Args:
        expression: A regular expression.
    """
    parsed = parser.parse(expression, re.ASCII)
    if parsed.state.flags & re.IGNORECASE:
        return ("",)
    return _best(parsed)


def _best(items: Iterable[tuple[Any, Any]]) -> tuple[str, ...]:
    """Of all sets of texts, that whose shortest text is longest: it is found least often."""
    return max(_sets(items), key=lambda texts: (min(map(len, texts)), -len(texts)), default=("",))


def _sets(items: Iterable[tuple[Any, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield sets of texts, each with one that must be there."""
    run = ""
    for code, value in items:
        if code is codes.LITERAL:
            run += chr(value)
            continue
        if code is codes.AT:  # a boundary stands between two texts without a sign of its own
            continue
        yield (run,)
        run = ""
        if code is codes.SUBPATTERN and not value[1] and not value[2]:
            yield from _sets(value[3])
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT) and value[0]:
            yield from _sets(value[2])
        elif code is codes.BRANCH:
            alternatives = [_best(one) for one in value[1]]
            yield tuple(dict.fromkeys(text for texts in alternatives for text in texts))
    yield (run,)
