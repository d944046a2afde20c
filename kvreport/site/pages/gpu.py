"""An accelerator's page: which models it serves, for how many, and how much memory it really has."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Final

from kvreport import units
from kvreport.accounting.support_lookup import on_accelerator
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.load import RELEASED
from kvreport.catalog.model import Model
from kvreport.estimation import Estimate, estimate
from kvreport.publish import counts
from kvreport.publish.log_coverage import under
from kvreport.publish.series import Series
from kvreport.publish.site_data import SiteData
from kvreport.resources import read_table
from kvreport.site.kit import tables
from kvreport.site.kit.boundary_plot import Plot, PlotData, PlotLine
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.reason_groups import Member, ReasonGroup, grouped
from kvreport.site.kit.sources import evidence_cell, source_lines
from kvreport.site.kit.tables import Cell, Column, Row, Table, listing, numbers, texts
from kvreport.site.kit.templating import Names, render
from kvreport.site.page_type import Inputs, PageType
from kvreport.site.pages import agreement, machines_at_home
from kvreport.site.pages.controls import (
    Controls,
    engine_choices,
    kv_choices,
    layout_choices,
    weight_choices,
)
from kvreport.site.pages.gpu_memory import key_figures, memory_bar, memory_table, rates_table
from kvreport.site.pages.gpu_rows import FOLDER, Served, served
from kvreport.site.pages.model.headline import plain
from kvreport.words import CAPTIONS, SENTENCES, counted, pieces

EXAMPLES: Final[tuple[str, ...]] = tuple(read_table("charted models"))
"""Models that a GPU's chart shows where the catalog has them; up to six that it serves."""
ON_SLICES: Final = 24
"""Models whose requests on each slice a page lists."""


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield every accelerator's page."""
    rows = served(inputs.site)
    for gpu in inputs.site.gpus:
        yield page(inputs, gpu, rows)


def page(inputs: Inputs, gpu: Accelerator, rows: Served) -> Page:
    """Return an accelerator's page; ``rows`` are those of all models."""
    uri = f"{FOLDER}/{gpu.id}/"
    made = context(inputs.site, gpu, rows)
    at_home = machines_at_home.gpu_section(inputs, gpu)
    names = {**made} | {"local": f"local/{gpu.id}/" if at_home is not None else ""}

    def section(anchor: str, title: str, template: str, **more: object) -> Section:
        return Section(anchor, title, render(template, uri, names | more))

    return Page(
        uri=uri,
        kind="gpu",
        title=f"{gpu.name}: {plain(made['headline']).rstrip('.')}",
        heading=gpu.name,
        description=f"{gpu.name}: {plain(made['headline'])}",
        lead=render(
            "gpu/lead.html",
            uri,
            names
            | (
                {"confirmed": "", "expected": ""}
                if _refused(inputs.site, gpu)
                else under(inputs.site.catalog, inputs.site.local_engine(gpu) or inputs.site.engine, gpu)
            ),
        ),
        sections=(
            section("memory", "Memory: advertised and usable", "gpu/memory.html"),
            section("boundary", "Capacity by context length", "gpu/boundary.html"),
            section("users", "Capacity by model", "gpu/users.html"),
            section("largest", "The largest model that fits", "_only_table.html", table=made["largest"]),
            *(
                [section("slices", "Slices of the GPU (MIG)", "gpu/slices.html")]
                if made["slices"] is not None
                else []
            ),
            *([at_home] if at_home is not None else []),
            section("rates", "Bandwidth and peak rates", "_only_table.html", table=made["rates"]),
            section("sources", "Sources", "gpu/sources.html"),
        ),
        names=tuple(dict.fromkeys([gpu.id, *gpu.aliases])),
        boost=2.0,
        card=None,
    )


