"""What ``scripts/check_planner.py`` found: the block planner against a recorded run of the engine's own."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from kvreport.catalog.base import Positive, Record, Text
from kvreport.catalog.shelf import CatalogFile

Count = Annotated[int, Field(ge=0)]


class PlannerCheck(CatalogFile):
    """The content of ``planner_check.yaml``, which the script writes.

    Attributes:
        engine: Whose planner was recorded.
        rows: Rows compared: a model under one set of flags.
        points: Pools and lengths, over all rows.
        equal: Points whose blocks, tokens and concurrency (or refusal) are equal.
        near: Points within 1%.
        equal_as_recorded: Equal points if no flag is inferred.
        inferred_rows: Rows planned with a flag that the record leaves out.
        left_out_rows: Rows whose model has no config beside the record.
        layout_models: Models planned over pipeline stages or decode-context ranks.
        layout_rows: Rows of those: a model under one set of flags in one layout.
        layout_points: Pools and lengths, over all those rows.
        layout_equal: Points of those whose blocks, tokens and concurrency (or refusal) are equal.
    """

    FILE = "planner_check.yaml"
    engine: Text
    models: Positive
    rows: Positive
    points: Positive
    equal: Count
    near: Count
    equal_as_recorded: Count
    inferred_rows: Count
    inferred_flag: Text
    left_out_rows: Count
    layout_models: Count = 0
    layout_rows: Count = 0
    layout_points: Count = 0
    layout_equal: Count = 0

    @model_validator(mode="after")
    def _no_more_than_all(self) -> Self:
        if not max(self.equal_as_recorded, self.equal) <= self.near <= self.points:
            raise ValueError(
                "equal, near: found more than there are points; allowed: equal <= near <= points"
            )
        return self


class ReleaseCheck(Record):
    """Points of one release.

    Attributes:
        equal: Points of which all quantities are equal.
    """

    release: Text
    points: Positive
    equal: Count


class PlannerDifference(Record):
    """Points of one model that differ."""

    model: Text
    points: Positive
    quantities: tuple[Text, ...]


class OracleCheck(CatalogFile):
    """The content of ``planner_check_sglang.yaml``, which ``scripts/check_sglang.py`` writes.

    Attributes:
        points: Points compared: a model under one set of flags on one device.
        equal: Points whose share, chunk, captured batch, page, tokens, windows, states and requests are all equal.
        refused_by_engine: Points that the engine answered with an error, so that nothing is compared.
        other_classes: Points whose config is not that of the catalog's record: another class, or class defaults.
        models_by_config: Models of the compared that the catalog lacks, read from their config.
        releases: Points by release.
        differences: Points that differ, by model.
    """

    FILE = "planner_check_sglang.yaml"
    engine: Text
    day: Text
    models: Positive
    accelerators: tuple[Text, ...]
    points: Positive
    equal: Count
    refused_by_engine: Count
    other_classes: Count
    models_by_config: Count = 0
    releases: tuple[ReleaseCheck, ...] = ()
    differences: tuple[PlannerDifference, ...] = ()

    @model_validator(mode="after")
    def _no_more_than_all(self) -> Self:
        if self.equal > self.points:
            raise ValueError("equal: found more than there are points; allowed: at most points")
        return self
