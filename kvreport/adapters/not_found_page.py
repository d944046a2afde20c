"""The page for addresses that do not exist: it offers a search for what was asked, and the site's main pages."""

from __future__ import annotations

import re
from collections.abc import Collection
from html import escape
from typing import Final
from urllib.parse import urlsplit

_HEADING: Final = re.compile(r"<h1>404 - Not found</h1>")
_COLUMN: Final = re.compile(r'(data-md-type="(?:navigation|toc)")\s*>')
"""The start of a column on either side, which has nothing to show on this page."""
_WAYS: Final = (
    ("models/", "Models", "every model with memory and capacity"),
    ("gpus/", "GPUs", "every accelerator with its usable memory"),
    ("explore/", "Explorer", "filter and sort every combination"),
    ("sizer/", "Sizer", "size a deployment"),
    ("questions/", "Questions", "short answers"),
    ("data/", "Data", "download everything"),
)


def page(html: str, site_url: str, known: Collection[str]) -> str:
    """Return the theme's 404 page with help in it.

    Links are absolute within the server, because the page is shown at any address. The folder of the site is
    that of its published address.
    """
    base = urlsplit(site_url).path or "/"
    ways = "".join(
        f'<li><a href="{escape(base + uri)}">{title}</a>: {note}</li>'
        for uri, title, note in _WAYS
        if uri in known
    )
    words = (
        "<h1>Page not found</h1>"
        "<p>This address does not exist. The page may have moved, or the link may have a typing error.</p>"
        f'<p data-kv-lost><a href="{escape(base)}">Go to the home page</a></p><ul>{ways}</ul>'
    )
    if not _HEADING.search(html):
        return html
    return _HEADING.sub(lambda _: words, _COLUMN.sub(r"\1 hidden>", html), count=1)
