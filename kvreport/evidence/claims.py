"""The claims ledger: published figures, recomputed, with a verdict that nobody typed.

For each claim every reading is computed (:mod:`kvreport.book.quantities`) and held against the
figure at the figure's own printed precision. The kindest reading is tried first:

1. the words as they stand agree to the last digit: *confirmed*; to the printed digits: *confirmed
   within its rounding*;
2. they agree if powers of 1,024 were printed under the name of powers of 1,000, or the reverse, and no other
   mistake is needed: *unit slip* (a model's rounded size, such as 7B, is a fair reading of its parameters);
3. another reading agrees, or the figure lies between readings that are equally fair: *depends on
   an unstated assumption*, which is named;
4. nothing agrees: *contradicted*, by a factor, with the cause where a known mistake produces the
   printed figure.

A measurement that arithmetic can only bound is *measured*: consistent with the bound, and no more
is said about it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kvreport.book.expressions import PARTNER, PrintedFigure, unit_factor
from kvreport.book.prose import plain
from kvreport.book.quantities import Quantities
from kvreport.catalog.claim import Claim, ClaimReading, ClaimsFile, Stated
from kvreport.errors import CatalogError, Fault, InputError


class ClaimVerdict(StrEnum):
    """What recomputing a claim shows."""

    CONFIRMED = "confirmed"
    ROUNDED = "confirmed within its rounding"
    UNIT_SLIP = "unit slip"
    DEPENDS = "depends on an unstated assumption"
    CONTRADICTED = "contradicted"
    MEASURED = "measured, and consistent"


MEANINGS: Final[Mapping[ClaimVerdict, str]] = {
    ClaimVerdict.CONFIRMED: "the computed value is exactly this figure, or within the stated bound",
    ClaimVerdict.ROUNDED: "the computed value, rounded to the printed precision, is this figure",
    ClaimVerdict.UNIT_SLIP: "right, but with the wrong unit: GB for GiB, or the reverse",
    ClaimVerdict.DEPENDS: "right only under an assumption that the source does not state",
    ClaimVerdict.CONTRADICTED: "wrong under every fair reading",
    ClaimVerdict.MEASURED: "a measurement that agrees with the computed bound",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One claim with what came of recomputing it."""

    claim: Claim  # The claim as recorded.
    source: str  # Title of the publication.
    file: str  # Short key of the publication.
    figure: PrintedFigure  # The stated figure.
    computed: float  # The first reading's value, in the stated unit.
    verdict: ClaimVerdict  # What that shows.
    explanation: str  # One or two sentences with the numbers.
    assumption: str = ""  # What must be added for the figure to be right, or "".
    cause: str = ""  # The mistake that produces the figure, or "".

    @property
    def ratio(self) -> float | None:
        """Stated over computed; None if the computed value is nought."""
        return self.figure.number / self.computed if self.computed else None

    def record(self) -> dict[str, object]:
        """The entry as published in ``claims.json``."""
        ratio = self.ratio
        return {
            "id": self.claim.id,
            "source": self.source,
            "file": self.file,
            "statement": self.claim.quote,
            "stated_value": self.figure.number,
            "stated_unit": self.figure.unit,
            "computed_value": _tidy(self.computed),
            "computed_unit": self.figure.unit,
            "ratio": None if ratio is None else round(ratio, 6),
            "verdict": self.verdict.value,
            "explanation": self.explanation,
        }


@dataclass(frozen=True, slots=True)
class _Result:
    """One reading and what it computes to."""

    reading: ClaimReading
    value: float


@dataclass(frozen=True, slots=True)
class _Finding:
    """A verdict with the sentences that give its numbers."""

    verdict: ClaimVerdict
    text: str
    assumption: str = ""
    cause: str = ""


