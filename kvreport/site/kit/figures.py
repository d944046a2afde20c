"""Small figures of the chapters, drawn as SVG text: curves over contexts, bars of stacked parts.

The large charts of the report are Vega-Lite (:mod:`kvreport.site.kit.charts`). A chapter is a program
that runs in a kernel of its own, where a chart compiler would cost more than the chapter; these
two shapes need none. Colours are the style sheet's tokens, the data stand beside each figure as a
folded table, and a description is read to those who cannot see it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Final

from kvreport import units

Place = Callable[[float], float]
"""Where a value stands on an axis, in the drawing's units."""

MOST_TICKS: Final = 8
WIDTH: Final = 700
NARROW: Final = 340
"""Width of a drawing for phones, about that of their text: letters keep their size."""
HEIGHT: Final = 300
LEFT: Final = 64
RIGHT: Final = 16
TOP: Final = 14
BOTTOM: Final = 46
COLOURS: Final = {
    "weights": "var(--kv-weights)",
    "cache": "var(--kv-cache)",
    "state": "var(--kv-state)",
    "reserve": "var(--kv-reserve)",
    "free": "var(--kv-free)",
}
LINES: Final = tuple(f"var(--kv-l{n})" for n in range(1, 7))
DASHES: Final = ("", "7 3", "14 4", "9 3 2 3", "18 3 5 3", "12 3 2 3 2 3")


