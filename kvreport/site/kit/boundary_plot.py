"""The boundary chart: concurrent requests by context, one line for each configuration.

Lines are labelled at their ends, the chosen case is a point with its figures, and the model's limit is a
line with its name. ``docs/assets/kv-chart.js`` draws the same from the same data when a reader changes something.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from kvreport import plot, units
from kvreport.accounting import kernel
from kvreport.site.kit.tables import Table
from kvreport.words import counted

Points = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PlotLine:
    """One line.

    Attributes:
        name: What it is, written at its end.
        points: (context in tokens, concurrent requests), contexts ascending.
    """

    name: str
    points: Points


@dataclass(frozen=True, slots=True)
class PlotData:
    """What a chart shows; the same object as JSON is what the browser draws again.

    Attributes:
        lines: At most six, the chosen one first.
        ceiling: The first line's upper bound, without engine overhead.
        low: The first line at the low end of the pool's error.
        high: The first line at its high end.
        limit: Longest context that the model supports, or None where lines are of several models.
        chosen: (context, requests) of the case that the page speaks of.
    """

    lines: tuple[PlotLine, ...]
    ceiling: Points = ()
    low: Points = ()
    high: Points = ()
    limit: int | None = None
    chosen: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart, ready to stand in a page."""

    id: str
    title: str
    data: PlotData
    table: Table

    @property
    def spec(self) -> str:
        """The data as JSON."""
        return json.dumps(asdict(self.data), ensure_ascii=False, separators=(",", ":"))

    @property
    def drawn(self) -> dict[str, Any]:
        """Positions, for the template."""
        return positions(self.data)

    @property
    def narrow(self) -> dict[str, Any]:
        """Positions on a phone, where the names of lines stand in a list under the drawing."""
        return positions(self.data, plot.PLOT_WIDTH_NARROW, plot.PLOT_HEIGHT_NARROW)

    @property
    def finding(self) -> str:
        """What the lines say, in one sentence, or ""."""
        return finding(self.data)


def finding(data: PlotData) -> str:
    """Return who serves the fewest and the most requests, and who serves none, at the context that was asked.

    ``finding`` in ``kv-chart.js`` says the same when a reader changes something. One line has no finding.
    """
    contexts = {context for line in data.lines for context, _ in line.points}
    if len(data.lines) < 2 or not contexts:
        return ""
    asked = data.chosen[0] if data.chosen else kernel.USEFUL_TOKENS
    at = max((one for one in contexts if one <= asked), default=min(contexts))
    ranked = sorted(
        ((count, line.name) for line in data.lines for context, count in line.points if context == at),
        key=lambda one: one[0],
    )
    (least, few), (most, many) = ranked[0], ranked[-1]
    none = [line.name for line in data.lines if at not in dict(line.points)]
    said = f"At {units.human_tokens(at)} tokens per request, "
    if least != most:
        said += f"from {units.count(least)} ({few}) to {units.count(most)} ({many}) requests fit"
    else:
        who = few if len(ranked) == 1 else "each of the others" if none else "each"
        said += f"{counted(least, 'request fits|requests fit')} with {who}"
    return f"{said}, and none with {' or '.join(none)}" if none else said


def positions(data: PlotData, width: int = plot.PLOT_WIDTH, height: int = plot.PLOT_HEIGHT) -> dict[str, Any]:
    """Return where everything of a chart stands, for ``_boundary_svg.html``."""
    return _Drawing(data, width, height).parts()


