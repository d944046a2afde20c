"""The part of the evidence page that leads: errors on logs whose source was left out of the fit."""

from __future__ import annotations

from typing import Final

from kvreport import units
from kvreport.catalog.cross_validation import Band, FirstSightBand, Kind, LeftOut
from kvreport.evidence.validation import Validation
from kvreport.resources import read_table
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.units import GIB
from kvreport.words import engine_name

CLASSES: Final[dict[str, str]] = read_table("device classes")

BANDS: Final = {
    "plain": "one rank",
    "drafted_or_four_bits": "one rank, speculative decoding or 4-bit weights",
    "plain_ranks": "several ranks",
    "drafted_or_four_bits_ranks": "several ranks, speculative decoding or 4-bit weights",
    "unified": "memory shared with a CPU",
}

CONSTANTS: Final[dict[str, tuple[str, str]]] = read_table("fitted constants")


def lead(found: LeftOut) -> str:
    """Say the headline of the page in one sentence."""
    told, first = found.summary, found.summary.first_sight
    seen = (
        ""
        if first is None
        else f". Around our first predictions of {first.logs} pools, today's band contains {first.coverage:.0%} of the logged sizes"
    )
    return (
        f"We tested today's rules on {told.logs} vLLM logs from {told.sources} sources. For each log, the constants are fitted "
        f"only to logs from other sources. The median error of the predicted pool size in tokens is "
        f"{told.median_error:.1%}, and the 90th percentile is {told.p90_error:.1%}. "
        f"Today's 80% band contains {told.coverage:.0%} of these pools{seen}"
    )


def tables(found: LeftOut, validation: Validation) -> list[Table]:
    """Errors by class of devices and by release, the constants, and the logs that are missed most."""
    others = [_bands(family, one.bands) for family, one in found.others.items() if one.bands]
    return [
        _classes(found),
        _kinds(found.fitted, found.summary.kinds),
        *others,
        *(_kinds(family, one.kinds) for family, one in found.others.items() if one.kinds),
        _releases(found, validation),
        _constants(found),
        _misses(found, validation),
    ]


def _bands(family: str, bands: dict[str, Band]) -> Table:
    """The error band of an engine without fitted constants, and what it covers of sources left out."""
    rows = [
        Row(
            Cell(BANDS.get(name, name)),
            (
                _count(one.sources),
                _count(one.logs),
                _share(one.median_error),
                Cell(f"± {one.width_bytes / GIB:.1f} GiB", "kv-num", value=one.width_bytes),
                _count(one.sources_inside),
                _share(one.coverage),
                *_first(one.first_sight),
            ),
        )
        for name, one in bands.items()
    ]
    return Table(
        f"{engine_name(family)}: the band fitted to contain 80% of first predictions, by kind of server. "
        "For several ranks, the width shown is for an 80 GiB GPU; it grows with the square root of the GPU's memory. "
        "Kinds with fewer than ten sources have too few logs for a precise width, and a wide band",
        Column("Kind of server", numeric=False),
        (
            Column("Sources"),
            Column("Logs"),
            Column("Median error"),
            Column("Band"),
            Column("Held-out sources within the band"),
            Column("Logs with all flags known, within the band"),
            Column("First predictions"),
            Column("First predictions within the band"),
        ),
        tuple(rows),
    )


def _classes(found: LeftOut) -> Table:
    rows = [
        Row(
            Cell(CLASSES.get(name, name)),
            (_count(one.logs), _share(one.median_error), _share(one.coverage), *_first(one.first_sight)),
        )
        for name, one in found.summary.classes.items()
    ]
    total = found.summary
    whole = (
        _count(total.logs),
        _share(total.median_error),
        _share(total.coverage),
        *_first(total.first_sight),
    )
    rows.append(Row(Cell("all"), whole))
    return Table(
        "Held-out sources, by device class",
        Column("Devices", numeric=False),
        (
            Column("Logs"),
            Column("Median error"),
            Column("Inside the 80% band"),
            Column("First predictions"),
            Column("First predictions within the band"),
        ),
        tuple(rows),
    )


KINDS: Final[dict[str, str]] = read_table("kinds of starts")
"""Kinds of starts with a band of their own, and what else is told of logs."""


