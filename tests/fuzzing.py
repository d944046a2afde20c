"""How many examples a property is tried on: few in every build, many in `make fuzz`."""

from __future__ import annotations

import os

from hypothesis import settings

TIMES = int(os.environ.get("KVREPORT_FUZZ", "1"))
"""How many times the examples of an ordinary build are tried."""


def examples(count: int) -> int:
    """So many examples in every build; :data:`TIMES` as many when fuzzing."""
    return count * TIMES


def load_profile() -> None:
    """Set what holds for every property.

    A build that passes today passes tomorrow: its examples are drawn from the test itself, not from a
    clock. Fuzzing draws new ones; what it finds becomes an ``@example`` of the test that found it.
    """
    settings.register_profile(
        "kvreport", max_examples=examples(100), derandomize=TIMES == 1, deadline=None, print_blob=TIMES > 1
    )
    settings.load_profile("kvreport")
