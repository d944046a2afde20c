"""The page of our own experiments: theory and measurement on one chart and in one table.

Everything here comes from the JSON files that ``experiments/`` wrote. An experiment that no GPU has
run yet says so, with the command that remains; nothing is filled in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from kvreport import units
from kvreport.catalog.measurement import MeasuredQuantity, Measurement, load_measurements
from kvreport.resources import read_table
from kvreport.site.kit import figures
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.tables import Cell, Table, listing, numbers, texts
from kvreport.site.kit.templating import Names, render
from kvreport.site.page_type import Inputs, PageType
from kvreport.words import counted

if TYPE_CHECKING:
    from kvreport.catalog.load import Catalog

URI: Final = "evidence/measured/"
FOLDER: Final = "measurements"
MOST_LINES: Final = 6

_WORDS: Final[dict[str, str]] = read_table("relations of readings")
_SETTINGS: Final[dict[str, str]] = read_table("settings of readings")
_QUIET: Final = ("tensors", "probes", "parameters", "room_bytes", "tries", "step")
"""Settings that the JSON keeps and the table leaves out."""


@dataclass(frozen=True, slots=True)
class Picture:
    """How an experiment's readings become a chart."""

    quantity: str
    across: str
    x_title: str
    y_title: str
    per: float
    y_log: bool = True
    x_log: bool = True


@dataclass(frozen=True, slots=True)
class ExperimentQuestion:
    """One experiment, as the page asks it."""

    experiment: str
    title: str
    asks: str
    picture: Picture | None = None


QUESTIONS: Final = tuple(
    ExperimentQuestion(**one | {"picture": Picture(**one["picture"]) if one["picture"] else None})
    for one in read_table("experiments")
)


@cache
def measurements(folder: Path) -> tuple[Measurement, ...]:
    """Return the measurements that lie beside a catalog; none if it has none."""
    return load_measurements(folder / FOLDER)


def files(catalog: Catalog) -> dict[str, bytes]:
    """Return the raw files by their address."""
    return {
        _address(one): (catalog.folder / FOLDER / f"{one.name}.json").read_bytes()
        for one in measurements(catalog.folder)
    }


def page(catalog: Catalog) -> Page | None:
    """Return the page, or None if the catalog has no measurements."""
    found = measurements(catalog.folder)
    if not found:
        return None
    conclusion = _conclusion(found)
    names = {"conclusion": conclusion, "on_gpu": any(one.device == "cuda" for one in found)}
    return Page(
        uri=URI,
        kind="tool",
        title="Measured: real tensors and machines compared with the formulas",
        heading="Measurements of real tensors and machines",
        description=conclusion,
        lead=render("measured/lead.html", URI, names),
        sections=tuple(_section(question, found) for question in QUESTIONS),
        names=("experiments", "measurements", "benchmark"),
    )


def _section(question: ExperimentQuestion, found: Sequence[Measurement]) -> Section:
    anchor = question.experiment.split("-")[0]
    return Section(
        anchor,
        question.title,
        render("measured/experiment.html", URI, answer(question, found) | {"late": True}),
    )


def answer(question: ExperimentQuestion, found: Sequence[Measurement]) -> Names:
    """Put together what a question's files say; a GPU's come first."""
    order = {"cuda": 0, "cpu": 1, "meta": 2}
    own = sorted(
        (one for one in found if one.experiment == question.experiment),
        key=lambda one: (order[one.device], one.name),
    )
    remains = ""
    if not any(one.device == "cuda" for one in own):
        remains = f"python -m experiments run {question.experiment.split('-')[0]} --device cuda"
    return {"asks": question.asks, "runs": tuple(_run(question, one) for one in own), "remains": remains}


def _run(question: ExperimentQuestion, one: Measurement) -> Names:
    versions = ", ".join(f"{name} {version}" for name, version in one.versions.items())
    machine = one.machine
    memory = f", {units.gib(machine.memory_bytes)} GiB" if machine.memory_bytes else ""
    driver = f", driver {machine.driver}" if machine.driver else ""
    note = f" ({machine.note})" if machine.note else ""
    return {
        "where": f"{machine.label}{memory}{driver}{note}",
        "says": verdict(one.readings),
        "chart": _chart(question, one),
        "summary": _summary(question, one),
        "readings": _readings(question, one),
        "versions": f"{one.date}; {versions}",
        "file": _address(one),
        "command": one.command,
        "failures": tuple(map(failure, one.failures)),
    }


