"""The picture that a shared link shows: the page's own conclusion over the page's own chart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final
from xml.sax.saxutils import escape

from kvreport import resources
from kvreport.site.kit import fonts
from kvreport.site.kit.outlines import outlined

WIDTH: Final = 1000
HEIGHT: Final = 525
_SCALE: Final = 0.9
_TOKEN: Final = re.compile(r"var\(--kv-([\w-]+)\)")
_CLIP: Final = re.compile(
    r'<clipPath id="([^"]+)"><rect x="0" y="0" width="([\d.]+)" height="([\d.]+)"/></clipPath>'
)
_CLIPPED: Final = re.compile(r'<g clip-path="url\(#([^)]+)\)">(.*?)</g>', re.DOTALL)
_CURVED: Final = re.compile(r' d="[^"]*[^"MLZ\d.,-]')
_POINT: Final = re.compile(r"(-?\d+(?:\.\d+)?),(-?\d+(?:\.\d+)?)")
_LONGEST: Final = 74
_QUALITY: Final = 62
_SIZE: Final = 0.6
_FONT: Final = f'font-family="{fonts.FAMILY}, sans-serif"'


def card(title: str, conclusion: str, drawing: str, legend: Sequence[tuple[int, str]] = ()) -> bytes:
    """Return a JPEG with a title, one sentence and a chart in the light colours.

    Args:
        title: What the page is about.
        conclusion: Its headline.
        drawing: The chart as inline SVG.
        legend: (line number from 1, text) of each line.
    """
    import vl_convert

    folder = fonts.folder()
    svg = _composed(title, _shortened(conclusion), _unclipped(drawing), legend)
    if folder is not None:
        _register(str(folder))
        svg = outlined(
            svg, fonts.FAMILY, {"normal": folder / fonts.FACES[400], "600": folder / fonts.FACES[600]}
        )
    picture: bytes = vl_convert.svg_to_jpeg(svg, scale=_SIZE, quality=_QUALITY)
    return picture


def _composed(title: str, conclusion: str, drawing: str, legend: Sequence[tuple[int, str]]) -> str:
    colours = light_tokens()
    chart = _TOKEN.sub(lambda match: colours.get(match[1], "#000000"), drawing)
    inner = re.sub(r"^<svg [^>]*>|</svg>$", "", chart.strip())
    samples = "".join(
        f'<rect x="745" y="{146 + 34 * row}" width="22" height="6" fill="{colours[f"l{number}"]}"/>'
        f'<text x="778" y="{156 + 34 * row}" {_FONT} font-size="20" fill="{colours["ink"]}">{escape(name)}</text>'
        for row, (number, name) in enumerate(legend)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{colours["paper"]}"/>'
        f'<rect width="{WIDTH}" height="10" fill="{colours["brand"]}"/>'
        f'<text x="50" y="72" {_FONT} font-size="44" font-weight="600" fill="{colours["ink"]}">{escape(title)}</text>'
        f'<text x="50" y="116" {_FONT} font-size="27" fill="{colours["brand"]}">{escape(conclusion)}</text>'
        f'<g transform="translate(40,142) scale({_SCALE})">{inner}</g>{samples}'
        f'<text x="950" y="508" text-anchor="end" {_FONT} font-size="20" fill="{colours["soft"]}">kvreport</text>'
        "</svg>"
    )


def _unclipped(drawing: str) -> str:
    """Return a chart without the clips that cut nothing: the renderer copies the whole picture for each of them."""
    boxes = {name: (float(width), float(height)) for name, width, height in _CLIP.findall(drawing)}

    def kept(found: re.Match[str]) -> str:
        width, height = boxes.get(found[1], (-1.0, -1.0))
        # Only lines between points that are written out can be judged, to the tenth of a pixel that they are rounded to.
        simple = "<g" not in found[2] and not _CURVED.search(found[2])
        inside = all(
            0 <= float(x) <= width + 0.1 and 0 <= float(y) <= height + 0.1
            for x, y in _POINT.findall(found[2])
        )
        return f"<g>{found[2]}</g>" if simple and inside else found[0]

    return _CLIPPED.sub(kept, drawing)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1].rstrip()}…"


@cache
def light_tokens() -> dict[str, str]:
    """Return the style sheet's colours for light pages, by the name of their token."""
    css = (resources.assets_dir() / "kvreport.css").read_text(encoding="utf-8")
    block = re.search(r'\[data-md-color-scheme="default"\] \{(.*?)\n\}', css, re.DOTALL)
    return dict(re.findall(r"--kv-([\w-]+): (#[0-9a-f]{6});", block[1])) if block else {}


@cache
def _register(folder: str) -> None:
    import vl_convert

    vl_convert.register_font_directory(folder)
