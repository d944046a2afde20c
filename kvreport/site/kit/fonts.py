"""The site's typeface: cut to the characters in use, at build time, from an installed package.

Source Sans Pro has true tabular figures, which a site of numbers needs. No font is committed and
none is fetched by a reader's browser from elsewhere. Without the package the system's own font
stands in and nothing else changes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, files, version
from pathlib import Path
from typing import Final

from kvreport.build_cache import read_sealed, write_sealed

PACKAGE: Final = "font-source-sans-pro"
FAMILY: Final = "Source Sans Pro"
FACES: Final = {400: "SourceSansPro-Regular.ttf", 600: "SourceSansPro-Semibold.ttf"}
CHARACTERS: Final = (
    "".join(chr(c) for c in range(0x20, 0x7F))
    + "äöüßéèêçñáíóåø\u00a0"
    + "–—‘’“”„«»…·•×÷−≈≤≥≠±→←↑↓↕′″‑ ⁻¹²³⁴⁵⁶⁷⁸⁹⁰½¼¾§¶†∞√∑€°µ©"
)
"""Those of English, of the names that the site cites, and of numbers; what else comes is in the system's own font."""
FEATURES: Final = ("kern", "tnum", "lnum", "ccmp", "mark")


def folder() -> Path | None:
    """Return the folder of the installed font files, or None if the package is not there."""
    try:
        listed = files(PACKAGE) or ()
    except PackageNotFoundError:
        return None
    for path in listed:
        if path.name == FACES[400]:
            return Path(str(path.locate())).resolve().parent
    return None


def state() -> str:
    """Return a digest of what decides the cut faces, and "none" where there are none."""
    if folder() is None:
        return "none"
    packages = [version(name) for name in (PACKAGE, "fonttools", "brotli")]
    return sha256(repr((packages, CHARACTERS, FEATURES)).encode()).hexdigest()[:12]


def web_fonts(cache_dir: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (file name, WOFF2 bytes) of each face, from the cache where it is there.

    Yields nothing where the font's package is not installed.
    """
    where = folder()
    if where is None:
        return
    made_by = state()
    for weight, name in FACES.items():
        path = cache_dir / "fonts" / f"kv-sans-{weight}-{made_by}.sealed"
        content = read_sealed(path)
        if content is None:
            content = _cut(where / name)
            write_sealed(path, content)
        yield f"kv-sans-{weight}.woff2", content


def _cut(source: Path) -> bytes:
    from fontTools.subset import Options, Subsetter
    from fontTools.ttLib import TTFont

    options = Options()
    options.flavor = "woff2"
    options.layout_features = list(FEATURES)
    options.hinting = False
    options.notdef_outline = True
    options.name_IDs = [1, 2]
    out = io.BytesIO()
    with TTFont(source, lazy=False, recalcTimestamp=False) as font:
        cutter = Subsetter(options)
        cutter.populate(text=CHARACTERS)
        cutter.subset(font)
        font.flavor = "woff2"
        font.save(out)
    return out.getvalue()


STYLE: Final = "".join(
    f"@font-face{{font-family:'KV Sans';font-weight:{'500 700' if weight > 400 else '400'};"
    f"font-display:optional;src:url(fonts/kv-sans-{weight}.woff2) format('woff2')}}\n"
    for weight in FACES
)
"""The style that names the faces, beside ``assets/fonts/``: a page never changes its letters once they stand."""

ADDRESSES: Final = tuple(f"assets/fonts/kv-sans-{weight}.woff2" for weight in FACES)
"""What a page asks for first, so that the letters are there when it is drawn."""
