"""What each template is given: one frozen dataclass per page type, every field described.

Templates choose, loop and print; every number in a context has been computed below this layer and
every string has been made by Python. Text from the catalogue is plain text here and is escaped by
the template.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvreport.site.kit.tables import Table


@dataclass(frozen=True, slots=True)
class Fact:
    """A number worth a large figure.

    Attributes:
        label: What it is.
        value: The figure with its unit.
        note: A remark in small print, or "".
    """

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, ready to stand in a page.

    Attributes:
        id: Anchor of the figure.
        title: What it shows, in words: also what a screen reader says.
        digest: Names the drawing that the page asked for.
        legend: (line number from 1, text) of each line.
        notes: Further legend entries: (css class of the sample, text).
        caption: How to read it.
        table: The same data.
        points: Whether the legend's samples are points instead of lines.
    """

    id: str
    title: str
    digest: str
    legend: tuple[tuple[int, str], ...]
    notes: tuple[tuple[str, str], ...]
    caption: str
    table: Table
    points: bool = False


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a bar.

    Attributes:
        css: Role that gives it its colour: ``weights``, ``cache``, ``state``, ``reserve``, ``free``.
        label: What it is.
        text: Its size with the unit.
        start: Where it begins, in thousandths of the bar.
        width: How wide it is, in thousandths.
        inside: Whether its text has room inside.
    """

    css: str
    label: str
    text: str
    start: int
    width: int
    inside: bool


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of one device's memory.

    Attributes:
        title: What it shows, for a screen reader.
        slices: Its parts from left to right.
        caption: What is held in it.
    """

    title: str
    slices: tuple[Slice, ...]
    caption: str


@dataclass(frozen=True, slots=True)
class Tick:
    """One layer of a strip: its role and what it keeps.

    Attributes:
        css: Role of its colour: ``cache``, ``window``, ``state``, ``none``.
        below: Role of its lower half where it keeps two kinds, or "".
        x: Where it begins.
        title: What it is, for a pointer.
    """

    css: str
    below: str
    x: int
    title: str