def verdict(readings: Sequence[MeasuredQuantity]) -> str:
    """Say how readings came out against what was computed for them, in one sentence."""
    exact = [r for r in readings if r.relation == "equals" and r.holds is not None]
    bounds = [r for r in readings if r.relation in ("at_least", "at_most") and r.holds is not None]
    parts = []
    if exact:
        equal = sum(bool(reading.holds) for reading in exact)
        off = max((abs(r.error or 0.0) for r in exact), default=0.0)
        parts.append(
            (
                f"{_all(exact, '', 'equals', 'equal')} the computed values exactly"
                if len(exact) == len(readings)
                else f"{_all(exact, ' with an exact computed value', 'equals', 'equal')} that value"
            )
            if equal == len(exact)
            else f"{equal} of {len(exact)} readings equal the computed values; the largest difference is {off:.2%}"
        )
    if bounds:
        kept = sum(bool(reading.holds) for reading in bounds)
        parts.append(
            f"{_all(bounds, ' with a computed bound', 'stays', 'stay')} within it"
            if kept == len(bounds)
            else f"{kept} of {len(bounds)} readings with a computed bound stay within it"
        )
    rest = len(readings) - len(exact) - len(bounds)
    if rest:
        parts.append(f"{counted(rest, 'reading has|readings have')} no computed value")
    text = parts or ["no readings"]
    return " ".join(f"{part[:1].upper()}{part[1:]}." for part in text)


def _all(readings: Sequence[MeasuredQuantity], which: str, one: str, many: str) -> str:
    """``all 42 readings with a computed bound stay``, ``the only reading with a computed bound stays``."""
    if len(readings) == 1:
        return f"the only reading{which} {one}"
    return f"all {len(readings)} readings{which} {many}"


def _conclusion(found: Sequence[Measurement]) -> str:
    stored = [r for one in found if one.device != "meta" for r in one.readings]
    shaped = [r for one in found if one.device == "meta" for r in one.readings]
    exact = [r for r in stored if r.relation == "equals" and r.unit == "bytes" and r.holds is not None]
    equal = sum(bool(reading.holds) for reading in exact)
    models = {reading.model for reading in exact if reading.model}
    machines = "a GPU and a CPU" if any(one.device == "cuda" for one in found) else "a CPU"
    share = "All" if equal == len(exact) else f"{equal} of"
    text = (
        f"{share} {len(exact)} measured cache and weight sizes of {len(models)} models match the formulas "
        f"to the byte on {machines}."
    )
    if shaped:
        alike = sum(reading.holds is True for reading in shaped)
        some = f"all {alike}" if alike == len(shaped) else f"{alike} of {len(shaped)}"
        text += f" The same is true of {some} sizes of full-size models on PyTorch's meta device, which stores only shapes."
    return text


def _chart(question: ExperimentQuestion, one: Measurement) -> Markup:
    """Draw computed lines and measured rings; empty where the file has nothing to draw."""
    picture = question.picture
    if picture is None:
        return Markup()
    lines: dict[str, dict[int, MeasuredQuantity]] = {}
    for reading in one.readings:
        place = reading.at.get(picture.across)
        if reading.quantity == picture.quantity and isinstance(place, int) and reading.computed is not None:
            lines.setdefault(_line_name(question, reading), {})[place] = reading
    lines = {
        name: points for name, points in lines.items() if len(points) > 2 or picture.across == "kv_heads"
    }
    if picture.across == "kv_heads":
        lines = (
            {"cache": {place: r for points in lines.values() for place, r in points.items()}} if lines else {}
        )
    places = sorted({place for points in lines.values() for place in points})
    if not lines or len(places) < 3:
        return Markup()
    chosen = dict(list(lines.items())[:MOST_LINES])

    def values(points: dict[int, MeasuredQuantity], name: str) -> tuple[float | None, ...]:
        found: list[float | None] = []
        for place in places:
            value = getattr(points[place], name) if place in points else None
            found.append(None if value is None else value / picture.per)
        return tuple(found)

    drawn = figures.curves(
        figures.Curves(
            title=f"{question.title} Lines show computed values, and rings show measured values ({one.machine.label}).",
            x_title=picture.x_title,
            y_title=picture.y_title,
            x=tuple(float(place) for place in places),
            lines=tuple((name, values(points, "computed")) for name, points in chosen.items()),
            marks=tuple(values(points, "measured") for points in chosen.values()),
            x_log=picture.x_log,
            y_log=picture.y_log,
            x_tokens=picture.across == "context_tokens",
        )
    )
    return Markup(drawn)  # noqa: S704 (figures escape what they are given)


_CASES: Final[dict[str, str]] = read_table("cases of readings")
"""Names of the field for cases and quantities, which the files of earlier runs call otherwise."""


def _said(name: str) -> str:
    return _CASES.get(name) or ", ".join(_CASES.get(part, part) for part in name.split(", "))


