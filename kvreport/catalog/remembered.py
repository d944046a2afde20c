"""Remembering what was read off records: a model's shape is asked for a thousand times in a row."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_MOST: Final = 1024
"""Answers of one function: those for a model in every weight format and layout are some hundreds."""
_PLAIN: Final = frozenset({str, int, bool, type(None)})


def remembered(read: Callable[P, T]) -> Callable[P, T]:
    """Remember a function's latest answers by the very objects that it was given, which must not change.

    Records are compared by identity, because comparing or hashing all that is in one takes longer than reading it. Plain
    values are compared as such: a text that was put together is another object each time.
    """
    known: dict[tuple[object, ...], tuple[tuple[object, ...], T]] = {}

    @wraps(read)
    def asked(*records: P.args, **none: P.kwargs) -> T:
        key = tuple([one if type(one) in _PLAIN else id(one) for one in records])  # a list is made faster
        found = known.get(key)
        if found is None:
            if len(known) >= _MOST:
                known.clear()
            # With the answer the objects are kept, so that no other one gets an identity that is known.
            found = known[key] = (records, read(*records, **none))
        return found[1]

    return asked
