"""How far off predictions are where a log is of more than tensor parallelism: by layout, drafts and adapters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvreport.catalog.observation import Observation
from kvreport.evidence.judgment import end_to_end
from kvreport.evidence.validation import Compared, Validation
from kvreport.resources import read_table

FROM_POOL: Final = ("concurrency given pool", "tokens given pool")
"""Predictions that start from the pool that was logged; the first that a log prints counts."""

KINDS: Final[dict[str, str]] = read_table("layouts of logs")
"""What a log can have beside tensor parallelism, in words."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Absolute relative errors of some logs."""

    count: int  # Logs compared.
    median: float  # NaN without any.
    p90: float  # The 90th percentile, likewise.

    @classmethod
    def of(cls, errors: Iterable[float]) -> Errors:
        """Sum errors up."""
        known = [abs(one) for one in errors if math.isfinite(one)]
        if not known:
            return cls(0, math.nan, math.nan)
        return cls(len(known), float(np.median(known)), float(np.quantile(known, 0.9)))


@dataclass(frozen=True, slots=True)
class OfLayout:
    """Errors of the logs of one kind."""

    kind: str  # A key of :data:`KINDS`; ``any`` for all of them together, ``tensor`` for the other logs.
    logs: int  # Logs in all.
    # Errors of tokens, else concurrency, else the pool, from model, device and flags alone.
    from_flags: Errors
    from_pool: Errors  # Errors of the concurrency, else of the tokens, from the logged pool.


def kinds(observation: Observation) -> Iterator[str]:
    """What an observation has beside tensor parallelism."""
    for kind, ranks in (
        ("data", observation.data_parallel),
        ("context", observation.context_parallel),
        ("pipeline", observation.pipeline_parallel),
    ):
        if (ranks or 1) > 1:
            yield kind
    if observation.expert_parallel:
        yield "expert"
    if observation.speculative:
        yield "draft"
    if observation.lora:
        yield "lora"


def by_layout(found: Validation) -> tuple[OfLayout, ...]:
    """Errors by kind, then of all that are more than tensor parallel, then of the others."""
    groups: dict[str, list[Compared]] = {kind: [] for kind in (*KINDS, "any", "tensor")}
    for case in found.cases:
        has = list(kinds(case.observation))
        for kind in (*has, "any") if has else ("tensor",):
            groups[kind].append(case)
    return tuple(_errors(kind, cases) for kind, cases in groups.items() if cases)


def _errors(kind: str, cases: list[Compared]) -> OfLayout:
    flags = [one.error for case in cases if (one := end_to_end(case))]
    pools = []
    for case in cases:
        named = {one.quantity: one.error for one in case.comparisons}
        pools += [named[name] for name in FROM_POOL if name in named][:1]
    return OfLayout(kind, len(cases), Errors.of(flags), Errors.of(pools))
