"""Pages written by hand as the host renders them, kept between builds: the same Markdown is parsed once.

What Markdown becomes depends on the text, on the extensions and their settings, and on the files that links lead to.
With an extension that reads anything else, or where the host had something to say about a page, nothing is kept.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mkdocs.structure.pages import Page as HostPage

from kvreport.adapters.page_cache import plain
from kvreport.build_cache import code
from kvreport.publish.parts import Parts

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.toc import TableOfContents

_EXTENSIONS: Final = frozenset(
    {"abbr", "admonition", "attr_list", "def_list", "fenced_code", "footnotes", "md_in_html", "tables", "toc"}
    | {f"pymdownx.{name}" for name in ("details", "highlight", "inlinehilite", "superfences")}
)
"""Extensions that read nothing but the page."""

_DISTRIBUTIONS: Final = ("mkdocs", "markdown", "pymdown-extensions", "pygments")


class Written:
    """The rendered pages of one build, and those that it found kept."""

    def __init__(self, folder: Path, config: MkDocsConfig, files: Files) -> None:
        """Look into a folder for pages rendered with these settings, among these files."""
        told = (
            [
                plain(config[name])
                for name in ("markdown_extensions", "mdx_configs", "validation", "use_directory_urls")
            ],
            [version(name) for name in _DISTRIBUTIONS],
            code(),
            [(file.src_uri, file.url, file.inclusion.name) for file in files],
        )
        self._frame = sha256(json.dumps(told, default=str).encode()).digest()
        self._files = files
        self._open = ExitStack()
        self._kept = self._open.enter_context(Parts(folder).group("written"))

    def take(self, page: HostPage) -> None:
        """Let a page that has not changed be rendered from what is kept."""
        render = page.render

        def kept(config: MkDocsConfig, files: Files) -> None:
            told = (page.file.src_uri, page.file.url, page.file.inclusion.name, page.markdown or "")
            key = sha256(self._frame + json.dumps(told).encode()).digest()
            found = self._kept.find(key)
            if isinstance(found, tuple):
                self._give(page, *found)
                return
            with _heard() as said:
                render(config, files)
            if not said:
                self._kept.put(key, _taken(page))

        page.render = kept  # type: ignore[method-assign]

    def _give(
        self,
        page: HostPage,
        content: str,
        toc: TableOfContents,
        title: str | None,
        anchors: set[str],
        links: dict[str, dict[str, str]] | None,
    ) -> None:
        page.content, page.toc, page.present_anchor_ids = content, toc, anchors
        page._title_from_render = title  # noqa: SLF001 - the host has no public name for it
        if links is not None:
            found = ((self._files.get_file_from_path(uri), to) for uri, to in links.items())
            page.links_to_anchors = {file: to for file, to in found if file is not None}

    def finish(self) -> None:
        """Write what this build used and made."""
        self._open.close()


def usable(config: MkDocsConfig) -> bool:
    """Whether every extension is known to read nothing but the page."""
    return set(config.markdown_extensions) <= _EXTENSIONS


def _taken(page: HostPage) -> tuple[Any, ...]:
    links = page.links_to_anchors
    told = None if links is None else {file.src_uri: to for file, to in links.items()}
    return page.content, page.toc, page._title_from_render, page.present_anchor_ids, told  # noqa: SLF001


@contextmanager
def _heard() -> Iterator[list[logging.LogRecord]]:
    """Collect what is logged while the block runs."""
    said: list[logging.LogRecord] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record)

    listener, loggers = Listener(), [logging.getLogger(name) for name in ("mkdocs", "MARKDOWN", "pymdownx")]
    for one in loggers:
        one.addHandler(listener)
    try:
        yield said
    finally:
        for one in loggers:
            one.removeHandler(listener)
