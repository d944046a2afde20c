"""HTTP headers for hosts that read ``_headers`` (Cloudflare Pages, Netlify): what a page cannot say itself.

A ``<meta>`` policy has no ``frame-ancestors``. So pages may not be framed, but for the card that is made
for it, and nothing is guessed from content. The rules name folders one by one, because hosts add up all rules
that match a path, and two policies together allow only what both allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kvreport.publish.embeds import CARD

NAME: Final = "_headers"
_SAFE: Final = (
    "X-Content-Type-Options: nosniff",
    "Referrer-Policy: strict-origin-when-cross-origin",
    "Permissions-Policy: camera=(), geolocation=(), microphone=()",
)
_UNFRAMED: Final = "Content-Security-Policy: frame-ancestors 'none'"
_SHARED: Final = "Access-Control-Allow-Origin: *"
_DATA: Final = ("badge", "data", "downloads")


def files(addresses: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of the headers file.

    Args:
        addresses: Of every page.
    """
    folders = sorted({address.partition("/")[0] for address in addresses} - {"", CARD})
    rules: dict[str, list[str]] = {"/*": list(_SAFE), "/": [_UNFRAMED], "/index.html": [_UNFRAMED]}
    for folder in folders:
        rules[f"/{folder}/*"] = [_UNFRAMED]
    for folder in _DATA:
        rules.setdefault(f"/{folder}/*", []).append(_SHARED)
    blocks = ("\n".join([path, *(f"  {line}" for line in lines)]) for path, lines in rules.items())
    yield NAME, ("\n\n".join(blocks) + "\n").encode()
