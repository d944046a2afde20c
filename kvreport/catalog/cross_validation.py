"""What the fitted constants are worth on logs whose source was left out of the fit."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from kvreport.catalog.base import Positive, Record, Slug, Text
from kvreport.catalog.shelf import CatalogFile

Share = Annotated[float, Field(ge=0, le=1)]
Error = Annotated[float, Field(ge=-1, le=1e6)]
Bytes = Annotated[int, Field(ge=-(1 << 50), le=1 << 50)]


class Constant(Record):
    """One fitted constant."""

    value: Annotated[float, Field(ge=0)]  # In bytes.
    interval: tuple[float, float]  # 80% interval, from sources drawn with replacement.


class CoveredRecord(Record):
    """Logs, and the share of their pools inside a band that was calibrated without their source."""

    logs: Positive
    coverage: Share


class LogErrorsRecord(CoveredRecord):
    """Errors on logs, from model, device and flags alone."""

    median_error: Error  # Of the absolute relative error end to end.
    # Logs that were recorded before any rule knew of them, whether they state all flags or not; None without such.
    first_sight: CoveredRecord | None = None


class Kind(CoveredRecord):
    """Found logs of one kind of start at first sight, whether they state all flags or not, and its error band."""

    sources: Positive
    # Half the band, in the reserve and a GiB together; None for logs that are judged by the band of another
    # kind.
    width: Annotated[float, Field(ge=0)] | None


class Summary(LogErrorsRecord):
    """Errors on all logs of sources left out."""

    sources: Positive  # Sources that they come from, each left out in turn.
    p90_error: Error  # The 90th percentile of the same.
    median_pool_error_bytes: Bytes
    # The coverage of the errors that the band is made of: as first predicted where that was recorded, else as
    # here.
    band_coverage: Share
    classes: dict[Slug, LogErrorsRecord]  # By class of devices.
    # By kind of start, whose errors at first sight the band is made of.
    kinds: dict[Slug, Kind] = Field(default_factory=dict)


class LeftOutLog(Record):
    """One log, predicted by constants that were fitted without its source."""

    id: Slug
    device_class: Slug = Field(alias="class")  # Class of its device, in the file ``class``.
    quantity: Text  # What was compared: tokens, else concurrency, else the pool.
    error: Error  # Relative, signed.
    pool_error_bytes: Bytes  # Signed.
    reserve_bytes: Bytes  # What was predicted beside weights and cache.
    covered: bool  # Whether the pool lies inside its band.
    rules: Slug | None = None  # The engine record whose rules were applied.


class Band(LogErrorsRecord):
    """The error band of one kind of start, and what it covers of sources left out."""

    sources: Positive  # Sources of the first sights that it is calibrated on.
    # Those all of whose first sights lie in a band that was calibrated without them.
    sources_inside: Annotated[int, Field(ge=0)]
    # Half the band, on several ranks that of a device of 80 GiB: it grows with the square root of the memory.
    width_bytes: Bytes


class FamilyErrors(Record):
    """Errors on the logs of one engine family."""

    logs: Positive  # Logs that state all flags and print what can be compared.
    median_error: Error  # Of the absolute relative error end to end.
    records: dict[Slug, Positive]  # How many of them each engine record's releases have.
    sources: Positive | None = None  # Sources of these logs; None if not counted.
    p90_error: Error | None = None  # The 90th percentile of the same error.
    # Share of pools inside a band that was calibrated without the log's source.
    coverage: Share | None = None
    # Its error bands, by kind of start.
    bands: dict[Slug, Band] = Field(default_factory=dict)
    # What these bands hold of found logs as first predicted, by kind of start.
    kinds: dict[Slug, Kind] = Field(default_factory=dict)


class LeftOut(CatalogFile):
    """The content of ``left_out.yaml``, which ``scripts/fit_reserve.py`` writes."""

    FILE = "left_out.yaml"
    # The engine family whose constants were fitted, and whose logs ``summary`` and ``logs`` are of.
    fitted: Slug = "vllm"
    constants: dict[Slug, Constant]  # Fitted constants, by name.
    summary: Summary  # Errors on all logs of sources left out.
    logs: tuple[LeftOutLog, ...]
    # Errors on logs of engines that no constant is fitted for, by family.
    others: dict[Slug, FamilyErrors] = Field(default_factory=dict)
