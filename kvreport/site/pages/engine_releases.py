"""What each release of an engine changed: a section for each step, with every model whose requests it moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kvreport import units
from kvreport.catalog.release import is_before
from kvreport.estimation.difference import WORDS
from kvreport.publish import engine_changes
from kvreport.publish.site_data import SiteData
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.tables import Cell, Table, listing, numbers, texts
from kvreport.site.kit.templating import render
from kvreport.site.page_type import Inputs, PageType
from kvreport.words import counted

URI: Final = "data/engine-releases/"
ENGINES: Final = "about/engines/"
_TITLE: Final = "What each engine release changed"


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the page, where the catalog has rules of more than one release of an engine."""
    site = inputs.site
    every = [one for one in engine_changes.changes(site) if one["models"]]
    families = [*dict.fromkeys(one["family"] for one in every)]
    steps = [one for name in families for one in reversed(every) if one["family"] == name]
    makers = [next(one["engine"] for one in every if one["family"] == name).split()[0] for name in families]
    if not steps:
        return
    gpu = site.catalog.accelerator(steps[0]["gpu"]).name
    yield Page(
        uri=URI,
        kind="tool",
        title=_TITLE,
        heading=_TITLE,
        description=f"{' and '.join(makers)}, release by release: for which models the cache holds more or fewer requests of "
        f"{units.human_tokens(engine_changes.CONTEXT)} tokens, and which part of the memory changed.",
        lead=render(
            "engine_releases/lead.html",
            URI,
            {"gpu": gpu, "newest": _sentence(steps[0]), "engines": ENGINES in inputs.addresses},
        ),
        sections=tuple(
            Section(
                one["to"],
                one["engine"],
                render("engine_releases/step.html", URI, _step(site, one)),
            )
            for one in steps
        ),
        names=("release notes", "upgrade", "changelog of the engine"),
    )


def _step(site: SiteData, step: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the names of a section: its table, and the rules that changed in its range of releases."""
    first, after = site.catalog.engine(step["to"]).versions or (step["version"], None)
    rules = [
        one
        for one in engine_changes.rule_changes(site.catalog.folder, step["family"])
        if not is_before(one[0], first) and (after is None or is_before(one[0], after))
    ]
    return {"table": _table(site, step), "late": True, "rules": rules}


def _sentence(step: Mapping[str, Any]) -> str:
    """For how many models the cache holds fewer and more requests after a step."""
    fewer = sum(one["new"] < one["old"] for one in step["models"])
    more = len(step["models"]) - fewer
    said = [
        f"{noun} requests than before for {counted(number, 'model|models')}"
        for number, noun in ((fewer, "fewer"), (more, "more"))
        if number
    ]
    return f"{step['engine']}: the cache holds {' and '.join(said)}"


def _table(site: SiteData, step: Mapping[str, Any]) -> Table:
    def model(one: Mapping[str, Any]) -> Cell:
        found = site.catalog.model(one["model"])
        return Cell(found.name, href=f"models/{found.slug}/")

    def change(one: Mapping[str, Any]) -> Cell:
        share = one["new"] / one["old"] - 1
        return Cell(f"{100 * share:+,.1f}", value=share)

    return listing(
        f"{_sentence(step)}. Requests of {units.human_tokens(engine_changes.CONTEXT)} tokens in the cache of one GPU, before and after",
        step["models"],
        texts("Model", model),
        numbers("Before", lambda one: Cell(f"{one['old']:,.2f}", value=one["old"])),
        numbers("After", lambda one: Cell(f"{one['new']:,.2f}", value=one["new"])),
        numbers("Change", change, "%"),
        texts("Largest cause", lambda one: WORDS[one["cause"]] if one["cause"] else "unknown"),
        sortable=True,
        noun="models",
    )


TYPE: Final = PageType("engine_releases", pages)
