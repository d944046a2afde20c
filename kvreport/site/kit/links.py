"""Links within the site, checked while it is built."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from html import unescape
from posixpath import normpath
from typing import Final
from urllib.parse import unquote

# The word boundary is checked after the literal ="; a pattern that begins with a literal is five times as fast.
_LINK: Final = re.compile(r'="(?:(?<=\bhref=")|(?<=\bsrc="))([^"#?]+)')
_ANCHOR: Final = re.compile(
    r'<a\b[^>]*?\bhref="(?P<address>[^"#?]*)[^"]*"[^>]*>(?P<text>.*?)</a\s*>', re.DOTALL | re.IGNORECASE
)
_OUTSIDE: Final = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)


def check(uri: str, html: str, known: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each link of a page that leads nowhere.

    Args:
        uri: Address of the page within the site.
        html: The finished page.
        known: Addresses of everything in the site: pages end in ``/`` (or are ``""``), files do not.
    """
    yield from dead(uri, targets(uri, html), known)


def dead(uri: str, found: Iterable[tuple[str, str]], known: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each link that leads nowhere.

    Args:
        uri: Address of the page within the site.
        found: Its links, as :func:`targets` yields them.
        known: Addresses of everything in the site, as for :func:`check`.
    """
    for address, target in found:
        if target not in known:
            yield f"{uri or 'index'}: the link to {address!r} leads nowhere"


def targets(uri: str, html: str) -> Iterator[tuple[str, str]]:
    """Yield each address within the site that a page links to, as written and as it stands in the site."""
    for target in dict.fromkeys(_LINK.findall(html)):
        address = unquote(unescape(target))
        if not _OUTSIDE.match(address):
            yield address, resolved(uri, address)


def unlinked(uri: str, html: str, known: Collection[str]) -> str:
    """Return a page in which a link that leads nowhere within the site is the text that it was on.

    Args:
        uri: Address of the page within the site.
        html: The finished page.
        known: Addresses of everything in the site, as for :func:`check`.
    """

    def kept(match: re.Match[str]) -> str:
        address = unquote(unescape(match["address"]))
        if not address or _OUTSIDE.match(address) or resolved(uri, address) in known:
            return match[0]
        return f"<span>{match['text']}</span>"

    return _ANCHOR.sub(kept, html)


def resolved(uri: str, address: str) -> str:
    """Return the address within the site that a link on ``uri`` leads to.

    >>> resolved("models/a--b/", "../../gpus/h100/")
    'gpus/h100/'
    >>> resolved("models/", ".")
    'models/'
    """
    base = "" if address.startswith("/") else uri.rpartition("/")[0]
    up = "../" * (base.count("/") + 1) if base else ""
    rest = address[len(up) :]
    if up and address.startswith(up) and rest and "./" not in rest and "//" not in rest and rest[-1] != ".":
        return rest.removesuffix("index.html")  # most links of a page, told without taking the address apart
    path = normpath(f"/{base}/{address.lstrip('/')}").lstrip("/")
    directory = address.endswith(("/", "/.", "/..")) or address in (".", "..")
    if path in ("", "."):
        return ""
    return f"{path}/" if directory else path.removesuffix("index.html")