def context(site: SiteData, gpu: Accelerator, served_rows: Served) -> Names:
    """Return an accelerator's page; ``served_rows`` are those of all models."""
    grid, groups = _grid(site, gpu, served_rows)
    machine = site.local_engine(gpu)
    agreement.of_gpu(gpu, len(_alone(site, gpu)), grid)
    return {
        "slug": gpu.id,
        "headline": headline(site, gpu),
        "conditions": _conditions(site, gpu)
        + (f" Cloud instances with this accelerator: {', '.join(gpu.rented_as)}." if gpu.rented_as else ""),
        "facts": tuple(key_figures(gpu)),
        "bar": memory_bar(gpu),
        "memory": memory_table(gpu),
        "usable_note": gpu.memory.usable.note or "",
        "chart": boundary_plot(site, gpu),
        "grid": grid,
        "groups": groups,
        "controls": None
        if machine is not None
        else Controls(
            page="gpu",
            start={"gpu": gpu.id, "context": site.counted_context},
            layouts=layout_choices(site, further=False),
            weights=weight_choices(site),
            kv=kv_choices(site),
            engines=engine_choices(site),
            examples=tuple(site.catalog.models[one.config.model].slug for _, one, _ in _shown(site, gpu)),
        ),
        "largest": _largest(site, gpu),
        "slices": _slices(site, gpu) if gpu.slices else None,
        "on_slices": _on_slices(site, gpu) if gpu.slices else None,
        "slice": gpu.slices[0].name if gpu.slices else "",
        "rates": rates_table(gpu),
        "notes": gpu.notes,
        "sources": source_lines(gpu.sources),
        "estimate": f"kvreport estimate {example.id} --gpu {gpu.id}"
        + (
            f" --engine {(machine or site.engine).name}"
            if machine or gpu.id in site.catalog.local_first
            else ""
        )
        if (example := _example(site))
        else "",
        "cite": f"kvreport, {gpu.name}: memory and capacity, data release {site.version}. Data CC BY 4.0.",
    }


def _alone(site: SiteData, gpu: Accelerator) -> tuple[Model, ...]:
    """The models that a single one serves as released, at the context that sentences count at."""
    return counts.served(site, gpu.id, site.counted_context, 1)


def _refused(site: SiteData, gpu: Accelerator) -> bool:
    """Return whether no engine of the site runs on an accelerator, because the engine refuses it."""
    if site.local_engine(gpu) is not None:
        return False
    refused = on_accelerator(site.catalog.support, site.engine, gpu).verdict is not None
    return refused and not _alone(site, gpu)


def _conditions(site: SiteData, gpu: Accelerator) -> str:
    """Return under which engine the headline holds; why it is refused, where it is."""
    if not _refused(site, gpu):
        label = (site.local_engine(gpu) or site.engine).label
        told = [
            f"These numbers are computed for {label} with its defaults and weights as released, not measured."
        ]
        context, every = site.counted_context, len(site.models)
        if shorter := len(counts.below(site, context)):
            told.append(
                SENTENCES["gpu_below"].format(
                    context=units.human_tokens(context), number=units.count(shorter), all=units.count(every)
                )
            )
        if unread := len(counts.unread(site, gpu.id, context, 1)):
            told.append(SENTENCES["gpu_unread"].format(models=counted(unread, "model|models")))
        return " ".join(told)
    reason = on_accelerator(site.catalog.support, site.engine, gpu).reason.partition(": ")[2].rstrip(".")
    return f"{reason[:1].upper()}{reason[1:]}." if reason else ""


def headline(site: SiteData, gpu: Accelerator) -> tuple[tuple[str, bool], ...]:
    """Return the conclusion in one sentence, as (text, emphasised) pieces."""
    alone = _alone(site, gpu)
    if not alone and site.local_engine(gpu) is not None:
        return (
            (f"{units.gib(gpu.usable_bytes, 1)} GiB", True),
            (f" is usable. {site.engine.label} does not run on it, but ", False),
            ("llama.cpp, Ollama and MLX", True),
            (" do.", False),
        )
    refused = on_accelerator(site.catalog.support, site.engine, gpu)
    if _refused(site, gpu):
        return (
            (f"{units.gib(gpu.usable_bytes, 1)} GiB", True),
            (f" is usable. {refused.reason.partition(': ')[0]}.", False),
        )
    usable: list[tuple[str, bool]] = [
        (f"{units.gib(gpu.usable_bytes, 1)} GiB", True),
        (" is usable. ", False),
    ]
    told = [
        SENTENCES["gpu_serves"].format(
            devices="A single GPU",
            verb="serves",
            number=units.count(len(alone)),
            all=units.count(len(site.models)),
            form="as released",
            context=units.human_tokens(site.counted_context),
        )
    ]
    if alone:
        largest = counts.largest(site, alone)
        size = units.human_parameters(site.parameters[largest.id])
        told.append(SENTENCES["gpu_largest"].format(model=largest.name, parameters=size))
    return (*usable, *pieces(*told))


