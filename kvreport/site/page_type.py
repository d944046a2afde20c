"""The page protocol: a page type is one module of ``pages`` and one folder of ``templates``.

The build asks every type in :data:`kvreport.site.build.PAGE_TYPES` for the charts that its pages show,
draws them all at once, and then asks for the pages and for the files beside them. A new page type is
one module that ends in ``TYPE = PageType(...)``, its templates, and one line there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvreport.publish.site_data import SiteData
from kvreport.site.kit.drawing import Drawing, Wanted
from kvreport.site.kit.elements import Chart
from kvreport.site.kit.page import Page, link
from kvreport.site.kit.templating import render

if TYPE_CHECKING:
    pass

File = tuple[str, bytes]
"""An address within the site, and what is there."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What pages are made from."""

    site: SiteData
    drawings: Mapping[str, Drawing]
    addresses: frozenset[str] = frozenset()
    runtime_bytes: int = 0
    sql_bytes: int = 0

    def drawing(self, chart: Chart | None) -> Drawing | None:
        """Return the drawing of a chart, or None without a chart."""
        return self.drawings[chart.digest] if chart else None


def _none(_: object) -> Iterable[Any]:
    return ()


@dataclass(frozen=True, slots=True)
class PageType:
    """One kind of page.

    Attributes:
        name: Folder of its templates, ``templates/<name>/``.
        pages: Makes its pages, in the order of the site's own list.
        requests: The charts that its pages show and the pictures that links to them show; drawn while pages are made.
        assets: Files that its pages need to be shown or shared.
        files: Files for programs that belong to its pages.
    """

    name: str
    pages: Callable[[Inputs], Iterable[Page]]
    requests: Callable[[SiteData], Iterable[Wanted]] = _none
    assets: Callable[[Inputs], Iterable[File]] = _none
    files: Callable[[SiteData], Iterable[File]] = _none


def moved(uri: str, target: str, name: str) -> Page:
    """Return the page at an address that a page has left."""
    return Page(
        uri=uri,
        kind="redirect",
        title=name,
        heading=name,
        description=f"{name} has moved.",
        lead=render("moved.html", uri, {"name": name, "target": link(uri, target)}),
        moved_to=target,
    )
