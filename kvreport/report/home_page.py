"""The front page: the question, and an answer computed when the site was built."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from kvreport import units
from kvreport.catalog.model import Model
from kvreport.report import model_page
from kvreport.report.contexts import Fact, HomeContext, Link
from kvreport.report.drawing import Drawing
from kvreport.report.page import Page, Section
from kvreport.report.rows import Series
from kvreport.report.site import SiteData
from kvreport.report.templating import render

EXAMPLES: Final = ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B")
"""The example of the front page, where the catalogue has it; else the first model that is served."""

TITLE: Final = "How many users fit?"
DOORS: Final = (
    Link(
        "Models", "models/", "One page each: users by accelerator and context, the boundary, the arithmetic."
    ),
    Link("GPUs", "gpus/", "What the label says, what a process finds, which models it serves."),
    Link("Sizer", "sizer/", "From users, lengths and time targets to GPUs, replicas and flags."),
    Link("Log", "log/", "Paste a start-up log: every number explained, and what to change."),
    Link("Explore", "explore/", "The whole matrix, every axis a facet, the result as CSV."),
    Link("Compare", "compare/", "Two to four models or accelerators on one boundary chart."),
    Link("Data", "data/", "Every row as Parquet and CSV, a dictionary of every column, checksums."),
)


def page(site: SiteData, best: dict[str, Series | None], drawings: dict[str, Drawing]) -> Page:
    """Return the front page."""
    model = _example(site, best)
    made = context(site, model, best[model.id])
    names = {field.name: getattr(made, field.name) for field in fields(made)}
    names["drawing"] = drawings[made.chart.digest] if made.chart else None
    return Page(
        uri="",
        kind="home",
        title=TITLE,
        heading=TITLE,
        description=f"{model.name}: {model_page.plain(made.answer)} {len(site.models)} models on "
        f"{len(site.gpus)} accelerators, as an open dataset.",
        lead=render("home_lead.html", "", names),
        sections=(
            Section("boundary", "Where it stops fitting", render("home_boundary.html", "", names)),
            Section("here", "What is here", render("home_doors.html", "", names)),
        ),
    )


def context(site: SiteData, model: Model, best: Series | None) -> HomeContext:
    """Return the front page's context for an example model."""
    gpu = best.config.gpu if best else site.gpus[0].id
    detail = model_page.context(site, model, best)
    return HomeContext(
        answer=((f"{model.name}: ", False), *detail.headline),
        model_slug=model.slug,
        model_name=model.name,
        gpu_slug=gpu,
        gpu_name=site.catalogue.accelerators[gpu].name,
        conditions=detail.conditions,
        bar=detail.bar,
        chart=detail.chart,
        models=tuple((m.slug, m.name) for m in site.models),
        gpus=tuple((g.id, g.name) for g in site.gpus),
        contexts=tuple((n, units.human_tokens(n)) for n in site.contexts),
        facts=(
            Fact("models", units.count(len(site.models))),
            Fact("accelerators", units.count(len(site.gpus))),
            Fact("data release", site.version),
        ),
        doors=DOORS,
    )


def _example(site: SiteData, best: dict[str, Series | None]) -> Model:
    for model_id in EXAMPLES:
        if best.get(model_id) is not None:
            return site.catalogue.models[model_id]
    return next((model for model in site.models if best[model.id] is not None), site.models[0])
