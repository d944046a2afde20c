"""How fast a model could be at best: the decode bound by users, up to where memory ends.

A small drawing of our own rather than a Vega chart: four lines of a few points each, on every model
page, made in no time. Both axes are log2, as in the boundary chart beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, isnan, log2
from typing import Final

import numpy as np
import numpy.typing as npt

from kvreport import units
from kvreport.accounting.demand import Demand, demand
from kvreport.accounting.roofline import MAX_BATCH, Peaks, StepTime, decode, knee, prefill, step_bounds_ms
from kvreport.catalog.load import RELEASED
from kvreport.catalog.model import Model
from kvreport.publish.series import Series
from kvreport.publish.site_data import SiteData
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.site.kit.templating import Names
from kvreport.words import SENTENCES, Pieces, counted, noun_for, pieces

CONTEXTS: Final = (2048, 8192, 32768, 131072)
"""Contexts that have a line, where the model supports them and at least one request fits."""

Speeds = tuple[int, list[int], npt.NDArray[np.float64]]
"""A context, batches, and tokens per second of each user at each."""

WIDTH: Final = 700
HEIGHT: Final = 300
LEFT: Final = 52
RIGHT: Final = 12
TOP: Final = 34
BOTTOM: Final = 42


@dataclass(frozen=True, slots=True)
class AxisMark:
    """A mark on an axis: where it is in pixels, and what it says."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Dot:
    """A point of a line, in pixels, with what a pointer over it says."""

    x: float
    y: float
    hint: str


@dataclass(frozen=True, slots=True)
class Path:
    """A line: its number from 1, its name, the path's commands, its points."""

    number: int
    name: str
    commands: str
    dots: tuple[Dot, ...]


def context(site: SiteData, model: Model, best: Series | None) -> Names | None:
    """Return the section's context; None where nothing holds the model or no rate is known."""
    if best is None:
        return None
    config = best.config
    gpu = site.catalog.accelerator(config.gpu)
    form = None if config.weight_format == RELEASED else site.catalog.weight_format(config.weight_format)
    asked = demand(
        model,
        form,
        site.catalog.weight_formats,
        site.catalog.kv_format(config.kv_format),
        tensor_parallel=config.tensor_parallel,
    )
    peaks = Peaks.of(gpu)
    lines = [
        (tokens, _batches(best.users[n]))
        for n, tokens in enumerate(best.contexts)
        if tokens in CONTEXTS and best.holds(n)
    ] or [
        (tokens, _batches(best.users[n])) for n, tokens in enumerate(best.contexts[:1]) if best.users[n] > 0
    ]
    alone = float(decode(asked, peaks, 1, 0).seconds)
    if not lines or isnan(alone):
        return None
    name = site.gpu_name(gpu.id)
    on = f"one {name}" if config.tensor_parallel == 1 else f"{config.tensor_parallel} × {name}"
    speeds = [
        (tokens, batches, 1 / np.asarray(decode(asked, peaks, batches, tokens).seconds))
        for tokens, batches in lines
    ]
    paths, across, up = _drawing(speeds)
    return {
        "sentence": _sentence(asked, peaks, speeds, on),
        "title": f"{model.name} on {on}: upper bound of tokens per second per request, by concurrent requests",
        "width": WIDTH,
        "height": HEIGHT,
        "paths": paths,
        "across": across,
        "up": up,
        "left": LEFT,
        "top": TOP,
        "bottom": HEIGHT - BOTTOM,
        "table": _table(model, on, asked, peaks, lines),
    }


def _batches(users: int) -> list[int]:
    """1, 2, 4 … and the last that fits."""
    users = min(users, MAX_BATCH)
    powers = [1 << n for n in range(users.bit_length()) if 1 << n <= users]
    return powers if powers[-1] == users else [*powers, users]


