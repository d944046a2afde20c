"""A finished piece of a page, and the inline marks that chapters' texts may use."""

from __future__ import annotations

import re
from hashlib import sha256
from html import escape, unescape
from itertools import zip_longest
from typing import Final

_CODE: Final = re.compile(r"`([^`]+)`")
_STRONG: Final = re.compile(r"\*\*([^*]+)\*\*")
_DRAWN: Final = re.compile(
    r'<(svg|template|script|style)\b.*?</\1\s*>|<div class="kv-keys">.*?</div>', re.DOTALL
)
_TABLE: Final = re.compile(r"<table\b.*?</table>", re.DOTALL)
_CAPTION: Final = re.compile(r"<caption[^>]*>(.*?)</caption>", re.DOTALL)
_ROW: Final = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
_CELL: Final = re.compile(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", re.DOTALL)
_BLOCK: Final = re.compile(
    r"</?(?:p|div|li|ul|ol|h\d|section|figure|figcaption|summary|details|dl|dt|dd|pre|label|button)\b[^>]*>"
)
_TAG: Final = re.compile(r"<[^<>]*>")
_MATH: Final = re.compile(r'<math\b[^>]*?\balttext="([^"]*)".*?</math>', re.DOTALL)
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


class Html:
    """A piece of a page; the last expression of a cell is shown as this."""

    def __init__(self, html: str) -> None:
        """Take finished HTML."""
        self.html = html

    def _repr_html_(self) -> str:
        return self.html

    def __str__(self) -> str:
        """Return it as text, for a program that prints."""
        return as_text(self.html)

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


def as_text(html: str) -> str:
    """Return a piece of a page as text: tables in columns, drawings left out.

    >>> print(
    ...     as_text(
    ...         "<table><caption>Size</caption><tr><th>a</th><td>10</td></tr><tr><th>bc</th><td>9</td></tr></table>"
    ...     )
    ... )
    Size
      a   10
      bc   9
    """
    html = _MATH.sub(lambda match: match[1].replace("&#10;", "\n"), _DRAWN.sub("", html))
    html = _TABLE.sub(lambda match: f"\n{escape(_columns(match[0]))}\n", html)
    lines = (_words(line).rstrip() for line in _BLOCK.sub("\n", html).split("\n"))
    return "\n".join(line for line in lines if line.strip())


def _columns(table: str) -> str:
    caption = _CAPTION.search(table)
    rows = [[_words(cell[1]).strip() for cell in _CELL.finditer(row[0])] for row in _ROW.finditer(table)]
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    lines = [
        "  "
        + "  ".join(
            c.rjust(w) if n else c.ljust(w) for n, (c, w) in enumerate(zip(row, widths, strict=False))
        )
        for row in rows
    ]
    return "\n".join([*([_words(caption[1])] if caption else []), *lines])


def _words(html: str) -> str:
    return unescape(_TAG.sub("", html))


def identity(*parts: str) -> str:
    """Return a short name that the same texts always give, for ids and for what a browser stores."""
    return sha256("\0".join(parts).encode()).hexdigest()[:8]
