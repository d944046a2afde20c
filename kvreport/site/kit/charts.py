"""Charts: from plain numbers to a Vega-Lite specification, by Altair.

Colours are the style sheet's tokens (``var(--kv-…)``), so one drawing is right in light and dark.
A chart is asked for as a :class:`ChartRequest`, a value; :mod:`kvreport.site.kit.drawing` draws requests
and keeps the drawings by the request's digest, so a second build imports no chart library at all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from math import log2
from typing import TYPE_CHECKING, Any, Final, Literal

from kvreport.site.kit import fonts

if TYPE_CHECKING:
    import altair as alt

WIDTH: Final = 700
HEIGHT: Final = 330
_LABEL_SIZE: Final = 11
_LABEL_ASPECT: Final = 0.5
"""Width of a character by its height: the widest mean of the 24 newest names, measured in the face of the site."""
Align = Literal["left", "center", "right"]
Box = tuple[float, float, float, float]
_LABEL_PLACES: Final[tuple[tuple[Align, int, int], ...]] = (
    ("right", -6, -8), ("left", 6, -8), ("left", 6, 16), ("right", -6, 16), ("center", 0, -14), ("center", 0, 22),
    ("left", 10, 4), ("right", -10, 4), ("right", -6, -20), ("left", 6, -20), ("right", -6, 28), ("left", 6, 28),
    ("right", -24, -32), ("left", 24, -32), ("right", -24, 40), ("left", 24, 40),
)  # fmt: skip
"""Where a name may stand from its mark, the nearest first: (alignment, pixels right, pixels down)."""
LINE_COLOURS: Final = tuple(f"var(--kv-l{n})" for n in range(1, 7))


@dataclass(frozen=True, slots=True)
class Mark:
    """One model in the landscape: its weights against what a token costs."""

    name: str
    weights_gib: float
    token_kib: float
    kind: str


@dataclass(frozen=True, slots=True)
class Landscape:
    """All models: weights across, bytes per token up."""

    marks: tuple[Mark, ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JudgedFigure:
    """A published figure over its recomputed value, and what that shows."""

    ratio: float
    verdict: str


@dataclass(frozen=True, slots=True)
class Verdicts:
    """All claims: how far each is off, in rows of one verdict each."""

    marks: tuple[JudgedFigure, ...]
    rows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """One start-up log: the tokens that the engine printed and those predicted at first sight."""

    name: str
    printed: float
    predicted: float
    band: str


@dataclass(frozen=True, slots=True)
class FirstSights:
    """Logs at first sight, the worst last, by what became of their band; ``empty`` were predicted to hold nothing."""

    marks: tuple[Seen, ...]
    bands: tuple[str, ...]
    named: int
    empty: int = 0


@dataclass(frozen=True, slots=True)
class ChartRequest:
    """A chart that a page wants.

    Attributes:
        name: Key of :data:`CHARTS`.
    """

    name: str
    data: Landscape | Verdicts | FirstSights

    @property
    def digest(self) -> str:
        """Digest of everything that decides the drawing, but for the code."""
        told = [self.name, self.data]
        text = json.dumps(told, default=_plain, sort_keys=True, separators=(",", ":"))
        return sha256(text.encode()).hexdigest()[:20]


def _plain(value: object) -> dict[str, object]:
    """Return the fields of a part of what a chart shows; ``asdict`` copies every number of it, too."""
    return {field.name: getattr(value, field.name) for field in fields(value)}  # type: ignore[arg-type]


class Shown(dict[str, list[dict[str, Any]]]):
    """The rows that a chart shows, by a name that stands for them while it is made.

    Altair checks and copies everything that a chart has, at every step: rows would be most of it.
    """

    def called(self, rows: list[dict[str, Any]]) -> alt.NamedData:
        """Return what stands for some rows."""
        import altair as alt

        name = f"rows-{len(self)}"
        self[name] = rows
        return alt.NamedData(name=name)

    def put_in(self, layer: dict[str, Any]) -> None:
        """Put the rows of a finished layer into it."""
        layer["data"] = {"values": self[layer["data"]["name"]]}


def landscape(data: Landscape, shown: Shown) -> alt.LayerChart | alt.FacetChart:
    """Draw every model: released weights across, cache per token up, both logarithmic, the extremes named."""
    import altair as alt

    rows = [asdict(mark) for mark in data.marks]
    colour = alt.Color(
        "kind:N",
        scale=alt.Scale(domain=list(data.kinds), range=list(LINE_COLOURS)),
        sort=list(data.kinds),
        legend=None,
    )
    shape = alt.Shape(
        "kind:N",
        scale=alt.Scale(
            domain=list(data.kinds),
            range=["circle", "square", "triangle-up", "diamond", "cross", "triangle-down"],
        ),
        legend=None,
    )
    chart = (
        alt.Chart(shown.called(rows))
        .mark_point(filled=True, size=46, opacity=0.78)
        .encode(
            x=alt.X(
                "weights_gib:Q",
                title="Weights (GiB)",
                scale=alt.Scale(type="log", base=2, nice=False, padding=8),
                axis=alt.Axis(values=[2**n for n in range(-3, 12)], format=",~r"),
            ),
            y=alt.Y(
                "token_kib:Q",
                title="KV cache per token (KiB)",
                scale=alt.Scale(type="log", base=2, nice=False, padding=8),
                axis=alt.Axis(values=[2**n for n in range(-3, 14)], format=",~r"),
            ),
            color=colour,
            shape=shape,
            tooltip=[
                alt.Tooltip("name:N", title="Model"),
                alt.Tooltip("weights_gib:Q", title="Weights (GiB)", format=",.1f"),
                alt.Tooltip("token_kib:Q", title="KV cache per token (KiB)", format=",.1f"),
                alt.Tooltip("kind:N", title="Attention type"),
            ],
        )
    )
    layers = [chart]
    placed = label_places(data)
    for place in dict.fromkeys(placed.values()):
        named = [asdict(mark) for mark in extremes(data) if placed[mark.name] == place]
        align, dx, dy = place
        names = alt.Chart(shown.called(named)).encode(x="weights_gib:Q", y="token_kib:Q", text="name:N")
        text: dict[str, Any] = {"align": align, "dx": dx, "dy": dy, "fontSize": _LABEL_SIZE}
        layers += [  # the same words below in the color of the page, so that no line or point cuts through them
            names.mark_text(stroke="var(--kv-paper)", strokeWidth=3, strokeJoin="round", **text),
            names.mark_text(**text).encode(color=colour),
        ]
    return alt.layer(*layers, width=WIDTH, height=HEIGHT, config=_config())


def verdicts(data: Verdicts, shown: Shown) -> alt.LayerChart | alt.FacetChart:
    """Draw every claim as a stroke at stated ÷ recomputed (logarithmic), one row for each verdict."""
    import altair as alt

    strokes = (
        alt.Chart(shown.called([asdict(mark) for mark in data.marks]))
        .mark_tick(thickness=2, size=22, opacity=0.5, color=LINE_COLOURS[0])
        .encode(
            x=alt.X(
                "ratio:Q",
                title="Stated ÷ recomputed",
                scale=alt.Scale(type="log", base=2, nice=False, padding=8),
                axis=alt.Axis(values=[2**n for n in range(-6, 8)], format=",~r"),
            ),
            y=alt.Y("verdict:N", title=None, sort=list(data.rows), axis=alt.Axis(labelLimit=260)),
            tooltip=[
                alt.Tooltip("verdict:N", title="Verdict"),
                alt.Tooltip("ratio:Q", title="Stated ÷ recomputed", format=",.3~r"),
            ],
        )
    )
    right = alt.Chart(shown.called([{"ratio": 1}])).mark_rule(color="var(--kv-line)").encode(x="ratio:Q")
    return alt.layer(right, strokes, width=WIDTH - 160, height=38 * len(data.rows), config=_config())


_TOKENS: Final = "datum.value < 1048576 ? datum.value / 1024 + 'K' : datum.value / 1048576 + 'M'"


def first_sights(data: FirstSights, shown: Shown) -> alt.LayerChart | alt.FacetChart:
    """Draw every log at printed tokens across and predicted tokens up, both logarithmic, with the line where they are equal."""
    import altair as alt

    rows = [asdict(mark) for mark in data.marks]
    values = [mark.printed for mark in data.marks] + [mark.predicted for mark in data.marks]
    ends = [2.0 ** math.floor(log2(min(values))), 2.0 ** math.ceil(log2(max(values)))]
    ticks = [2**n for n in range(int(log2(ends[0])), int(log2(ends[1])) + 1, 2)]

    def axis(field: str, title: str) -> dict[str, Any]:
        return {
            "shorthand": f"{field}:Q",
            "title": title,
            "scale": alt.Scale(type="log", base=2, nice=False, domain=ends),
            "axis": alt.Axis(values=ticks, labelExpr=_TOKENS),
        }

    x, y = (
        alt.X(**axis("printed", "Tokens printed by the engine")),
        alt.Y(**axis("predicted", "Tokens predicted")),
    )
    kinds = list(data.bands)
    colour = alt.Color(
        "band:N", scale=alt.Scale(domain=kinds, range=list(LINE_COLOURS)), sort=kinds, legend=None
    )
    shapes = alt.Scale(domain=kinds, range=["circle", "square", "triangle-up"])
    points = (
        alt.Chart(shown.called(rows))
        .mark_point(filled=True, size=44, opacity=0.75)
        .encode(
            x=x,
            y=y,
            color=colour,
            shape=alt.Shape("band:N", scale=shapes, legend=None),
            tooltip=[
                alt.Tooltip("name:N", title="Log"),
                alt.Tooltip("printed:Q", title="Printed", format=",d"),
                alt.Tooltip("predicted:Q", title="Predicted", format=",d"),
                alt.Tooltip("band:N", title="80% band"),
            ],
        )
    )
    equal = (
        alt.Chart(shown.called([{"printed": end, "predicted": end} for end in ends]))
        .mark_line(color="var(--kv-line)")
        .encode(x=x, y=y)
    )
    high = HEIGHT + 90
    x_at, y_at = (_logarithmic(ends, length) for length in (WIDTH, high))
    marks = [(x_at(mark.printed), high - y_at(mark.predicted)) for mark in data.marks]
    worst = list(zip(rows, marks, strict=True))[-data.named :]
    places = reversed(_free_places([(row["name"], *at) for row, at in reversed(worst)], marks, high))
    layers = [equal, points]
    for (row, _), (align, dx, dy) in zip(worst, places, strict=True):
        text: dict[str, Any] = {"align": align, "dx": dx, "dy": dy, "fontSize": _LABEL_SIZE}
        name = alt.Chart(shown.called([row])).encode(x=x, y=y, text="name:N")
        layers += [
            name.mark_text(stroke="var(--kv-paper)", strokeWidth=3, strokeJoin="round", **text),
            name.mark_text(color="var(--kv-soft)", **text),
        ]
    return alt.layer(*layers, width=WIDTH, height=high, config=_config())


def label_places(data: Landscape) -> dict[str, tuple[Align, int, int]]:
    """Return where each name stands from its mark: (alignment, pixels right, pixels down)."""
    weights, tokens = ([getattr(mark, name) for mark in data.marks] for name in ("weights_gib", "token_kib"))
    x, y = (
        _logarithmic([min(found), max(found)], length, 8)
        for found, length in ((weights, WIDTH), (tokens, HEIGHT))
    )
    points = [(x(mark.weights_gib), HEIGHT - y(mark.token_kib)) for mark in data.marks]
    named = sorted(extremes(data), key=lambda one: one.weights_gib, reverse=True)
    places = _free_places(
        [(mark.name, x(mark.weights_gib), HEIGHT - y(mark.token_kib)) for mark in named], points, HEIGHT
    )
    return {mark.name: place for mark, place in zip(named, places, strict=True)}


def _free_places(
    named: Sequence[tuple[str, float, float]], points: Sequence[tuple[float, float]], height: int
) -> list[tuple[Align, int, int]]:
    """Return where each name stands from its mark: of a few places around it the first that covers the fewest marks and no name.

    ``named``: names and the pixels of their marks from the upper left corner. ``points``: all marks. ``height``: the drawing's.
    """
    taken: list[Box] = []
    found = []
    for name, at, down in named:
        width = len(name) * _LABEL_SIZE * _LABEL_ASPECT

        def box(
            place: tuple[Align, int, int], at: float = at, down: float = down, width: float = width
        ) -> Box:
            align, dx, dy = place
            left = at + dx - {"left": 0.0, "center": width / 2, "right": width}[align]
            return left, down + dy - _LABEL_SIZE, left + width, down + dy + 3

        def cost(place: tuple[Align, int, int], box: Callable[[Any], Box] = box) -> int:
            one = box(place)
            outside = one[0] < 0 or one[2] > WIDTH or one[1] < 0 or one[3] > height
            names = sum(a < one[2] and one[0] < c and b < one[3] and one[1] < d for a, b, c, d in taken)
            marks = sum(one[0] - 4 < a < one[2] + 4 and one[1] - 4 < b < one[3] + 4 for a, b in points)
            return 100 * (outside + names) + marks

        best = min(_LABEL_PLACES, key=cost)
        taken.append(box(best))
        found.append(best)
    return found


def _logarithmic(ends: Sequence[float], length: int, margin: int = 0) -> Callable[[float], float]:
    """Return the logarithmic scale of a chart's axis from one end to the other, in pixels from its low end."""
    low, high = log2(ends[0]), log2(ends[1])
    return lambda value: margin + (length - 2 * margin) * (log2(value) - low) / ((high - low) or 1)


