"""Text in a picture as outlines of its letters, from the installed typeface.

The renderer shapes every letter each time, at about 0.15 ms: the hundred letters of a card took longer than its chart.
Here the outline of a letter is looked up once. Letters are kerned as the typeface says (OpenType's ``GPOS`` table,
lookups of pairs under ``kern``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from fontTools.ttLib import TTFont

_TEXT: Final = re.compile(r"<text ([^>]*)>([^<]*)</text>")
_ATTRIBUTE: Final = re.compile(r'([\w-]+)="([^"]*)"')
_HALO: Final = ("stroke", "stroke-width", "paint-order")
_UNDERSTOOD: Final = frozenset(
    ("x", "y", "transform", "text-anchor", "font-family", "font-size", "font-weight", "fill", *_HALO)
)
_BEFORE: Final = {"start": 0.0, "middle": 0.5, "end": 1.0}


@dataclass(frozen=True, slots=True)
class Face:
    """One weight of a typeface.

    Attributes:
        units: Units of the outlines per em.
        names: A glyph's name by character code.
        widths: A glyph's advance and left bearing, in units, by name.
        pairs: What is added between two glyphs: ``GPOS`` subtables in the order that they are asked in.
        glyphs: Outlines by name, y upward.
    """

    units: int
    names: dict[int, str]
    widths: dict[str, tuple[int, int]]
    pairs: tuple[Any, ...]
    glyphs: Any
    _drawn: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Face:
        """Read a font file."""
        from fontTools.ttLib import TTFont

        font = TTFont(path)
        return cls(
            units=font["head"].unitsPerEm,
            names=font.getBestCmap(),
            widths=font["hmtx"].metrics,
            pairs=_pairs(font),
            glyphs=font.getGlyphSet(),
        )

    def line(self, text: str) -> tuple[str, int] | None:
        """Return a line as SVG paths, in units and with y upward, and its width; None where a letter has no glyph."""
        names = [self.names.get(ord(letter)) for letter in text]
        place, parts, before = 0, [], None
        for name in names:
            if name is None:
                return None
            place += 0 if before is None else self.between(before, name)
            if outline := self._outline(name):
                parts.append(f'<path transform="translate({place},0)" d="{outline}"/>')
            place += self.widths[name][0]
            before = name
        return "".join(parts), place

    def between(self, first: str, second: str) -> int:
        """Return what the typeface adds between two glyphs, in units."""
        for pairs in self.pairs:
            if first not in pairs.Coverage.glyphs:
                continue
            if pairs.Format == 1:
                sets = pairs.PairSet[pairs.Coverage.glyphs.index(first)].PairValueRecord
                found = next((one.Value1 for one in sets if one.SecondGlyph == second), None)
                if found is None:
                    continue
            else:
                row = pairs.Class1Record[pairs.ClassDef1.classDefs.get(first, 0)]
                found = row.Class2Record[pairs.ClassDef2.classDefs.get(second, 0)].Value1
            return int(getattr(found, "XAdvance", 0) or 0)
        return 0

    def _outline(self, name: str) -> str:
        if name not in self._drawn:
            from fontTools.pens.svgPathPen import SVGPathPen

            pen = SVGPathPen(self.glyphs)
            self.glyphs[name].draw(pen)
            self._drawn[name] = pen.getCommands()
        return self._drawn[name]


def outlined(svg: str, family: str, faces: Mapping[str, Path]) -> str:
    """Return a picture with its text as outlines.

    Text stays text where it asks for another family or a weight without a face, has an attribute other than place,
    anchor, size, weight, fill and a stroke below all letters, or has a letter that the typeface lacks.

    Args:
        svg: The picture.
        family: The typeface's name, as the first of ``font-family``.
        faces: Its font files by ``font-weight``; ``normal`` is the one without it.
    """

    def drawn(found: re.Match[str]) -> str:
        said = dict(_ATTRIBUTE.findall(found[1]))
        path = faces.get(said.get("font-weight", "normal"))
        asked = said.get("font-family", "").split(",")[0]
        strokes = [name in said for name in _HALO]
        below = said.get("paint-order", "stroke") == "stroke" and any(strokes) == all(strokes)
        if path is None or asked != family or not said.keys() <= _UNDERSTOOD or not below:
            return found[0]
        face = _face(path)
        line = face.line(unescape(found[2]))
        if line is None:
            return found[0]
        paths, width = line
        scale = float(said.get("font-size", "16").removesuffix("px")) / face.units
        start = float(said.get("x", "0")) - width * scale * _BEFORE[said.get("text-anchor", "start")]
        moved = f"{said.get('transform', '')} translate({start:.2f},{said.get('y', '0')}) scale({scale:g},{-scale:g})"
        letters = f'<g fill="{said.get("fill", "black")}">{paths}</g>'
        if any(strokes):
            halo = float(said["stroke-width"].removesuffix("px")) / scale
            letters = f'<g fill="none" stroke="{said["stroke"]}" stroke-width="{halo:g}">{paths}</g>{letters}'
        return f'<g transform="{moved.strip()}">{letters}</g>'

    return _TEXT.sub(drawn, svg)


@cache
def _face(path: Path) -> Face:
    return Face.read(path)


def _pairs(font: TTFont) -> tuple[Any, ...]:
    """Return the subtables of the pair lookups under ``kern``, in order."""
    if "GPOS" not in font:
        return ()
    table = font["GPOS"].table
    wanted = sorted(
        {
            number
            for one in table.FeatureList.FeatureRecord
            if one.FeatureTag == "kern"
            for number in one.Feature.LookupListIndex
        }
    )
    found = [one for number in wanted for one in table.LookupList.Lookup[number].SubTable]
    return tuple(one for one in found if type(one).__name__ == "PairPos")
