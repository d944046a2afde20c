"""What templates of several page types are given: facts, charts, bars, strips, links, sources.

Templates choose, loop and print; every number in a context has been computed below this layer and
every string has been made by Python. Text from the catalog is plain text here and is escaped by
the template. A page type's own context is in its module.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvreport.site.kit.tables import Table


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """A number worth a large figure.

    Attributes:
        note: A remark in small print, or "".
        slot: The name of its place where it follows the state of its page, or "".
    """

    label: str
    value: str
    note: str = ""
    slot: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, ready to stand in a page.

    Attributes:
        title: What it shows, in words: also what a screen reader says.
        digest: Names the drawing that the page asked for.
        legend: (line number from 1, text) of each line.
        notes: Further legend entries: (css class of the sample, text).
        points: Whether the legend's samples are points instead of lines.
        finding: What it shows, in one sentence that stands over it; "" where there is none.
    """

    id: str
    title: str
    digest: str
    legend: tuple[tuple[int, str], ...]
    notes: tuple[tuple[str, str], ...]
    caption: str
    table: Table
    points: bool = False
    finding: str = ""


@dataclass(frozen=True, slots=True)
class BarPart:
    """A part of a bar.

    Attributes:
        css: Role that gives it its colour: ``weights``, ``cache``, ``state``, ``reserve``, ``free``.
        start: Where it begins, in thousandths of the bar.
    """

    css: str
    label: str
    text: str
    start: int
    width: int


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of one device's memory."""

    title: str
    slices: tuple[BarPart, ...]
    caption: str


@dataclass(frozen=True, slots=True)
class StripShape:
    """The layers of one kind in a strip.

    Attributes:
        css: The color's role.
        path: The outline of their boxes.
        title: Which layers they are.
    """

    css: str
    path: str
    title: str


@dataclass(frozen=True, slots=True)
class Strip:
    """A model's layers in order, coloured by what they keep.

    Attributes:
        title: What it shows, for a screen reader.
        shapes: One for each kind of layer, two where a kind keeps two things.
        width: Width of the drawing in its own units; each layer takes 10.
        legend: (css role, text) of each kind of layer.
    """

    title: str
    shapes: tuple[StripShape, ...]
    width: int
    legend: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Link:
    """A link: its text, where it leads, a remark."""

    text: str
    href: str
    note: str = ""