def extremes(data: Landscape) -> tuple[Mark, ...]:
    """Return the marks worth a name: of each kind the largest model, and the one with the most cache per token."""
    found = {}
    for kind in data.kinds:
        marks = [mark for mark in data.marks if mark.kind == kind]
        for mark in (max(marks, key=lambda m: m.weights_gib), max(marks, key=lambda m: m.token_kib)):
            found[mark.name] = mark
    return tuple(found.values())


def _config() -> alt.Config:
    import altair as alt

    axis = alt.AxisConfig(
        labelColor="var(--kv-soft)",
        titleColor="var(--kv-soft)",
        labelFontSize=12,
        titleFontSize=12,
        titleFontWeight="normal",
        gridColor="var(--kv-grid)",
        domainColor="var(--kv-line)",
        tickColor="var(--kv-line)",
        labelFont=fonts.FAMILY,
        titleFont=fonts.FAMILY,
        titlePadding=8,
        labelOverlap="greedy",
    )
    view = alt.ViewConfig(stroke=None)
    return alt.Config(background="transparent", font=fonts.FAMILY, aria=False, view=view, axis=axis)


_MANY: Final = 2

CHARTS: Final[dict[str, Callable[[Any, Shown], alt.LayerChart | alt.FacetChart]]] = {
    "landscape": landscape,
    "verdicts": verdicts,
    "first_sights": first_sights,
}
"""Every chart that a page can ask for, by name."""


