"""Forecasts and the logs that score them: same model, machine and flags, published after the day of the forecast."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kvreport.catalog.forecasts import Forecast, ForecastRun, Forecasts
from kvreport.catalog.observation import Observation

_SHARE_WITHIN: Final = 0.0051
"""A stated share of memory that differs from the default by more is another flag."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A forecast, and the log that came after it."""

    run: ForecastRun
    forecast: Forecast  # The prediction.
    observation: Observation | None = None  # The log; None while the forecast is open.

    @property
    def error(self) -> float | None:
        """Relative error of the tokens, signed; None without a log of a start that prints them."""
        printed = None if self.observation is None else self.observation.printed.kv_tokens
        return (self.forecast.tokens or 0) / printed - 1 if printed else None

    @property
    def starts_right(self) -> bool | None:
        """Whether the start or the refusal was predicted; None for an open forecast, or one that left it open."""
        if self.observation is None or self.forecast.verdict == "may_fit":
            return None
        return bool(self.forecast.requests) == (self.observation.printed.fits is not False)

    @property
    def within_band(self) -> bool | None:
        """Whether the pool lay in the band; None without an error or a pool."""
        error = self.error
        if error is None or error <= -1:
            return None
        missing = self.forecast.pool_bytes * abs(1 - 1 / (1 + error))
        return missing <= self.forecast.band_bytes


def scored(found: Forecasts, observations: Iterable[Observation]) -> Iterator[Scored]:
    """Yield every forecast with the first log in the order of days that scores it, or as open."""
    logs = sorted((one for one in observations if one.origin.date), key=lambda one: one.origin.date or "")
    for run in found.runs:
        for forecast in run.forecasts:
            yield Scored(run, forecast, next((one for one in logs if scores(run, forecast, one)), None))


def scores(run: ForecastRun, forecast: Forecast, log: Observation) -> bool:
    """Whether a log is of the forecast's model, machine and flags, and surely later than its day."""
    return (
        (log.engine, log.model_id, log.gpu) == (run.engine, forecast.model, forecast.gpu)
        and (log.devices or 1) == (log.tensor_parallel or 1) == forecast.devices
        and log.context_tokens == run.context_tokens
        and (log.utilization is None or abs(log.utilization - run.utilization) <= _SHARE_WITHIN)
        and log.weight_format in (None, "released")
        and log.kv_format in (None, "auto")
        and not (log.eager or log.speculative or log.lora or log.max_seqs or log.max_batched_tokens)
        and is_later(log.origin.date, run.day)
    )


def is_later(date: str | None, day: str) -> bool:
    """Whether a day, or every day of a month, is after another day."""
    return date is not None and date > day[: len(date)]
