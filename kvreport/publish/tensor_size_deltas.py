"""The explorer's numbers of all tensor-parallel sizes in one file: the first size, and what each further one differs by.

Ranks divide most of a model and copy the rest, so that a further size says little new: together they take half of what the files of
single sizes take. What copies of a model in other formats have in common is said once. ``docs/assets/kv-matrix.js`` puts the sizes apart again, and a test holds them equal to those files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

Facts = dict[str, Any]
_Column = Sequence[int | None]

_PLAIN_PLAN: Final = 4
"""Entries of a plan that divides one pool."""


def together(group: str, files: Sequence[Facts], sizes: Sequence[int]) -> Facts:
    """Return one file for those of several tensor-parallel sizes."""
    return _MADE[group](files, sizes)


def _weights(files: Sequence[Facts], sizes: Sequence[int]) -> Facts:
    """Weights: of the second size, what its ranks have more than the first's; of others, what that does not foretell."""
    columns = [one["weights"] for one in files]
    first, second = sizes[:2]
    found: list[list[int | None]] = [[] for _ in columns]
    for alone, pair, *others in zip(*columns, strict=True):
        known = alone is not None and pair is not None
        copied = second * pair - first * alone if known else pair
        found[0].append(alone)
        found[1].append(copied)
        for column, size, one in zip(found[2:], sizes[2:], others, strict=True):
            more = size * one - first * alone if known and one is not None else None
            column.append(one if more is None else more * (second - first) - copied * (size - first))
    return {"weights": found}


def _added(files: Sequence[Facts], _: Sequence[int]) -> Facts:
    return {"added": _differences([one["added"] for one in files])}


def _differences(columns: Sequence[_Column]) -> list[list[int | None]]:
    """The first column, and of each further one what it has more than the one before; as it is where one is null."""
    found = [list(columns[0])]
    for before, column in pairwise(columns):
        pairs = zip(before, column, strict=True)
        found.append([now if was is None or now is None else now - was for was, now in pairs])
    return found


def _caches(files: Sequence[Facts], sizes: Sequence[int]) -> Facts:
    """Plans: those that an earlier size has are its place, counted from -1 down; those that it has, divided, from 1 up."""
    plans: list[list[Any]] = [list(files[0]["plans"])]
    for n, size in enumerate(sizes[1:], start=1):
        column = []
        for model, own in enumerate(files[n]["plans"]):
            earlier = [(place, files[place]["plans"][model]) for place in reversed(range(n))]
            same = next((-1 - place for place, other in earlier if other == own), None)
            divided = next(
                (1 + place for place, other in earlier if _divided(other, sizes[place], size) == own), None
            )
            column.append(own if not own else same or divided or own)
        plans.append(column)
    return {"plans": _grouped(plans), "plan": _grouped([one["plan"] for one in files])}


def _grouped(columns: Sequence[Sequence[Any]]) -> Facts:
    """Columns in which many models have the same: the different entries of all sizes, and the place of each model's among them."""
    places: dict[str, int] = {}
    of = [
        places.setdefault(json.dumps(entries), len(places)) for entries in zip(*columns, strict=True)
    ]  # copies of a model in other formats
    return {"each": [json.loads(text) for text in places], "of": of}


def _divided(plans: Sequence[list[Any]], before: int, size: int) -> list[list[Any]] | None:
    """Plans whose bytes are divided by as many more ranks; None where they do not divide."""
    times, left = divmod(size, before)
    if left or any(len(plan) > _PLAIN_PLAN for plan in plans):
        return None
    parts = [
        number
        for block, _, constant, terms in plans
        for number in (block, constant, *(term[0] for term in terms))
    ]
    if any(number % times for number in parts):
        return None
    return [
        [block // times, kept, constant // times, [[rate // times, *rest] for rate, *rest in terms]]
        for block, kept, constant, terms in plans
    ]


def _reserves(files: Sequence[Facts], _: Sequence[int]) -> Facts:
    """Reserves, and of rates the fields that are others than those of the first size."""
    models = [str(place) for place in range(len(files[0]["reserve"]))]
    spared = [[one["spared"].get(name, 0) for name in models] for one in files]
    first, *others = ([one["rates"].get(name) for name in models] for one in files)
    rates = [[_others(was, own) for was, own in zip(first, column, strict=True)] for column in others]
    return {
        "reserve": _grouped(_differences([one["reserve"] for one in files])),
        "spared": _grouped(_differences(spared)),
        "rates": _grouped([first, *rates]),
    }


def _others(first: Sequence[Any] | None, own: Sequence[Any] | None) -> Any:  # noqa: ANN401 - all rates, or some by their place
    if first is None or own is None or len(first) != len(own):
        return own
    pairs = enumerate(zip(first, own, strict=True))
    return {str(place): now for place, (was, now) in pairs if was != now}


_MADE: Final[dict[str, Callable[[Sequence[Facts], Sequence[int]], Facts]]] = {
    "weights": _weights,
    "added": _added,
    "cache": _caches,
    "reserve": _reserves,
}
