"""One page of the site, before any site engine has seen it.

A page is an address and finished content. The title, the lead and the section titles are what a
search index should hold; the sections' bodies (tables, charts) are put in afterwards, so that a
thousand tables do not make the index a thousand tables long. An adapter hands this to MkDocs, to
plain files or to whatever comes after.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from posixpath import normpath
from typing import Final, Literal

Kind = Literal["home", "index", "model", "gpu", "tool", "data", "redirect"]


_ODD: Final = frozenset({"", ".", ".."})
"""Steps that a system resolves."""


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of a page."""

    id: str
    title: str
    html: str


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the site.

    Attributes:
        uri: Address within the site, ``models/org--name/``; ``""`` is the home page.
        title: Plain text: the window's title and the search result's.
        heading: Plain text of the page's own heading.
        description: One plain sentence: the conclusion, for search results and link previews.
        lead: HTML under the heading, before the first section.
        names: Other names under which a search should find it.
        quoted: Texts that a reader may paste into the search and that this page explains, as sections of plain text;
            the page itself does not show them.
        boost: How much a search favours it among equals.
        moved_to: For a redirect: the address that holds the content now.
        card: Address of the picture shown with a shared link, or None.
    """

    uri: str
    kind: Kind
    title: str
    heading: str
    description: str
    lead: str = ""
    sections: tuple[Section, ...] = ()
    names: tuple[str, ...] = ()
    quoted: tuple[Section, ...] = ()
    boost: float = 1.0
    moved_to: str | None = None
    card: str | None = None


def _steps(path: str) -> list[str]:
    """Return the folders and the name of an address, from the top."""
    steps = path.strip("/").split("/")
    if not _ODD.isdisjoint(steps):
        steps = normpath("/" + path).strip("/").split("/")
    return steps if steps[0] else []


def _relative(there: list[str], here: list[str]) -> str:
    """Return the way from one address to another; pages have thousands of links, and few folders."""
    common = 0
    for one, other in zip(there, here, strict=False):
        if one != other:
            break
        common += 1
    return "/".join([*[".."] * (len(here) - common), *there[common:]]) or "."


@lru_cache(maxsize=1 << 16)
def link(source: str, target: str) -> str:
    """Return the relative address that leads from one page to another.

    >>> link("models/a--b/", "gpus/h100/#users")
    '../../gpus/h100/#users'
    >>> link("", "models/")
    'models/'
    """
    if target.startswith(("https://", "http://")):
        return target
    path, mark = target, ""
    for sign in ("?", "#"):
        if sign in path:
            path, rest = path.split(sign, 1)
            mark = sign + rest + mark
    relative = _relative(_steps(path), _steps(source))
    if not path or path.endswith("/"):
        relative += "/"
    return ("./" if relative == "./" and not mark else "" if relative == "./" else relative) + mark
