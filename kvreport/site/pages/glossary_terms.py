"""The glossary's page, its figures computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kvreport.book.glossary import GlossaryTerm, load_glossary
from kvreport.book.prose import resolve
from kvreport.book.quantities import Quantities
from kvreport.errors import CatalogError
from kvreport.site.kit.page import Page
from kvreport.site.kit.templating import render
from kvreport.site.page_type import Inputs, PageType

if TYPE_CHECKING:
    from kvreport.catalog.load import Catalog

URI: Final = "glossary/"


def page(catalog: Catalog) -> Page | None:
    """Return the glossary page, or None if the catalog has no glossary.

    Raises:
        CatalogError: If an entry's figure does not hold.
    """
    path = catalog.folder / "glossary.yaml"
    if not path.is_file():
        return None
    terms = load_glossary(path)
    lead, faults = resolve(
        render("glossary/body.html", URI, {"terms": terms}), Quantities(catalog), path.name
    )
    if faults:
        raise CatalogError(faults)
    return Page(
        uri=URI,
        kind="tool",
        title="Glossary",
        heading="Glossary",
        description=f"{len(terms)} terms of memory and serving, in plain words.",
        lead=lead,
        names=_names(terms),
        boost=0.3,  # it mentions everything; a page about the thing itself comes first
    )


def _names(terms: tuple[GlossaryTerm, ...]) -> tuple[str, ...]:
    # A term that a chapter explains is found there.
    return ("glossary", *(name for t in terms if t.chapter is None for name in (t.term, *t.also)))


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the page, where the catalog has what it shows."""
    made = page(inputs.site.catalog)
    if made is not None:
        yield made


TYPE: Final = PageType("glossary", pages)
