"""Instruments: a few sliders, and numbers that follow them by the package's own arithmetic.

An instrument is described as data: inputs, numbers that are given, outputs that each call one function
of :mod:`kvreport.accounting.lessons`. Python evaluates it for the table that every reader gets; the
site's script evaluates the same description with the same functions, translated, at the sliders'
positions.

>>> one = Instrument("t", (Slider("n", "Requests", (1, 2), 1),), (Output("x", "Bytes", "product", ("n", 8)),))
>>> evaluate(one, {"n": 2})
{'n': 2, 'x': 16}
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Final

from kvreport import units
from kvreport.accounting import kernel, lessons
from kvreport.accounting.profile import UNBOUNDED
from kvreport.book.html import Html, identity, inline

if TYPE_CHECKING:
    from kvreport.accounting.demand import Demand, Reach
    from kvreport.accounting.profile import CacheProfile
    from kvreport.accounting.roofline import Peaks

_SCALES: Final = {"GiB": units.GIB, "GB": units.GB, "MiB": units.MIB, "KiB": units.KIB, "ms": 1e-3, "%": 0.01}


@dataclass(frozen=True, slots=True)
class Slider:
    """A number that the reader sets."""

    name: str  # Its name in the outputs' arguments.
    label: str  # Noun and unit.
    values: tuple[float, ...]  # The positions, ascending.
    start: int = 0  # Index of the first position.
    form: str = "count"  # How a value is shown; see :func:`shown`.


@dataclass(frozen=True, slots=True)
class Output:
    """A number that follows."""

    name: str  # Its name in later outputs' arguments.
    label: str  # Noun and unit; empty where it only serves later outputs.
    function: str  # A function of :mod:`kvreport.accounting.lessons`.
    arguments: tuple[float | str, ...]  # Numbers, or names of givens, sliders and earlier outputs.
    # How it is shown: ``count``, ``tokens``, ``GiB.1``, ``ms.1``, ``%.0``, ``×.1``, ``words:a|b``.
    form: str = "count"


@dataclass(frozen=True, slots=True)
class Goal:
    """A state that the reader is asked to reach, in the order given."""

    text: str
    output: str
    value: float


@dataclass(frozen=True, slots=True)
class Instrument:
    """An instrument."""

    title: str  # What it shows.
    sliders: tuple[Slider, ...]  # What the reader sets.
    outputs: tuple[Output, ...]  # What follows, in order of evaluation.
    # Named constants: numbers, lists, records of the kernel.
    givens: Mapping[str, Any] = field(default_factory=dict)
    # Parts of a bar: role, label, name of the output or given; empty without a bar.
    bar: tuple[tuple[str, str, str], ...] = ()
    limit: str = ""  # Name of what the bar is held against.
    limit_label: str = ""  # What that is.
    goals: tuple[Goal, ...] = ()  # What to reach.
    rows: tuple[tuple[int, ...], ...] = ()  # Positions of the sliders for the printed table; a few if empty.
    presets: tuple[tuple[str, tuple[int, ...]], ...] = ()  # Names of positions of all sliders, each a button.
    time: str = ""  # Name of the slider that a button moves, where time is the subject.
    bar_form: str = "GiB.1"  # How the sizes of the bar are shown.


def evaluate(one: Instrument, settings: Mapping[str, float]) -> dict[str, Any]:
    """Return every slider's and output's value at given settings."""
    known: dict[str, Any] = {**one.givens, **settings}
    for output in one.outputs:
        arguments = [known[value] if isinstance(value, str) else value for value in output.arguments]
        known[output.name] = getattr(lessons, output.function)(*arguments)
    return {name: known[name] for name in (*settings, *(output.name for output in one.outputs))}


def shown(value: float, form: str) -> str:
    """Return a value as the instrument shows it.

    >>> (
    ...     shown(131072, "tokens"),
    ...     shown(2**31, "GiB.1"),
    ...     shown(1, "words:fits|out of memory"),
    ...     shown(2.5, "×.1"),
    ... )
    ('128K', '2.0 GiB', 'out of memory', '2.5×')
    """
    if form.startswith("words:"):
        return form.removeprefix("words:").split("|")[int(value)]
    if form == "tokens":
        return units.human_tokens(int(value))
    if form == "count":
        return f"{math.floor(value):,}"
    unit, _, digits = form.partition(".")
    number = f"{value / _SCALES.get(unit, 1):,.{digits or 0}f}"
    return number + unit if unit in ("%", "×") else f"{number} {unit}"


def instrument(one: Instrument) -> Html:
    """Lay out an instrument: its title, its goals, and the table that stands for it without a script."""
    name = identity("instrument", one.title)
    told = [output for output in one.outputs if output.label]
    heads = "".join(
        f'<th scope="col"{" class=kv-num" if n else ""}>{escape(label)}</th>'
        for n, label in enumerate([*(s.label for s in one.sliders), *(o.label for o in told)])
    )
    body = []
    for places in one.rows or _positions(one):
        settings = {s.name: s.values[at] for s, at in zip(one.sliders, places, strict=True)}
        found = evaluate(one, settings)
        cells = [shown(found[s.name], s.form) for s in one.sliders]
        cells += [shown(found[o.name], o.form) for o in told]
        rest = "".join(f'<td class="kv-num">{escape(cell)}</td>' for cell in cells[1:])
        body.append(f'<tr><th scope="row">{escape(cells[0])}</th>{rest}</tr>')
    goals = "".join(f"<li>{inline(goal.text)}</li>" for goal in one.goals)
    aims = f'<ol class="kv-goals">{goals}</ol>' if goals else ""
    spec = json.dumps(_specification(one), ensure_ascii=False, separators=(",", ":"))
    return Html(
        f'<section class="kv-instrument" data-kv-instrument="{name}" data-spec="{escape(spec, quote=True)}"'
        f' aria-labelledby="kv-title-{name}">'
        f'<p class="kv-instrument__title" id="kv-title-{name}">{inline(one.title)}</p>{aims}'
        f'<div class="kv-scroll kv-scroll--open kv-instrument__table"><table class="kv-table kv-plain">'
        f"<caption>Example settings</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div></section>"
    )


def terms_of(profile: CacheProfile) -> tuple[int, list[kernel.Term]]:
    """Return a profile as the kernel's functions take it: its constant bytes and its terms."""
    constant, terms = profile.flat
    return constant, list(terms)


