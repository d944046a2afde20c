"""The part of the evidence page about local engines: public logs, and llama.cpp's own planner."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

from kvreport.catalog.llama_check import LlamaCheck, MlxCheck
from kvreport.catalog.local_logs import LocalLog
from kvreport.evidence.judged_local_logs import Judged, LogScore, judge, judge_log
from kvreport.publish.tracked_values import kept
from kvreport.site.kit.tables import Cell, Table, listing, numbers, share_cell, texts
from kvreport.words import counted, engine_name

if TYPE_CHECKING:
    from kvreport.catalog.load import Catalog

_WORDS: Final = {True: "fits", False: "does not fit", None: ""}


@cache
def of(catalog: Catalog) -> LogScore:
    """Compare the published logs, once."""
    return judge(catalog, _kept)


def _kept(log: LocalLog, catalog: Catalog) -> Judged:
    """One log against ours, kept until something that it reads changes."""
    return kept(f"local log {log.model_dump_json()}", lambda: judge_log(log, catalog))


def tables(catalog: Catalog) -> Iterator[Table]:
    """Public logs with their totals, and every architecture that was planned by llama.cpp itself."""
    score = of(catalog)
    yield listing(
        f"Total memory in {len(score.judged)} public logs: predictions are off by {score.median_error:.1%} (median) and "
        f"{score.p90_error:.1%} (90th percentile). First predictions of the {score.first_count} logs found after the rules were "
        f"written: {score.first_median:.1%} and {score.first_p90:.1%}. "
        f"For {score.right} of {score.said} logs, kvreport correctly predicted whether the model fits",
        score.judged,
        texts("Log", lambda one: one.log.id),
        texts("Engine", lambda one: engine_name(one.log.engine)),
        texts("Model", lambda one: one.log.model),
        numbers("Logged", lambda one: _mib(one, 0), "MiB"),
        numbers("Predicted", lambda one: _mib(one, 1), "MiB"),
        numbers("Error", lambda one: _error(one.total_error)),
        numbers("Error of the first prediction", lambda one: _error(one.log.first_error)),
        texts("Log says", lambda one: _WORDS[one.log.fits]),
        texts("Prediction", lambda one: _WORDS[one.fits]),
        texts("Source", lambda one: _source(one.log.source)),
        sortable=True,
    )
    checked = LlamaCheck.read(catalog.folder)
    if checked is not None:
        yield _checked(checked)
    held = MlxCheck.read(catalog.folder)
    if held is not None:
        yield _held(held)


def _mib(one: Judged, side: int) -> Cell:
    """The compared total, as printed (0) or as predicted (1)."""
    return (
        Cell("–")
        if one.totals_mib is None
        else Cell(f"{one.totals_mib[side]:,.0f}", value=one.totals_mib[side])
    )


def _source(text: str) -> Cell:
    return Cell(text.split("/")[2], href=text) if text.startswith("https://") else Cell(text)


def _checked(found: LlamaCheck) -> Table:
    good = [one for one in found.architectures if one.error is None]
    compared = sum(one.compared for one in good)
    exact = sum(one.compute for one in good)
    stopped = sum(len(one.ended) for one in good)
    missing = len(found.settings) * len(good) - compared
    rest = (
        f". {counted(missing, 'case|cases')} left out; in {stopped} of them, llama.cpp itself stops"
        if missing
        else ""
    )
    return listing(
        f"Buffers that llama.cpp {found.build} plans for {len(good)} architectures: {exact} of {compared} compute buffers "
        f"are equal to the printed digit ({found.package}, CPU only){rest}",
        good,
        texts("Architecture", lambda one: one.architecture),
        texts("Model with this architecture", lambda one: one.model),
        numbers("Settings", lambda one: one.compared),
        numbers("Cache equal", lambda one: one.kv),
        numbers("State equal", lambda one: one.state),
        numbers("Output equal", lambda one: one.output),
        numbers("Compute equal", lambda one: one.compute),
        numbers("Largest difference", lambda one: share_cell(one.largest_difference)),
        sortable=True,
    )


def _held(found: MlxCheck) -> Table:
    same = sum(one.held == one.ours for one in found.rows)
    return listing(
        f"Bytes that the cache classes of {found.package} hold: {same} of {len(found.rows)} are equal; for the others, kvreport computes bounds "
        "(sliding-window layers between one chunk of a prompt and two)",
        found.rows,
        texts("Model", lambda one: one.model),
        numbers("Context", lambda one: one.context, "tokens"),
        numbers("Measured", lambda one: one.held, "bytes"),
        numbers("Predicted", lambda one: one.ours, "bytes"),
        numbers("Error", lambda one: _error(one.ours / one.held - 1)),
        sortable=True,
    )


def _error(value: float | None) -> Cell:
    text = "" if value is None else f"{value:+.1%}"
    return Cell("0.0%" if text[1:] == "0.0%" else text, value=abs(value or 0.0))
