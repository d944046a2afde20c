"""HTTP headers for hosts that read ``_headers`` (Cloudflare Pages, Netlify): what a page cannot say itself.

A ``<meta>`` policy has no ``frame-ancestors``. No page may be framed, wherever it lies and whatever its address
(a host answers unknown addresses with ``404.html``), except for the card that is made for frames.

Hosts add up all rules that match a path, so a rule cannot be taken back by the next. But where a policy has
``frame-ancestors``, browsers ignore ``X-Frame-Options`` (Content Security Policy Level 3, section 6.4.2.2): the
card states the one and thereby lifts the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvreport.publish.embeds import CARD
from kvreport.resources import read_table

NAME: Final = "_headers"
_EVERYWHERE: Final[tuple[str, ...]] = tuple(read_table("headers"))
_FRAMED: Final = "Content-Security-Policy: frame-ancestors *"
_SHARED: Final = "Access-Control-Allow-Origin: *"
_DATA: Final = ("badge", "data", "downloads")


def files() -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of the headers file."""
    rules: dict[str, tuple[str, ...]] = {
        "/*": _EVERYWHERE,
        f"/{CARD}/*": (_FRAMED,),
        **{f"/{folder}/*": (_SHARED,) for folder in _DATA},
    }
    blocks = ("\n".join([path, *(f"  {line}" for line in lines)]) for path, lines in rules.items())
    yield NAME, ("\n\n".join(blocks) + "\n").encode()
