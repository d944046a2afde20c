"""Predictions published before anybody's log of them is: ``forecasts.yaml``, which ``scripts/forecast.py`` adds to."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from kvreport.catalog.base import SCHEMA_VERSION, Count, Positive, Record, Slug, Text
from kvreport.catalog.model import ModelId
from kvreport.catalog.observation import Day
from kvreport.catalog.shelf import read_yaml, validate

FILE: Final = "forecasts.yaml"


class Forecast(Record):
    """One prediction.

    Attributes:
        model: Id of the model, as it is released.
        gpu: The accelerator.
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
        engine: The engine's record.
        release: The release whose rules were applied.
        context_tokens: The longest request allowed, and the length that requests are counted at.
        utilization: Share of memory that the engine takes by default.
        forecasts: The predictions.
    """

    day: Day
    rules: Text
    engine: Slug
    release: Text
    context_tokens: Positive
    utilization: float
    forecasts: tuple[Forecast, ...]


class Forecasts(Record):
    """The content of ``forecasts.yaml``."""

    schema_version: Literal[1] = SCHEMA_VERSION
    runs: tuple[ForecastRun, ...]


def load_forecasts(data_dir: Path) -> Forecasts | None:
    """Read ``forecasts.yaml`` of a catalog's folder; None if there is none.

    Raises:
        CatalogError: If the file is not right.
    """
    path = data_dir / FILE
    return validate(Forecasts, read_yaml(path, path.name), path.name) if path.is_file() else None
