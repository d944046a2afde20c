"""A generated page as MkDocs sees it: read and rendered without front matter and Markdown, which it has none of."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from mkdocs.structure.files import File, InclusionLevel
from mkdocs.structure.pages import Page as HostPage
from mkdocs.structure.toc import get_toc
from mkdocs.utils import get_build_date

from kvreport.adapters.skeleton import address
from kvreport.dataset.data_version import data_version

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

    from kvreport.site.kit.page import Page

_ANCHOR: Final = re.compile(r'\bid="([^"]+)"')


class GeneratedPage(HostPage):
    """A generated page that the navigation does not list."""

    def __init__(self, ours: Page, file: File, config: MkDocsConfig, *, searched: bool) -> None:
        """Stand for ``ours`` among the host's pages.

        Where our own index is written, ``searched``, the host's search does not read the page.
        """
        super().__init__(None, file, config)
        self.ours = ours
        self._settings = settings(ours, searched=searched)
        self._anchors: set[str] | None = None

    def read_source(self, config: MkDocsConfig) -> None:
        """Take the settings; there is no source."""
        del config
        self.markdown, self.meta = "", dict(self._settings)

    def render(self, config: MkDocsConfig, files: Files) -> None:
        """Begin empty: the content comes with the host's next event."""
        del config, files
        self.content, self.toc = "", get_toc([])

    @property  # hundreds of pages are searched for anchors only where one is asked for
    def present_anchor_ids(self) -> set[str]:
        """Anchors that other pages may link to."""
        if self._anchors is None:
            self._anchors = anchors(self.ours)
        return self._anchors

    @present_anchor_ids.setter
    def present_anchor_ids(self, found: set[str] | None) -> None:
        self._anchors = found


def anchors(page: Page) -> set[str]:
    """Return the anchors of a generated page."""
    found = {"top", *(section.id for section in page.sections)}
    return found.union(*(_ANCHOR.findall(section.html) for section in page.sections))


def settings(page: Page, *, searched: bool) -> dict[str, Any]:
    """Return a page's settings; where our own index is written, the host's search does not read the page."""
    # The theme prints these two as they come, so they are HTML already when it gets them.
    meta: dict[str, Any] = {
        "title": escape(page.title),
        "description": escape(page.description),
        "hide": ["navigation"] if page.kind in ("model", "gpu", "data") else ["navigation", "toc"],
    }
    if searched or page.moved_to is not None:
        meta["search"] = {"exclude": True}
    else:
        meta["search"] = {"boost": page.boost}
    if page.names:
        meta["tags"] = list(page.names)
    return meta


def front_matter(page: Page, *, searched: bool) -> str:
    """Return the same as the front matter of a Markdown file."""
    return (
        f"---\n{yaml.safe_dump(settings(page, searched=searched), allow_unicode=True, sort_keys=False)}---\n"
    )


def announce(page: Page, uri: str, files: Files, config: MkDocsConfig, *, searched: bool) -> None:
    """Add a generated page to the site's files."""
    in_nav = page.kind not in ("model", "gpu", "redirect")
    level = InclusionLevel.INCLUDED if in_nav else InclusionLevel.NOT_IN_NAV
    content = front_matter(page, searched=searched) if in_nav else ""
    file = File.generated(config, uri, content=content, inclusion=level)
    files.append(file)
    if not in_nav:
        GeneratedPage(page, file, config, searched=searched)


def date(files: Iterable[File], data: Path, only: Collection[str] | None) -> None:
    """Date pages by the data's release: by the clock, no two days would give the same site.

    ``only`` are the source addresses of the pages that are ours to date.
    """
    if "SOURCE_DATE_EPOCH" in os.environ:
        return
    day = data_version(data).replace(".", "-")
    for file in files:
        ours = only is None or file.src_uri in only
        if ours and file.page is not None and file.page.update_date == get_build_date():
            file.page.update_date = day


def published(file: File) -> str:
    """Return a file's address in the site; the front page's is empty."""
    return address(file.url if file.is_documentation_page() else file.dest_uri)
