"""The section of the evidence page about documented starts and refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from kvreport import units
from kvreport.catalog.documented_starts import KnownStarts
from kvreport.evidence.starts import JudgedStart, is_too_old, judge_start, judge_starts
from kvreport.publish.tracked_values import kept
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.words import counted, engine_name

if TYPE_CHECKING:
    from kvreport.catalog.documented_starts import KnownStart
    from kvreport.catalog.load import Catalog


@cache
def of(catalog: Catalog) -> tuple[JudgedStart, ...]:
    """Judge the cases beside a catalog, once."""
    return judge_starts(catalog, judge=_kept)


def _kept(catalog: Catalog, case: KnownStart) -> JudgedStart:
    """A prediction, kept until something that it reads changes."""
    return kept(f"start {case.model_dump_json()}", lambda: judge_start(catalog, case))


def too_old(catalog: Catalog) -> int:
    """How many cases beside a catalog are of releases too old to be computed."""
    known = KnownStarts.read(catalog.folder)
    return 0 if known is None else sum(is_too_old(catalog, case) for case in known.cases)


def conclusion(found: Sequence[JudgedStart], old: int = 0) -> str:
    """One sentence: how many are predicted correctly now, how many were at first sight, and how many are too old."""
    right = sum(one.right for one in found)
    met = [one.case.first_sight for one in found if one.case.first_sight is not None]
    now = f"Of {len(found)} servers documented to start or to fail, {right} are predicted correctly today"
    if met:
        now += f". Of the {counted(len(met), 'server|servers')} that were predicted before any rule was adjusted to them, "
        now += f"{sum(met)} were predicted correctly"
    return (
        f"{now}. Another {old} documented servers, not counted here, use releases that are too old for kvreport"
        if old
        else now
    )


def tables(found: Sequence[JudgedStart], old: int = 0) -> Iterator[Table]:
    """A summary by what decides a case, and every case with its source."""
    yield Table(conclusion(found, old), Column("Decided by", numeric=False), _COUNTS, tuple(_summary(found)))
    yield Table(
        "Every documented case with its prediction",
        Column("Model", numeric=False),
        (
            Column("Engine", numeric=False),
            Column("Accelerators", numeric=False),
            Column("Documented", numeric=False),
            Column("Predicted", numeric=False),
            Column("Source", numeric=False),
        ),
        tuple(_row(one) for one in found),
        sortable=True,
    )


_COUNTS = (
    Column("Starts (cases)"),
    Column("Fails to start (cases)"),
    Column("Predicted correctly (cases)"),
)


def _summary(found: Sequence[JudgedStart]) -> Iterator[Row]:
    for about in sorted({one.case.about for one in found}):
        count = Counter((one.case.starts, one.right) for one in found if one.case.about == about)
        starts = sum(number for (starts, _), number in count.items() if starts)
        right = sum(number for (_, right), number in count.items() if right)
        total = sum(count.values())
        yield Row(
            Cell(about),
            tuple(Cell(units.count(n), "kv-num", value=n) for n in (starts, total - starts, right)),
        )


def _row(one: JudgedStart) -> Row:
    case = one.case
    ranks = 1
    for name in ("tensor_parallel", "pipeline_parallel", "data_parallel"):
        ranks *= int(case.options.get(name, 1))
    told = ", ".join(f"{name} {value}" for name, value in case.options.items())
    wrong = "" if one.right else " (wrong)"
    return Row(
        Cell(case.model, hint=told),
        (
            Cell(engine_name(case.engine)),
            Cell(f"{ranks} × {case.gpu}"),
            Cell("starts" if case.starts else "refused", hint=case.says),
            Cell(("starts" if one.starts else "refused") + wrong, hint=one.reason or one.verdict),
            Cell(case.about, href=case.url),
        ),
    )
