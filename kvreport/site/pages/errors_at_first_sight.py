"""The part of the evidence page on logs that were predicted before any rule was corrected with them."""

from __future__ import annotations

import math
import re
from typing import Final, cast

import numpy as np

from kvreport import units
from kvreport.catalog.first_predictions import FirstSeen, FirstSeenLog, bands_of, errors_of
from kvreport.estimation.first_sight import ALL_FLAGS, SOME_ASSUMED, details, is_own, sentence
from kvreport.evidence.validation import Validation
from kvreport.site.kit import charts
from kvreport.site.kit.elements import Chart
from kvreport.site.kit.tables import Cell, Column, Table, listing, numbers, share_cell, texts
from kvreport.words import counted, engine_name

BAND: Final = {True: "inside", False: "outside", None: ""}


def leads(found: FirstSeen) -> list[str]:
    """Say how well found logs are predicted at first sight, a text for each engine with enough of them."""
    families = dict.fromkeys((log.rules or "").partition(" ")[0] for run in found.runs for log in run.logs)
    return [
        f"{said} {details(family, found)}".rstrip()
        for family in families
        if (said := sentence(family, found))
    ]


WORST: Final = 3
"""Logs that the picture names."""


def picture(found: FirstSeen, validation: Validation) -> charts.ChartRequest | None:
    """Return what the picture shows: printed against predicted tokens of every log; None without any."""
    seen = {case.observation.id: case.observation for case in validation.cases}
    marks = []
    empty = 0
    for first in (
        one for run in found.runs for one in run.logs if one.quantity == "tokens" and not is_own(one)
    ):
        one = seen.get(first.id)
        printed = None if one is None else one.printed.kv_tokens
        if one is None or not printed or first.error is None:
            continue
        if first.error <= -1:
            empty += 1
            continue
        predicted = float(f"{printed * (1 + first.error):.4g}")
        marks.append(
            charts.Seen(
                mark_name(one.model, one.gpu_named, first.error),
                float(printed),
                predicted,
                BAND_NAMES[first.covered],
            )
        )
    if not marks:
        return None
    marks.sort(key=lambda mark: abs(math.log(mark.predicted / mark.printed)))
    bands = tuple(name for name in BAND_NAMES.values() if any(mark.band == name for mark in marks))
    return charts.ChartRequest("first_sights", charts.FirstSights(tuple(marks), bands, WORST, empty))


def mark_name(model: str, gpu: str, error: float) -> str:
    """Name a log in the picture: its model, its GPU without what else the log says of it, and how far off we were.

    >>> (
    ...     mark_name("org/Model-8B", "H200, 143,771 MiB", 54.6),
    ...     mark_name("Model-8B", "L4 (24 GB)", -0.25),
    ... )
    ('Model-8B, H200 (56 × the log)', 'Model-8B, L4 (-25%)')
    """
    off = f"{1 + error:,.0f} × the log" if error >= 1 else f"{error:+.0%}"
    return f"{model.rpartition('/')[2]}, {re.split('[,(]', gpu)[0].strip()} ({off})"


def chart(request: charts.ChartRequest) -> Chart:
    """Return the picture, ready to stand in a page."""
    data = cast("charts.FirstSights", request.data)
    logs = counted(data.empty, "other log is|other logs are")
    empty = f" {logs} not plotted, because the prediction left no memory for the cache." if data.empty else ""
    return Chart(
        id="first-sight-chart",
        title="KV cache size in tokens: first prediction against the engine's log",
        digest=request.digest,
        legend=tuple(enumerate(data.bands, start=1)),
        notes=(),
        caption="Each mark is one published log. On the diagonal line, the prediction equals the logged value. "
        f"The {WORST} logs with the largest errors are labeled where there is space. Both axes are logarithmic.{empty}",
        table=Table("", Column(""), (), ()),
        points=True,
        finding=finding(data),
    )


