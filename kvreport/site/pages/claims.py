"""The ledger's page: every published figure beside what recomputing it gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvreport.book.prose import plain
from kvreport.book.quantities import Quantities
from kvreport.catalog.claim import Claim, ClaimsFile, Publication, load_claims
from kvreport.evidence.claims import MEANINGS, Entry, Verdict, judge, ledger, plural, summary, to_json
from kvreport.publish.noted import kept
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.templating import render
from kvreport.site.page_type import Inputs, PageType

if TYPE_CHECKING:
    from kvreport.catalog.load import Catalog

URI: Final = "evidence/claims/"
FILE: Final = "evidence/claims.json"
LEADING: Final = 12
"""Causes that stand at the head of the page."""
_CSS: Final = {
    Verdict.UNIT_SLIP: "unit-slip",
    Verdict.DEPENDS: "depends",
    Verdict.CONTRADICTED: "contradicted",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the page.

    Attributes:
        claim: The claim as recorded.
        stated: The figure as printed, with its unit.
        computed: The recomputed value in the same unit.
        ratio: Stated over computed, or "".
        verdict: Its name.
        css: Class suffix of the verdict.
        explanation: Why.
    """

    claim: Claim
    stated: str
    computed: str
    ratio: str
    verdict: str
    css: str
    explanation: str


@dataclass(frozen=True, slots=True)
class Part:
    """One publication with its rows and how they came out."""

    source: Publication
    note: str
    lines: tuple[Line, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause or unstated assumption, and the claims that it explains.

    Attributes:
        text: The cause or the assumption.
        kind: ``mistake`` or ``unstated assumption``.
        file: Short key of the publication.
        first: Anchor of the first claim.
        count: How many claims it explains.
        factor: The largest factor by which it moves a figure, or "".
    """

    text: str
    kind: str
    file: str
    first: str
    count: int
    factor: str


@dataclass(frozen=True, slots=True)
class LedgerContext:
    """What the ledger's templates print.

    Attributes:
        parts: The publications, in order.
        findings: What explains the figures that do not hold, the most frequent first; the page leads with them.
        rest: Further causes, each of fewer claims.
        verdicts: Name, meaning and number of claims of each verdict.
        total: Number of claims.
        file: Address of the machine-readable ledger.
    """

    parts: tuple[Part, ...]
    findings: tuple[Finding, ...]
    rest: tuple[Finding, ...]
    verdicts: tuple[tuple[str, str, int], ...]
    total: int
    file: str


def entries(catalog: Catalog) -> tuple[Entry, ...]:
    """Recompute the claims that lie beside a catalog; none if it has none."""
    return ledger(_files(catalog.folder), Quantities(catalog), _kept)


def _kept(claim: Claim, file: ClaimsFile, quantities: Quantities) -> Entry:
    """One claim recomputed, kept until something that it reads changes."""
    key = f"claim {file.source.model_dump_json()} {claim.model_dump_json()}"
    return kept(key, lambda: judge(claim, file, quantities))


@cache
def _files(folder: Path) -> tuple[ClaimsFile, ...]:
    claims = folder / "claims"
    return load_claims(claims) if claims.is_dir() else ()


def files(catalog: Catalog) -> dict[str, bytes]:
    """Return the machine-readable ledger by its address; nothing if there are no claims."""
    found = entries(catalog)
    return {FILE: to_json(found).encode()} if found else {}


def page(catalog: Catalog) -> Page | None:
    """Return the ledger's page, or None if the catalog has no claims."""
    found = entries(catalog)
    if not found:
        return None
    context = _context(_files(catalog.folder), found, Quantities(catalog))
    counted = summary(found)
    agree = counted[Verdict.CONFIRMED] + counted[Verdict.ROUNDED] + counted[Verdict.MEASURED]
    conclusion = (
        f"{len(found)} published figures recomputed: {agree} hold, {counted[Verdict.UNIT_SLIP]} are right in another "
        f"unit, {counted[Verdict.DEPENDS]} need an assumption that is not stated, {counted[Verdict.CONTRADICTED]} are contradicted"
    )
    sections = [
        Section(
            "causes", "The most common causes of wrong figures", render("claims/causes.html", URI, context)
        ),
        Section("verdicts", "Verdicts by source", render("claims/summary.html", URI, context)),
    ]
    sections += [
        Section(part.source.key, part.source.title, render("claims/source.html", URI, {"part": part}))
        for part in context.parts
    ]
    return Page(
        uri=URI,
        kind="tool",
        title="Claims ledger: published figures, recomputed",
        heading="Claims ledger: published figures, recomputed",
        description=f"{conclusion}.",
        lead=render("claims/lead.html", URI, {"conclusion": conclusion}),
        sections=tuple(sections),
        names=("claims", "errors", "fact check"),
    )


def _context(sources: Sequence[ClaimsFile], found: Sequence[Entry], quantities: Quantities) -> LedgerContext:
    parts = []
    for file in sources:
        own = [entry for entry in found if entry.file == file.source.key]
        note = plain(file.source.note or "", quantities)
        parts.append(
            Part(file.source, note, tuple(_line(entry) for entry in own), tuple(summary(own).values()))
        )
    counted, findings = summary(found), _findings(found)
    return LedgerContext(
        parts=tuple(parts),
        findings=findings[:LEADING],
        rest=findings[LEADING:],
        verdicts=tuple((v.value, MEANINGS[v], counted[v]) for v in Verdict),
        total=len(found),
        file=FILE,
    )


def _findings(found: Sequence[Entry]) -> tuple[Finding, ...]:
    explained: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in found:
        if entry.cause or entry.assumption:
            kind = "mistake" if entry.cause else "unstated assumption"
            explained.setdefault((entry.file, kind, entry.cause or entry.assumption), []).append(entry)
    made = []
    for (file, kind, text), own in explained.items():
        ratios = [e.ratio for e in own if e.ratio and e.claim.stated.relation == "equals"]
        factor = max(ratios, key=lambda ratio: max(ratio, 1 / ratio), default=None)
        made.append(
            Finding(text, kind, file, own[0].claim.id, len(own), "" if factor is None else f"{factor:.3g}")
        )
    return tuple(sorted(made, key=lambda finding: (-finding.count, finding.file, finding.first)))


def _line(entry: Entry) -> Line:
    unit = entry.figure.unit
    gap = "" if unit in ("", "×", "%") else "\u00a0"
    mark = "≈\u00a0" if entry.figure.about else ""
    relation = {
        "equals": "",
        "at_least": "≥\u00a0",
        "more_than": ">\u00a0",
        "at_most": "≤\u00a0",
        "less_than": "<\u00a0",
    }
    ratio = entry.ratio
    return Line(
        claim=entry.claim,
        stated=f"{relation[entry.claim.stated.relation]}{mark}{entry.figure.text}{gap}{unit}",
        computed=f"{_short(entry.computed)}{gap}{plural(unit, entry.computed)}",
        ratio="" if ratio is None or entry.claim.stated.relation != "equals" else f"{ratio:.3g}",
        verdict=entry.verdict.value,
        css=_CSS.get(entry.verdict, "holds"),
        explanation=entry.explanation,
    )


def _short(value: float) -> str:
    return (
        f"{value:,.0f}" if value == int(value) else f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"
    )


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the page, where the catalog has what it shows."""
    made = page(inputs.site.catalog)
    if made is not None:
        yield made


TYPE: Final = PageType("claims", pages, files=lambda site: files(site.catalog).items())
