"""What a page's head says beside the theme's: for shared links, for programs and for the page's own tools."""

from __future__ import annotations

import json
from collections.abc import Collection
from html import escape
from typing import Any, Final
from urllib.parse import urljoin

from kvreport.publish import feeds
from kvreport.site.kit import social_cards
from kvreport.site.kit.page import Page, link

_DATASET: Final = (
    ("downloads/capacity.parquet", "application/vnd.apache.parquet"),
    ("downloads/models.csv", "text/csv"),
    ("downloads/accelerators.csv", "text/csv"),
)
LICENSE: Final = "https://creativecommons.org/licenses/by/4.0/"


def tags(page: Page, site_url: str, release: str, repository: str, files: Collection[str] = ()) -> str:
    """Return the tags that go to the end of a page's head."""
    address = urljoin(site_url, page.uri)
    properties = [
        ("og:type", "website"),
        ("og:title", page.title),
        ("og:description", page.description),
        ("og:url", address),
    ]
    html = "".join(f'<meta property="{key}" content="{escape(text)}">' for key, text in properties)
    html += picture(site_url, page.card, files)
    if page.moved_to is not None:
        target = escape(urljoin(site_url, page.moved_to))
        return f'{html}<link rel="canonical" href="{target}"><meta http-equiv="refresh" content="0; url={target}">'
    html += tools(release, repository)
    if page.kind in ("home", "data"):
        # Two words: the theme looks for a sitemap beside everything that is an alternate and no more.
        feed = link(page.uri, feeds.NAMES[0])
        html += f'<link rel="feed alternate" type="application/atom+xml" title="Data releases" href="{feed}">'
    facts = dataset(page, site_url, release, files)
    if facts:
        # A data block, which runs nothing; "</" could end it.
        text = json.dumps(facts, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
        html += f'<script type="application/ld+json">{text}</script>'
    return html


def picture(site_url: str, card: str | None, files: Collection[str]) -> str:
    """Return the tags of the picture that a shared link shows: the page's own, or the site's."""
    shown = card or (social_cards.SITE if social_cards.SITE in files else None)
    if shown is None:
        return ""
    return (
        f'<meta property="og:image" content="{escape(urljoin(site_url, shown))}">'
        '<meta name="twitter:card" content="summary_large_image">'
    )


def tools(release: str, repository: str) -> str:
    """Return what the page's own tools read: which data a citation is of, and where a number is reported."""
    html = f'<meta name="kv-release" content="{escape(release)}">' if release else ""
    if repository:
        html += f'<meta name="kv-issues" content="{escape(repository.rstrip("/"))}/issues/new">'
    return html


def dataset(page: Page, site_url: str, release: str, files: Collection[str] = ()) -> dict[str, Any] | None:
    """Return what search engines for data read of a page, offering only ``files``: schema.org's ``Dataset``, or None."""
    if not release or page.kind not in ("home", "data", "model", "gpu"):
        return None
    whole = page.kind in ("home", "data")
    facts: dict[str, Any] = {
        "@context": "https://schema.org",
        "@type": "Dataset",
        "name": "kvreport: memory and capacity of language models on accelerators" if whole else page.heading,
        "description": page.description,
        "url": urljoin(site_url, page.uri),
        "version": release,
        "dateModified": release.replace(".", "-"),
        "license": LICENSE,
        "creator": {"@type": "Organization", "name": "The kvreport authors"},
        "isAccessibleForFree": True,
    }
    offered = list(_DATASET)
    if not whole:
        facts["isPartOf"] = urljoin(site_url, "data/")
        offered = []
    if page.kind == "model":
        facts["alternateName"] = list(page.names[:2])
        slug = page.uri.removeprefix("models/").strip("/")
        offered = [(f"downloads/v1/models/{slug}.json", "application/json")]
    facts["distribution"] = [_file(site_url, name, kind) for name, kind in offered if name in files]
    return {key: value for key, value in facts.items() if value}


def _file(site_url: str, address: str, kind: str) -> dict[str, str]:
    return {"@type": "DataDownload", "encodingFormat": kind, "contentUrl": urljoin(site_url, address)}