@dataclass(frozen=True, slots=True)
class Strip:
    """A model's layers in order, coloured by what they keep.

    Attributes:
        title: What it shows, for a screen reader.
        ticks: One per layer.
        width: Width of the drawing in its own units; each layer takes 10.
        legend: (css role, text) of each kind of layer.
    """

    title: str
    ticks: tuple[Tick, ...]
    width: int
    legend: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Link:
    """A link: its text, where it leads, a remark."""

    text: str
    href: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """Where facts come from.

    Attributes:
        title: What was read.
        url: Where it can be read again, or "".
        covers: Which fields it speaks for, in words.
        evidence: How far it can be trusted.
        revision: Version of what was read, or "".
        note: A remark, or "".
    """

    title: str
    url: str
    covers: str
    evidence: str
    revision: str
    note: str


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the arithmetic: words, and the numbers put in."""

    words: str
    numbers: str
    result: bool = False


@dataclass(frozen=True, slots=True)
class ModelContext:
    """A model's page.

    Attributes:
        slug: Address part of the model, also the name of its download files.
        model_id: ``org/name``.
        headline: The conclusion in one sentence; (text, emphasised) pieces.
        conditions: Under which engine, formats and version the headline holds.
        facts: Figures under the headline.
        strip: Its layers.
        chart: The boundary, or None where no accelerator of the catalogue holds it.
        grid: Accelerators by contexts.
        steps: The arithmetic of the headline with the numbers put in.
        bar: One device's memory at the headline's point, or None.
        weights: Weights by format.
        formats: (name, label) of the weight formats that the switches offer.
        kv_formats: (name, label) of the KV formats that the switches offer.
        sizes: Tensor-parallel sizes that the switches offer.
        weight_format: The format that the static table shows.
        kv_format: The KV format that the static table shows.
        engine: Label of the engine.
        command: Command that serves it, to copy; "" where the engine does not run it.
        estimate: Command that computes the headline again.
        notes: Remarks of the catalogue on this model.
        sources: Where its facts come from.
        downloads: Files of just this page.
        cite: How to cite this page.
        neighbours: Models of the same family or of like size.
        data_url: Address of the page's machine-readable file.
    """

    slug: str
    model_id: str
    headline: tuple[tuple[str, bool], ...]
    conditions: str
    facts: tuple[Fact, ...]
    strip: Strip
    chart: Chart | None
    grid: Table
    steps: tuple[Step, ...]
    bar: Bar | None
    weights: Table
    formats: tuple[tuple[str, str], ...]
    kv_formats: tuple[tuple[str, str], ...]
    sizes: tuple[int, ...]
    weight_format: str
    kv_format: str
    engine: str
    command: str
    estimate: str
    notes: tuple[str, ...]
    sources: tuple[SourceLine, ...]
    downloads: tuple[Link, ...]
    cite: str
    neighbours: tuple[Link, ...]
    data_url: str


@dataclass(frozen=True, slots=True)
class GpuContext:
    """An accelerator's page.

    Attributes:
        slug: Name on the command line.
        headline: The conclusion in one sentence; (text, emphasised) pieces.
        conditions: Under which engine and formats the headline holds, and which clouds rent it out.
        facts: Figures under the headline.
        bar: Advertised, visible and usable memory as one bar.
        memory: The three sizes with their evidence and quotes.
        chart: The boundary of a few models on it, or None.
        grid: Models by contexts.
        largest: The largest model that fits, by weight format.
        rates: Bandwidth and peak rates with their evidence.
        notes: Remarks of the catalogue.
        sources: Where its facts come from.
        estimate: Command that computes a row again.
        cite: How to cite this page.
    """

    slug: str
    headline: tuple[tuple[str, bool], ...]
    conditions: str
    facts: tuple[Fact, ...]
    bar: Bar | None
    memory: Table
    chart: Chart | None
    grid: Table
    largest: Table
    rates: Table
    notes: tuple[str, ...]
    sources: tuple[SourceLine, ...]
    estimate: str
    cite: str


@dataclass(frozen=True, slots=True)
class IndexContext:
    """An index: every model, or every accelerator.

    Attributes:
        headline: What stands here, in one sentence.
        table: One row each, with the keys that the facets use.
        facets: (key, label) of the facets, in order.
        noun: What one row is called, in the plural.
        chart: A picture of all of them, or None.
    """

    headline: str
    table: Table
    facets: tuple[tuple[str, str], ...]
    noun: str
    chart: Chart | None


@dataclass(frozen=True, slots=True)
class HomeContext:
    """The front page.

    Attributes:
        answer: The example's answer; (text, emphasised) pieces.
        model_slug: The example's model.
        model_name: What people call it.
        gpu_slug: The example's accelerator.
        gpu_name: What people call it.
        conditions: Under which engine and formats.
        bar: Where the example's memory goes.
        chart: The example's boundary.
        models: (slug, name) of every model, for the form.
        gpus: (slug, name) of every accelerator, for the form.
        contexts: (tokens, label) of the grid's contexts, for the form.
        facts: How much is here.
        doors: What is here.
    """

    answer: tuple[tuple[str, bool], ...]
    model_slug: str
    model_name: str
    gpu_slug: str
    gpu_name: str
    conditions: str
    bar: Bar | None
    chart: Chart | None
    models: tuple[tuple[str, str], ...]
    gpus: tuple[tuple[str, str], ...]
    contexts: tuple[tuple[int, str], ...]
    facts: tuple[Fact, ...]
    doors: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class DataContext:
    """The data page.

    Attributes:
        headline: What is published, in one sentence.
        facts: Rows, models, accelerators, version.
        downloads: Every file with its size.
        tables: (title, description, dictionary) of every published table.
        readers: (library, code) that reads the Parquet file.
        changes: (release, what it changed, a sentence each), the latest first.
        cite: How to cite the dataset.
        bibtex: The same for BibTeX.
        version: The release's version.
    """

    headline: str
    facts: tuple[Fact, ...]
    downloads: tuple[Link, ...]
    tables: tuple[tuple[str, str, Table], ...]
    readers: tuple[tuple[str, str], ...]
    changes: tuple[tuple[str, tuple[str, ...]], ...]
    cite: str
    bibtex: str
    version: str


@dataclass(frozen=True, slots=True)
class ToolContext:
    """A page whose work is done in the browser: explore, compare.

    Attributes:
        data_url: Address of the machine-readable file that it reads.
        models: (slug, name) of every model.
        gpus: (slug, name) of every accelerator.
        contexts: (tokens, label) of the grid's contexts.
        example: A table that stands there without JavaScript.
        example_href: Address of the same table with every model.
        usual: Slugs of well-known models, to begin a comparison with.
        engine: Label of the engine.
    """

    data_url: str
    models: tuple[tuple[str, str], ...]
    gpus: tuple[tuple[str, str], ...]
    contexts: tuple[tuple[int, str], ...]
    example: Table
    example_href: str
    usual: tuple[str, ...]
    engine: str
