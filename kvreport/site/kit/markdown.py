"""A page as Markdown: its text, tables and links, without forms and drawings, for programs that read text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from html import unescape
from html.parser import HTMLParser
from typing import Final
from urllib.parse import urljoin

from kvreport.site.kit.page import Page

_SKIPPED: Final = frozenset(
    {"svg", "script", "style", "template", "form", "button", "select", "dialog", "nav", "noscript"}
)
_BLOCKS: Final = frozenset({"p", "div", "section", "figure", "figcaption", "ul", "ol", "dl", "dt", "dd", "blockquote", "details", "summary", "table", "article", "header", "footer"})  # fmt: skip
_HEADINGS: Final = {f"h{level}": "#" * level for level in range(1, 7)}
_SPACES: Final = re.compile(r"[ \t\r\n]+")
_LINES: Final = re.compile(r"\n{3,}")
_ROW: Final = re.compile(r"(<tr\b[^>]*>[^<]*(?:<(?!table|tr\b|/tr>)[^<]*)*</tr>)")
_CELL: Final = re.compile(r"\s*<t([dh])\b([^>]*)>([^<]*(?:<(?!/?t[dh]\b)[^<]*)*)</t\1>\s*")
_HIDDEN: Final = re.compile(r"\shidden\b")
_TAG: Final = re.compile(r"<(?=[A-Za-z/!?])")
"""What begins an element, a comment or an instruction where Markdown is rendered."""


class _Writer(HTMLParser):
    """Collects Markdown; what is inside a skipped element is left out."""

    def __init__(self, base: str) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._base = base
        self._skipped: list[str] = []
        self._links: list[str] = []
        self._cells: list[str] | None = None
        self._header = False
        self._code = False
        self._inline = False

    def take(self, html: str) -> None:
        """Take a page in: its rows, of which an accelerator's page has five hundred, cell by cell."""
        # A text of a template makes a new one of its kind for each of its parts, which takes longer than the rest.
        for place, piece in enumerate(_ROW.split(str(html))):
            if piece.isspace() and not (self.rawdata or self._skipped or self._code):
                self.parts.append(" ")
            elif not (place % 2 and self._takes_row(piece)):
                self.feed(piece)
        self.close()

    def _takes_row(self, html: str) -> bool:
        """Take a row in as :meth:`feed` does, if it is as plain as our tables make them."""
        begin, end = html.index(">") + 1, len(html) - len("</tr>")
        if self.rawdata:
            self.close()  # what was fed, to its last sign
        if self._skipped or self._code or _HIDDEN.search(html):
            return False
        cells, header, place = [], False, begin
        while place < end:
            found = _CELL.match(html, place, end)
            text = None if found is None else _cell(found[3])
            if found is None or text is None:
                return False
            cells.append(text)
            header |= found[1] == "h" and 'scope="row"' not in found[2]
            place = found.end()
        self._write_row(cells, header=header)
        return True

    def _write_row(self, cells: Sequence[str], *, header: bool) -> None:
        # Without blanks around its cells, a table of a thousand cells has two thousand characters less.
        row = "|".join(cell.replace("|", "\\|") for cell in cells)
        self.parts.append(f"\n|{row}|")
        if header and len(cells) > 1:
            self.parts.append(f"\n|{'---|' * len(cells)}")

    def cell(self, html: str) -> str | None:
        """Return the text of a cell; None where an element of it does not end."""
        self._cells = []
        self.parts.append("\x00")
        self.feed(html)
        self.close()
        return None if self._skipped or self._code else self._since("\x00")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if self._skipped or tag in _SKIPPED or "hidden" in given:
            if tag not in ("br", "img", "input", "hr", "source", "wbr", "link", "meta"):
                self._skipped.append(tag)
            return
        if tag == "math":
            self.parts.append(f"\n\n```\n{given.get('alttext') or ''}\n```\n\n")
            self._skipped.append(tag)
        elif tag in _HEADINGS:
            self.parts.append(f"\n\n{_HEADINGS[tag]} ")
        elif tag == "tr":
            self._cells, self._header = [], False
        elif tag in ("th", "td"):
            self._header |= tag == "th" and given.get("scope") != "row"
            self.parts.append("\x00")
        elif tag == "li":
            self.parts.append("\n- ")
        elif tag == "br":
            self.parts.append(" ")
        elif tag == "a" and self._cells is None:
            # A table of five hundred rows would be mostly addresses; its first cells name the pages.
            self._links.append(urljoin(self._base, given.get("href") or ""))
            self.parts.append("[")
        elif tag in ("code", "pre"):
            self.parts.append("\n\n```\n" if tag == "pre" else ("" if self._code else "`"))
            self._code = self._code or tag == "pre"
            self._inline = not self._code
        elif tag in _BLOCKS:
            self.parts.append("\n\n")

    def handle_endtag(self, tag: str) -> None:
        if self._skipped:
            if tag in self._skipped:
                while self._skipped and self._skipped.pop() != tag:
                    pass
            return
        if tag == "a" and self._links:
            self.parts.append(f"]({self._links.pop()})")
        elif tag in ("th", "td") and self._cells is not None:
            self._cells.append(self._since("\x00"))
        elif tag == "tr" and self._cells is not None:
            self._write_row(self._cells, header=self._header)
            self._cells = None
        elif tag == "pre":
            self.parts.append("\n```\n\n")
            self._code = False
        elif tag == "code" and not self._code:
            self.parts.append("`")
            self._inline = False
        elif tag in _HEADINGS or tag in _BLOCKS:
            self.parts.append("\n\n")

    def handle_data(self, data: str) -> None:
        if self._skipped:
            return
        # In code nothing is an element, as long as the text cannot end the code.
        if self._code:
            self.parts.append(data.replace("```", "'''"))
        elif self._inline:
            self.parts.append(_SPACES.sub(" ", data).replace("`", "'"))
        else:
            self.parts.append(_SPACES.sub(" ", plain(data)))

    def _since(self, mark: str) -> str:
        """Take back what was written since a mark."""
        taken: list[str] = []
        while self.parts and self.parts[-1] != mark:
            taken.append(self.parts.pop())
        if self.parts:
            self.parts.pop()
        return _SPACES.sub(" ", "".join(reversed(taken))).strip()


