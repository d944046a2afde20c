"""The comparison: up to six models or accelerators next to each other, in the browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvreport.publish.site_data import SiteData
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.templating import Names, render
from kvreport.site.page_type import Inputs, PageType
from kvreport.site.pages.controls import Controls, engine_choices, kv_choices, layout_choices, weight_choices
from kvreport.site.pages.gpu import EXAMPLES

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
    }


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the comparison."""
    yield Page(
        uri="compare/",
        kind="tool",
        title="Compare models or GPUs",
        heading="Compare models or GPUs",
        names=("compare", "comparison"),
        description="Up to six models or accelerators on one boundary chart and in one table: capacity, memory, "
        "bandwidth, speed bound.",
        sections=(Section("comparison", "", render("compare/body.html", "compare/", context(inputs.site))),),
    )


TYPE: Final = PageType("compare", pages)