def _sentence(
    asked: Demand,
    peaks: Peaks,
    speeds: list[Speeds],
    on: str,
) -> Pieces:
    tokens, batches, each = next((s for s in speeds if s[0] == 8192), speeds[0])
    said = SENTENCES["best_speed"].format(
        on=on,
        alone=f"{float(step_bounds_ms(asked, peaks, 1, 0)[0]):.1f}",
        requests=counted(batches[-1], "request|requests", units.count(batches[-1])),
        context=units.human_tokens(tokens),
        get=noun_for(batches[-1], "gets|get"),
        each=f"{each[-1]:.1f}",
        total=units.count(round(each[-1] * batches[-1])),
    )
    short = knee(asked, peaks, 0)
    if short is None:
        at_short = "no batch is large enough to take longer to compute than to read memory."
    else:
        at_short = f"a decode step with fewer than about {units.count(short)} requests spends more time on reading memory than on computing."
    return pieces(said, f"At short contexts, {at_short}")


def _drawing(speeds: list[Speeds]) -> tuple[tuple[Path, ...], tuple[AxisMark, ...], tuple[AxisMark, ...]]:
    """Paths, and ticks across and up, in pixels."""
    most = max(batches[-1] for _, batches, _ in speeds)
    # From a power of two to a power of two, so that every drawing has ticks at both ends.
    lowest = floor(log2(min(float(each.min()) for *_, each in speeds)))
    rise = max(ceil(log2(max(float(each.max()) for *_, each in speeds))) - lowest, 1)
    slowest = 2.0**lowest
    span = max(log2(most), 1)

    def x(users: float) -> float:
        return round(LEFT + log2(users) / span * (WIDTH - LEFT - RIGHT), 1)

    def y(rate: float) -> float:
        return round(HEIGHT - BOTTOM - log2(rate / slowest) / rise * (HEIGHT - BOTTOM - TOP), 1)

    paths = []
    for number, (tokens, batches, each) in enumerate(speeds, start=1):
        dots = tuple(
            Dot(
                x(users),
                y(float(rate)),
                f"{counted(users, 'request|requests', units.count(users))} of {units.human_tokens(tokens)}: {rate:,.1f} tokens/s each, "
                f"{users * rate:,.0f} in total",
            )
            for users, rate in zip(batches, each, strict=True)
        )
        commands = "M" + "L".join(f"{dot.x} {dot.y}" for dot in dots)
        paths.append(Path(number, f"{units.human_tokens(tokens)} context", commands, dots))
    step = max(1, round(span / 8))
    across = tuple(
        AxisMark(x(1 << n), units.count(1 << n)) for n in range(0, int(span) + 1, step) if 1 << n <= most
    )
    rates = [2.0 ** (lowest + n) for n in range(0, rise + 1, max(1, round(rise / 6)))]
    up = tuple(AxisMark(y(rate), f"{rate:,g}") for rate in rates)
    return tuple(paths), across, up


def _table(model: Model, on: str, asked: Demand, peaks: Peaks, lines: list[tuple[int, list[int]]]) -> Table:
    rows = []
    for tokens, batches in lines:
        users = batches[-1]
        step, first = decode(asked, peaks, users, tokens), prefill(asked, peaks, tokens)
        seconds = float(step.seconds)
        bound, wait = (float(one) for one in step_bounds_ms(asked, peaks, users, tokens))
        rows.append(
            Row(
                Cell(units.human_tokens(tokens), value=tokens),
                (
                    _number(users, units.count(users)),
                    _number(bound, f"{bound:,.1f}"),
                    _number(1 / seconds, f"{1 / seconds:,.1f}"),
                    _number(users / seconds, units.count(users / seconds)),
                    Cell(_word(step)),
                    _number(wait, f"{wait:,.0f}"),
                    Cell(_word(first)),
                ),
            )
        )
    return Table(
        f"{model.name} on {on}, with as many requests as fit. Times are best-case bounds at peak rates.",
        Column("Context per request", "tokens", numeric=False),
        (
            Column("Requests that fit"),
            Column("Minimum decode step", "ms"),
            Column("Maximum per request", "tokens/s"),
            Column("Maximum total", "tokens/s"),
            Column("Bottleneck", numeric=False),
            Column("Minimum time to first token", "ms"),
            Column("Bottleneck", numeric=False),
        ),
        tuple(rows),
    )


def _number(value: float, text: str) -> Cell:
    return Cell(text, "kv-num", value)


def _word(step: StepTime) -> str:
    return {
        "memory": "memory bandwidth",
        "compute": "compute",
        "link": "interconnect",
        "unknown": "unknown",
    }[str(step.binds)]