def ledger(
    files: Iterable[ClaimsFile],
    quantities: Quantities,
    judge_one: Callable[[Claim, ClaimsFile, Quantities], Entry] | None = None,
) -> tuple[Entry, ...]:
    """Recompute every claim by :func:`judge`, or by another that keeps what it returns.

    Raises:
        CatalogError: Every claim whose figure or reading cannot be computed, at once.
    """
    entries: list[Entry] = []
    faults: list[Fault] = []
    for file in files:
        for claim in file.claims:
            try:
                entries.append((judge_one or judge)(claim, file, quantities))
            except InputError as error:
                where = f"claims/{file.source.key}.yaml"
                faults.append(
                    Fault(where, claim.id, str(error), "a figure and readings that can be computed")
                )
    if faults:
        raise CatalogError(faults)
    return tuple(entries)


def judge(claim: Claim, file: ClaimsFile, quantities: Quantities) -> Entry:
    """Recompute one claim and derive its verdict.

    Raises:
        InputError: If the figure's unit or a reading's expression is wrong.
    """
    figure = PrintedFigure(claim.stated.value, claim.stated.unit, about=claim.stated.about)
    unit_factor(figure.unit)
    results = [_Result(reading, quantities.compute(reading.compute)) for reading in claim.readings]
    found = _find(claim, figure, results)
    return Entry(
        claim=claim,
        source=file.source.title,
        file=file.source.key,
        figure=figure,
        computed=results[0].value / unit_factor(figure.unit),
        verdict=found.verdict,
        explanation=f"{found.text} {plain(claim.note, quantities)}" if claim.note else found.text,
        assumption=found.assumption,
        cause=found.cause,
    )


def _find(claim: Claim, figure: PrintedFigure, results: Sequence[_Result]) -> _Finding:
    if claim.stated.relation != "equals":
        return _find_relation(claim, figure, results)
    first = results[0]
    fair = [r for r in results if r.reading.role != "cause"]
    for result in fair:
        if figure.matches(result.value):
            shown = _in_unit(result.value, figure.unit)
            if result.reading.role == "assumption":
                text = f"{_without(first, figure)} If {result.reading.name}, the result is {shown}."
                return _Finding(ClaimVerdict.DEPENDS, text, assumption=result.reading.name)
            verdict = ClaimVerdict.CONFIRMED if figure.is_exact(result.value) else ClaimVerdict.ROUNDED
            return _Finding(verdict, f"{_sentence(result.reading.name)}: {shown}.")
    partner = PARTNER.get(figure.unit)
    if partner is not None:
        for result in fair:
            if figure.matches(result.value, partner):
                return _slip(figure, partner, result)
    values = sorted(r.value for r in fair)
    if len(values) > 1 and values[0] < figure.value < values[-1]:
        listed = "; ".join(f"{_in_unit(r.value, figure.unit)} ({r.reading.name})" for r in fair)
        text = f"The source does not state enough for one figure: {listed}."
        return _Finding(
            ClaimVerdict.DEPENDS, text, assumption="one of these: " + "; ".join(r.reading.name for r in fair)
        )
    return _contradiction(figure, results)


def _find_relation(claim: Claim, figure: PrintedFigure, results: Sequence[_Result]) -> _Finding:
    first = results[0]
    shown = f"{_sentence(first.reading.name)}: {_in_unit(first.value, figure.unit)}"
    if _holds(claim.stated, figure, first.value):
        return _Finding(ClaimVerdict.MEASURED if claim.measured else ClaimVerdict.CONFIRMED, f"{shown}.")
    for result in results:
        if _holds(claim.stated, figure, result.value):
            computed = _in_unit(result.value, figure.unit)
            if result.reading.role == "assumption":
                text = f"{_without(first, figure)} The claim holds only if {result.reading.name}. The result is then {computed}."
                return _Finding(ClaimVerdict.DEPENDS, text, assumption=result.reading.name)
            text = f"{shown}, but the claim says {_words(claim.stated)}. Cause: {result.reading.name}. That gives {computed}."
            return _Finding(ClaimVerdict.CONTRADICTED, text, cause=result.reading.name)
    return _Finding(ClaimVerdict.CONTRADICTED, f"{shown}, but the claim says {_words(claim.stated)}.")


