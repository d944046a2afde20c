"""The Content-Security-Policy of every page: scripts and styles of this site and the theme's own, no others.

The theme writes a few lines of script into each page, and with some settings a style. They are allowed
by their digest, taken from the one page that no text of the catalog reaches, ``404.html``; the same
policy stands on every page with scripts, because the theme changes pages without loading them again. A text that
became a script or a style in spite of all escaping is not among these digests: the browser refuses it,
and the build says so.

This module stands alone: an exported project carries a copy of it.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Final

_SCRIPT: Final = re.compile(r"<script\b([^>]*)>(.*?)</script\s*>", re.DOTALL | re.IGNORECASE)
_ATTRIBUTE: Final = re.compile(r"""\b(src|type)\s*=\s*["']?([^"'\s>]*)""", re.IGNORECASE)
_RUN: Final = ("", "module", "text/javascript", "application/javascript")
_BASE: Final = re.compile(r'(__md_scope=new URL\(")[^"]*(",location\))')
_DEPTHS: Final = (".", *("/".join([".."] * depth) for depth in range(1, 9)))
_STYLE: Final = re.compile(r"<style\b[^>]*>(.*?)</style\s*>", re.DOTALL | re.IGNORECASE)
_TAG: Final = re.compile(r"""<[a-zA-Z](?:[^<>"']|"[^"]*"|'[^']*')*>""")
_STYLED: Final = re.compile(r"\sstyle\s*=", re.IGNORECASE)
_VALUE: Final = re.compile(r"""\s([^\s=<>"'/]+)\s*=\s*("[^"]*"|'[^']*'|[^\s<>"']+)""")
_RUNS_PYTHON: Final = re.compile(r'<form [^<>]*data-kv-runs="(python(?: hub)?)"')
_PYTHON: Final = "'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'"
"""What a page that runs Python may do besides: compile WebAssembly and start a worker."""
_HUB: Final = " https://huggingface.co https://*.hf.co"
"""From where a page may fetch besides, if it says that it reads the Hub: the Hub, and where it stores large files.

https://huggingface.co/docs/hub/models-downloading, "Downloading behind a proxy or firewall".
"""
_REST: Final = "object-src 'none'; base-uri 'none'; form-action 'self'"


class Policy:
    """What pages may run, and how they may look."""

    def __init__(self, reference: str = "", *, preview: bool = False) -> None:
        """Allow the scripts and styles of ``reference``, a page that the theme alone wrote."""
        variants = {
            variant
            for script in inline(reference)
            for variant in (script, *(_BASE.sub(rf"\g<1>{base}\g<2>", script) for base in _DEPTHS))
        }
        self.scripts = frozenset(map(_digest, variants))  # Digests of those that may stand in a page.
        # The same; none may stand in an attribute.
        self.styles = frozenset(map(_digest, _STYLE.findall(reference)))
        self.preview = preview  # The host shows pages under work and writes a script of its own into each.

    @property
    def tag(self) -> str:
        """The ``<meta>`` that states the policy; it comes before every script."""
        return self._tag()

    def _tag(self, runs: str = "", *, scripted: bool = True) -> str:
        scripts = _sources(self.scripts if scripted and not self.preview else ())
        if self.preview:
            scripts += " 'unsafe-inline'"
        text = (
            f"default-src 'self'; img-src 'self' data:; style-src {_sources(self.styles)}; {_REST}; "
            f"script-src {scripts}"
        )
        if runs:
            text += f" {_PYTHON}{_HUB if runs.endswith('hub') else ''}"
        return f'<meta http-equiv="Content-Security-Policy" content="{text}">'

    def applied(self, html: str) -> str:
        """Return a page with the policy at the beginning of its head.

        A page that runs Python (``data-kv-runs="python"`` on its form) may compile WebAssembly; one that says ``python hub``
        may ask the Hub, too. A page without scripts, such as the rows of a long table, allows none inside it.
        """
        found = _RUNS_PYTHON.search(html)
        tag = self._tag("" if found is None else found[1], scripted="<script" in html)
        return re.sub(r"(<meta charset=[^>]*>|<head>)", rf"\g<1>{tag}", html, count=1)

    def allows(self, scripts: frozenset[str], styles: frozenset[str]) -> bool:
        """Whether every script and style of a page may stand in it, by their digests."""
        return scripts <= self.scripts and styles <= self.styles

    def refused(self, html: str) -> Iterator[str]:
        """Yield the beginning of every script in a page that the policy refuses."""
        for script in inline(html):
            if _digest(script) not in self.scripts:
                yield " ".join(script.split())[:60]

    def unstyled(self, html: str) -> Iterator[str]:
        """Yield the beginning of every style in a page that the policy refuses."""
        found = [style for style in _STYLE.findall(html) if _digest(style) not in self.styles]
        for tag in _TAG.findall(html) if _STYLED.search(html) else ():
            found += [value.strip("\"'") for name, value in _VALUE.findall(tag) if name.lower() == "style"]
        for style in found:
            yield " ".join(style.split())[:60]

    def faults(self, html: str) -> Iterator[tuple[str, str]]:
        """Yield the kind and the beginning of every script and style in a page that the policy refuses."""
        yield from (("script", text) for text in self.refused(html))
        yield from (("style", text) for text in self.unstyled(html))


def digests(html: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the digests of the scripts that would be run in a page, and of its style sheets."""
    return frozenset(map(_digest, inline(html))), frozenset(map(_digest, _STYLE.findall(html)))


def inline(html: str) -> Iterator[str]:
    """Yield the scripts that stand in a page and would be run."""
    for attributes, content in _SCRIPT.findall(html):
        found = {name.lower(): value.lower() for name, value in _ATTRIBUTE.findall(attributes)}
        if "src" not in found and found.get("type", "") in _RUN:
            yield content


def _sources(digests: Iterable[str]) -> str:
    return " ".join(["'self'", *(f"'{digest}'" for digest in sorted(digests))])


def _digest(script: str) -> str:
    return f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}"