def boundary_plot(site: SiteData, gpu: Accelerator) -> Plot | None:
    """Return the boundary of a few models on this accelerator, or None if it serves none of them."""
    shown = _shown(site, gpu)
    if not shown:
        return None
    return Plot(
        id="boundary-chart",
        title=f"{gpu.name}: concurrent requests by context, one line per model",
        data=PlotData(lines=tuple(PlotLine(name, points) for name, _, points in shown)),
        table=Table(
            caption="The same data: concurrent requests by context per request (tokens)",
            head=Column("Model", numeric=False),
            columns=tables.context_columns(site.contexts),
            rows=tuple(
                Row(Cell(name), tables.user_cells(one.users, one.verdicts, one.short))
                for name, one, _ in shown
            ),
            css="kv-grid",
            dense=True,
        ),
    )


def _shown(site: SiteData, gpu: Accelerator) -> list[tuple[str, Series, tuple[tuple[int, int], ...]]]:
    wanted = [site.catalog.models[m] for m in EXAMPLES if m in site.catalog.models] or list(site.models[:6])
    shown = []
    for model in wanted:
        one = site.serving(model, gpu.id)
        if one is None or not one.line():
            continue
        number = one.config.tensor_parallel
        name = model.name if number == 1 else f"{model.name} ({number} GPUs)"
        shown.append((name, one, one.line()))
    return shown[:6]


def _grid(site: SiteData, gpu: Accelerator, served_rows: Served) -> tuple[Table, tuple[ReasonGroup, ...]]:
    """The models that it serves, newest first, and those that it does not, by reason."""
    rows = []
    groups: dict[str, list[Member]] = {}
    # The tables of this site leave these models out, whatever else runs on a machine.
    not_run = (
        f"Not in these tables, because {site.engine.label} does not run them"
        if site.local_engine(gpu) is not None
        else f"{site.engine.label} does not run the model"
    )
    for model in site.newest_first:
        row = served_rows[model.id].get(gpu.id)
        if row is not None:
            rows.append(row)
            continue
        refusal = site.refusal(model)
        why = site.outcome(model, gpu.id).why
        reason = not_run if refusal else why.group
        member = Member(f"of-{model.slug}", model.name, f"models/{model.slug}/", "" if refusal else why.note)
        groups.setdefault(reason, []).append(member)
    table = Table(
        caption=CAPTIONS["devices_released"].format(devices=CAPTIONS["fewest"]),
        head=Column("Model", numeric=False),
        columns=(Column("GPUs"), *tables.context_columns(site.contexts)),
        rows=tuple(rows),
        name="users-table",
        css="kv-grid",
        sortable=True,
        dense=True,
        noun="models",
    )
    return table, grouped(groups)


def _largest(site: SiteData, gpu: Accelerator) -> Table:
    """The largest model, by parameters, that one device serves, per weight format."""
    rows = []
    name = site.gpu_name(gpu.id)
    for (one_gpu, form), serving in site.on_one.items():
        if one_gpu != gpu.id:
            continue
        label = "As released" if form == RELEASED else site.catalog.weight_formats[form].label
        if not serving:
            rows.append(Row(Cell(label), why="No model in the catalog"))
            continue
        weight_bytes = dict(serving)
        model = counts.largest(site, tuple(site.catalog.models[name] for name in weight_bytes))
        cells = (
            Cell(model.name, href=f"models/{model.slug}/"),
            Cell(
                units.human_parameters(site.parameters[model.id]), "kv-num", value=site.parameters[model.id]
            ),
            tables.size_cell(weight_bytes[model.id]),
            tables.count_cell(len(serving)),
        )
        rows.append(Row(Cell(label), cells))
    return Table(
        caption=f"The model with the most parameters that one {name} serves at "
        f"{units.human_tokens(site.counted_context)} tokens, for each weight format",
        head=Column("Weight format", numeric=False),
        columns=(
            Column("Largest model", numeric=False),
            Column("Parameters"),
            Column("Weights", "GiB"),
            Column("Models served"),
        ),
        rows=tuple(rows),
        name="largest-table",
    )


