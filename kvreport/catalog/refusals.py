"""Sentences with which an engine refuses to start, each with what it means: ``data/refusals.yaml``."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Final

from pydantic import Field

from kvreport.catalog.base import LongText, Record, Text
from kvreport.catalog.log_lines import Name
from kvreport.catalog.server_flags import FlagText
from kvreport.catalog.shelf import CatalogFile

FOLDER: Final = "refusals/"
"""Where their pages are in the site."""


class Refusal(Record):
    """One sentence."""

    slug: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=60)]
    # Lines of logs that say it, as they are named in ``log_lines``; the first one's example is shown.
    lines: Annotated[tuple[Name, ...], Field(min_length=1)]
    title: Text
    means: LongText | None = None  # What happened, where the lines' own meaning is not all.
    arithmetic: tuple[FlagText, ...] = ()  # The comparison that failed, a formula each.
    # A question of :func:`kvreport.estimate` that ends in it; None where none does.
    example: dict[str, Any] | None = None

    @property
    def address(self) -> str:
        """Its page in the site."""
        return f"{FOLDER}{self.slug}/"


class Refusals(CatalogFile):
    """The content of ``refusals.yaml``."""

    FILE = "refusals.yaml"
    refusals: tuple[Refusal, ...]


@cache
def refusals() -> tuple[Refusal, ...]:
    """Every refusal that has a page.

    Raises:
        CatalogError: If the file does not hold.
    """
    return Refusals.need().refusals


def refusal_of(names: frozenset[str]) -> Refusal | None:
    """The refusal that some recognized lines say; the last one of the list where they say several."""
    return next((one for one in reversed(refusals()) if not names.isdisjoint(one.lines)), None)
