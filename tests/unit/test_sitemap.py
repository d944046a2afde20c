"""The map of the site loses blanks and nothing else."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from kvreport.adapters.theme_patches import shortened

MAP = """<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
    <url>
         <loc>https://capacity.example.org/models/</loc>
         <lastmod>2026-11-21</lastmod>
    </url>
    <url>
         <loc>https://capacity.example.org/about/</loc>
         <lastmod>2026-11-21</lastmod>
    </url>
</urlset>
"""


def entries(text: str) -> list[list[str | None]]:
    return [[part.text for part in entry] for entry in ET.fromstring(text)]  # noqa: S314 - our own text


def test_a_shortened_map_has_every_address_and_day_in_order() -> None:
    short = shortened(MAP)
    assert len(short) < 0.9 * len(MAP)
    assert entries(short) == sorted(entries(MAP))


def test_an_empty_map_stays_as_it_is() -> None:
    empty = MAP.partition("    <url>")[0] + "</urlset>\n"
    assert shortened(empty) == empty
