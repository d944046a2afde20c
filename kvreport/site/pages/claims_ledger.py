"""The ledger's page: every published figure beside what recomputing it gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from kvreport.book.prose import plain
from kvreport.book.quantities import Quantities
from kvreport.catalog.claim import Claim, ClaimsFile, Publication, load_claims
from kvreport.evidence.claim_check import UNITS
from kvreport.evidence.claim_sentences import QUANTITIES
from kvreport.evidence.claims import MEANINGS, ClaimVerdict, Entry, judge, ledger, plural, summary, to_json
from kvreport.publish.python_runtime import FOLDER as PYTHON
from kvreport.publish.python_runtime import MANIFEST
from kvreport.publish.tracked_values import kept
from kvreport.site.kit import charts
from kvreport.site.kit.elements import Chart
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.tables import Column, Table
from kvreport.site.kit.templating import Names, render
from kvreport.site.page_type import Inputs, PageType

if TYPE_CHECKING:
    from kvreport.catalog.load import Catalog
    from kvreport.publish.site_data import SiteData
    from kvreport.site.kit.drawing import Drawing

URI: Final = "evidence/claims/"
FILE: Final = "evidence/claims.json"
_ROW: Final = {ClaimVerdict.ROUNDED: "confirmed, rounded", ClaimVerdict.DEPENDS: "unstated assumption"}
"""Names of rows of the picture that are too long for a phone."""
LEADING: Final = 12
"""Causes that stand at the head of the page."""
OWN_SECTION: Final = 10
"""Claims of a publication that has a section of the page to itself."""
SHORT: Final = "short-publications"
"""Anchor of the section that shorter publications share."""
_CSS: Final = {
    ClaimVerdict.UNIT_SLIP: "unit-slip",
    ClaimVerdict.DEPENDS: "depends",
    ClaimVerdict.CONTRADICTED: "contradicted",
}


@dataclass(frozen=True, slots=True)
class Part:
    """One publication with its rows and how they came out."""

    source: Publication
    note: str
    lines: tuple[Names, ...]
    counts: tuple[int, ...]

    @property
    def anchor(self) -> str:
        """Where the page shows it."""
        return self.source.key if len(self.lines) >= OWN_SECTION else SHORT


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


def page(
    catalog: Catalog, drawings: Mapping[str, Drawing] | None = None, runtime_bytes: int = 0
) -> Page | None:
    """Return the ledger's page, or None if the catalog has no claims."""
    found = entries(catalog)
    if not found:
        return None
    context = _context(_files(catalog.folder), found, Quantities(catalog), drawings or {})
    counted = summary(found)
    agree = counted[ClaimVerdict.CONFIRMED] + counted[ClaimVerdict.ROUNDED] + counted[ClaimVerdict.MEASURED]
    conclusion = (
        f"{len(found)} published figures recomputed: {agree} are correct, {counted[ClaimVerdict.UNIT_SLIP]} are correct in "
        f"another unit, {counted[ClaimVerdict.DEPENDS]} depend on an unstated assumption, and {counted[ClaimVerdict.CONTRADICTED]} are contradicted"
    )
    sections = [
        Section(
            "causes", "The most common causes of wrong figures", render("claims/causes.html", URI, context)
        ),
        Section("verdicts", "Verdicts by source", render("claims/summary.html", URI, context)),
    ]
    form = {
        "quantities": tuple((name, words.rstrip(",")) for name, words in QUANTITIES.items()),
        "units": UNITS,
        "runtime": runtime_bytes > 0,
        "python": f"{PYTHON}/",
        "manifest": MANIFEST,
        "megabytes": round(runtime_bytes / 1e6),
    }
    sections.insert(0, Section("check", "Check your own figure", render("claims/form.html", URI, form)))
    sections += [
        Section(part.source.key, part.source.title, render("claims/source.html", URI, {"part": part}))
        for part in context["parts"]
    ]
    if context["short"]:
        sections.append(
            Section(SHORT, "Issue threads, model cards and guides", render("claims/short.html", URI, context))
        )
    return Page(
        uri=URI,
        kind="tool",
        title="Claims ledger: published figures, recomputed",
        heading="Claims ledger: published figures, recomputed",
        description=f"{conclusion}.",
        lead=render(
            "claims/lead.html",
            URI,
            {"conclusion": conclusion, "long": len(context["parts"]), "short": len(context["short"])},
        ),
        sections=tuple(sections),
        names=("claims", "errors", "fact check"),
    )