def failure(line: str) -> str:
    """Return what could not be run, in the words of the page, with the first sentence of a traceback only."""
    return ": ".join(_said(part) for part in line.partition(". Tried to allocate")[0].split(": "))


def _line_name(question: ExperimentQuestion, reading: MeasuredQuantity) -> str:
    if question.experiment == "e2-batch-memory" and reading.model:
        name, case = reading.model.rpartition("/")[2], _said(reading.case)
        return case if case.startswith(name) else f"{name}, {case}"
    if question.experiment == "e5-time":
        return f"{_said(reading.case)}, {units.human_tokens(int(reading.at['context_tokens']))}"
    return _said(reading.case)


def _summary(question: ExperimentQuestion, one: Measurement) -> Table:
    groups: dict[tuple[str, str], list[MeasuredQuantity]] = {}
    for reading in one.readings:
        groups.setdefault((reading.case, reading.quantity), []).append(reading)

    def number(readings: Sequence[MeasuredQuantity]) -> int:
        return len(readings)

    def held(readings: Sequence[MeasuredQuantity]) -> str:
        known = [reading.holds for reading in readings if reading.holds is not None]
        return f"{sum(known)} of {len(known)}" if known else "–"

    def worst(readings: Sequence[MeasuredQuantity]) -> Cell:
        errors = [reading.error for reading in readings if reading.error is not None]
        return _error(max(errors, key=abs) if errors else None)

    return listing(
        f"{question.title} Results by case ({one.machine.label})",
        groups.values(),
        texts("Case", lambda group: Cell(_said(group[0].case), hint=_said(group[0].quantity))),
        numbers("Readings", number),
        texts("Measured against computed", lambda group: _WORDS[group[0].relation] or "nothing computed"),
        numbers("Agree", held),
        numbers("Largest relative difference", worst),
        numbers("Out of memory", lambda group: sum(reading.measured is None for reading in group)),
    )


def _readings(question: ExperimentQuestion, one: Measurement) -> Table | None:
    if not one.readings:
        return None
    return listing(
        f"{question.title} Every reading ({one.machine.label})",
        one.readings,
        texts("Model", _read_of),
        texts("Quantity", lambda reading: _said(reading.quantity)),
        texts("Parameters", _parameters),
        numbers("Measured", lambda reading: _figure(reading.measured, reading.unit)),
        numbers("Computed", lambda reading: _figure(reading.computed, reading.unit)),
        numbers("Relative difference", lambda reading: _error(reading.error)),
        sortable=True,
    )


def _read_of(reading: MeasuredQuantity) -> Cell:
    case = _said(reading.case)
    return Cell(reading.model, hint=case) if reading.model else Cell(case)


def _parameters(reading: MeasuredQuantity) -> str:
    shown = {key: value for key, value in reading.at.items() if key not in _QUIET}
    named = (f"{_SETTINGS.get(key, key.replace('_', ' '))} {_setting(value)}" for key, value in shown.items())
    return ", ".join(named) or "–"


def _error(error: float | None) -> Cell:
    return Cell("–" if error is None else share(error), value=error)


def _setting(value: int | str) -> str:
    return units.count(value) if isinstance(value, int) else value


def _figure(value: float | None, unit: str) -> Cell:
    if value is None:
        return Cell("–", "kv-num", hint="refused, or not computed")
    if unit in ("bytes", "requests"):
        return Cell(f"{units.count(value)} {'B' if unit == 'bytes' else ''}".strip(), "kv-num", value=value)
    if unit == "seconds":
        return Cell(f"{value * 1e3:,.3f} ms", "kv-num", value=value)
    if unit == "bytes/s":
        return Cell(f"{value / units.TB:,.2f} TB/s", "kv-num", value=value)
    if unit == "FLOP/s":
        return Cell(f"{value / 1e12:,.1f} TFLOP/s", "kv-num", value=value)
    return Cell(f"{value:,.1f} {unit}", "kv-num", value=value)


def share(value: float) -> str:
    """Print a relative difference.

    >>> share(0.0), share(0.1234), share(-0.00004)
    ('0', '+12.3%', '<0.01%')
    """
    if value == 0:
        return "0"
    percent = value * 100
    if abs(percent) < 0.01:
        return "<0.01%"
    return f"{percent:+.2f}%" if abs(percent) < 1 else f"{percent:+.1f}%"


def _address(one: Measurement) -> str:
    return f"{URI}{one.name}.json"


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the page, where the catalog has what it shows."""
    made = page(inputs.site.catalog)
    if made is not None:
        yield made


TYPE: Final = PageType("measured", pages, files=lambda site: files(site.catalog).items())
