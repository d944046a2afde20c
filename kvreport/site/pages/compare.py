"""The comparison: up to six models or accelerators next to each other, in the browser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from kvreport import units
from kvreport.catalog.model import Model
from kvreport.publish.site_data import SiteData
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.tables import Cell, Column, Row, Table, users_cell
from kvreport.site.kit.templating import Names, render
from kvreport.site.page_type import Inputs, PageType
from kvreport.site.pages.controls import Controls, engine_choices, kv_choices, layout_choices, weight_choices
from kvreport.site.pages.gpu import EXAMPLES
from kvreport.words import counted

MOST: Final = 6
"""Things compared at once: a chart has six colors that can be told apart."""


def context(site: SiteData) -> Names:
    """Return the comparison's context: two models that people know, on the accelerator that they know best."""
    gpu = site.known_gpus[0]
    known = [site.catalog.models[name] for name in EXAMPLES if name in {model.id for model in site.models}]
    models = tuple(model.slug for model in (*known, *site.models))
    return {
        "controls": Controls(
            page="compare",
            start={},
            gpu=(gpu, site.catalog.accelerators[gpu].name),
            model=(models[0], next(model.name for model in site.models if model.slug == models[0])),
            layouts=layout_choices(site),
            weights=weight_choices(site),
            kv=kv_choices(site),
            engines=engine_choices(site),
        ),
        "models": tuple(dict.fromkeys(models))[:2],
        "gpu": gpu,
        "most": MOST,
        "printed": _printed(
            site, [model for model in known if model in site.models] or list(site.models[:2])
        ),
    }


def _printed(site: SiteData, models: Sequence[Model]) -> Table:
    """Return each model on the fewest of each known accelerator that serve it, at the context that pages count at."""
    place = site.contexts.index(site.counted_context)

    def cell(model: Model, gpu: str) -> Cell:
        one = site.serving(model, gpu)
        if one is None:
            return Cell(site.outcome(model, gpu).why.group, "kv-no kv-words")
        shown = users_cell(one.users[place], one.verdicts[place])
        number = one.config.tensor_parallel
        return replace(shown, text=f"{shown.text} ({counted(number, 'GPU|GPUs')})")

    return Table(
        f"Concurrent requests of {units.human_tokens(site.counted_context)} tokens, on the smallest number of GPUs that "
        f"serves the model (in parentheses). {site.engine.label}, weights as released.",
        Column("Model", numeric=False),
        tuple(Column(site.gpu_name(gpu)) for gpu in site.known_gpus),
        tuple(
            Row(
                Cell(model.name, href=f"models/{model.slug}/"),
                tuple(cell(model, gpu) for gpu in site.known_gpus),
            )
            for model in models
        ),
        css="kv-grid",
    )


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the comparison."""
    yield Page(
        uri="compare/",
        kind="tool",
        title="Compare models, GPUs or engines",
        heading="Compare models, GPUs or engines",
        names=("compare", "comparison", "compare engines", "vllm vs sglang"),
        description="Up to six models, accelerators or engines on one boundary chart and in one table: capacity, memory, "
        "bandwidth, maximum speed.",
        sections=(Section("comparison", "", render("compare/body.html", "compare/", context(inputs.site))),),
    )


TYPE: Final = PageType("compare", pages)
