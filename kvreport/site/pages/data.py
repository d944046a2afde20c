"""The data page: every file, every column, how to cite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kvreport import units
from kvreport.accounting.support_lookup import other_reader
from kvreport.catalog.base import Source
from kvreport.catalog.freshness import Freshness, Newest, newest
from kvreport.catalog.known_names import KnownNames
from kvreport.catalog.load import Catalog
from kvreport.catalog.model import Model
from kvreport.dataset import columns
from kvreport.publish import archive, changes
from kvreport.publish.downloads import FOLDER, SUMS
from kvreport.publish.site_data import SiteData
from kvreport.resources import read_table
from kvreport.site.kit.elements import KeyFigure, Link
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.tables import Cell, Column, Row, Table, listing, numbers, texts
from kvreport.site.kit.templating import Names, render
from kvreport.site.page_type import Inputs, PageType
from kvreport.words import ENGINES, counted

_PANDAS: Final = """\
import pandas as pd

rows = pd.read_parquet('capacity.parquet')
one = rows.query("gpu == 'h100-sxm-80gb' and layout == 'tp1' and context_tokens == 8192")
usual = one.query("weight_format in ('released', 'bf16') and kv_format == 'bf16' and verdict == 'fits'")
answer = usual.groupby('model', observed=True)['max_concurrent_requests'].max()"""

_DUCKDB: Final = """\
import duckdb