def specification(request: ChartRequest, *, validate: bool = False) -> dict[str, Any]:
    """Return the Vega-Lite specification of a request, its data inside.

    Args:
        request: What to draw.
        validate: Whether Altair checks every part against its schema, which takes half the time: a chart is of one of
            two forms, which the tests check.
    """
    from altair.utils.schemapi import debug_mode

    shown = Shown()
    with debug_mode(validate):
        spec: dict[str, Any] = CHARTS[request.name](request.data, shown).to_dict(validate=validate)
    for layer in spec["layer"]:
        shown.put_in(layer)
    return _hoisted(spec)


def _hoisted(spec: dict[str, Any]) -> dict[str, Any]:
    """Say once, for the whole chart, what every layer says: axes, and the data that most layers show."""
    layers = spec.get("layer", [])
    if len(layers) < _MANY:
        return spec
    for channel in ("x", "y"):
        said = [layer["encoding"].get(channel) for layer in layers]
        first = next((one for one in said if one is not None), None)
        if first is None or any(one not in (None, first) for one in said):
            continue
        spec.setdefault("encoding", {})[channel] = first
        for layer in layers:
            if layer["encoding"].pop(channel, None) is None:
                layer["encoding"][channel] = None
    shown = [layer.get("data") for layer in layers]
    common = max(shown, key=lambda data: (shown.count(data), str(data)))
    spec["data"] = common
    for layer in layers:
        if layer.get("data") == common:
            del layer["data"]
    return spec
