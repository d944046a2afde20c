"""The front page: the question, and an answer computed when the site was built."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from kvreport import units
from kvreport.catalog.model import Model
from kvreport.publish.site_data import SiteData
from kvreport.site.kit.elements import Bar, Chart, Fact, Link
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.templating import render
from kvreport.site.page_type import Inputs, PageType, names_of
from kvreport.site.pages.model import page as model_page
from kvreport.site.pages.model.headline import plain

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
    Link("Learn", "learn/", "Fourteen chapters with predictions, instruments and quizzes."),
    Link("Questions", "questions/", "What people ask most, answered with the numbers."),
    Link("Evidence", "evidence/", "Predictions beside what engines printed."),
    Link("Data", "data/", "Every row as Parquet and CSV, every column described."),
)
"""Ways on from the front page; those whose page the site has."""


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


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the front page; its doors lead to the pages that the site has."""
    site = inputs.site
    model = _example(site)
    made = context(site, model, inputs.addresses)
    names = names_of(made) | {"drawing": inputs.drawing(made.chart)}
    yield Page(
        uri="",
        kind="home",
        title=TITLE,
        heading=TITLE,
        names=("how many users",),
        description=f"{model.name}: {plain(made.answer)} {len(site.models)} models on "
        f"{len(site.gpus)} accelerators, as an open dataset.",
        lead=render("home/lead.html", "", names),
        sections=(
            Section("boundary", "Where it stops fitting", render("home/boundary.html", "", names)),
            Section("here", "What is here", render("home/doors.html", "", names)),
        ),
    )


def context(site: SiteData, model: Model, known: Collection[str]) -> HomeContext:
    """Return the front page's context for an example model, with doors to the pages that are known."""
    best = site.headline[model.id]
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


def _example(site: SiteData) -> Model:
    for model_id in EXAMPLES:
        if site.headline.get(model_id) is not None:
            return site.catalogue.models[model_id]
    return next((model for model in site.models if site.headline[model.id] is not None), site.models[0])


TYPE: Final = PageType("home", pages)