def step_of(asked: Demand, peaks: Peaks) -> kernel.Step:
    """Return what a step asks of one device as the kernel's record.

    The device's rates must be known; one device has no link, and none is asked for.
    """
    rates = peaks.operations_per_s

    def work(operations: Mapping[Any, Any]) -> list[tuple[float, float]]:
        return [(float(count), float(rates[kind])) for kind, count in operations.items()]

    return kernel.Step(
        ranks=asked.tensor_parallel,
        dense_bytes=float(asked.dense_bytes),
        expert_bytes=float(asked.expert_bytes),
        experts=asked.experts,
        experts_per_token=asked.experts_per_token,
        body=work(asked.operations_per_token),
        head=work(asked.head_operations),
        reaches=[reach_of(reach) for reach in asked.reaches],
        attention_rate=float(rates[asked.attention_multiplies]),
        state_bytes=float(asked.state_bytes_touched),
        reduced_bytes=float(asked.reduced_bytes_per_token),
        bytes_rate=float(peaks.bytes_per_s),
        link_rate=float(peaks.link_bytes_per_s) if asked.tensor_parallel > 1 else 1.0,
    )


def reach_of(reach: Reach) -> kernel.Reach:
    """Return what a step reads of caches as the kernel's record: a cap of 0 is none, and of -1 nothing is seen."""
    cap = 0 if reach.cap_tokens >= UNBOUNDED else reach.cap_tokens or -1
    return (
        reach.bytes_per_entry,
        reach.operations_per_entry,
        reach.prefill_operations_per_entry,
        cap,
        reach.step_tokens,
        int(reach.chunked),
        reach.constant_entries,
    )


def _positions(one: Instrument) -> tuple[tuple[int, ...], ...]:
    """Three positions of each slider, crossed for the first two and at the start for the others."""
    spread = [
        sorted({0, len(s.values) // 2, len(s.values) - 1}) if n < 2 else [s.start]
        for n, s in enumerate(one.sliders)
    ]
    made: list[tuple[int, ...]] = [()]
    for places in spread:
        made = [(*before, at) for before in made for at in places]
    return tuple(made)


def _specification(one: Instrument) -> dict[str, Any]:
    def browser(value: Any) -> Any:  # noqa: ANN401 - any JSON
        return {_camel(k): v for k, v in value._asdict().items()} if isinstance(value, kernel.Step) else value

    return {
        "sliders": [[s.name, s.label, list(s.values), s.start, s.form] for s in one.sliders],
        "outputs": [[o.name, o.label, _camel(o.function), list(o.arguments), o.form] for o in one.outputs],
        "givens": {name: browser(value) for name, value in one.givens.items()},
        "bar": [list(part) for part in one.bar],
        "limit": one.limit,
        "limitLabel": one.limit_label,
        "goals": [[goal.output, goal.value] for goal in one.goals],
        "presets": [[name, list(places)] for name, places in one.presets],
        "time": one.time,
        "barForm": one.bar_form,
    }


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def growth_grid(
    title: str,
    *,
    contexts: Sequence[int],
    requests: Sequence[int],
    constant: int,
    terms: Sequence[kernel.Term],
    room: int,
) -> Html:
    """Lay out cache bytes over context and concurrency at once, marked where memory ends."""
    heads = "".join(f'<th scope="col" class="kv-num">{units.human_tokens(n)}</th>' for n in contexts)
    body = []
    for many in requests:
        cells = []
        for context in contexts:
            size = kernel.request_bytes(constant, terms, context) * many
            share = size / room
            step = min(8, 1 + int(share * 7)) if share <= 1 else 0
            css = f"kv-num kv-u{step}" if step else "kv-num kv-no"
            note = "" if step else '<span class="kv-over"> out of memory</span>'
            cells.append(f'<td class="{css}">{size / units.GIB:,.1f}{note}</td>')
        body.append(f'<tr><th scope="row">{many:,}</th>{"".join(cells)}</tr>')
    return Html(
        f'<div class="kv-scroll kv-scroll--open"><table class="kv-table kv-plain kv-grid"><caption>{escape(title)}.'
        f" Struck through: out of memory."
        f'</caption><thead><tr><th scope="col">Requests</th>{heads}</tr></thead><tbody>{"".join(body)}</tbody>'
        f"</table></div>"
    )


__all__ = [
    "Goal",
    "Instrument",
    "Output",
    "Slider",
    "evaluate",
    "growth_grid",
    "instrument",
    "shown",
    "step_of",
    "terms_of",
]