def _kinds(family: str, kinds: dict[str, Kind]) -> Table:
    """The band by kind of start, and what it holds of found logs as they were first predicted."""
    rows = [
        Row(
            Cell(KINDS.get(name, name)),
            (
                _count(one.logs),
                _count(one.sources),
                Cell("" if one.width is None else f"± {one.width:.3g}", "kv-num", value=one.width),
                _share(one.coverage),
            ),
        )
        for name, one in kinds.items()
    ]
    measure = "; widths are in the table above"
    if any(one.width is not None for one in kinds.values()):
        measure = (
            ". Band widths are multiples of (reserve + 1 GiB); the reserve is the memory that the engine is predicted to need besides weights and KV cache. "
            "A kind with fewer than ten sources gets at least a tenth more than the widest band of the others"
        )
    return Table(
        f"{engine_name(family)}: first predictions and the 80% band, by kind of server{measure}",
        Column("Kind of server", numeric=False),
        (
            Column("First predictions"),
            Column("Sources"),
            Column("Band"),
            Column("Inside the band when their source is left out of the fit"),
        ),
        tuple(rows),
    )


def _first(found: FirstSightBand | None) -> tuple[Cell, Cell]:
    """Logs that were predicted before any rule was changed for them, and the share of their pools inside the band."""
    if found is None:
        return Cell(""), Cell("")
    return _count(found.logs), _share(found.coverage)


def _releases(found: LeftOut, validation: Validation) -> Table:
    """Which release's rules are confirmed by how many logs."""
    record = {case.observation.id: case.engine for case in validation.cases}
    errors: dict[str, list[float]] = {}
    for log in found.logs:
        errors.setdefault(record.get(log.id) or "?", []).append(abs(log.error))
    rows = [
        Row(
            Cell(engine_name(name)),
            (_count(len(values)), _share(sorted(values)[len(values) // 2]), _share(max(values))),
        )
        for name, values in sorted(errors.items())
    ]
    return Table(
        "Held-out sources, by release",
        Column("Release", numeric=False),
        (Column("Logs"), Column("Median error"), Column("Largest")),
        tuple(rows),
    )


def _constants(found: LeftOut) -> Table:
    rows = []
    for name, one in found.constants.items():
        words, unit = CONSTANTS.get(name, (name, "GiB"))
        scale = GIB if unit == "GiB" else 1e6
        low, high = (f"{value / scale:.2f}" for value in one.interval)
        rows.append(
            Row(
                Cell(words),
                (
                    Cell(f"{one.value / scale:.2f} {unit}", "kv-num", value=one.value),
                    Cell(f"{low} to {high} {unit}", "kv-num"),
                ),
            )
        )
    return Table(
        "Fitted constants: values that the engine's source does not state",
        Column("Constant", numeric=False),
        (Column("Value"), Column("80% interval")),
        tuple(rows),
    )


def _misses(found: LeftOut, validation: Validation) -> Table:
    seen = {case.observation.id: case.observation for case in validation.cases}
    worst = sorted(found.logs, key=lambda log: -abs(log.error))[:10]
    rows = []
    for log in worst:
        observation = seen.get(log.id)
        words = log.id if observation is None else f"{observation.model}, {observation.gpu_named}"
        rows.append(
            Row(
                Cell(words, hint=log.id),
                (
                    Cell(log.quantity),
                    Cell(f"{log.error:+.1%}", "kv-num", value=log.error),
                    Cell(f"{log.pool_error_bytes / GIB:+.2f} GiB", "kv-num", value=log.pool_error_bytes),
                    Cell("inside" if log.covered else "outside"),
                    Cell((observation.cause if observation else None) or "Not known"),
                ),
            )
        )
    return Table(
        "The ten largest errors on held-out sources",
        Column("Log", numeric=False),
        (
            Column("Compared", numeric=False),
            Column("Error"),
            Column("Pool"),
            Column("80% band", numeric=False),
            Column("Cause", numeric=False),
        ),
        tuple(rows),
    )


def _count(number: int) -> Cell:
    return Cell(units.count(number), "kv-num", value=number)


def _share(value: float) -> Cell:
    return Cell(f"{value:.1%}", "kv-num", value=value)
