"""Predictions published before anybody's log of them is: ``forecasts.yaml``, which ``scripts/forecast.py`` adds to."""

from __future__ import annotations

from kvreport.catalog.base import Count, Positive, Record, Slug, Text
from kvreport.catalog.model import ModelId
from kvreport.catalog.observation import Day
from kvreport.catalog.shelf import CatalogFile


class Forecast(Record):
    """One prediction.

    Attributes:
        model: Id of the model, as it is released.
        devices: How many, with tensor parallelism.
        tokens: Tokens of the pool, as the engine's line counts them; None where it prints none.
        requests: Requests at once of the run's context.
        verdict: Whether it starts, in the words of an estimate.
        pool_bytes: The pool of one device; 0 where there is none.
        band_bytes: How far the pool may be off either way, in four of five starts.
    """

    model: ModelId
    gpu: Slug
    devices: Positive
    tokens: Count | None = None
    requests: Count
    verdict: Slug
    pool_bytes: Count
    band_bytes: Count

    @property
    def key(self) -> tuple[str, str, int]:
        """What is predicted once and never again: a model on a machine."""
        return self.model, self.gpu, self.devices


class ForecastRun(Record):
    """Predictions that were made together, with the defaults of every flag but the context.

    Attributes:
        day: When they were made: no earlier log scores them.
        rules: Release of the data, and digest of the engines' rules.
        release: The release whose rules were applied.
        context_tokens: The longest request allowed, and the length that requests are counted at.
        utilization: Share of memory that the engine takes by default.
    """

    day: Day
    rules: Text
    engine: Slug
    release: Text
    context_tokens: Positive
    utilization: float
    forecasts: tuple[Forecast, ...]


class Forecasts(CatalogFile):
    """The content of ``forecasts.yaml``."""

    FILE = "forecasts.yaml"
    runs: tuple[ForecastRun, ...]