def _context(
    sources: Sequence[ClaimsFile],
    found: Sequence[Entry],
    quantities: Quantities,
    drawings: Mapping[str, Drawing],
) -> Names:
    parts = []
    for file in sources:
        own = [entry for entry in found if entry.file == file.source.key]
        note = plain(file.source.note or "", quantities)
        parts.append(
            Part(file.source, note, tuple(_line(entry) for entry in own), tuple(summary(own).values()))
        )
    counted, findings = summary(found), _findings(found)
    request = _picture(found)
    return {
        "parts": tuple(part for part in parts if part.anchor != SHORT),
        "short": (short := tuple(part for part in parts if part.anchor == SHORT)),
        "short_counts": tuple(sum(column) for column in zip(*(part.counts for part in short), strict=True)),
        "findings": findings[:LEADING],
        "rest": findings[LEADING:],
        "verdicts": tuple((v.value, MEANINGS[v], counted[v]) for v in ClaimVerdict),
        "total": len(found),
        "file": FILE,
        "chart": Chart(
            id="verdicts-chart",
            title="Stated over recomputed value, in rows by verdict",
            digest=request.digest,
            legend=(),
            notes=(),
            caption="Each mark is one or more claims with the same ratio. At 1, the figure is right. At 2, the figure is twice the recomputed value. Claims that "
            "state a bound, such as more than 80 GB, are not shown. The axis is logarithmic.",
            table=Table("", Column(""), (), ()),
            finding=_finding(found),
        ),
        "drawing": drawings.get(request.digest),
    }


def _finding(found: Sequence[Entry]) -> str:
    """Say by how much half of the contradicted figures are wrong; "" where fewer than two are contradicted."""
    off = [
        max(entry.ratio, 1 / entry.ratio)
        for entry in found
        if entry.verdict is ClaimVerdict.CONTRADICTED and entry.ratio
    ]
    if len(off) < 2:
        return ""
    return f"Half of the {len(off)} contradicted figures are off by a factor of {median(off):.2g} or more"


def _picture(found: Sequence[Entry]) -> charts.ChartRequest:
    named = {verdict: f"{_ROW.get(verdict, verdict.value)} ({n})" for verdict, n in summary(found).items()}
    marks = dict.fromkeys(
        charts.JudgedFigure(float(f"{entry.ratio:.3g}"), named[entry.verdict])
        for entry in found
        if entry.ratio and entry.claim.stated.relation == "equals"
    )
    return charts.ChartRequest("verdicts", charts.Verdicts(tuple(marks), tuple(named.values())))


def requests(site: SiteData) -> Iterator[charts.ChartRequest]:
    """Yield the picture of the verdicts, where there are claims."""
    found = entries(site.catalog)
    if found:
        yield _picture(found)


def _findings(found: Sequence[Entry]) -> tuple[Names, ...]:
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
            {
                "text": text,
                "kind": kind,
                "file": file,
                "first": own[0].claim.id,
                "count": len(own),
                "factor": "" if factor is None else f"{factor:.3g}",
            }
        )
    return tuple(sorted(made, key=lambda finding: (-finding["count"], finding["file"], finding["first"])))


def _line(entry: Entry) -> Names:
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
    return {
        "claim": entry.claim,
        "stated": f"{relation[entry.claim.stated.relation]}{mark}{entry.figure.text}{gap}{unit}",
        "computed": f"{_short(entry.computed)}{gap}{plural(unit, entry.computed)}",
        "ratio": "" if ratio is None or entry.claim.stated.relation != "equals" else f"{ratio:.3g}",
        "verdict": entry.verdict.value,
        "css": _CSS.get(entry.verdict, "holds"),
        "explanation": entry.explanation,
    }


def _short(value: float) -> str:
    return (
        f"{value:,.0f}" if value == int(value) else f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"
    )


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the page, where the catalog has what it shows."""
    made = page(inputs.site.catalog, inputs.drawings, inputs.runtime_bytes)
    if made is not None:
        yield made


TYPE: Final = PageType("claims", pages, requests, files=lambda site: files(site.catalog).items())
