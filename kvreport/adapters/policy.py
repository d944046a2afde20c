"""The Content-Security-Policy of every page: scripts of this site and the theme's own, and no others.

The theme writes a few lines of script into each page. They are allowed by their digest, taken from
the one page that no text of the catalogue reaches, ``404.html``; the same policy stands on every
page, because the theme changes pages without loading them anew. A text that became a script in
spite of all escaping is not among these digests: the browser refuses it, and the build says so.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import Final

_SCRIPT: Final = re.compile(r"<script\b([^>]*)>(.*?)</script\s*>", re.DOTALL | re.IGNORECASE)
_ATTRIBUTE: Final = re.compile(r"""\b(src|type)\s*=\s*["']?([^"'\s>]*)""", re.IGNORECASE)
_RUN: Final = ("", "module", "text/javascript", "application/javascript")
_BASE: Final = re.compile(r'(__md_scope=new URL\(")[^"]*(",location\))')
_DEPTHS: Final = (".", *("/".join([".."] * depth) for depth in range(1, 9)))
_REST: Final = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "object-src 'none'; base-uri 'none'; form-action 'self'"
)


class Policy:
    """What pages may run.

    Attributes:
        allowed: Digests of the scripts that may stand in a page.
    """

    def __init__(self, reference: str) -> None:
        """Allow the scripts of ``reference``, a page that the theme alone wrote."""
        variants = {
            variant
            for script in inline(reference)
            for variant in (script, *(_BASE.sub(rf"\g<1>{base}\g<2>", script) for base in _DEPTHS))
        }
        self.allowed = frozenset(map(_digest, variants))

    @property
    def tag(self) -> str:
        """The ``<meta>`` that states the policy; it comes before every script."""
        digests = " ".join(f"'{digest}'" for digest in sorted(self.allowed))
        return f'<meta http-equiv="Content-Security-Policy" content="{_REST}; script-src \'self\' {digests}">'

    def applied(self, html: str) -> str:
        """Return a page with the policy at the beginning of its head."""
        return re.sub(r"(<meta charset=[^>]*>|<head>)", rf"\g<1>{self.tag}", html, count=1)

    def refused(self, html: str) -> Iterator[str]:
        """Yield the beginning of every script in a page that the policy refuses."""
        for script in inline(html):
            if _digest(script) not in self.allowed:
                yield " ".join(script.split())[:60]


def inline(html: str) -> Iterator[str]:
    """Yield the scripts that stand in a page and would be run."""
    for attributes, content in _SCRIPT.findall(html):
        found = {name.lower(): value.lower() for name, value in _ATTRIBUTE.findall(attributes)}
        if "src" not in found and found.get("type", "") in _RUN:
            yield content


def _digest(script: str) -> str:
    return f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}"
