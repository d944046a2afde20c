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
    """One fitted constant.

    Attributes:
        value: In bytes.
        interval: 80% interval, from sources drawn with replacement.
    """

    value: Annotated[float, Field(ge=0)]
    interval: tuple[float, float]


class FirstSightBand(Record):
    """The band on logs as they were predicted when they were first seen.

    Attributes:
        logs: Logs that were recorded before any rule knew of them, whether they state all flags or not.
        coverage: Share of their pools inside a band that was calibrated without their source.
    """

    logs: Positive
    coverage: Share


class DeviceClassErrors(Record):
    """Errors on one class of devices.

    Attributes:
        median_error: Of the absolute relative error end to end.
        coverage: Share of pools inside their band.
        first_sight: The same of the errors that logs had at first sight; None if none was recorded.
    """

    logs: Positive
    median_error: Error
    coverage: Share
    first_sight: FirstSightBand | None = None


class Kind(Record):
    """Found logs of one kind of start at first sight, and its error band.

    Attributes:
        logs: Logs with an error at first sight, whether they state all flags or not.
        width: Half the band, in the reserve and a GiB together; None for logs that are judged by the band of another kind.
        coverage: Share of the pools inside a band that was calibrated without the log's source.
    """

    logs: Positive
    sources: Positive
    width: Annotated[float, Field(ge=0)] | None
    coverage: Share


class Summary(Record):
    """Errors on all logs of sources left out.

    Attributes:
        sources: Sources that they come from, each left out in turn.
        median_error, p90_error: Of the absolute relative error end to end, from model, device and flags alone.
        coverage: Share of pools inside a band that was calibrated without their source.
        band_coverage: The same of the errors that the band is made of: as first predicted where that was recorded, else as here.
        first_sight: The same of the errors that logs had at first sight; None if none was recorded.
        classes: By class of devices.
        kinds: By kind of start, whose errors at first sight the band is made of.
    """

    logs: Positive
    sources: Positive
    median_error: Error
    p90_error: Error
    median_pool_error_bytes: Bytes
    coverage: Share
    band_coverage: Share
    first_sight: FirstSightBand | None = None
    classes: dict[Slug, DeviceClassErrors]
    kinds: dict[Slug, Kind] = Field(default_factory=dict)


class LeftOutLog(Record):
    """One log, predicted by constants that were fitted without its source.

    Attributes:
        device_class: Class of its device, in the file ``class``.
        quantity: What was compared: tokens, else concurrency, else the pool.
        error: Relative, signed.
        pool_error_bytes: Signed.
        reserve_bytes: What was predicted beside weights and cache.
        covered: Whether the pool lies inside its band.
        rules: The engine record whose rules were applied.
    """

    id: Slug
    device_class: Slug = Field(alias="class")
    quantity: Text
    error: Error
    pool_error_bytes: Bytes
    reserve_bytes: Bytes
    covered: bool
    rules: Slug | None = None


class Band(Record):
    """The error band of one kind of devices, and what it covers of sources left out.

    Attributes:
        sources: Sources that it is calibrated on, each counted once, with its largest error.
        sources_inside: Those all of whose logs lie in a band that was calibrated without them.
        median_error: Of their absolute relative error end to end.
        coverage: Share of these logs inside a band that was calibrated without their source.
        width_bytes: Half the band, on several ranks that of a device of 80 GiB: it grows with the square root of the memory.
        first_sight: Coverage of logs as they were first predicted, whether they state all flags or not.
    """

    sources: Positive
    sources_inside: Annotated[int, Field(ge=0)]
    logs: Positive
    median_error: Error
    coverage: Share
    width_bytes: Bytes
    first_sight: FirstSightBand | None = None


class FamilyErrors(Record):
    """Errors on the logs of one engine family.

    Attributes:
        logs: Logs that state all flags and print what can be compared.
        median_error: Of the absolute relative error end to end.
        records: How many of them each engine record's releases have.
        sources: Sources of these logs; None if not counted.
        p90_error: The 90th percentile of the same error.
        coverage: Share of pools inside a band that was calibrated without the log's source.
        bands: Its error bands, by kind of devices: one rank, several, memory shared with a CPU.
        kinds: What these bands hold of found logs as first predicted, by kind of start.
    """

    logs: Positive
    median_error: Error
    records: dict[Slug, Positive]
    sources: Positive | None = None
    p90_error: Error | None = None
    coverage: Share | None = None
    bands: dict[Slug, Band] = Field(default_factory=dict)
    kinds: dict[Slug, Kind] = Field(default_factory=dict)


class LeftOut(CatalogFile):
    """The content of ``left_out.yaml``, which ``scripts/fit_reserve.py`` writes.

    Attributes:
        fitted: The engine family whose constants were fitted, and whose logs ``summary`` and ``logs`` are of.
        constants: Fitted constants, by name.
        summary: Errors on all logs of sources left out.
        others: Errors on logs of engines that no constant is fitted for, by family.
    """

    FILE = "left_out.yaml"
    fitted: Slug = "vllm"
    constants: dict[Slug, Constant]
    summary: Summary
    logs: tuple[LeftOutLog, ...]
    others: dict[Slug, FamilyErrors] = Field(default_factory=dict)
