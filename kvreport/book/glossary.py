"""The glossary: one plain sentence for each term, where a reader meets it and on a page of its own.

On a page, the first time a term stands in prose it becomes a quiet link to its entry with its
sentence as the tooltip. Headings, links, code, tables' heads and figures are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from kvreport.catalog.base import SCHEMA_VERSION, LongText, Record, Slug, Text
from kvreport.catalog.server_flags import FlagText
from kvreport.catalog.shelf import validate
from kvreport.catalog.strict_files import read_yaml
from kvreport.errors import CatalogError, Fault

PAGE: Final = "glossary/index.md"
"""Source address of the glossary's own page."""

_QUIET: Final = "a|abbr|button|code|figure|h1|h2|h3|h4|h5|h6|math|nav|pre|script|style|summary|svg|template|textarea|th|title"
# A computed number is one piece: it keeps the tooltip that it has, the expression that gives it.
_PIECE: Final = re.compile(r'(<span class="kv-q"[^<>]*>[^<]*</span>|<[^<>]*>)')
_TAG: Final = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)[^<>]*?(/?)>")


class GlossaryTerm(Record):
    """One entry."""

    id: Slug  # Anchor on the glossary page.
    term: Text  # The word as it is usually written.
    also: tuple[FlagText, ...] = ()  # Other ways to write it, the ones that tooltips look for included.
    plain: Text  # One sentence that says what it is, without other terms of the trade where possible.
    more: LongText | None = None  # What else to know, with computed numbers if it has any.
    chapter: Text | None = None  # Chapter that explains it, as a source address.

    @property
    def address(self) -> str:
        """Address of the chapter within the site."""
        return chapter_address(self.chapter) if self.chapter else ""


class Glossary(Record):
    """The content of ``glossary.yaml``."""

    schema_version: Literal[1] = SCHEMA_VERSION
    terms: Annotated[tuple[GlossaryTerm, ...], Field(min_length=1)]


def chapter_address(source: str) -> str:
    """Return where a chapter is published: without its number, under ``learn/``.

    >>> chapter_address("chapters/02-the-formula.py")
    'learn/the-formula/'
    """
    name = source.rsplit("/", 1)[-1].removesuffix(".py")
    return f"learn/{re.sub(r'^[0-9]+-', '', name)}/"


def load_glossary(path: Path) -> tuple[GlossaryTerm, ...]:
    """Read the glossary, sorted by term.

    Raises:
        CatalogError: If the file is not as described or explains a word twice.
    """
    terms = validate(Glossary, read_yaml(path, path.name), path.name).terms
    seen: dict[str, str] = {}
    faults = [
        Fault(path.name, term.id, repr(word), f"a word that {seen[word]!r} does not have")
        for term in terms
        for word in sorted({term.id, term.term, *term.also})
        if seen.setdefault(word, term.id) != term.id
    ]
    if faults:
        raise CatalogError(faults)
    return tuple(sorted(terms, key=lambda term: term.term.lower()))


def explain(html: str, terms: Sequence[GlossaryTerm], glossary_url: str) -> str:
    """Give each term's first mention on a page its tooltip."""
    words = {word: term for term in terms for word in (term.term, *term.also)}
    if not words:
        return html
    ordered = sorted(words, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w-])(?:{'|'.join(re.escape(word) for word in ordered)})(?![\w-])")
    done: set[str] = set()
    depth = 0

    def mark(match: re.Match[str]) -> str:
        term = words[match[0]]
        if term.id in done:
            return match[0]
        done.add(term.id)
        return (
            f'<a class="kv-term" href="{escape(glossary_url, quote=True)}#{term.id}" '
            f'title="{escape(term.plain, quote=True)}">{match[0]}</a>'
        )

    pieces = _PIECE.split(html)
    for number, piece in enumerate(pieces):
        tag = _TAG.fullmatch(piece)
        if tag is None:
            if depth == 0 and not piece.startswith("<"):
                pieces[number] = pattern.sub(mark, piece)
        elif re.fullmatch(_QUIET, tag[2].lower()) and not tag[3]:
            depth = max(0, depth + (-1 if tag[1] else 1))
    return "".join(pieces)
