"""Text of pictures as outlines: what the renderer makes of either is the same picture."""

from __future__ import annotations

import re
import struct
import zlib
from html import escape

import pytest
import vl_convert

from kvreport.site.kit import fonts
from kvreport.site.kit.outlines import outlined

FOLDER = fonts.folder()
pytestmark = pytest.mark.skipif(FOLDER is None, reason="the typeface is not installed")
FACES = {} if FOLDER is None else {"normal": FOLDER / fonts.FACES[400], "600": FOLDER / fonts.FACES[600]}

PICTURE = '<svg xmlns="http://www.w3.org/2000/svg" width="600" height="120"><rect width="600" height="120" fill="#fff"/>{}</svg>'
FONT = 'font-family="Source Sans Pro"'


def _pixels(svg: str) -> list[int]:
    """Decode what the renderer makes of a picture: 8-bit RGBA, rows filtered as PNG filters them."""
    vl_convert.register_font_directory(str(FOLDER))
    data = vl_convert.svg_to_png(svg)
    width, height = struct.unpack(">II", data[16:24])
    place, packed = 8, b""
    while place < len(data):
        size, kind = struct.unpack(">I4s", data[place : place + 8])
        packed += data[place + 8 : place + 8 + size] if kind == b"IDAT" else b""
        place += size + 12
    raw, line = zlib.decompress(packed), 4 * width
    above, found = [0] * line, []
    for row in range(height):
        how, *values = raw[row * (line + 1) : (row + 1) * (line + 1)]
        for n in range(line):
            left, up = values[n - 4] if n > 3 else 0, above[n]
            corner = above[n - 4] if n > 3 else 0
            guess = left + up - corner
            paeth = min((left, up, corner), key=lambda one: abs(guess - one))
            values[n] = (values[n] + (0, left, up, (left + up) // 2, paeth)[how]) & 255
        found += values
        above = values
    return found


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        (f'x="20" y="60" {FONT} font-size="40" font-weight="600" fill="#1b2030"', "Qwen/Qwen3 AV To WATTY"),
        (f'x="20" y="60" {FONT} font-size="27" fill="#3a3fae"', "12.5 GiB & 47 requests, FP8 – 3 × H100"),
        (
            f'text-anchor="middle" transform="translate(300,60) rotate(-4)" {FONT} font-size="12px" fill="#565e70"',
            "context of each request, tokens",
        ),
        (
            f'text-anchor="end" transform="translate(560,60)" {FONT} font-size="30px" fill="#565e70"',
            "To 1,024K",
        ),
        (
            (
                f'x="20" y="60" {FONT} font-size="30px" font-weight="600" fill="#1b2030" paint-order="stroke"'
                ' stroke="#ffcc00" stroke-width="8px"'
            ),
            "128 at 8K",
        ),
    ],
)
def test_outlines_look_like_the_text(attributes: str, text: str) -> None:
    written = PICTURE.format(f"<text {attributes}>{escape(text)}</text>")
    drawn = outlined(written, fonts.FAMILY, FACES)
    assert "<text" not in drawn
    one, other = _pixels(written), _pixels(drawn)
    ink = sum(255 - value for value in one)
    assert ink > 10_000
    # Edges are shaded a little differently; a missing letter or a pair without its kerning is more.
    assert sum(abs(a - b) for a, b in zip(one, other, strict=True)) < 0.12 * ink


def test_pairs_are_kerned() -> None:
    def width(text: str) -> float:
        drawn = outlined(f'<text {FONT} font-size="1000">{text}</text>', fonts.FAMILY, FACES)
        return float(re.findall(r'<path transform="translate\((-?\d+)', drawn)[-1])

    assert width("AV") < width("AH")


@pytest.mark.parametrize(
    "text",
    [
        f"<text {FONT}>漢</text>",
        f'<text {FONT} font-weight="900">a</text>',
        f'<text {FONT} stroke="#fff">a</text>',
        f'<text {FONT} stroke="#fff" stroke-width="2" paint-order="markers">a</text>',
        f'<text {FONT} opacity="0.5">a</text>',
        '<text font-family="monospace">a</text>',
        "<text >a</text>",
    ],
)
def test_what_cannot_be_outlined_stays_text(text: str) -> None:
    assert outlined(text, fonts.FAMILY, FACES) == text
