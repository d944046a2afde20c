"""Regular expressions that come as data: what a line must contain for one to match, and why one may be refused.

A log may come from anybody, and two hundred expressions are tried on every line. An expression is therefore tried only
where a text stands that all its matches contain, and it is refused, by its syntax tree, if its time can grow faster
than the line: see :func:`fault_of`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

LONGEST: Final = 1500
"""Characters of an expression."""
WIDEST: Final = 1000
"""Times that something may repeat, those of repeats around it multiplied."""
SHORTEST_TEXT: Final = 3
"""Characters of the text that every match contains."""
_REPEATS: Final = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)


def needed(expression: str) -> tuple[str, ...]:
    """Return texts of which one stands in everything that an expression matches; ``("",)`` if there are none."""
    parsed = parser.parse(expression, re.ASCII)
    if parsed.state.flags & re.IGNORECASE:
        return ("",)
    return _best(parsed)


def fault_of(expression: str, *, by_text: bool = True) -> str | None:
    """Return why an expression may not be used; None if it may.

    Read in its syntax tree: no reference to a group, nothing that repeats more than :data:`WIDEST` times with the
    repeats around it, and no repeat without an end but that of one character. One of any character (``.``) must stop
    where a text begins: ``(?:(?!text).)*``. Every match contains a text, so that other lines are never tried.

    With ``by_text``, a text must stand in every match.
    """
    if len(expression) > LONGEST:
        return f"{len(expression):,} characters"
    try:
        parsed = parser.parse(expression, re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        return str(error)
    found = _too_wide(parsed, 1)
    if found is None and by_text and min(map(len, needed(expression))) < SHORTEST_TEXT:
        return f"no text of {SHORTEST_TEXT} characters that every match contains"
    return found


def _too_wide(items: Iterable[tuple[Any, Any]], around: int) -> str | None:
    for code, value in items:
        if code in (codes.GROUPREF, codes.GROUPREF_EXISTS):
            return "a reference to a group"
        if code in _REPEATS:
            _, most, inner = value
            if most is codes.MAXREPEAT:
                if around > 1:
                    return "a repeat without an end inside another repeat"
                if not _one_character(inner):
                    return "a repeat without an end of more than one character, or of any character"
            elif most * around > WIDEST:
                return f"a repeat of up to {most * around:,} times"
            deeper = [(inner, around if most is codes.MAXREPEAT else most * around)]
        else:
            deeper = [(one, around) for one in _inner((code, value))]
        for one, times in deeper:
            found = _too_wide(one, times)
            if found is not None:
                return found
    return None


def _one_character(items: Iterable[tuple[Any, Any]]) -> bool:
    """Whether what repeats is one known character, or any that does not begin a text."""
    parts = list(items)
    if len(parts) == 1 and parts[0][0] is codes.SUBPATTERN:
        return _one_character(parts[0][1][3])
    if len(parts) == 2:  # a text that it stops before, and any character
        return parts[0][0] is codes.ASSERT_NOT and parts[1][0] is codes.ANY
    return len(parts) == 1 and parts[0][0] in (codes.LITERAL, codes.NOT_LITERAL, codes.IN)


def _inner(item: tuple[Any, Any]) -> Iterator[Any]:
    code, value = item
    if code is codes.SUBPATTERN:
        yield value[3]
    elif code in (codes.ASSERT, codes.ASSERT_NOT):
        yield value[1]
    elif code is codes.BRANCH:
        yield from value[1]


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
