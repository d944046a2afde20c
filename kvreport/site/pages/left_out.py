"""The part of the evidence page that leads: errors on logs whose source was left out of the fit."""

from __future__ import annotations

from typing import Final

from kvreport.catalog.cross_validation import (
    Band,
    CoveredRecord,
    Kind,
    LeftOut,
    LeftOutLog,
    LogErrorsRecord,
)
from kvreport.evidence.validation import Validation
from kvreport.resources import read_table
from kvreport.site.kit.tables import Cell, Table, listing, numbers, share_cell, texts
from kvreport.units import GIB
from kvreport.words import engine_name, release_name

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
        else f". Around our first predictions for {first.logs} vLLM logs, including those of our own servers, today's band contains {first.coverage:.0%} of the logged sizes"
    )
    return (
        f"We tested today's rules on {told.logs} vLLM logs from {told.sources} sources. For each log, the constants are fitted "
        f"only to logs from other sources. The median error of the predicted pool size in tokens is "
        f"{told.median_error:.1%}, and the 90th percentile is {told.p90_error:.1%}. "
        f"Today's 80% band, which every answer shows, contains {told.coverage:.0%} of the logged pools{seen}"
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
    return listing(
        f"{engine_name(family)}: the band fitted to contain 80% of first predictions, by kind of server. "
        "For several ranks, the width shown is for an 80 GiB GPU; it grows with the square root of the GPU's memory. "
        "Kinds with fewer than ten sources have too few logs for a precise width, so their band is 1/n wider for n sources",
        bands,
        texts("Kind of server", lambda name: BANDS.get(name, name)),
        numbers("Sources", lambda name: bands[name].sources),
        numbers("Logs", lambda name: bands[name].logs),
        numbers("Median error", lambda name: share_cell(bands[name].median_error)),
        numbers(
            "Band",
            lambda name: Cell(f"± {bands[name].width_bytes / GIB:.1f} GiB", value=bands[name].width_bytes),
        ),
        numbers("Held-out sources within the band", lambda name: bands[name].sources_inside),
        numbers("Logs with all flags known, within the band", lambda name: share_cell(bands[name].coverage)),
        numbers("First predictions", lambda name: _first_logs(bands[name].first_sight)),
        numbers("First predictions within the band", lambda name: _first_covered(bands[name].first_sight)),
    )


def _classes(found: LeftOut) -> Table:
    classes: dict[str, LogErrorsRecord] = {**found.summary.classes, "all": found.summary}
    return listing(
        "Held-out sources, by device class",
        classes,
        texts("Devices", lambda name: CLASSES.get(name, name)),
        numbers("Logs", lambda name: classes[name].logs),
        numbers("Median error", lambda name: share_cell(classes[name].median_error)),
        numbers("Inside the 80% band", lambda name: share_cell(classes[name].coverage)),
        numbers("First predictions", lambda name: _first_logs(classes[name].first_sight)),
        numbers("First predictions within the band", lambda name: _first_covered(classes[name].first_sight)),
    )


KINDS: Final[dict[str, str]] = read_table("kinds of starts")
"""Kinds of starts with a band of their own, and what else is told of logs."""


def _kinds(family: str, kinds: dict[str, Kind]) -> Table:
    """The band by kind of start, and what it holds of found logs as they were first predicted."""
    measure = "; widths are in the table above"
    if any(one.width is not None for one in kinds.values()):
        measure = (
            ". Band widths are multiples of (reserve + 1 GiB); the reserve is the memory that the engine is predicted to need besides weights and KV cache. "
            "For a kind with fewer than ten sources, the band is at least 10% wider than the widest band of the other kinds"
        )

    def width(kind: Kind) -> Cell:
        return Cell("" if kind.width is None else f"± {kind.width:.3g}", value=kind.width)

    return listing(
        f"{engine_name(family)}: first predictions (without our own servers) and the 80% band, by kind of server{measure}",
        kinds,
        texts("Kind of server", lambda name: KINDS.get(name, name)),
        numbers("First predictions", lambda name: kinds[name].logs),
        numbers("Sources", lambda name: kinds[name].sources),
        numbers("Band", lambda name: width(kinds[name])),
        numbers(
            "Inside the band when their source is left out of the fit",
            lambda name: share_cell(kinds[name].coverage),
        ),
    )


def _first_logs(found: CoveredRecord | None) -> int | str:
    """Logs that were predicted before any rule was changed for them."""
    return "" if found is None else found.logs


def _first_covered(found: CoveredRecord | None) -> Cell | str:
    """The share of their pools inside the band."""
    return "" if found is None else share_cell(found.coverage)


def _releases(found: LeftOut, validation: Validation) -> Table:
    """Which release's rules are confirmed by how many logs."""
    record = {case.observation.id: case.engine for case in validation.cases}
    errors: dict[str, list[float]] = {}
    for log in found.logs:
        errors.setdefault(record.get(log.id) or "?", []).append(abs(log.error))
    return listing(
        "Held-out sources, by release",
        sorted(errors),
        texts("Release", release_name),
        numbers("Logs", lambda name: len(errors[name])),
        numbers("Median error", lambda name: share_cell(sorted(errors[name])[len(errors[name]) // 2])),
        numbers("Largest", lambda name: share_cell(max(errors[name]))),
    )


def _constants(found: LeftOut) -> Table:
    def said(name: str, *values: float) -> str:
        _, unit = CONSTANTS.get(name, (name, "GiB"))
        scale = GIB if unit == "GiB" else 1e6
        return " to ".join(f"{value / scale:.2f}" for value in values) + f" {unit}"

    constants = found.constants
    return listing(
        "Fitted constants: values that the engine's source code does not state",
        constants,
        texts("Constant", lambda name: CONSTANTS.get(name, (name, ""))[0]),
        numbers("Value", lambda name: Cell(said(name, constants[name].value), value=constants[name].value)),
        numbers("80% interval", lambda name: said(name, *constants[name].interval)),
    )


def _misses(found: LeftOut, validation: Validation) -> Table:
    seen = {case.observation.id: case.observation for case in validation.cases}

    def name(log: LeftOutLog) -> Cell:
        one = seen.get(log.id)
        return Cell(log.id if one is None else f"{one.model}, {one.devices_named}", hint=log.id)

    return listing(
        "The ten largest errors on held-out sources",
        sorted(found.logs, key=lambda log: -abs(log.error))[:10],
        texts("Log", name),
        texts("Quantity", lambda log: log.quantity),
        numbers("Error", lambda log: Cell(f"{log.error:+.1%}", value=log.error)),
        numbers(
            "Pool", lambda log: Cell(f"{log.pool_error_bytes / GIB:+.2f} GiB", value=log.pool_error_bytes)
        ),
        texts("80% band", lambda log: "inside" if log.covered else "outside"),
        texts("Cause", lambda log: (seen[log.id].cause if log.id in seen else None) or "Not known"),
    )
