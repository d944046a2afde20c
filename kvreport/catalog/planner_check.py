"""What ``scripts/check_planner.py`` found: the block planner against a recorded run of the engine's own."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from kvreport.catalog.base import Positive, Record, Text
from kvreport.catalog.shelf import CatalogFile

Count = Annotated[int, Field(ge=0)]


class PlannerCheck(CatalogFile):
    """The content of ``planner_check.yaml``, which the script writes."""

    FILE = "planner_check.yaml"
    engine: Text  # Whose planner was recorded.
    models: Positive
    rows: Positive  # Rows compared: a model under one set of flags.
    points: Positive  # Pools and lengths, over all rows.
    equal: Count  # Points whose blocks, tokens and concurrency (or refusal) are equal.
    near: Count  # Points within 1%.
    left_out_rows: Count  # Rows whose model has no config beside the record.
    layout_models: Count = 0  # Models planned over pipeline stages or decode-context ranks.
    layout_rows: Count = 0  # Rows of those: a model under one set of flags in one layout.
    layout_points: Count = 0  # Pools and lengths, over all those rows.
    layout_equal: Count = 0  # Points of those whose blocks, tokens and concurrency (or refusal) are equal.

    @model_validator(mode="after")
    def _no_more_than_all(self) -> Self:
        if not self.equal <= self.near <= self.points:
            raise ValueError(
                "equal, near: found more than there are points; allowed: equal <= near <= points"
            )
        return self


class ReleaseCheck(Record):
    """Points of one release."""

    release: Text
    points: Positive
    equal: Count  # Points of which all quantities are equal.


class PlannerDifference(Record):
    """Points of one model that differ."""

    model: Text
    points: Positive
    quantities: tuple[Text, ...]


class OracleCheck(CatalogFile):
    """The content of ``planner_check_sglang.yaml``, which ``scripts/check_sglang.py`` writes."""

    FILE = "planner_check_sglang.yaml"
    engine: Text
    day: Text
    models: Positive
    accelerators: tuple[Text, ...]
    points: Positive  # Points compared: a model under one set of flags on one device.
    # Points whose share, chunk, captured batch, page, tokens, windows, states and requests are all equal.
    equal: Count
    refused_by_engine: Count  # Points that the engine answered with an error, so that nothing is compared.
    # Points whose config is not that of the catalog's record: another class, or class defaults.
    other_classes: Count
    models_by_config: Count = 0  # Models of the compared that the catalog lacks, read from their config.
    releases: tuple[ReleaseCheck, ...] = ()  # Points by release.
    differences: tuple[PlannerDifference, ...] = ()  # Points that differ, by model.

    @model_validator(mode="after")
    def _no_more_than_all(self) -> Self:
        if self.equal > self.points:
            raise ValueError("equal: found more than there are points; allowed: at most points")
        return self
