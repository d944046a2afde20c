"""The section of the evidence page about documented starts and refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Final

from kvreport.catalog.documented_starts import KnownStarts
from kvreport.evidence.starts import JudgedStart, is_too_old, judge_start, judge_starts
from kvreport.publish.tracked_values import kept
from kvreport.resources import read_table
from kvreport.site.kit.tables import Cell, Table, listing, numbers, texts
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
    counts: dict[str, Counter[tuple[bool, bool]]] = {
        about: Counter((one.case.starts, one.right) for one in found if one.case.about == about)
        for about in sorted({one.case.about for one in found})
    }

    def number(about: str, wanted: Callable[[bool, bool], bool]) -> int:
        return sum(many for of, many in counts[about].items() if wanted(*of))

    yield listing(
        conclusion(found, old),
        counts,
        texts("Decided by", lambda about: _ABOUT[about]),
        numbers("Starts (cases)", lambda about: number(about, lambda starts, _: starts)),
        numbers("Fails to start (cases)", lambda about: number(about, lambda starts, _: not starts)),
        numbers("Predicted correctly (cases)", lambda about: number(about, lambda _, right: right)),
    )
    yield listing(
        "Every documented case with its prediction",
        found,
        texts("Model", lambda one: Cell(one.case.model, hint=_options(one.case))),
        texts("Engine", lambda one: engine_name(one.case.engine)),
        texts("Accelerators", lambda one: f"{_ranks(one.case)} × {one.case.gpu}"),
        texts("Documented", lambda one: Cell(_STARTS[one.case.starts], hint=one.case.says)),
        texts("Predicted", _predicted),
        texts("Source", lambda one: Cell(_ABOUT[one.case.about], href=one.case.url)),
        sortable=True,
    )


_ABOUT: Final[dict[str, str]] = read_table("what decides a start")
_STARTS: Final = {True: "starts", False: "refused"}


def _options(case: KnownStart) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {f'{value:,}' if type(value) is int else value}"
        for name, value in case.options.items()
    )


def _ranks(case: KnownStart) -> int:
    names = ("tensor_parallel", "pipeline_parallel", "data_parallel")
    return prod(int(case.options.get(name, 1)) for name in names)


def _predicted(one: JudgedStart) -> Cell:
    return Cell(_STARTS[one.starts] + ("" if one.right else " (wrong)"), hint=one.reason or one.verdict)
