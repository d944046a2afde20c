"""The explorer: the whole matrix, filtered and sorted in the browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvreport import units
from kvreport.estimation.answer import REFUSED
from kvreport.publish import sql_runtime
from kvreport.publish.site_data import SiteData, devices
from kvreport.site.kit import tables
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.site.kit.templating import Names, render
from kvreport.site.page_type import Inputs, PageType
from kvreport.site.pages.gpu import EXAMPLES

DATA = "downloads/v1/site.json"
FEW = 4
"""Models of the table that stands there without scripts."""
START_TOKENS: Final = 8192
"""Context that the explorer starts with, where the grid has it."""


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the explorer."""
    yield Page(
        uri="explore/",
        kind="tool",
        title="Explore every configuration",
        heading="Explore every configuration",
        names=("explore", "explorer", "matrix", "filter", "which model fits"),
        description="Which models fit on which GPUs, for how many concurrent requests: filter, sort, download, query.",
        sections=(
            Section(
                "matrix",
                "",
                render("explore/body.html", "explore/", context(inputs.site, runs_sql=inputs.sql_bytes > 0)),
            ),
        ),
    )


def context(site: SiteData, *, runs_sql: bool = False) -> Names:
    """Return what the explorer and the comparison are given."""
    return {
        "data_url": DATA,
        "models": tuple((m.slug, m.name) for m in site.models),
        "gpus": tuple((g.id, g.name) for g in site.gpus),
        "contexts": tuple((n, units.human_tokens(n)) for n in site.contexts),
        "example": _example(site),
        "example_href": f"gpus/{site.known_gpus[0]}/#users",
        "usual": tuple(
            site.catalog.models[m].slug for m in EXAMPLES if m in site.capacities and site.capacities[m].runs
        ),
        "engine": site.engine.label,
        "sql": f"{sql_runtime.FOLDER}/" if runs_sql and site.downloads.size("capacity.parquet") else "",
        "start": start(site),
    }


def start(site: SiteData) -> Names:
    """Count the configurations of one well-known accelerator, each model as released, where the engine runs it."""
    gpu = site.known_gpus[0]
    context = START_TOKENS if START_TOKENS in site.contexts else site.contexts[0]
    known = [one.known for model, one in site.capacities.items() if site.catalog.models[model].release_known]
    series = [one for one in known if one is not None and one.verdicts[one.at(context)] not in REFUSED]
    return {
        "address": f"gpu={gpu}&context={context}&tp=1&weights=released&kv=own",
        "question": f"{devices(1, site.gpu_name(gpu))}, {units.human_tokens(context)} context, weights as released",
        "fit": sum(one.holds(one.at(context)) for one in series),
        "configurations": len(series),
    }


def _example(site: SiteData) -> Table:
    """A few models on one of the best-known accelerator; the accelerator's own page has them all."""
    gpu = site.known_gpus[0]
    rows = []
    for model in ([m for m in site.models if m.id in EXAMPLES] or list(site.models))[:FEW]:
        one = site.capacities[model.id].known
        if one is None:
            continue
        cells = tables.user_cells(one.users, one.verdicts)
        rows.append(Row(Cell(model.name, href=f"models/{model.slug}/"), cells))
    return Table(
        caption=f"Concurrent requests on one {site.gpu_name(gpu)}, by context",
        head=Column("Model", numeric=False),
        columns=tables.context_columns(site.contexts),
        rows=tuple(rows),
        css="kv-grid",
        dense=True,
    )


TYPE: Final = PageType("explore", pages)
