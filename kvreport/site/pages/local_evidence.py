"""The part of the evidence page about local engines: public logs, and llama.cpp's own planner."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

from kvreport import units
from kvreport.catalog.llama_check import LlamaCheck, MlxCheck
from kvreport.catalog.local_logs import LocalLog
from kvreport.evidence.judged_local_logs import Judged, LogScore, judge, judge_log
from kvreport.publish.tracked_values import kept
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.words import engine_name

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
    yield Table(
        f"Total memory in {len(score.judged)} public logs: predictions are off by {score.median_error:.1%} (median) and "
        f"{score.p90_error:.1%} (90th percentile). First predictions of the {score.first_count} logs found after the rules were "
        f"written: {score.first_median:.1%} and {score.first_p90:.1%}. "
        f"For {score.right} of {score.said} logs, kvreport correctly predicted whether the model fits",
        Column("Log", numeric=False),
        (
            Column("Engine", numeric=False),
            Column("Model", numeric=False),
            Column("Printed", "MiB"),
            Column("Predicted", "MiB"),
            Column("Error"),
            Column("First error"),
            Column("Log says", numeric=False),
            Column("Prediction", numeric=False),
            Column("Source", numeric=False),
        ),
        tuple(_log(one) for one in score.judged),
        sortable=True,
    )
    checked = LlamaCheck.read(catalog.folder)
    if checked is not None:
        yield _checked(checked)
    held = MlxCheck.read(catalog.folder)
    if held is not None:
        yield _held(held)


def _log(one: Judged) -> Row:
    printed = sum(one.log.printed.values())
    ours = sum(one.ours.values()) if one.log.printed else 0.0
    error, first = one.total_error, one.log.first_error
    source = one.log.source
    web = source.startswith("https://")
    return Row(
        Cell(one.log.id),
        (
            Cell(engine_name(one.log.engine)),
            Cell(one.log.model),
            Cell(f"{printed:,.0f}", "kv-num", value=printed),
            Cell(f"{ours:,.0f}", "kv-num", value=ours),
            _error(error),
            _error(first),
            Cell(_WORDS[one.log.fits]),
            Cell(_WORDS[one.fits]),
            Cell(source.split("/")[2] if web else source, href=source if web else ""),
        ),
    )


def _checked(found: LlamaCheck) -> Table:
    good = [one for one in found.architectures if one.error is None]
    compared = sum(one.compared for one in good)
    exact = sum(one.compute for one in good)
    stopped = sum(len(one.ended) for one in good)
    rest = f". {stopped} more, at which llama.cpp itself stops, is left out" if stopped == 1 else ""
    rest = f". {stopped} more, at which llama.cpp itself stops, are left out" if stopped > 1 else rest
    rows = tuple(
        Row(
            Cell(one.architecture),
            (
                Cell(one.model),
                Cell(units.count(one.compared), "kv-num", value=one.compared),
                *(
                    Cell(units.count(number), "kv-num", value=number)
                    for number in (one.kv, one.state, one.output, one.compute)
                ),
                Cell(f"{one.largest_difference:.1%}", "kv-num", value=one.largest_difference),
            ),
        )
        for one in good
    )
    return Table(
        f"Buffers that llama.cpp {found.build} plans for {len(good)} architectures: {exact} of {compared} compute buffers "
        f"equal to the printed digit ({found.package}, processor only){rest}",
        Column("Architecture", numeric=False),
        (
            Column("Shape of", numeric=False),
            Column("Settings"),
            Column("Cache equal"),
            Column("State equal"),
            Column("Output equal"),
            Column("Compute equal"),
            Column("Largest difference"),
        ),
        rows,
        sortable=True,
    )


def _held(found: MlxCheck) -> Table:
    same = sum(one.held == one.ours for one in found.rows)
    rows = tuple(
        Row(
            Cell(one.model),
            (
                Cell(units.count(one.context), "kv-num", value=one.context),
                Cell(units.count(one.held), "kv-num", value=one.held),
                Cell(units.count(one.ours), "kv-num", value=one.ours),
                _error(one.ours / one.held - 1),
            ),
        )
        for one in found.rows
    )
    return Table(
        f"Bytes that the cache classes of {found.package} hold: {same} of {len(found.rows)} equal; ours bound the others "
        "(window layers between one chunk of a prompt and two)",
        Column("Model", numeric=False),
        (Column("Context", "tokens"), Column("Held", "bytes"), Column("Predicted", "bytes"), Column("Error")),
        rows,
        sortable=True,
    )


def _error(value: float | None) -> Cell:
    text = "" if value is None else f"{value:+.1%}"
    return Cell("0.0%" if text[1:] == "0.0%" else text, "kv-num", value=abs(value or 0.0))
