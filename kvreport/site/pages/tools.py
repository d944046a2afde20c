"""Pages whose work is done in the browser: explore and compare."""

from __future__ import annotations

from collections.abc import Iterator

from kvreport import units
from kvreport.publish.site_data import SiteData
from kvreport.site.kit import tables
from kvreport.site.kit.contexts import ToolContext
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.site.kit.templating import render
from kvreport.site.pages.gpu import EXAMPLES

DATA = "downloads/v1/site.json"


def pages(site: SiteData) -> Iterator[Page]:
    """Yield the explorer and the comparison."""
    made = context(site)
    yield Page(
        uri="explore/",
        kind="tool",
        title="Explore the whole matrix",
        heading="Explore the whole matrix",
        names=("explore", "explorer", "matrix", "filter"),
        description="Every model, accelerator, size, weight format, KV format and context: filter, sort, download.",
        sections=(Section("matrix", "", render("explore/body.html", "explore/", made)),),
    )
    yield Page(
        uri="compare/",
        kind="tool",
        title="Compare models or GPUs",
        heading="Compare models or GPUs",
        names=("compare", "comparison"),
        description="Two to four models or accelerators on one boundary chart and in one table.",
        sections=(Section("comparison", "", render("compare/body.html", "compare/", made)),),
    )


def context(site: SiteData) -> ToolContext:
    """Return what both pages are given."""
    return ToolContext(
        data_url=DATA,
        models=tuple((m.slug, m.name) for m in site.models),
        gpus=tuple((g.id, g.name) for g in site.gpus),
        contexts=tuple((n, units.human_tokens(n)) for n in site.contexts),
        example=_example(site),
        example_href=f"gpus/{site.known_gpus[0]}/#users",
        usual=tuple(site.catalogue.models[m].slug for m in EXAMPLES if m in site.released),
        engine=site.engine.label,
    )


def _example(site: SiteData) -> Table:
    """A few models on one of the best-known accelerator; the accelerator's own page has them all."""
    gpu = site.known_gpus[0]
    rows = []
    for model in [m for m in site.models if m.id in EXAMPLES] or site.models[:10]:
        one = next((s for s in site.on(model, gpu) if s.config.tensor_parallel == 1), None)
        if one is None:
            continue
        cells = tables.user_cells(one.users, one.verdicts)
        rows.append(Row(Cell(model.name, href=f"models/{model.slug}/"), cells))
    return Table(
        caption=f"Users on one {site.gpu_name(gpu)}, by context",
        head=Column("model", numeric=False),
        columns=tables.context_columns(site.contexts),
        rows=tuple(rows),
        css="kv-grid",
        dense=True,
    )