@dataclass(frozen=True, slots=True)
class Curves:
    """Lines over one axis.

    Attributes:
        title: What the figure shows, in one sentence; read aloud and printed under it.
        x: Positions, ascending.
        lines: Name and values of each line; None leaves a gap.
        x_log: Whether the axis across is in powers of two.
        y_log: Whether the axis up is in powers of two.
        x_tokens: Whether positions are token counts (8K, 128K).
        ruler: A level to draw across, with its name.
        marks: Measured values of each line, drawn as rings over it; empty if there are none.
    """

    title: str
    x_title: str
    y_title: str
    x: tuple[float, ...]
    lines: tuple[tuple[str, tuple[float | None, ...]], ...]
    x_log: bool = True
    y_log: bool = False
    x_tokens: bool = True
    ruler: tuple[float, str] | None = None
    marks: tuple[tuple[float | None, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars of stacked parts, in GiB.

    Attributes:
        title: What the figure shows, in one sentence.
        bars: Name of each bar, and its parts: role (a key of :data:`COLOURS`), name, bytes.
        label: What the bars' names are, in the table's heading.
    """

    title: str
    bars: tuple[tuple[str, tuple[tuple[str, str, float], ...]], ...]
    limit_bytes: float | None = None
    limit_name: str = ""
    label: str = "Case"


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where the axes of curves stand in their drawing."""

    width: int
    left: float
    top: float
    most_ticks: int

    @property
    def right(self) -> int:
        return self.width - RIGHT

    @property
    def narrow(self) -> bool:
        return self.width == NARROW


def curves(data: Curves) -> str:
    """Draw lines; returns a figure with the SVG, its legend and the data as a folded table.

    They are drawn twice, as bars are: over the narrow drawing, the title of the axis stands above the axis.
    """
    svg = _lines(data, _Frame(WIDTH, LEFT, TOP, MOST_TICKS))
    svg += _lines(data, _Frame(NARROW, 0, 30, MOST_TICKS // 2 + 1))
    named = [(LINES[n], name) for n, (name, _) in enumerate(data.lines)]
    keys = "" if len(named) == 1 else _legend(named, dashed=True)
    columns = list(data.lines)
    if data.marks:
        measured = [
            (f"{name}, measured", marks) for (name, _), marks in zip(data.lines, data.marks, strict=True)
        ]
        columns = [pair for both in zip(data.lines, measured, strict=True) for pair in both]
    head = [data.x_title, *(name for name, _ in columns)]
    rows = [
        [
            units.human_tokens(int(x)) if data.x_tokens else f"{x:,.10g}",
            *("–" if (value := line[number]) is None else _plain(value) for _, line in columns),
        ]
        for number, x in enumerate(data.x)
    ]
    return _figure(svg, keys, data.title, head, rows)


def _lines(data: Curves, frame: _Frame) -> str:
    """Lines over their axes in one drawing."""
    drawn = [*(line for _, line in data.lines), *data.marks]
    values = [v for line in drawn for v in line if v is not None and (v > 0 or not data.y_log)]
    if data.ruler is not None:
        values.append(data.ruler[0])
    low, high = (min(values), max(values)) if data.y_log else (0.0, max(values))
    if data.y_log:
        low, high = 2 ** math.floor(math.log2(low)), 2 ** math.ceil(math.log2(high))
    else:
        high *= 1.05
    ticks = _thinned(_powers(low, high), MOST_TICKS) if data.y_log else _steps(high)
    if frame.narrow:
        frame = replace(frame, left=14 + 7 * max(len(_tick(t)) for t in ticks))
    left, right = frame.left, frame.right
    across = _scale(data.x[0], data.x[-1], left, right, log=data.x_log)
    up = _scale(low, high, HEIGHT - BOTTOM, frame.top, log=data.y_log)
    parts = [_axis_y(ticks, up, data.y_title, frame)]
    for tick in _x_ticks(data, frame.most_ticks):
        x = across(tick)
        label = units.human_tokens(int(tick)) if data.x_tokens else f"{tick:,.10g}"
        last = frame.narrow and x > right - 5 * len(label)
        parts.append(
            f'<line x1="{x}" x2="{x}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 5}" stroke="var(--kv-soft)"/>'
            f'<text x="{frame.width - 1 if last else x}" y="{HEIGHT - BOTTOM + 18}"'
            f' text-anchor="{"end" if last else "middle"}">{label}</text>'
        )
    parts.append(
        f'<text x="{(left + right) / 2:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(data.x_title)}</text>'
    )
    if data.ruler is not None:
        y = up(data.ruler[0])
        parts.append(
            f'<line x1="{left}" x2="{right}" y1="{y}" y2="{y}" stroke="var(--kv-soft)" stroke-dasharray="2 4"/>'
            f'<text x="{right}" y="{y - 5:.1f}" text-anchor="end">{escape(data.ruler[1])}</text>'
        )
    for number, (_, line) in enumerate(data.lines):
        points = [
            (across(x), up(v))
            for x, v in zip(data.x, line, strict=True)
            if v is not None and (v > 0 or not data.y_log)
        ]
        joined = " ".join(f"{x},{y}" for x, y in points)
        parts.append(
            f'<polyline points="{joined}" fill="none" stroke="{LINES[number]}" stroke-width="2.2"'
            f' stroke-dasharray="{DASHES[number]}"/>'
        )
        if not data.marks:
            parts.extend(f'<circle cx="{x}" cy="{y}" r="2.6" fill="{LINES[number]}"/>' for x, y in points)
    for number, marks in enumerate(data.marks):
        parts.extend(
            f'<circle cx="{across(x)}" cy="{up(v)}" r="4.6" fill="none" stroke="{LINES[number]}" stroke-width="1.8"/>'
            for x, v in zip(data.x, marks, strict=True)
            if v is not None and (v > 0 or not data.y_log)
        )
    return _svg("".join(parts), HEIGHT, data.title, frame.width)


def bars(data: Bars) -> str:
    """Draw stacked bars; returns a figure with the SVG, its legend and the data as a folded table.

    They are drawn twice: a phone shows the narrow drawing, in which names stand above their bars. A notebook, which has
    no style sheet, shows the wide one.
    """
    roles: dict[str, str] = {}
    for _, parts in data.bars:
        for role, part, _ in parts:
            roles.setdefault(role, part)
    rows = [[name, part, units.human_bytes(size)] for name, parts in data.bars for _, part, size in parts]
    keys = _legend([(COLOURS[role], name) for role, name in roles.items()])
    drawn = _stacked(data, WIDTH) + _stacked(data, NARROW)
    return _figure(drawn, keys, data.title, [data.label, "Part", "Size"], rows)


def _stacked(data: Bars, width: int) -> str:
    """Stacked bars in a drawing of some width; names stand above the bars of a narrow one."""
    longest = max(sum(size for _, _, size in parts) for _, parts in data.bars)
    longest = max(longest, data.limit_bytes or 0) * 1.02
    narrow = width == NARROW
    label = 1 if narrow else min(190, 12 + max(len(name) for name, _ in data.bars) * 7)
    pitch, top = (48, 38) if narrow else (34, 20)
    across = _scale(0, longest, label, width - RIGHT, log=False)
    bottom = top + len(data.bars) * pitch
    drawn: list[str] = []
    for number, (name, parts) in enumerate(data.bars):
        y = top + number * pitch
        place = f'x="1" y="{y - 5}"' if narrow else f'x="{label - 8}" y="{y + 16}" text-anchor="end"'
        drawn.append(f"<text {place}>{escape(name)}</text>")
        start = 0.0
        for role, part, size in parts:
            x, end = across(start), across(start + size)
            drawn.append(
                f'<rect x="{x}" y="{y}" width="{max(end - x, 0.6):.1f}" height="24" fill="{COLOURS[role]}">'
                f"<title>{escape(part)}: {units.human_bytes(size)}</title></rect>"
            )
            start += size
    for tick in _steps(longest / units.GIB):
        x = across(tick * units.GIB)
        anchor = "start" if narrow and tick == 0 else "middle"
        drawn.append(
            f'<line x1="{x}" x2="{x}" y1="{bottom}" y2="{bottom + 5}" stroke="var(--kv-soft)"/>'
            f'<text x="{x}" y="{bottom + 19}" text-anchor="{anchor}">{tick:g}{" GiB" if tick == 0 else ""}</text>'
        )
    if data.limit_bytes is not None:
        x = across(data.limit_bytes)
        drawn.append(
            f'<line x1="{x}" x2="{x}" y1="10" y2="{bottom}" stroke="var(--kv-ink)" stroke-width="1.5"/>'
            f'<text x="{x - 5:.1f}" y="12" text-anchor="end">{escape(data.limit_name)}</text>'
        )
    return _svg("".join(drawn), bottom + 30, data.title, width)


def _scale(low: float, high: float, first: float, last: float, *, log: bool) -> Place:
    a, b = (math.log2(low), math.log2(high)) if log else (low, high)
    span = (b - a) or 1.0

    def place(value: float) -> float:
        return round(first + (last - first) * ((math.log2(value) if log else value) - a) / span, 1)

    return place


def _axis_y(ticks: Sequence[float], up: Place, title: str, frame: _Frame) -> str:
    drawn = "".join(
        f'<line x1="{frame.left}" x2="{frame.right}" y1="{up(t)}" y2="{up(t)}" stroke="var(--kv-grid)"/>'
        f'<text x="{frame.left - 8}" y="{up(t) + 4:.1f}" text-anchor="end">{_tick(t)}</text>'
        for t in ticks
    )
    if frame.narrow:
        return f'{drawn}<text x="1" y="13">{escape(title)}</text>'
    middle = (frame.top + HEIGHT - BOTTOM) / 2
    return f'{drawn}<text transform="translate(14 {middle:.1f}) rotate(-90)" text-anchor="middle">{escape(title)}</text>'


def _tick(value: float) -> str:
    """Print a power of two below 1 as a fraction: its decimals are longer than the margin."""
    return f"1/{1 / value:,.0f}" if 0 < value < 0.25 and (1 / value).is_integer() else _plain(value)


def _plain(value: float) -> str:
    """Print a number without an exponent: 131,072 and 0.125."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.4g}"


def _x_ticks(data: Curves, most: int) -> Sequence[float]:
    if data.x_log:
        return _thinned(_powers(data.x[0], data.x[-1]), most)
    return [t for t in _steps(data.x[-1]) if t >= data.x[0]]


def _powers(low: float, high: float) -> list[float]:
    return [2.0**n for n in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)]


def _thinned(ticks: list[float], most: int) -> list[float]:
    """At most so many ticks."""
    return ticks[:: math.ceil(len(ticks) / most)]


def _steps(high: float) -> list[float]:
    raw = high / 5
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * m for m in (1, 2, 5, 10) if size * m >= raw)
    return [round(step * n, 10) for n in range(int(high / step) + 1)]


def _svg(inner: str, height: float, title: str, width: int) -> str:
    css = 'kv-drawn kv-drawn--narrow" display="none' if width == NARROW else "kv-drawn kv-drawn--wide"
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title, quote=True)}"'
        f' class="{css}">{inner}</svg>'
    )


def _legend(keys: Sequence[tuple[str, str]], *, dashed: bool = False) -> str:
    """Return the names of lines or of parts, each with its color and, of a line, its dashes."""
    signs = [
        f'<svg viewBox="0 0 30 10" class="kv-key-line" aria-hidden="true"><line x1="0" x2="30" y1="5" y2="5" '
        f'stroke="{colour}" stroke-width="2.4" stroke-dasharray="{DASHES[number]}"/></svg>'
        if dashed
        else f'<svg viewBox="0 0 16 10" aria-hidden="true"><rect width="16" height="10" rx="2" fill="{colour}"/></svg>'
        for number, (colour, _) in enumerate(keys)
    ]
    items = "".join(
        f'<span class="kv-key">{sign}{escape(name)}</span>'
        for sign, (_, name) in zip(signs, keys, strict=True)
    )
    return f'<div class="kv-keys">{items}</div>'


def _figure(svg: str, keys: str, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    heads = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f'<td class="kv-num">{escape(c)}</td>' for c in row[1:])
        + "</tr>"
        for row in rows
    )
    data = (
        f'<details class="kv-fold kv-data"><summary>Data table</summary><div class="kv-scroll">'
        f'<table class="kv-table"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div></details>'
    )
    return f'<figure class="kv-figure">{svg}{keys}<figcaption>{escape(title)}</figcaption>{data}</figure>'