def finding(data: charts.FirstSights) -> str:
    """Return what the picture shows: how far half of its logs are off, and how many are inside their band.

    Logs that were predicted to hold nothing are off by all of it, and outside their band.
    """
    errors = [abs(mark.predicted / mark.printed - 1) for mark in data.marks] + [1.0] * data.empty
    banded = sum(mark.band in (BAND_NAMES[True], BAND_NAMES[False]) for mark in data.marks) + data.empty
    inside = sum(mark.band == BAND_NAMES[True] for mark in data.marks)
    return (
        f"For {units.count(len(errors))} logs of all engines, we recorded a prediction before the log influenced our rules. Half of these predictions are within {np.median(errors):.1%} of the logged value. "
        f"The 80% band recorded with each prediction contains the logged value for {units.count(inside)} of {units.count(banded)} logs"
    )


BAND_NAMES: Final = {True: "inside its 80% band", False: "outside its 80% band", None: "no band"}


def counts(found: FirstSeen, request: charts.ChartRequest) -> str:
    """Return how many logs the page counts where: in the picture, in the errors and in the bands."""
    data = cast("charts.FirstSights", request.data)
    logs = [log for run in found.runs for log in run.logs if not is_own(log)]
    return (
        f"The chart at the top covers {units.count(len(data.marks) + data.empty)} logs that state a number of tokens. The "
        "first table covers all servers that started, including those whose logs state no number of tokens. The prediction error (in tokens or bytes) is "
        "known for "
        f"{units.count(len(errors_of(logs)))} of them, and {units.count(len(bands_of(logs)))} have an error band."
    )


def tables(found: FirstSeen, validation: Validation) -> list[Table]:
    """Errors at first sight by day, and every log with its error now."""
    return [_days(found), _logs(found, validation)]


def _days(found: FirstSeen) -> Table:
    days = sorted({run.recorded for run in found.runs}, reverse=True)
    listed = [
        ("all days", {*days}, False),
        *((day, {day}, False) for day in days),
        ("our own servers (not in the totals)", {*days}, True),
    ]
    groups = {
        f"{name}, {flags}": [
            log
            for run in found.runs
            if run.recorded in kept
            for log in run.logs
            if log.complete is complete and is_own(log) is own
        ]
        for name, kept, own in listed
        for flags, complete in ((ALL_FLAGS, True), (SOME_ASSUMED, False))
    }

    def started(name: str) -> str:
        told = [(log.starts_predicted, log.starts_observed) for log in groups[name]]
        known = [predicted == observed for predicted, observed in told if None not in (predicted, observed)]
        return f"{sum(known)} of {len(known)}"

    def banded(name: str) -> str:
        bands = bands_of(groups[name])
        return f"{sum(bands)} of {len(bands)}"

    return listing(
        "First predictions, by day",
        (name for name, logs in groups.items() if errors_of(logs)),
        texts("Day", Cell),
        numbers("Logs", lambda name: len(errors_of(groups[name]))),
        numbers("Median error", lambda name: share_cell(float(np.median(errors_of(groups[name]))))),
        numbers("90th percentile", lambda name: share_cell(float(np.quantile(errors_of(groups[name]), 0.9)))),
        numbers("Logged pools inside the recorded band", banded),
        numbers("Starts predicted correctly", started),
    )


def _logs(found: FirstSeen, validation: Validation) -> Table:
    """Every log: its error at first sight and the error of today's rules, which were changed since."""
    seen = {case.observation.id: case for case in validation.cases}

    def name(log: FirstSeenLog) -> Cell:
        one = seen[log.id].observation if log.id in seen else None
        return Cell(log.id if one is None else f"{one.model}, {one.devices_named}", hint=log.id)

    def now(log: FirstSeenLog) -> Cell:
        compared = seen[log.id].comparisons if log.id in seen else ()
        error = next((one.error for one in compared if one.quantity == log.quantity), None)
        return Cell("" if error is None else f"{error:+.1%}", value=error)

    logs = (log for run in found.runs for log in run.logs if log.error is not None)
    return listing(
        "Every first prediction, with the error of today's rules",
        sorted(logs, key=lambda log: -abs(log.error or 0)),
        texts("Log", name),
        texts("Engine", lambda log: engine_name(log.rules or "")),
        texts("All flags known", lambda log: "yes" if log.complete else "no"),
        numbers("First error", lambda log: Cell(f"{log.error:+.1%}", value=log.error)),
        texts("80% band", lambda log: BAND[log.covered]),
        numbers("Error today", now),
    )
