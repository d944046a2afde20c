"""The front page: the question, and an answer computed when the site was built."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import Final

from kvreport import units
from kvreport.catalog.model import Model
from kvreport.publish.series import Series
from kvreport.publish.site_data import SiteData
from kvreport.site.kit.contexts import Fact, HomeContext, Link
from kvreport.site.kit.drawing import Drawing
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.templating import render
from kvreport.site.pages import model as model_page

EXAMPLES: Final = ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B")
"""The example of the front page, where the catalogue has it; else the first model that is served."""

TITLE: Final = "How many users fit?"
DOORS: Final = (
    Link("Models", "models/", "One page each: users, boundary, arithmetic, sources."),
    Link("GPUs", "gpus/", "What the label says, what a process finds, what it serves."),
    Link("Explore", "explore/", "The whole matrix: filter, sort, take it along as CSV."),
    Link("Compare", "compare/", "Two to four models or accelerators, side by side."),
    Link("Sizer", "sizer/", "From users and time targets to GPUs, replicas and flags."),
    Link("Log", "log/", "Paste a start-up log; each number is explained."),
    Link("Learn", "learn/", "Twelve short chapters, every number computed."),
    Link("Questions", "questions/", "What people ask most, answered with the numbers."),
    Link("Evidence", "evidence/", "Predictions beside what engines printed."),
    Link("Data", "data/", "Every row as Parquet and CSV, every column described."),
)
"""Ways on from the front page; those whose page the site has."""


def page(
    site: SiteData, best: dict[str, Series | None], drawings: dict[str, Drawing], known: Collection[str]
) -> Page:
    """Return the front page.

    Args:
        site: What every page may ask.
        best: The series of each model's headline, by model id.
        drawings: The charts, by digest.
        known: Addresses of the site's other pages.
    """
    model = _example(site, best)
    made = context(site, model, best[model.id], known)
    names = {field.name: getattr(made, field.name) for field in fields(made)}
    names["drawing"] = drawings[made.chart.digest] if made.chart else None
    return Page(
        uri="",
        kind="home",
        title=TITLE,
        heading=TITLE,
        names=("how many users",),
        description=f"{model.name}: {model_page.plain(made.answer)} {len(site.models)} models on "
        f"{len(site.gpus)} accelerators, as an open dataset.",
        lead=render("home/lead.html", "", names),
        sections=(
            Section("boundary", "Where it stops fitting", render("home/boundary.html", "", names)),
            Section("here", "What is here", render("home/doors.html", "", names)),
        ),
    )


def context(site: SiteData, model: Model, best: Series | None, known: Collection[str]) -> HomeContext:
    """Return the front page's context for an example model, with doors to the pages that are known."""
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
        doors=tuple(door for door in DOORS if door.href in known),
    )


def _example(site: SiteData, best: dict[str, Series | None]) -> Model:
    for model_id in EXAMPLES:
        if best.get(model_id) is not None:
            return site.catalogue.models[model_id]
    return next((model for model in site.models if best[model.id] is not None), site.models[0])
