"""Drawing charts: specification to static SVG, kept between builds.

A drawing is decided by its request and by the code that draws, so its file is named by both. A
second build reads files and starts nothing. New drawings are made by two processes, because the
chart compiler is single-threaded.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Final

from kvreport import plot, units
from kvreport.build_cache import read_kept, write_sealed
from kvreport.processes import workers
from kvreport.site.kit import boundary_plot, charts, fonts, social_cards, templating
from kvreport.site.kit.charts import ChartRequest
from kvreport.site.kit.social_cards import SocialCard
from kvreport.site.kit.vega import vegalite_version

WORKERS: Final = 2
_FEW: Final = 6
_SAID_ALREADY: Final = re.compile(
    r' (?:xmlns:xlink|version|class|role|aria-[a-z]+|pointer-events)="[^"]*"| opacity="1"| (?:x2|y2)="0"'
)
_NOTHING: Final = re.compile(r'<path d=""[^>]*/>|<path d="M0,0h0v0h0Z"[^>]*/>')
_GEOMETRY: Final = re.compile(r'( (?:d|transform)=")([^"]*)')
_FRACTION: Final = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_DOT: Final = re.compile(r'<path transform="([^"]*)" d="M([\d.]+),0A\2,\2,0,1,1,-\2,0A\2,\2,0,1,1,\2,0"')
_EMPTY: Final = re.compile(r"<g(?: [^>]*)?></g>")
_ID: Final = re.compile(r'(\bid="|url\(#|href="#)([A-Za-z][\w-]*)')

Wanted = ChartRequest | SocialCard
"""A chart that a page shows, or the picture that a link to it shows."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart or a picture of a shared link, drawn."""

    svg: str = ""
    spec: str = ""
    card: bytes = b""


class Drawings(Mapping[str, Drawing]):
    """Drawings by the digest of their request, which are made while others are asked for.

    Asking for one waits until it is drawn. They come in the order of the requests, so that pages that are made in the
    same order wait least.
    """

    def __init__(
        self,
        folder: Path,
        requests: Iterable[Wanted],
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Begin to draw what is not kept in a folder."""
        self._folder, self._progress = folder, progress
        # A site may replace the template of cards, and change it between two builds of one process.
        self._code = _code(templating.source(social_cards.TEMPLATE))
        wanted = {request.digest: request for request in requests}
        self._wanted = len(wanted)
        self._done = {digest: made for digest in wanted if (made := self._read(digest)) is not None}
        missing = [request for digest, request in wanted.items() if digest not in self._done]
        if missing:
            progress(f"charts: {len(self._done)} kept from earlier builds, {len(missing)} to draw")
        self._coming = zip(missing, _drawn(missing), strict=True)

    def __getitem__(self, digest: str) -> Drawing:
        """Return a drawing, once it is drawn."""
        while digest not in self._done and self._next():
            pass
        return self._done[digest]

    def __iter__(self) -> Iterator[str]:
        """Yield the digests of all drawings, once all are drawn."""
        return iter(self.finish())

    def __len__(self) -> int:
        """How many drawings are wanted."""
        return self._wanted

    def finish(self) -> dict[str, Drawing]:
        """Return all drawings, once all are drawn."""
        while self._next():
            pass
        return self._done

    def _next(self) -> bool:
        """Wait for the next drawing and keep it; False if there is none."""
        request, made = next(self._coming, (None, None))
        if request is None or made is None:
            return False
        write_sealed(self._path(request.digest), pickle.dumps(made, protocol=5))
        self._done[request.digest] = made
        if len(self._done) % 50 == 0:
            self._progress(f"charts: {len(self._done)} of {self._wanted} drawn")
        return True

    def _path(self, digest: str) -> Path:
        return self._folder / f"{digest}-{self._code}.drawing"

    def _read(self, digest: str) -> Drawing | None:
        found = read_kept(self._path(digest))
        return found if isinstance(found, Drawing) else None


def begin(
    requests: Iterable[Wanted], cache_dir: Path, progress: Callable[[str], None] = lambda _: None
) -> Drawings:
    """Begin to draw.

    Drawings are made beside what the caller does meanwhile: many by other processes, a few by a thread, because the
    chart compiler needs no Python.
    """
    return Drawings(cache_dir / "charts", requests, progress)


def draw_one(request: Wanted) -> Drawing:
    """Draw one request, here and now."""
    if isinstance(request, SocialCard):
        return Drawing(card=request.draw())
    import vl_convert

    _register_fonts()
    spec = charts.specification(request)
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    svg = vl_convert.vegalite_to_svg(spec, vl_version=vegalite_version())
    return Drawing(_inline(svg, request.digest), text)


def _drawn(requests: list[Wanted]) -> Iterable[Drawing]:
    if len(requests) > _FEW:
        return _drawn_by_workers(requests)
    beside = ThreadPoolExecutor(1)
    begun = beside.map(draw_one, requests)
    beside.shutdown(wait=False)
    return begun


def _drawn_by_workers(requests: list[Wanted]) -> Iterable[Drawing]:
    """Let other processes begin to draw at once; return what waits for their drawings."""
    pool_open = ExitStack()
    coming = pool_open.enter_context(workers(WORKERS, templating.override, (templating.overridden(),))).map(
        draw_one, requests, chunksize=4
    )

    def drawn() -> Iterator[Drawing]:
        with pool_open:
            yield from coming

    return drawn()


def _inline(svg: str, digest: str) -> str:
    """Make a drawing fit to stand in a page: its ids its own, no role that a reader would announce.

    Ids are numbered again: the compiler counts on through a process, so the same chart drawn second
    would differ from itself drawn first.
    """
    numbers: dict[str, int] = {}
    svg = _ID.sub(lambda match: f"{match[1]}c{digest[:8]}-{numbers.setdefault(match[2], len(numbers))}", svg)
    svg = _SAID_ALREADY.sub("", svg)
    svg = _NOTHING.sub("", svg)
    svg = _GEOMETRY.sub(lambda match: match[1] + _FRACTION.sub(_tenth, match[2]), svg)
    svg = _DOT.sub(r'<circle transform="\1" r="\2"', svg)
    while svg != (emptier := _EMPTY.sub("", svg)):
        svg = emptier
    return svg.replace("<svg ", '<svg class="kv-svg" aria-hidden="true" focusable="false" ', 1)


def _tenth(match: re.Match[str]) -> str:
    """Return a coordinate to a tenth of a pixel."""
    return f"{round(float(match[0]), 1) + 0.0:g}"


@cache
def _register_fonts() -> None:
    import vl_convert

    folder = fonts.folder()
    if folder is not None:
        vl_convert.register_font_directory(str(folder))


@cache
def _code(template: str) -> str:
    """Digest of what decides a drawing besides its request, with the template of cards."""
    rooms = (charts, social_cards, boundary_plot, plot, units)
    parts = [Path(name).read_bytes() for name in (__file__, *(str(room.__file__) for room in rooms))]
    parts.append(template.encode())
    parts += [version(name).encode() for name in ("altair", "vl-convert-python")]
    parts.append(
        repr((fonts.state(), social_cards.looks(), sorted(social_cards.light_tokens().items()))).encode()
    )
    return sha256(b"\0".join(parts)).hexdigest()[:8]
