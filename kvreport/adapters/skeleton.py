"""A generated page's skeleton: what the host sees of it, with a placeholder for each section."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kvreport.site.kit.page import Page, Section

_INDENTS: Final = re.compile(r"\n\s+")
_SHARE: Final = '<div class="kv-share-place"></div>'
"""Where the box for sharing goes; it is kept free, so that nothing moves when the box comes."""


def skeleton(page: Page) -> str:
    """Return headings and lead of a page, and where its sections will go."""
    parts = [f'<h1 id="top">{escape(page.heading)}</h1>', _SHARE, page.lead]
    for number, section in enumerate(page.sections):
        parts.append(_heading(section) + _placeholder(number))
    return "\n".join(parts)


def filled(output: str, page: Page, tags: str) -> str:
    """Return what the theme made of a skeleton with the sections in their places."""
    # The theme indents what it prints; on hundreds of pages that is megabytes of spaces.
    output = _INDENTS.sub("\n", output)
    for number, section in enumerate(page.sections):
        output = output.replace(_placeholder(number), section.html, 1)
    return output.replace("</head>", f"{tags}</head>", 1)


def shared(output: str, tags: str) -> str:
    """Return a page that is written by hand with tags in its head, and the place for sharing after its title."""
    output = output.replace("</head>", f"{tags}</head>", 1)
    return output.replace("</h1>", f"</h1>{_SHARE}", 1) if tags else output


def outline(page: Page) -> list[dict[str, Any]]:
    """Return a page's headings as the host's table of contents takes them."""
    sections = [
        {"level": 2, "id": s.id, "name": escape(s.title), "children": []} for s in page.sections if s.title
    ]
    return [{"level": 1, "id": "top", "name": escape(page.heading), "children": sections}]


def address(url: str) -> str:
    """Return a page's address in the site as we write it: the front page's is empty."""
    return "" if url in (".", "./") else url


def _heading(section: Section) -> str:
    if not section.title:
        return ""
    mark = f'<a class="headerlink" href="#{section.id}" title="Link to this section">¶</a>'
    return f'<h2 id="{section.id}" data-search-exclude="true">{escape(section.title)}{mark}</h2>\n'


def _placeholder(number: int) -> str:
    return f"<!-- kv:section {number} -->"
