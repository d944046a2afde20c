"""Predictions published before anybody's log of them is: ``forecasts.yaml``, which ``scripts/forecast.py`` adds to."""

from __future__ import annotations

from kvreport.catalog.base import Count, Positive, Record, Slug, Text
from kvreport.catalog.model import ModelId
from kvreport.catalog.observation import Day
from kvreport.catalog.shelf import CatalogFile


class Forecast(Record):
    """One prediction."""

    model: ModelId  # Id of the model, as it is released.
    gpu: Slug
    devices: Positive  # How many, with tensor parallelism.
    # Tokens of the pool, as the engine's line counts them; None where it prints none.
    tokens: Count | None = None
    requests: Count  # Requests at once of the run's context.
    verdict: Slug  # Whether it starts, in the words of an estimate.
    pool_bytes: Count  # The pool of one device; 0 where there is none.
    band_bytes: Count  # How far the pool may be off either way, in four of five starts.

    @property
    def key(self) -> tuple[str, str, int]:
        """What is predicted once and never again: a model on a machine."""
        return self.model, self.gpu, self.devices


class ForecastRun(Record):
    """Predictions that were made together, with the defaults of every flag but the context."""

    day: Day  # When they were made: no earlier log scores them.
    rules: Text  # Release of the data, and digest of the engines' rules.
    engine: Slug
    release: Text  # The release whose rules were applied.
    context_tokens: Positive  # The longest request allowed, and the length that requests are counted at.
    utilization: float  # Share of memory that the engine takes by default.
    forecasts: tuple[Forecast, ...]


class Forecasts(CatalogFile):
    """The content of ``forecasts.yaml``."""

    FILE = "forecasts.yaml"
    runs: tuple[ForecastRun, ...]
