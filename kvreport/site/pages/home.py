"""The front page: the question, and an answer computed when the site was built."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from kvreport import units
from kvreport.catalog.model import Model
from kvreport.publish.log_coverage import under
from kvreport.publish.site_data import SiteData
from kvreport.resources import read_table
from kvreport.site.kit import social_cards
from kvreport.site.kit.elements import KeyFigure, Link
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.social_cards import SocialCard
from kvreport.site.kit.templating import Names, render
from kvreport.site.page_type import Inputs, PageType
from kvreport.site.pages.controls import Controls, engine_choices, kv_choices, layout_choices, weight_choices
from kvreport.site.pages.model import boundary, model_page
from kvreport.site.pages.model.headline import plain

EXAMPLES: Final = ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B")
"""The example of the front page, where the catalog has it; else the first model that is served."""

TITLE: Final = "How many requests fit?"
MAC: Final = "I have a Mac"
DOORS: Final[tuple[Link, ...]] = tuple(Link(*one) for one in read_table("first ways"))
"""Where a reader starts from; those whose page the site has."""

REST: Final[tuple[Link, ...]] = tuple(Link(*one) for one in read_table("further ways"))
"""What else there is; those whose page the site has."""

LOCAL: Final = ("local/", "mac/", "home/")
"""Addresses of a page for local machines, where the site has one."""


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the front page; its doors lead to the pages that the site has."""
    site = inputs.site
    model = example(site)
    made = context(site, model, inputs.addresses)
    names = made
    yield Page(
        uri="",
        kind="home",
        title=TITLE,
        heading=TITLE,
        names=("how many users", "memory calculator"),
        description=f"{plain(made['answer'])} {len(site.models)} models on "
        f"{len(site.gpus)} accelerators, as an open dataset.",
        lead=render("home/lead.html", "", names | under(site.catalog, site.engine)),
        sections=(
            Section("boundary", "Capacity by context length", render("home/boundary.html", "", names)),
            Section("commands", "Commands, link and citation", render("home/commands.html", "", names)),
            Section("start", "Start from what you have", render("home/doors.html", "", names)),
            Section("here", "More on this site", render("home/here.html", "", names)),
        ),
    )


def context(site: SiteData, model: Model, known: Collection[str]) -> Names:
    """Return the front page's context for an example model, with doors to the pages that are known."""
    best = site.headline[model.id]
    gpu = best.config.gpu if best else site.gpus[0].id
    detail = model_page.context(site, model, best)
    return {
        "answer": detail["headline"],
        "model_slug": model.slug,
        "model_name": model.name,
        "gpu_slug": gpu,
        "gpu_name": site.catalog.accelerators[gpu].name,
        "conditions": detail["conditions"],
        "bar": detail["bar"],
        "chart": detail["chart"],
        "controls": Controls(
            page="home",
            start={"model": model.slug} | model_page.start_of(site, model, best),
            model=(model.slug, model.name),
            gpu=(gpu, site.catalog.accelerators[gpu].name),
            layouts=layout_choices(site),
            weights=weight_choices(site),
            kv=kv_choices(site),
            engines=engine_choices(site),
        ),
        "command": detail["command"],
        "estimate": detail["estimate"],
        "cite": detail["cite"],
        "facts": (
            KeyFigure("Models", units.count(len(site.models))),
            KeyFigure("GPUs and accelerators", units.count(len(site.gpus))),
            KeyFigure("Data release", site.release_label),
        ),
        "doors": tuple(_doors(known)),
        "rest": tuple(link for link in REST if link.href.partition("#")[0] in known),
    }


def _doors(known: Collection[str]) -> Iterator[Link]:
    local = next((address for address in LOCAL if address in known), None)
    for door in DOORS:
        href = local if local and door.text == MAC else door.href
        if href.partition("#")[0] in known:
            yield Link(door.text, href, door.note)


def example(site: SiteData) -> Model:
    """Return the model of the front page's example."""
    for model_id in EXAMPLES:
        if site.headline.get(model_id) is not None:
            return site.catalog.models[model_id]
    return next((model for model in site.models if site.headline[model.id] is not None), site.models[0])


def _card(site: SiteData) -> SocialCard | None:
    """The picture of a shared link to a page that has none of its own: what the site is, over the example's chart."""
    model = example(site)
    made = boundary.card(site, model, site.headline[model.id])
    said = f"Memory and capacity of {len(site.models)} models on {len(site.gpus)} accelerators"
    return made and replace(made, title=TITLE, conclusion=said)


def requests(site: SiteData) -> Iterator[SocialCard]:
    """Yield the picture of pages that have none of their own."""
    made = _card(site)
    if made:
        yield made


def assets(inputs: Inputs) -> Iterator[tuple[str, bytes]]:
    """Yield the same picture, drawn."""
    for made in requests(inputs.site):
        yield social_cards.SITE, inputs.drawings[made.digest].card


TYPE: Final = PageType("home", pages, requests=requests, assets=assets)
