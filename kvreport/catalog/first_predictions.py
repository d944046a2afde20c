"""Predictions of logs as they stood when the logs were first seen, before any rule knew of them.

Rules are written with logs in view, so that the error on those logs says little of the next one. Each run of this
file is a set of logs that were added together, with the errors of the rules as they were the day before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

from pydantic import Field

from kvreport.catalog.base import Record, Slug, Text
from kvreport.catalog.observation import Day
from kvreport.catalog.shelf import CatalogFile

Error = Annotated[float, Field(ge=-1, le=1e6)]


class SecondPrediction(Record):
    """A prediction made after the first one was compared, which counts in no statistic."""

    error: Error  # Relative, signed.
    covered: bool | None = None  # Whether the pool lay inside its band.
    reason: Text  # What was changed after the first comparison.


class FirstSeenLog(Record):
    """One log at first sight."""

    id: Slug
    complete: bool  # Whether its source states all flags.
    rules: Text | None = None  # The release whose rules were applied.
    # What was compared: tokens, else concurrency, else the pool; None for a refusal.
    quantity: Text | None = None
    error: Error | None = None  # Relative, signed; None for a refusal.
    covered: bool | None = None  # Whether the pool lay inside its band; None where no pool was predicted.
    starts_observed: bool | None = None  # Whether the engine started; None if the source does not say.
    starts_predicted: bool | None = None  # Whether it was predicted to.
    # A later prediction with other inputs, for example another device, or by rules that miss the log by more;
    # None without one.
    second: SecondPrediction | None = None


class Run(Record):
    """Logs that were added together."""

    recorded: Day
    revision: Text  # The revision of this project whose rules made them.
    # Logs that no rules were there for, with the reason.
    not_predicted: dict[Slug, Text] = Field(default_factory=dict)
    logs: tuple[FirstSeenLog, ...]


class FirstSeen(CatalogFile):
    """The content of ``first_seen.yaml``, which ``scripts/record_first_sight.py`` adds to."""

    FILE = "first_seen.yaml"
    runs: tuple[Run, ...]

    @property
    def complete(self) -> tuple[FirstSeenLog, ...]:
        """The logs whose source states all flags, of all runs."""
        return tuple(log for run in self.runs for log in run.logs if log.complete)


def errors_of(logs: Iterable[FirstSeenLog]) -> list[float]:
    """Sizes of the errors end to end of starts; a refused one is told right or wrong, whatever its pool was."""
    return sorted(abs(log.error) for log in started(logs) if log.error is not None)


def bands_of(logs: Iterable[FirstSeenLog]) -> list[bool]:
    """Whether each pool lay inside the band of its prediction, of starts; one predicted as nothing lies outside."""
    return [
        bool(log.covered)
        for log in started(logs)
        if log.covered is not None or (log.error is not None and log.error <= -1)
    ]


def started(logs: Iterable[FirstSeenLog]) -> Iterator[FirstSeenLog]:
    """Yield the logs that are not of a refused start."""
    return (log for log in logs if log.starts_observed is not False)