def _contradiction(figure: PrintedFigure, results: Sequence[_Result]) -> _Finding:
    first = results[0]
    text = f"{_sentence(first.reading.name)}: {_in_unit(first.value, figure.unit)}."
    if first.value:
        text += f" The figure is {figure.value / first.value:.3g} times this value."
    causes = [r for r in results if r.reading.role == "cause"]
    partner = PARTNER.get(figure.unit)
    for result in causes:
        if figure.matches(result.value):
            text += f" Cause: {result.reading.name}. That gives {_in_unit(result.value, figure.unit)}."
            return _Finding(ClaimVerdict.CONTRADICTED, text, cause=result.reading.name)
        if partner is not None and figure.matches(result.value, partner):
            slip = f"{_in_unit(result.value, partner)}, printed as {figure.unit}"
            text += f" Cause: {result.reading.name}. That gives {slip}."
            return _Finding(ClaimVerdict.CONTRADICTED, text, cause=result.reading.name)
    text += " Cause not found"
    if causes:
        tried = "; ".join(f"{r.reading.name} ({_in_unit(r.value, figure.unit)})" for r in causes)
        text += f". {'A likely mistake does' if len(causes) == 1 else 'Likely mistakes do'} not explain it: {tried}"
    return _Finding(ClaimVerdict.CONTRADICTED, f"{text}.")


def _slip(figure: PrintedFigure, partner: str, result: _Result) -> _Finding:
    off = abs(unit_factor(figure.unit) / unit_factor(partner) - 1) * 100
    text = (
        f"{_sentence(result.reading.name)}: {_in_unit(result.value, partner)}, "
        f"which is {_in_unit(result.value, figure.unit)}. "
        f"The figure is correct in {partner}. Labeled as {figure.unit}, it is {off:.1f}% off."
    )
    if result.reading.role == "assumption":
        name = result.reading.name
        return _Finding(ClaimVerdict.DEPENDS, f"{text} The figure also assumes that {name}.", assumption=name)
    return _Finding(ClaimVerdict.UNIT_SLIP, text)


def _without(first: _Result, figure: PrintedFigure) -> str:
    return (
        f"Without an assumption, the result is {_in_unit(first.value, figure.unit)} ({first.reading.name})."
    )


def _holds(stated: Stated, figure: PrintedFigure, computed: float) -> bool:
    """Whether ``computed RELATION figure``: the subject is what is computed."""
    value = figure.value
    match stated.relation:
        case "at_least":
            return computed >= value or math.isclose(computed, value)
        case "more_than":
            return computed > value
        case "at_most":
            return computed <= value or math.isclose(computed, value)
        case "less_than":
            return computed < value
        case _:
            raise ValueError(stated.relation)


def _words(stated: Stated) -> str:
    word = {"at_least": "at least", "more_than": "more than", "at_most": "at most", "less_than": "less than"}
    gap = "" if stated.unit in ("", "×", "%") else " "
    return f"{word[stated.relation]} {stated.value}{gap}{stated.unit}"


def _in_unit(value: float, unit: str) -> str:
    """Print a value in a unit, with digits enough to compare."""
    number = value / unit_factor(unit)
    if number == int(number) and abs(number) < 1e15:
        text = f"{int(number):,}"
    elif abs(number) >= 1000:
        text = f"{number:,.1f}"
    else:
        text = f"{number:.4g}"
    return f"{text}{'' if unit in ('', '×', '%') else ' '}{plural(unit, number)}"


def plural(unit: str, number: float) -> str:
    """Return a counting noun as it stands behind a number; other units stay as they are."""
    return f"{unit}s" if unit in ("user", "request", "sequence") and number != 1 else unit


def _tidy(value: float) -> float | int:
    """Whole numbers as such, others with twelve digits: no machine's last bit in a published file."""
    return int(value) if value == int(value) and abs(value) < 1e15 else float(f"{value:.12g}")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def summary(entries: Iterable[Entry]) -> dict[ClaimVerdict, int]:
    """How many claims have each verdict, in the order of :class:`ClaimVerdict`."""
    counted = dict.fromkeys(ClaimVerdict, 0)
    for entry in entries:
        counted[entry.verdict] += 1
    return counted


def to_json(entries: Iterable[Entry]) -> str:
    """The published ledger: a list of records, in the order of the sources."""
    return json.dumps([entry.record() for entry in entries], ensure_ascii=False, indent=1) + "\n"
