"""How many examples a property is tried on: few in every build, many in `make fuzz`."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import Phase, settings

T = TypeVar("T")
TIMES = int(os.environ.get("KVREPORT_FUZZ", "1"))
"""How many times the examples of an ordinary build are tried."""


def examples(count: int) -> int:
    """Half of so many examples in every build; :data:`TIMES` as many when fuzzing, as every night."""
    return count * TIMES if TIMES > 1 else (count + 1) // 2


def thinned(cases: Sequence[T], step: int) -> list[T]:
    """One in so many cases of one kind in every build, from the first to the last; every one when fuzzing."""
    if TIMES > 1:
        return list(cases)
    return [*cases[:-1:step], *cases[-1:]]


def load_profile() -> None:
    """Set what holds for every property.

    A build that passes today passes tomorrow: its examples are drawn from the test itself, not from a
    clock. Fuzzing draws new ones; what it finds becomes an ``@example`` of the test that found it.
    Where only the first failure is wanted (``KVREPORT_UNSHRUNK``), no smaller example is looked for.
    """
    shrinking = {Phase.shrink, Phase.explain} if "KVREPORT_UNSHRUNK" in os.environ else set()
    settings.register_profile(
        "kvreport",
        max_examples=examples(100),
        derandomize=TIMES == 1,
        deadline=None,
        print_blob=TIMES > 1,
        phases=[one for one in Phase if one not in shrinking],
    )
    settings.load_profile("kvreport")


_COUNTS: Counter[str] = Counter()
# "100 passing examples, 0 failing examples" in older releases of hypothesis, "100 passing, 0 failing" since.
_PASSED = re.compile(r"(\d+) passing(?: examples?)?, (\d+) failing")


def counted(what: str, number: int = 1) -> None:
    """Count inputs, under a name that the summary prints."""
    _COUNTS[what] += number


def take_counts(item: object) -> dict[str, int]:
    """Return what a test tried: the examples that hypothesis ran and what the test itself counted."""
    found = dict(_COUNTS)
    _COUNTS.clear()
    tried = _PASSED.findall(getattr(item, "hypothesis_statistics", ""))
    inputs = sum(int(passing) + int(failing) for passing, failing in tried)
    return {**found, "inputs": inputs + found.get("inputs", 0)} if inputs else found