class _Drawing:
    def __init__(self, data: PlotData, width: int, height: int) -> None:
        self.data = data
        self.width, self.height = width, height
        self.narrow = width < plot.PLOT_NARROW
        self.right = width - (plot.PLOT_RIGHT_NARROW if self.narrow else plot.PLOT_RIGHT)
        self.bottom = height - plot.PLOT_BOTTOM
        points = [point for line in data.lines for point in line.points]
        self.last = data.limit or max((context for context, _ in points), default=2)
        self.first = min([*(context for context, _ in points), max(self.last // 2, 1)])
        most = max([count for _, count in (*points, *data.ceiling, *data.high)], default=1)
        self.most = plot.top_of(most)

    def x(self, context: float) -> float:
        length = self.right - plot.PLOT_LEFT
        return round(plot.PLOT_LEFT + plot.log_place(context, self.first, self.last, length), 1)

    def y(self, count: float) -> float:
        return round(self.bottom - plot.log_place(count, 1, self.most, self.bottom - plot.PLOT_TOP), 1)

    def path(self, points: Points) -> str:
        inside = [(c, n) for c, n in points if c <= self.last]
        return "M" + "L".join(f"{self.x(c):.10g} {self.y(n):.10g}" for c, n in inside) if inside else ""

    def area(self) -> str:
        low = dict(self.data.low)
        upper = [(c, n) for c, n in self.data.high if c <= self.last]
        lower = [(c, low.get(c, 1)) for c, _ in reversed(upper)]
        return self.path((*upper, *lower)[: 2 * len(upper)]) + "Z" if upper else ""

    def ticks(self, low: float, high: float, room: int) -> Iterator[int]:
        exponent = plot.first_power(low)
        stride = plot.tick_stride(low, high, room)
        while 2**exponent <= high:
            yield 2**exponent
            exponent += stride

    def chosen(self) -> dict[str, Any] | None:
        """Return the chosen point, and where its figures cross no line, or the fewest."""
        if not self.data.chosen:
            return None
        context, count = self.data.chosen
        text = f"{units.count(count)} at {units.human_tokens(context)}"
        x, y = self.x(context), self.y(count)
        left, base = self._free(x, y, plot.CHOSEN_WIDTH * len(text))
        far = abs(left - x) > plot.CHOSEN_AWAY or abs(base - y) > 2 * plot.CHOSEN_HEIGHT
        return {
            "x": x,
            "y": y,
            "text": text,
            "left": left,
            "base": base,
            "anchor": "start" if left > x else "end",
            "leader": (left - 3 if left > x else left + 3, base - 4) if far else None,
        }

    def _free(self, x: float, y: float, width: float) -> tuple[float, float]:
        """Where figures of a point stand: next to it if no line passes there, else at the nearest free place."""
        away, high = plot.CHOSEN_AWAY, plot.CHOSEN_HEIGHT
        drawn = [line.points for line in self.data.lines] + [self.data.ceiling]
        pieces = [
            (self.x(a), self.y(m), self.x(b), self.y(n))
            for points in drawn
            for (a, m), (b, n) in pairwise([one for one in points if one[0] <= self.last])
        ]

        def crossed(place: tuple[float, float]) -> int:
            left = place[0] if place[0] > x else place[0] - width
            top = place[1] - high + 4
            outside = left < plot.PLOT_LEFT or left + width > self.right
            outside = outside or place[1] > self.bottom or top < plot.PLOT_TOP
            return 100 * outside + sum(plot.overlaps(*piece, left, top, width, high) for piece in pieces)

        # Right above, left below, left above, right below: lines fall to the right.
        near = [
            (x + side * away, y + up)
            for side, up in ((1, -away), (-1, away + 11), (-1, -away), (1, away + 11))
        ]
        best = min(near, key=crossed)
        if not crossed(best):
            return best
        least = math.inf
        for across in range(plot.CHOSEN_STEPS):
            for up in range(-plot.CHOSEN_STEPS, plot.CHOSEN_STEPS + 1):
                for side in (1, -1):
                    off, down = away + across * plot.CHOSEN_STEP, up * plot.CHOSEN_STEP
                    place = (x + side * off, y + down + 4)
                    if math.hypot(off, down) >= least or crossed(place):
                        continue
                    passed = sum(plot.crosses(x, y, place[0], y + down, *piece) for piece in pieces)
                    cost = math.hypot(off, down) + plot.CHOSEN_CROSSING * passed
                    if cost < least:
                        least, best = cost, place
        return best

    def labels(self) -> list[dict[str, Any]]:
        ends = [
            {
                "number": number,
                "name": line.name,
                "x": self.x(line.points[-1][0]),
                "end": self.y(line.points[-1][1]),
            }
            for number, line in enumerate(self.data.lines, start=1)
            if line.points
        ]
        ends.sort(key=lambda one: (one["end"], -one["x"]))  # type: ignore[operator]
        before = -plot.LABEL_GAP
        for one in ends:
            before = one["y"] = plot.label_place(one["end"], before)  # type: ignore[arg-type, assignment]
        over = max(before - self.bottom, 0)
        for one in ends:
            one["y"] = one["y"] - over  # type: ignore[operator]
        return ends

    def parts(self) -> dict[str, Any]:
        data = self.data
        across = (self.right - plot.PLOT_LEFT) // plot.PLOT_TICK_WIDTH
        up = (self.bottom - plot.PLOT_TOP) // plot.PLOT_TICK_HEIGHT
        return {
            "kind": "kv-narrow" if self.narrow else "kv-broad",
            "width": self.width,
            "height": self.height,
            "left": plot.PLOT_LEFT,
            "right": self.right,
            "top": plot.PLOT_TOP,
            "bottom": self.bottom,
            "across": [(self.x(n), units.human_tokens(n)) for n in self.ticks(self.first, self.last, across)],
            "up": [(self.y(n), units.count(n)) for n in self.ticks(1, self.most, up)],
            "lines": [(n, self.path(line.points)) for n, line in enumerate(data.lines, start=1)],
            "ceiling": self.path(data.ceiling),
            "area": self.area(),
            "labels": [] if self.narrow else self.labels(),
            "limit": None
            if data.limit is None
            else {"x": self.x(data.limit), "text": f"model limit {units.human_tokens(data.limit)}"},
            "chosen": self.chosen(),
        }
