"""Small files for machines beside the pages: the feed of data releases, llms.txt, robots.txt, citation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import urljoin
from xml.sax.saxutils import escape, quoteattr

from kvreport import units
from kvreport.publish.site_data import SiteData

_SUMMARY: Final = (
    "How many concurrent requests fit: memory and capacity of language models on accelerators, computed from "
    "architecture facts, as an open dataset and a site."
)
_UNITS: Final = (
    "Every figure is from formulas unless a page says measured. Sizes are bytes. GiB is 2^30, GB is 10^9, "
    "K tokens is 1,024."
)
NAMES: Final = ("data/releases.xml", "llms.txt", "CITATION.cff")
"""Addresses of :func:`files`."""


def files(site: SiteData) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of each."""
    for name, text in zip(NAMES, (_feed(site), _llms(site), citation(site)), strict=True):
        yield name, text.encode()


def _feed(site: SiteData) -> str:
    """The Atom feed of data releases, one entry each."""
    home = urljoin(site.site_url, "data/")
    words = f"{units.count(len(site.models))} models on {units.count(len(site.gpus))} accelerators" + (
        f", {units.count(site.downloads.rows)} rows" if site.downloads.rows else ""
    )
    entry = (f"Data release {site.version}", f"#release-{site.version}", f"{home}#changes", f"{words}.")
    return atom(site, NAMES[0], "data releases", home, [entry])


def atom(site: SiteData, name: str, title: str, id: str, entries: Iterable[tuple[str, str, str, str]]) -> str:  # noqa: A002
    """Return an Atom feed at the address ``name``: each entry has a title, the end of its id, a link and a summary."""
    home = urljoin(site.site_url, "data/")
    when = f"{site.version.replace('.', '-')}T00:00:00Z"
    listed = "".join(
        "  <entry>\n"
        f"    <title>{escape(head)}</title>\n"
        f"    <id>{escape(home + end)}</id>\n"
        f"    <link href={quoteattr(link)}/>\n"
        f"    <updated>{when}</updated>\n"
        f"    <summary>{escape(summary)}</summary>\n"
        "  </entry>\n"
        for head, end, link, summary in entries
    )
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        '<feed xmlns="http://www.w3.org/2005/Atom">\n'
        f"  <title>kvreport: {escape(title)}</title>\n"
        f"  <id>{escape(id)}</id>\n"
        f'  <link rel="self" href={quoteattr(urljoin(site.site_url, name))}/>\n'
        f"  <link href={quoteattr(home)}/>\n"
        f"  <updated>{when}</updated>\n"
        "  <author><name>The kvreport authors</name></author>\n"
        f"{listed}</feed>\n"
    )


def _llms(site: SiteData) -> str:
    """What a language model should read first (https://llmstxt.org)."""

    def at(address: str) -> str:
        return urljoin(site.site_url, address)

    lines = [
        "# kvreport",
        "",
        f"> {_SUMMARY}",
        "",
        f"Data release {site.version}: {len(site.models)} models, {len(site.gpus)} accelerators. {_UNITS}",
        "",
        "## Data",
        "",
        f"- [Downloads and dictionary]({at('data/')}): every column described",
        f"- [One model as JSON]({at('downloads/v1/models/')}): `<org>--<name>.json`, weights, reserves and cache profiles",
        f"- [Shared facts as JSON]({at('downloads/v1/site.json')}): accelerators, formats, contexts",
        "",
        "## Pages",
        "",
        f"- [Models]({at('models/')}): one page each, `/models/<org>--<name>/`",
        f"- [Accelerators]({at('gpus/')}): one page each",
        f"- [Method]({at('about/method/')}): how a number comes about",
        "",
    ]
    return "\n".join(lines)


def citation(site: SiteData) -> str:
    """How to cite, in the Citation File Format (https://citation-file-format.github.io)."""
    return (
        "cff-version: 1.2.0\n"
        "message: If you use these figures, please cite them as below.\n"
        "type: dataset\n"
        "title: 'kvreport: memory and capacity of language models on accelerators'\n"
        "authors:\n"
        "  - name: The kvreport authors\n"
        f"version: '{site.version}'\n"
        f"date-released: '{site.version.replace('.', '-')}'\n"
        "license: CC-BY-4.0\n"
    )
