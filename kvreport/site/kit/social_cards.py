"""The picture that a shared link shows: the page's own conclusion over the page's own chart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Final
from xml.sax.saxutils import escape

from kvreport import resources
from kvreport.resources import read_table
from kvreport.site.kit import boundary_plot, fonts
from kvreport.site.kit.boundary_plot import PlotData
from kvreport.site.kit.templating import render

SITE: Final = "assets/cards/site.jpg"
"""The picture of pages that have none of their own."""
WIDTH: Final = 1000
HEIGHT: Final = 525
TEMPLATE: Final = "_boundary_svg.html"
"""What draws the chart, as on a page."""
_CHART_WIDTH: Final = 620
_CHART_HEIGHT: Final = 258
_SCALE: Final = 1.5
_CONCLUSION: Final = 27
_SMALLEST: Final = 20
_FITTING: Final = 72
"""Characters of a conclusion that fit at its full size."""
_QUALITY: Final = 62
_SIZE: Final = 0.6
_FONT: Final = f'font-family="{fonts.FAMILY}, sans-serif"'
_TOKEN: Final = re.compile(r"var\(--kv-([\w-]+)\)")
_SELECTOR: Final = r'(?:\.kv-[\w-]+|\[class\^="kv-[\w-]+"\])'
_RULE: Final = re.compile(rf"(?:^|\}} )({_SELECTOR}(?:, {_SELECTOR})*) \{{([^{{}}]*)(?=\}})", re.MULTILINE)
_DECLARATION: Final = re.compile(r"([\w-]+): ([^;]+);")
_CLASS: Final = re.compile(r' class="([^"]*)"')
_ATTRIBUTES: Final = frozenset(read_table("drawing attributes"))
"""Properties of a style sheet that are attributes of a drawing, too."""


@dataclass(frozen=True, slots=True)
class SocialCard:
    """A picture that a page wants for links to it."""

    title: str
    conclusion: str
    data: PlotData

    @property
    def digest(self) -> str:
        """Digest of everything that decides the picture, but for the code."""
        return sha256(repr(self).encode()).hexdigest()[:20]

    def draw(self) -> bytes:
        """Return the picture as JPEG, in the colours of light pages."""
        import vl_convert

        svg = self.svg()
        folder = fonts.folder()
        if folder is not None:
            _register(str(folder))
        picture: bytes = vl_convert.svg_to_jpeg(svg, scale=_SIZE, quality=_QUALITY)
        return picture

    def svg(self) -> str:
        """Return the picture as SVG."""
        colours = light_tokens()
        where = boundary_plot.positions(self.data, _CHART_WIDTH, _CHART_HEIGHT)
        chart = re.sub(r"^<svg[^>]*>|</svg>$", "", str(render(TEMPLATE, "", {"d": where})))
        size, conclusion = _fitted(self.conclusion)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}">'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{colours["paper"]}"/>'
            f'<rect width="{WIDTH}" height="10" fill="{colours["brand"]}"/>'
            f'<text x="50" y="72" {_FONT} font-size="44" font-weight="600" fill="{colours["ink"]}">{escape(self.title)}</text>'
            f'<text x="50" y="116" {_FONT} font-size="{size:g}" fill="{colours["brand"]}">{escape(conclusion)}</text>'
            f'<g transform="translate(40,132) scale({_SCALE})">{styled(chart)}</g>'
            f'<text x="950" y="508" text-anchor="end" {_FONT} font-size="20" fill="{colours["soft"]}">kvreport</text>'
            "</svg>"
        )


def styled(drawing: str) -> str:
    """Return a drawing with what the style sheet says of its classes as attributes, in the colours of light pages."""

    def attributes(found: re.Match[str]) -> str:
        said: dict[str, str] = {}
        for selectors, declared in looks():
            if any(_selects(one, found[1]) for one in selectors):
                said |= declared
        return "".join(f' {name}="{value}"' for name, value in said.items())

    return _CLASS.sub(attributes, drawing).replace("<text ", f"<text {_FONT} ")


def _selects(selector: str, classes: str) -> bool:
    if selector.startswith("."):
        return selector[1:] in classes.split()
    return classes.startswith(selector.removeprefix('[class^="').removesuffix('"]'))


@cache
def looks() -> tuple[tuple[tuple[str, ...], dict[str, str]], ...]:
    """Return (selectors, attributes) of the style sheet's rules for single classes, in order, as on light pages."""
    colours = light_tokens()
    found = []
    for selectors, declared in _RULE.findall(_style()):
        plain = _TOKEN.sub(lambda match: colours.get(match[1], "#000000"), declared)
        said = {name: value for name, value in _DECLARATION.findall(plain) if name in _ATTRIBUTES}
        if said:
            found.append((tuple(selectors.split(", ")), said))
    return tuple(found)


def _fitted(text: str) -> tuple[float, str]:
    """Return the size at which a conclusion fits, and the conclusion, cut only where the smallest size is too large."""
    longest = _FITTING * _CONCLUSION // _SMALLEST
    cut = text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"
    return min(_CONCLUSION, round(_CONCLUSION * _FITTING / max(len(cut), 1), 1)), cut


@cache
def light_tokens() -> dict[str, str]:
    """Return the style sheet's colours for light pages, by the name of their token."""
    block = re.search(r'\[data-md-color-scheme="default"\] \{(.*?)\n\}', _style(), re.DOTALL)
    return dict(re.findall(r"--kv-([\w-]+): (#[0-9a-f]{6});", block[1])) if block else {}


def _style() -> str:
    return (resources.assets_dir() / "kvreport.css").read_text(encoding="utf-8")


@cache
def _register(folder: str) -> None:
    import vl_convert

    vl_convert.register_font_directory(folder)
