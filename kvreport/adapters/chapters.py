"""Executed chapters without a site engine: what mkdocs-jupyter does, for the plain-file export."""

from __future__ import annotations

import re
from html import escape, unescape
from pathlib import Path
from posixpath import dirname, join, normpath

from kvreport.adapters.book import CHAPTERS, clean, is_chapter
from kvreport.book import prose
from kvreport.book.glossary import chapter_address
from kvreport.book.quantities import Quantities
from kvreport.errors import Fault, InputError
from kvreport.site.kit.page import link

_HREF = re.compile(r'(<a\b[^>]*?\bhref=")([^"]*)(")')
_ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//|#|$)", re.IGNORECASE)
_SECONDS = 120


def executed(path: Path, quantities: Quantities) -> tuple[str, str, str]:
    """Run a chapter and return it as finished HTML.

    Args:
        path: The chapter's source, jupytext percent format.
        quantities: The vocabulary of its expressions.

    Returns:
        Its address on the site, its title, and its content after the title.

    Raises:
        InputError: If a cell fails or a figure in its prose does not hold.
    """
    import jupytext  # noqa: PLC0415 - heavy, and only the export needs it
    from nbclient import NotebookClient  # noqa: PLC0415
    from nbclient.exceptions import CellExecutionError  # noqa: PLC0415
    from nbconvert import HTMLExporter  # noqa: PLC0415
    from traitlets.config import Config  # noqa: PLC0415

    source = f"{CHAPTERS}{path.name}"
    notebook = jupytext.read(path)
    try:
        NotebookClient(notebook, timeout=_SECONDS, kernel_name="python3").execute()
    except CellExecutionError as error:
        raise InputError(f"{source}: a cell failed: {error.ename}: {error.evalue}") from error
    settings = Config()
    settings.TagRemovePreprocessor.enabled = True
    settings.TagRemovePreprocessor.remove_input_tags = {"hide"}
    settings.HTMLExporter.preprocessors = ["nbconvert.preprocessors.TagRemovePreprocessor"]
    exporter = HTMLExporter(config=settings, template_name="basic")  # type: ignore[no-untyped-call]
    html, _ = exporter.from_notebook_node(notebook)
    html, faults = prose.resolve(clean(html), quantities, source)
    if faults:
        raise InputError("; ".join(str(fault) for fault in faults))
    address = chapter_address(source)
    title, body = _title(html, source)
    return address, title, _links(body, source, address)


def _title(html: str, source: str) -> tuple[str, str]:
    found = re.search(r"<h1\b[^>]*>(.*?)</h1>", html, re.DOTALL)
    if found is None:
        raise InputError(str(Fault(source, "title", "no first heading", "a line '# # Title'")))
    words = re.sub(r"<a\b.*?</a>|<[^<>]*>", "", found[1], flags=re.DOTALL)
    return unescape(words).strip(), html[: found.start()] + html[found.end() :]


def _links(html: str, source: str, address: str) -> str:
    """Lead links between sources to the addresses that their pages have."""

    def replace(match: re.Match[str]) -> str:
        target = unescape(match[2])
        if _ELSEWHERE.match(target):
            return match[0]
        path, mark, rest = re.fullmatch(r"([^?#]*)([?#]?)(.*)", target, re.DOTALL).groups()  # type: ignore[union-attr]
        there = page_address(normpath(join(dirname(source), path)))
        return f"{match[1]}{escape(link(address, there) + mark + rest, quote=True)}{match[3]}"

    return _HREF.sub(replace, html)


def page_address(source: str) -> str:
    """Return the address of the page made from a source file of the site."""
    if is_chapter(source):
        return chapter_address(source)
    if source.endswith(".md"):
        folder = source.removesuffix(".md")
        folder = folder.removesuffix("index").rstrip("/")
        return f"{folder}/" if folder else ""
    return source
