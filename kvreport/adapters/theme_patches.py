"""What a page of the theme is changed to: scripts that wait, faces asked for first, names for screen readers."""

from __future__ import annotations

import re
from collections.abc import Collection
from html import escape
from typing import TYPE_CHECKING, Final

from kvreport.adapters.skeleton import address
from kvreport.site.kit import fonts
from kvreport.site.kit.page import link

if TYPE_CHECKING:
    from kvreport.adapters.url_prefix import Mount

_SCRIPT: Final = re.compile(r"<script src=(?=\"[^\"]*assets/)")
_THEME_SCRIPT: Final = re.compile(r"<script src=(\"[^\"]*assets/javascripts/bundle\.[^\"]*\")></script>")

# What has no line of text (scripts, data, fields, drawings), tags with their attributes, and options.
_OPTION: Final = re.compile(
    r"<(?P<raw>script|style|template|textarea|select|title|svg|noscript)\b.*?</(?P=raw)>|<!--.*?-->|<[^>]*>"
    r"|(?P<option>(?<![\w-])--?[a-z]\w*(?:-\w+)*)",
    re.DOTALL,
)

# The theme's search opens as a dialog without a name, so a screen reader announces nothing.
_NAMED_DIALOG: Final = (
    'data-md-component="search" role="dialog"',
    f'data-md-component="search" role="dialog" aria-label="{"Search"}"',
)

# With pages of their own, sections of the theme's navigation are named by an arrow, which has no text.
_SECTION: Final = re.compile(
    r'aria-labelledby="__nav_\w+"(?=[^>]*>\s*<label class="md-nav__title"[^>]*>\s*<span[^>]*></span>\s*([^<]+?)\s*<)'
)


# The theme's script would say that scripts run: then every element of a painted page is styled once more.
_SCRIPTED: Final = ("<script>__md_scope=", '<script>document.documentElement.className="js";__md_scope=')

# The theme follows the system's color scheme where a reader chose so; without a choice it would only do so once its
# script runs, which is after the first paint.
_PALETTE: Final = (
    '<script>var palette=__md_get("__palette");',
    '<script>var palette=__md_get("__palette")||{color:{media:"(prefers-color-scheme)"}};',
)
_BOTH_SCHEMES: Final = tuple(
    f'data-md-color-media="(prefers-color-scheme: {name})"' for name in ("light", "dark")
)


def waiting(output: str) -> str:
    """Let scripts wait until a page stands, name what the theme leaves without one, and paint as the page will stay.

    Ours starts the theme's, the larger one, when the reader first moves.
    """
    output = output.replace(*_NAMED_DIALOG, 1).replace(*_SCRIPTED, 1)
    output = _SECTION.sub(r'aria-label="\1"', output)
    if all(scheme in output for scheme in _BOTH_SCHEMES):
        output = output.replace(*_PALETTE, 1)
    if "assets/kvreport.js" in output:
        output = _THEME_SCRIPT.sub(r"<template data-kv-theme=\1></template>", output, count=1)
    return _SCRIPT.sub("<script defer src=", output)


def fonts_first(output: str, url: str, known: Collection[str], mount: Mount, base: str | None = None) -> str:
    """Ask for the faces before the styles that name them.

    ``base`` is the site's folder on its server, for a page that is shown at any address.
    """
    here = address(url)
    ask = "".join(
        f'<link rel="preload" href="{link(here, face) if base is None else escape(base + face)}" as="font" type="font/woff2" crossorigin>'
        for face in map(mount.at, fonts.ADDRESSES)
        if face in known
    )
    return output.replace("<title>", f"{ask}<title>", 1)


def whole_options(output: str) -> str:
    """Keep each option of a command whole: browsers end lines after hyphens, ``--max-`` / ``model-len``.

    Text alone is changed, and what a reader copies stays the same.
    """
    head, body, page = output.partition("<body")
    return head + _OPTION.sub(_whole, body + page)


def _whole(found: re.Match[str]) -> str:
    option = found["option"]
    return f'<span class="kv-option">{option}</span>' if option else found[0]


def shortened(sitemap: str) -> str:
    """Return a sitemap without blanks and in order, which is smaller: the theme loads it with every page."""
    head, *entries = re.split(r"(?=<url>)", re.sub(r">\s+<", "><", sitemap.strip()))
    if not entries:
        return sitemap
    last, end = entries[-1].removesuffix("</urlset>"), "</urlset>\n"
    return "\n".join((head, *sorted([*entries[:-1], last]), end))
