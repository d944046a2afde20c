"""What somebody published, as data: the words, the figure, and ways to recompute it.

A claim carries no verdict. It says what was stated and which readings of it can be computed; the
verdict follows in :mod:`kvreport.evidence.claims`, from the figure's own printed precision.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from kvreport.catalog.base import Evidence, LongText, Record, Slug, Text, VersionedRecord
from kvreport.catalog.shelf import read_each
from kvreport.errors import CatalogError, Fault

Number = Annotated[str, StringConstraints(pattern=r"^-?[0-9][0-9,]*(\.[0-9]+)?$", max_length=40)]
"""A number as printed. It stays text, because its digits say how exact it claims to be."""

Relation = Literal["equals", "at_least", "more_than", "at_most", "less_than"]
"""How the statement relates its subject to the figure: "76 GB" or "more than 80 GB"."""

Role = Literal["stated", "assumption", "cause"]
"""What a reading is for.

``stated``: what the words say, read as kindly as they allow. ``assumption``: the same with
something added that the source does not say; if only this agrees, the claim depends on it.
``cause``: a mistake that would produce the printed figure; it explains, and excuses nothing.
"""


class Stated(Record):
    """The published figure."""

    value: Number  # The number as printed.
    # Its unit as printed (``GB``, ``GiB``, ``tokens``, ``×``, ``%`` …).
    unit: Annotated[str, StringConstraints(max_length=16)] = ""
    # True if the source says "about", "roughly" or "≈"; trailing zeros then do not count as exact digits.
    about: bool = False
    relation: Relation = "equals"  # How the statement uses the figure.


class ClaimReading(Record):
    """One way to understand a claim, with the expression that computes it."""

    role: Role = "stated"
    name: Text  # What is assumed or done, in words that complete "…, if" or "… because".
    # Expression over the quantities of :mod:`kvreport.book.quantities`.
    compute: Annotated[str, StringConstraints(min_length=1, max_length=300, strip_whitespace=True)]


class Claim(Record):
    """One quantitative statement."""

    id: Slug  # Slug, unique over all sources; its anchor on the ledger page.
    place: Text  # Where in the source it stands.
    quote: Text  # The words, no more than the figure needs.
    stated: Stated
    inputs: dict[Text, Text] = Field(default_factory=dict)  # What the source states it for, by name.
    # Ways to recompute it, the kindest first.
    readings: Annotated[tuple[ClaimReading, ...], Field(min_length=1, max_length=8)]
    measured: bool = False  # True if the source presents it as a measurement.
    # What else a fair reader should know; its figures are ``{{ figure = expression }}``.
    note: LongText | None = None

    @model_validator(mode="after")
    def _kindest_first(self) -> Self:
        if self.readings[0].role == "cause":
            raise ValueError("readings: the first must be a reading of the words, not a cause of error")
        return self


class Publication(Record):
    """A published source."""

    key: Slug  # Short name, ``source-1``; the ``file`` of its claims in the published ledger.
    title: Text
    published: Text  # Where it was published, in words.
    # Address, if it is known.
    url: Annotated[str, StringConstraints(pattern=r"^https://\S+$", max_length=600)] | None = None
    evidence: Evidence  # How sure it is that this is where it was published.
    note: LongText | None = None  # What a fair reader should know about the whole.


class ClaimsFile(VersionedRecord):
    """The content of one file of ``data/claims/``."""

    source: Publication
    claims: Annotated[tuple[Claim, ...], Field(min_length=1)]


def load_claims(folder: Path) -> tuple[ClaimsFile, ...]:
    """Read every file of a claims folder, in name order.

    Raises:
        CatalogError: All faults of all files at once.
    """
    files, faults = read_each(ClaimsFile, folder)
    seen: dict[str, str] = {}
    for where, file in files.items():
        for claim in file.claims:
            if claim.id in seen:
                allowed = f"an id not used in {seen[claim.id]}"
                faults.append(Fault(where, "claims.id", repr(claim.id), allowed))
            seen[claim.id] = where
        stem = Path(where).stem
        if file.source.key != stem:
            faults.append(Fault(where, "source.key", repr(file.source.key), f"the file's name, {stem!r}"))
    if faults:
        raise CatalogError(faults)
    return tuple(files.values())
