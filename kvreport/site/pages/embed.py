"""An embeddable card: one small page that shows a model on an accelerator, for frames on other sites."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final
from urllib.parse import urlencode

from kvreport.publish.site_data import SiteData
from kvreport.site.pages import home

_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'">
<meta name="viewport" content="width=device-width">
<meta name="robots" content="noindex">
<title>Requests that fit</title>
<link rel="stylesheet" href="../assets/kv-embed.css">
<script src="../assets/kv-embed.js" defer></script>
</head>
<body><svg class="kv-embed-mark" viewBox="0 0 24 24" width="20" height="20" aria-hidden="true"><g fill="none" stroke-linecap="round"><path stroke="#5a66d6" d="M3 4v17h18" stroke-width="1.8"/><path stroke="#d5761a" d="M6 6.5c2.2 6.6 6.4 10.4 14 11.5" stroke-width="2.4"/></g></svg>
<main data-kv-embed="../badge/">{body}</main></body>
</html>
"""
_HELP: Final = """
<h1 class="kv-embed-message">A card for your page</h1>
<p>The card shows how many concurrent requests to a model fit on a GPU. Paste this into your page:</p>
<pre>{frame}</pre>
<p><a class="kv-embed-link" href="?{asked}">See this card</a></p>
<p>To show another model or GPU, replace the value after <code>model=</code> or <code>gpu=</code> with the last part of that page’s address.</p>
<p class="kv-embed-note">“Share, cite, print” on a model’s page generates the iframe for the settings that are selected there.
<a href="../" target="_blank" rel="noopener">All models and GPUs</a></p>
"""


def files(site: SiteData, folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of the card's page, which stands in ``folder``; its numbers are the badges'."""
    yield f"{folder}/index.html", _PAGE.format(body=_help(site, folder)).encode()


def _help(site: SiteData, folder: str) -> str:
    """How a card is asked for, with an example of this site; what the script replaces where one is asked for."""
    model = home.example(site)
    best = site.headline[model.id]
    if best is None:
        return '<p><a href="../" target="_blank" rel="noopener">Requests that fit</a></p>'
    asked = urlencode({"model": model.slug, "gpu": best.config.gpu})
    frame = (
        f'<iframe src="{site.site_url}{folder}/?{asked}" title="kvreport" width="420" height="300"></iframe>'
    )
    return _HELP.format(frame=escape(frame, quote=False), asked=escape(asked))
