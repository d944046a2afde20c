"""The sizer: from a workload to deployments, live in the browser, and one answer without it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kvreport import units
from kvreport.accounting.parallel import Layout
from kvreport.catalog.load import RELEASED
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.estimation.size import size
from kvreport.publish.layout_names import ways
from kvreport.publish.profiles import FOLDER, engines
from kvreport.publish.site_data import SiteData
from kvreport.resources import data_dir, read_table
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.tables import Cell, Column, Table, listing, numbers, size_cell, texts
from kvreport.site.kit.templating import Names, render
from kvreport.site.page_type import Inputs, PageType
from kvreport.site.pages import machines_at_home
from kvreport.words import LIMITS, WAYS

URI: Final = "sizer/"
POOLS: Final = "questions/prefill-decode-ratio/"
"""Where prefill and decode on separate GPUs are explained."""
TITLE: Final = "Size a deployment"
EXAMPLES: Final = ("meta-llama/Llama-3.1-70B-Instruct", "meta-llama/Llama-3.1-8B-Instruct")
"""Models that the page starts with, where the catalog has them; else its first one."""

LONGEST_EXAMPLE: Final = 8192


@dataclass(frozen=True, slots=True)
class Preset:
    """A workload to start from.

    Attributes:
        values: ``field=value`` for each field of the form that it fills; it empties the others.
    """

    name: str
    values: tuple[str, ...]


PRESETS: Final = tuple(Preset(name, tuple(values)) for name, values in read_table("sizer presets").items())


@dataclass(frozen=True, slots=True)
class Field:
    """A field to type into.

    Attributes:
        help: What it means, its default and an example.
        setting: What the engine's flag for it sets, or "".
    """

    name: str
    label: str
    help: str
    value: str = ""
    mode: str = "decimal"
    setting: str = ""


FIELDS: Final = tuple(Field(**one) for one in read_table("sizer fields"))
"""The fields, those of the short form first the advanced ones after them."""
_START: Final = {field.name: field.value for field in FIELDS}


def page(site: SiteData, addresses: frozenset[str] = frozenset()) -> Page:
    """Return the page."""
    pools = POOLS if POOLS in addresses else ""
    return Page(
        uri=URI,
        kind="tool",
        title=TITLE,
        heading=TITLE,
        names=("sizer", "size a deployment", "capacity planning", "how many GPUs"),
        description="From people, lengths and latency targets to GPUs, replicas, layouts and commands, ranked in "
        "your browser.",
        sections=(Section("sizer", "", render("sizer/body.html", URI, {**context(site), "pools": pools})),),
    )


def context(site: SiteData) -> Names:
    """Return what the template is given."""
    model = _example(site)
    longest = min(LONGEST_EXAMPLE, model.context_tokens)
    formats = [(name, form.label if form else "As released") for name, form in site.axes.weight_formats]
    formats.sort(key=lambda pair: pair[0] != RELEASED)
    return {
        "folder": f"{FOLDER}/",
        "model": (model.slug, model.name),
        "fields": FIELDS,
        "layouts": json.dumps(
            {layout.label: _words(layout) for layout in _layouts(site)}, ensure_ascii=False
        ),
        "weights": (*formats, (",".join(name for name, _ in formats), "Any of these")),
        "engines": tuple(
            (one["name"], one["label"])
            for one in engines(site)
            if site.catalog.engine(one["name"]).family != "ceiling"
        ),
        "presets": PRESETS,
        "local": machines_at_home.URI if site.catalog.folder.resolve() == data_dir().resolve() else "",
        "example": _table(site, model, longest),
        "command": f"kvreport size {model.id} --concurrent {_START['concurrent']} --prompt {_START['prompt']} "
        f"--output {_START['output']} --context {longest} --burst {_START['burst']} --spares {_START['spares']}",
    }


def _layouts(site: SiteData) -> list[Layout]:
    return [*(Layout(tensor=size) for size in site.axes.tensor_parallel), *site.searched.layouts]


def _words(layout: Layout) -> str:
    """What divides the model in a layout; its GPUs stand next to it."""
    return WAYS["tp"].format(number=layout.tensor) if layout.is_tensor_only else ways(layout)


def _example(site: SiteData) -> Model:
    known = {model.id: model for model in site.models}
    return next((known[name] for name in EXAMPLES if name in known), site.models[0])


def _table(site: SiteData, model: Model, longest: int) -> Table:
    caption = (
        f"64 concurrent requests (96 at peak) to {model.name}: prompts of {units.count(float(_START['prompt']))} tokens, "
        f"answers of {_START['output']}, a maximum context of {units.count(longest)}, and one spare replica"
    )
    try:
        found = size(
            model.id,
            context=longest,
            prompt=_START["prompt"],
            output=_START["output"],
            concurrent=float(_START["concurrent"]),
            burst=float(_START["burst"]),
            spare_replicas=int(_START["spares"]),
            efficiency=float(_START["efficiency"]),
            gpus=() if len(site.gpus) == len(site.catalog.accelerators) else [g.id for g in site.gpus],
            layouts=None,
            catalog=site.catalog,
        )
    except InputError as error:
        return Table(f"{caption}: {error}", Column("GPU", numeric=False), (), ())
    return listing(
        caption,
        found.ranking.best_of_each()[:10],
        texts("GPU", lambda one: _gpu(site, one.offer.accelerator.id)),
        numbers("GPUs", lambda one: one.devices),
        numbers("Replicas × GPUs", lambda one: f"{one.replicas[-1]} × {one.layout.devices}"),
        texts("Layout", lambda one: _words(one.layout)),
        numbers("Requests per replica", lambda one: one.users_each),
        numbers("Memory", lambda one: size_cell(one.memory_bytes, 0), "GiB"),
        texts("Limited by", lambda one: LIMITS[one.binds]),
    )


def _gpu(site: SiteData, gpu: str) -> Cell:
    return Cell(site.gpu_name(gpu), href=f"gpus/{gpu}/")


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the page."""
    yield page(inputs.site, inputs.addresses)


TYPE: Final = PageType("sizer", pages)