answer = duckdb.sql(\"\"\"
    SELECT model, max(max_concurrent_requests) AS requests
    FROM 'capacity.parquet'
    WHERE gpu = 'h100-sxm-80gb' AND layout = 'tp1' AND context_tokens = 8192
      AND weight_format IN ('released', 'bf16') AND kv_format = 'bf16' AND verdict = 'fits'
    GROUP BY model
\"\"\").fetchall()"""

_POLARS: Final = """\
import polars as pl

answer = (
    pl.scan_parquet('capacity.parquet')
    .filter(gpu='h100-sxm-80gb', layout='tp1', context_tokens=8192, kv_format='bf16', verdict='fits')
    .filter(pl.col('weight_format').is_in(['released', 'bf16']))
    .group_by('model')
    .agg(pl.col('max_concurrent_requests').max())
    .collect()
)"""

READERS: Final = (("pandas", _PANDAS), ("DuckDB", _DUCKDB), ("Polars", _POLARS))
"""Code that reads the matrix, shown on the page and run by a test."""

NOTES: Final[dict[str, str]] = read_table("dataset files")


def page(site: SiteData) -> Page:
    """Return the data page."""
    made = context(site)
    names = made
    return Page(
        uri="data/",
        kind="data",
        title="Data: downloads and dictionary",
        heading="Download the data",
        description=made["headline"],
        names=("data", "download", "downloads", "dataset", "Parquet", "CSV", "freshness", "age of the data"),
        sections=(
            Section("downloads", "Downloads", render("data/files.html", "data/", names)),
            Section("cite", "License and citation", render("data/cite.html", "data/", names)),
            Section("dictionary", "Data dictionary", render("data/dictionary.html", "data/", names)),
            Section("read", "Read the data", render("data/read.html", "data/", names)),
            Section("changes", "What changed", render("data/changes.html", "data/", names)),
            Section("releases", "Data releases", render("data/releases.html", "data/", names)),
            *of_catalog(site.catalog),
        ),
        quoted=tuple(
            Section(_anchor(table, column), column.name, _plain(column.meaning))
            for table in columns.TABLES
            for column in table.columns
        ),
    )


def _anchor(table: columns.DatasetTable, column: columns.DatasetColumn) -> str:
    """The id of a column's row in the dictionary."""
    return f"column-{table.name}-{column.name}"


def of_catalog(catalog: Catalog) -> Iterator[Section]:
    """How old the facts are, and which models have no record; nothing for a catalog that states neither."""
    found = Freshness.read(catalog.folder)
    if found is not None:
        rows = [
            {
                "kind": f"{_engine(one.family)}, {one.kind}" if one.family else one.kind,
                "name": f"{one.name}{_numbers_of(catalog, one)}",
                "day": one.day,
                "published": found.published.get(one.family, "not checked" if one.family else ""),
            }
            for one in newest(catalog)
        ]
        shown = render("data/age.html", "data/", {"freshness": found, "newest": rows})
        yield Section("age", "How current the data is: newest models and releases", shown)
    names = catalog.known_names
    if names is not None:
        table = _known(names)
        yield Section("known", table.caption, render("_only_table.html", "data/", {"table": table}))
        table = _known_accelerators(names)
        yield Section(
            "known-accelerators", table.caption, render("_only_table.html", "data/", {"table": table})
        )


def _engine(family: str) -> str:
    return ENGINES.get(family.replace("_", "-"), family)


def _numbers_of(catalog: Catalog, one: Newest) -> str:
    """The release that an engine's numbers are of, where classes of a later one were read; "" where they are of the same.

    >>> from kvreport.catalog.load import open_catalog
    >>> [_numbers_of(open_catalog(), Newest("", name, "", "tensorrt_llm")) for name in ("1.3", "1.2.1")]
    [' (figures for 1.2.1)', '']
    """
    engine = catalog.engines.get(one.family.replace("_", "-"))
    return (
        f" (figures for {engine.version})" if engine and engine.version and engine.version != one.name else ""
    )


def _known(names: KnownNames) -> Table:
    """Every model that is known by its name alone, with what was tried."""
    searched = f"until {names.checked}: {', '.join(names.searched)}"
    return listing(
        "Models known only by name",
        names.models,
        texts("Model", lambda one: Cell(one.id, href=_file(names.sources[one.source], one.path))),
        numbers(
            "Published parameters",
            lambda one: Cell("" if one.billions is None else f"{one.billions:.3g}", value=one.billions),
            "billions",
        ),
        texts("Why there is no record", lambda one: _NO_RECORD[one.kind]),
        texts("Sources searched", lambda one: (one.tried or searched) if one.kind != "no_cache" else ""),
        name="known-names",
        css="kv-words",
        noun="models",
    )


def _known_accelerators(names: KnownNames) -> Table:
    """Every accelerator that is known by its name alone, with what was tried."""
    return listing(
        "Accelerators known only by name",
        names.accelerators,
        texts("Accelerator", lambda one: one.name),
        texts("Published memory", lambda one: one.memory or ""),
        texts("What is missing for a record", lambda one: one.tried),
        name="known-accelerators",
        css="kv-words",
        noun="accelerators",
    )


def _file(source: Source, path: str) -> str:
    return f"{source.url}/blob/{source.revision or 'main'}/{path}" if source.url else ""


_NO_RECORD: Final = {
    "no_cache": "has no KV cache; kvreport estimate computes the memory that it needs",
    "stages": "runs in stages; kvreport estimate computes the memory that it needs without the first stage's cache",
    "unread": "no source states all dimensions",
}


def context(site: SiteData) -> Names:
    """Return the data page's context."""
    return {
        "headline": "The capacity figures on this site come from one open dataset. A row is one combination of model, accelerator, engine, layout, weight format, KV format and context.",
        "facts": tuple(_facts(site)),
        "downloads": tuple(_files(site)),
        "tables": tuple((table.title, table.description, _dictionary(table)) for table in columns.TABLES),
        "readers": READERS,
        "releases": tuple((one.version, tuple(_release_files(one))) for one in site.releases),
        "changes": tuple((one.version, one.lines) for one in changes.history(site)),
        "cite": f"kvreport: memory and capacity of language models on accelerators, data release {site.release_label}. CC BY 4.0.",
        "bibtex": (
            "@misc{kvreport,\n  title  = {kvreport: memory and capacity of language models on accelerators},\n"
            f"  author = {{The kvreport authors}},\n  year   = {{{site.version[:4]}}},\n"
            f"  note   = {{data release {site.release_label}, CC BY 4.0}}\n}}"
        ),
        "version": site.release_label,
        "checked": freshness.checked if (freshness := Freshness.read(site.catalog.folder)) else "",
    }


def _facts(site: SiteData) -> Iterator[KeyFigure]:
    if site.downloads.rows:
        yield KeyFigure("Rows", units.count(site.downloads.rows), "one for each combination")
    yield KeyFigure("Models", units.count(len(site.models)), sourced(site.models))
    if site.downloads.rows and (left := without_rows(site)):
        readers = {other_reader(site.engine, model.weight_format) for model in left} - {None}
        why = (
            f" The formats of their weights are read by {' and '.join(sorted(map(str, readers)))} only."
            if readers
            else ""
        )
        yield KeyFigure(
            "Models with rows in the capacity tables",
            units.count(len(site.models) - len(left)),
            f"{site.engine.label} does not run {counted(len(left), 'model|models')}.{why}",
        )
    yield KeyFigure("Accelerators", units.count(len(site.gpus)))
    yield KeyFigure("Data release", site.release_label)


def without_rows(site: SiteData) -> list[Model]:
    """Return the models of the site that the dataset has no row of."""
    names = {name for name, _ in site.downloads.files}
    return [model for model in site.models if f"models/{model.slug}.parquet" not in names]


def sourced(models: Sequence[Model]) -> str:
    """Say for how many models the facts that nobody computes have a source."""
    if not models:
        return ""
    shares = [
        sum(getattr(model, field) is not None and _has_source(model, field) for model in models) / len(models)
        for field in ("release", "licence", "context_tokens")
    ]
    release, licence, context = (f"{100 * share:.0f}%" for share in shares)
    return f"release date cited for {release}, license for {licence}, context limit for {context}"


def _has_source(model: Model, field: str) -> bool:
    return any(field in source.covers and source.evidence != "unverified" for source in model.sources)


def _files(site: SiteData) -> Iterator[Link]:
    """The files that hold everything; each model's own are on its page."""
    order = list(NOTES)
    whole = [(name, size) for name, size in site.downloads.files if "/" not in name]
    for name, size in sorted(
        whole, key=lambda item: (order.index(item[0]) if item[0] in order else 0, item[0])
    ):
        note = NOTES.get(name, "rows as text, in parts" if name.startswith("capacity") else "")
        yield Link(name, f"{FOLDER}/{name}", f"{note}, {units.human_bytes(size)}")
    yield Link(
        "v1/site.json", f"{FOLDER}/v1/site.json", "accelerators, formats and contexts, machine-readable"
    )
    yield Link("v1/explore.json", f"{FOLDER}/v1/explore.json", "cache profiles of all models in one file")


def _release_files(release: archive.ArchivedRelease) -> Iterator[Link]:
    """The files of a release at the release's own address."""
    for name, size, _ in release.files:
        yield Link(name, f"{archive.FOLDER}/{release.version}/{name}", units.human_bytes(size))
    yield Link(SUMS, f"{archive.FOLDER}/{release.version}/{SUMS}", "checksums")


def _plain(text: str) -> str:
    """Return a description without the marks that make code of a word in Markdown."""
    return text.replace("`", "")


def _dictionary(table: columns.DatasetTable) -> Table:
    rows = []
    for column in table.columns:
        kind = column.type + (", key" if column.key else "") + (", may be empty" if column.nullable else "")
        meaning = column.meaning + (f" One of: {', '.join(column.values)}." if column.values else "")
        rows.append(
            Row(
                Cell(column.name),
                (
                    Cell(kind),
                    Cell(column.unit or "–", "" if column.unit else "kv-blank"),
                    Cell(_plain(meaning), "kv-words"),
                    Cell(
                        _plain(column.formula) or "–", "kv-words" if column.formula else "kv-words kv-blank"
                    ),
                ),
                anchor=_anchor(table, column),
            )
        )
    return Table(
        caption=f"Columns of {table.name}",
        head=Column("Column", numeric=False),
        columns=(
            Column("Type", numeric=False),
            Column("Unit", numeric=False),
            Column("Meaning", numeric=False),
            Column("Formula", numeric=False),
        ),
        rows=tuple(rows),
        name=table.name,
        css="kv-dictionary",
    )


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the page."""
    yield page(inputs.site)


TYPE: Final = PageType("data", pages, files=changes.files)
