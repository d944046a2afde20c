"""A finished piece of a page, and the inline marks that chapters' texts may use."""

from __future__ import annotations

import re
from hashlib import sha256
from html import escape
from typing import Final

_CODE: Final = re.compile(r"`([^`]+)`")
_STRONG: Final = re.compile(r"\*\*([^*]+)\*\*")
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


class Html:
    """A piece of a page; the last expression of a cell is shown as this.

    Attributes:
        html: Finished, escaped HTML.
    """

    def __init__(self, html: str) -> None:
        """Take finished HTML."""
        self.html = html

    def _repr_html_(self) -> str:
        return self.html

    def __add__(self, other: Html) -> Html:
        """Put one piece after another."""
        return Html(self.html + other.html)


def inline(text: str) -> str:
    """Return text as HTML: escaped, with `code`, **strong** and [links](address) marked up.

    >>> inline("`a<b` is **less**")
    '<code>a&lt;b</code> is <strong>less</strong>'
    """
    made = escape(text, quote=True)
    made = _CODE.sub(r"<code>\1</code>", made)
    made = _STRONG.sub(r"<strong>\1</strong>", made)
    return _LINK.sub(r'<a href="\2">\1</a>', made)


def plain(text: str) -> str:
    """Return text without its marks, for a line that is read aloud.

    >>> plain("`a` is **less** than [b](b.md)")
    'a is less than b'
    """
    for pattern in (_CODE, _STRONG, _LINK):
        text = pattern.sub(r"\1", text)
    return text


def identity(*parts: str) -> str:
    """Return a short name that the same texts always give, for ids and for what a browser stores."""
    return sha256("\0".join(parts).encode()).hexdigest()[:8]