@lru_cache(maxsize=1 << 16)
def _cell(html: str) -> str | None:
    """The text of a cell; most of a site's are alike. Links in cells are left out, so that no address decides it."""
    if "<" not in html:
        return _SPACES.sub(" ", plain(unescape(html))).strip()
    return _Writer("").cell(html)


def plain(text: str) -> str:
    """Return a text that stays text where Markdown is rendered: no element, link or code begins in it."""
    if "<" in text:
        text = _TAG.sub("&lt;", text)
    return text.replace("](", "]\\(").replace("`", "&#96;")


def to_markdown(html: str, base: str = "") -> str:
    """Return the text of some HTML as Markdown.

    Args:
        html: What our own templates made.
        base: Address that its links are relative to.
    """
    writer = _Writer(base)
    writer.take(html)
    lines = (
        line.strip() if not line.startswith("    ") else line for line in "".join(writer.parts).splitlines()
    )
    return _LINES.sub("\n\n", "\n".join(lines)).strip()


def twin(page: Page, site_url: str = "") -> str:
    """Return a page's Markdown twin, with its address and its heading first."""
    base = urljoin(site_url, page.uri) if site_url else ""
    parts = [f"# {plain(page.heading)}", *([f"<{base}>"] if base else []), to_markdown(page.lead, base)]
    for section in page.sections:
        if section.title:
            parts.append(f"## {plain(section.title)}")
        parts.append(to_markdown(section.html, base))
    return "\n\n".join(part for part in parts if part) + "\n"


def content(page: Page) -> tuple[str, ...]:
    """Return every text of a page that decides its twin."""
    sections = (text for section in page.sections for text in (section.title, section.html))
    return (page.uri, page.heading, page.lead, *sections)


def files(
    pages: Iterable[Page], site_url: str = "", make: Callable[[Page, str], str] = twin
) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of every page's twin (``index.md`` beside it) and of ``llms-full.txt``.

    ``llms-full.txt`` holds the twins of all pages but those of single models and accelerators, of which it
    has title, conclusion and address.

    Args:
        pages: The pages.
        site_url: Where the site will stand, or "".
        make: Makes a twin of a page and the site's address; for twins that are kept between builds.
    """
    whole: list[str] = []
    found = [(page, make(page, site_url)) for page in pages if page.moved_to is None]
    for page, text in found:
        yield f"{page.uri}index.md", text.encode()
        if page.kind in ("model", "gpu"):
            address = urljoin(site_url, f"{page.uri}index.md") if site_url else f"{page.uri}index.md"
            whole.append(f"- [{plain(page.heading)}]({address}): {plain(page.description)}\n")
        else:
            whole.append(text)
    whole.sort(key=lambda text: text.startswith("- ["))
    yield "llms-full.txt", "\n".join(whole).encode()