def _slices(site: SiteData, gpu: Accelerator) -> Table:
    """Each slice with its memory and the largest model, by parameters, that it serves as released."""
    weights = dict(site.on_one.get((gpu.id, RELEASED), ()))
    by_size = sorted(weights, key=lambda name: (-site.parameters[name], name))

    @cache
    def largest(name: str) -> tuple[Model | None, int]:
        answers = (
            (site.catalog.models[model], _requests(site, model, f"{gpu.id}:{name}"))
            for model in by_size
            if weights[model] < gpu.sliced(name).usable_bytes
        )
        return next((answer for answer in answers if answer[1]), (None, 0))

    def linked(model: Model | None) -> Cell:
        return Cell("none") if model is None else Cell(model.name, href=f"models/{model.slug}/")

    return listing(
        f"MIG slices, by the names that --gpu accepts, with the largest model that each serves as released at "
        f"{units.human_tokens(site.counted_context)} tokens. Slices are not in the dataset.",
        gpu.slices,
        texts("Slice", lambda one: f"{gpu.id}:{one.name}"),
        numbers("Slices per GPU", lambda one: one.instances),
        numbers("Usable memory", lambda one: tables.size_cell(gpu.sliced(one.name).usable_bytes), "GiB"),
        texts("Evidence", lambda one: evidence_cell(gpu.sliced(one.name).memory.usable)),
        numbers("Compute", lambda one: Cell(f"{one.compute[0]}/{one.compute[1]}", value=one.compute[0])),
        texts("Largest model", lambda one: linked(largest(one.name)[0])),
        numbers("Requests", lambda one: largest(one.name)[1]),
        name="slices-table",
    )


def _on_slices(site: SiteData, gpu: Accelerator) -> Table:
    """The requests that models which many people run have on each slice; slices of the same memory share a column."""
    sizes: dict[int, list[str]] = {}
    for one in gpu.slices:
        sizes.setdefault(gpu.sliced(one.name).usable_bytes, []).append(one.name)
    weights = dict(site.on_one.get((gpu.id, RELEASED), ()))
    largest = max((size for size in sizes if size < gpu.usable_bytes), default=0)
    fitting = (model for model in site.models if weights.get(model.id, largest) < largest)
    often = sorted(fitting, key=lambda model: (model.id not in EXAMPLES, -site.copies[model.id], model.id))

    def requests(model: Model, name: str) -> Cell:
        found = _estimate(site, model.id, f"{gpu.id}:{name}")
        return tables.users_cell(found.max_concurrent_requests, found.verdict, found.shortfall_bytes)

    return listing(
        f"Concurrent requests of {units.human_tokens(site.counted_context)} tokens on one slice, for popular models, weights as released",
        sorted(often[:ON_SLICES], key=lambda model: (site.parameters[model.id], model.id)),
        texts("Model", lambda model: Cell(model.name, href=f"models/{model.slug}/")),
        *(numbers(", ".join(names), partial(requests, name=names[0])) for names in sizes.values()),
        name="on-slices-table",
        css="kv-grid",
    )


def _requests(site: SiteData, model: str, gpu: str) -> int:
    """Return how many requests one device serves, where the data set has no row for it."""
    return _estimate(site, model, gpu).max_concurrent_requests


def _estimate(site: SiteData, model: str, gpu: str) -> Estimate:
    context, engine = site.counted_context, site.engine.name
    return estimate(model, gpu=gpu, context_tokens=context, engine=engine, catalog=site.catalog)


def _example(site: SiteData) -> Model | None:
    known = [site.catalog.models[m] for m in EXAMPLES if m in site.catalog.models]
    return next(iter(known or site.models), None)


TYPE: Final = PageType(
    "gpu",
    pages,
)
