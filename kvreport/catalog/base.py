"""What every catalog record shares: strictness, and where its facts come from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from kvreport.units import MAX_CONTEXT_TOKENS

SCHEMA_VERSION: Final = 1
"""Version of the catalog's file format; a file of another version is refused with the way up."""

MAX_DIMENSION: Final = 1 << 40

Evidence = Literal["verbatim", "observed", "documented", "derived", "secondary", "unverified"]
"""How far a fact can be trusted, strongest first.

``verbatim``: copied from the primary file. ``observed``: read off a real machine. ``documented``:
the maker's own document. ``derived``: follows from other facts by arithmetic. ``secondary``:
restated by somebody else. ``unverified``: believed, not checked.
"""

Text = Annotated[str, StringConstraints(min_length=1, max_length=400, strip_whitespace=True)]
LongText = Annotated[str, StringConstraints(min_length=1, max_length=4000, strip_whitespace=True)]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(?:[a-z0-9._-]*[a-z0-9])?$", max_length=80)]
YearMonth = Annotated[str, StringConstraints(pattern=r"^(19|20)[0-9]{2}(-(0[1-9]|1[0-2]))?$")]
Count = Annotated[int, Field(ge=0, le=MAX_DIMENSION)]
Positive = Annotated[int, Field(ge=1, le=MAX_DIMENSION)]
Tokens = Annotated[int, Field(ge=1, le=MAX_CONTEXT_TOKENS)]


class Contradiction(NamedTuple):
    """One statement of a record that another statement, or arithmetic, excludes."""

    field: str  # The field, or the fields, that cannot be right.
    found: str
    allowed: str


class Record(BaseModel):
    """A frozen, strict record: unknown fields and silent conversions are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def contradictions(self) -> Iterable[Contradiction]:
        """Return what the fields, each valid by itself, say against one another."""
        return ()


class VersionedRecord(Record):
    """What a file of a catalog says, with the version of the file's format."""

    schema_version: Literal[1] = SCHEMA_VERSION


class Source(Record):
    """Where facts come from, and which fields they cover."""

    # Field names of the record that this source speaks for.
    covers: Annotated[tuple[Text, ...], Field(min_length=1)]
    title: Text  # What was read, in words a reader can search for.
    # Where it can be read again, if it has an address.
    url: Annotated[str, StringConstraints(pattern=r"^https?://\S+$", max_length=600)] | None = None
    revision: Text | None = None  # Commit, version or date of what was read.
    evidence: Evidence  # How far it can be trusted.
    note: LongText | None = None  # What the reader should know (for instance how a copy differs).
