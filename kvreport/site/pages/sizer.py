"""The sizer: from a workload to deployments, live in the browser, and one answer without it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kvreport import units
from kvreport.catalog.load import RELEASED
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.estimation.size import Sizing, size
from kvreport.publish.profiles import FOLDER
from kvreport.publish.site_data import SiteData
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.site.kit.templating import render
from kvreport.site.page_type import Inputs, PageType
from kvreport.words import LIMITS

URI: Final = "sizer/"
TITLE: Final = "Which GPUs, how many, with which flags"
EXAMPLES: Final = ("meta-llama/Llama-3.1-70B-Instruct", "meta-llama/Llama-3.1-8B-Instruct")
"""Models that the page starts with, where the catalogue has them; else its first one."""

LONGEST_EXAMPLE: Final = 8192


@dataclass(frozen=True, slots=True)
class Preset:
    """A workload to start from.

    Attributes:
        name: What it is called.
        values: ``field=value`` for each field of the form that it fills; it empties the others.
    """

    name: str
    values: tuple[str, ...]


PRESETS: Final = (
    Preset(
        "chat",
        ("context=8K", "prompt=1500", "output=400", "prefix=500", "users=500", "rate=0.5", "latency=15",
         "burst=2", "spares=1", "ttft=1000", "tpot=50"),
    ),
    Preset(
        "RAG",
        ("context=16K", "prompt=6000", "output=500", "prefix=800", "concurrent=64", "burst=1.5", "spares=1",
         "ttft=2000", "tpot=50"),
    ),
    Preset(
        "coding agent",
        ("context=128K", "prompt=40000", "output=2000", "prefix=12000", "concurrent=20", "burst=2", "spares=1",
         "ttft=10000", "tpot=30"),
    ),
    Preset(
        "long document",
        ("context=128K", "prompt=100000", "output=2000", "concurrent=4", "burst=1", "spares=0", "ttft=60000"),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SizerContext:
    """What the sizer's template is given.

    Attributes:
        folder: Address of the machine-readable files.
        models: (slug, name) of every model.
        model: Slug of the model to start with.
        gpus: (slug, name) of every accelerator.
        weights: (value, label) of the weight formats; values are names joined by commas.
        presets: Workloads to start from.
        example: One ranking, for readers without JavaScript.
        command: The command that answers the example.
    """

    folder: str
    models: tuple[tuple[str, str], ...]
    model: str
    gpus: tuple[tuple[str, str], ...]
    weights: tuple[tuple[str, str], ...]
    presets: tuple[Preset, ...]
    example: Table
    command: str


def page(site: SiteData) -> Page:
    """Return the page."""
    return Page(
        uri=URI,
        kind="tool",
        title=TITLE,
        heading=TITLE,
        names=("sizer", "size a deployment", "capacity planning", "how many GPUs"),
        description="From users, lengths and time targets to accelerators, replicas, formats and flags, ranked; "
        "computed in the browser from the published data.",
        sections=(Section("sizer", "", render("sizer/body.html", URI, context(site))),),
    )


def context(site: SiteData) -> SizerContext:
    """Return what the template is given."""
    model = _example(site)
    longest = min(LONGEST_EXAMPLE, model.context_tokens)
    formats = [(name, form.label if form else "as released") for name, form in site.axes.weight_formats]
    formats.sort(key=lambda pair: pair[0] != RELEASED)
    return SizerContext(
        folder=f"{FOLDER}/",
        models=tuple((m.slug, m.name) for m in site.models),
        model=model.slug,
        gpus=tuple((g.id, g.name) for g in site.gpus),
        weights=(*formats, (",".join(name for name, _ in formats), "any of them")),
        presets=PRESETS,
        example=_table(site, model, longest),
        command=f"kvreport size {model.id} --concurrent 64 --context {longest} --burst 1.5 --spares 1",
    )


def _example(site: SiteData) -> Model:
    known = {model.id: model for model in site.models}
    return next((known[name] for name in EXAMPLES if name in known), site.models[0])


def _table(site: SiteData, model: Model, longest: int) -> Table:
    caption = (
        f"64 requests of {units.count(longest)} tokens on {model.name}, bursts of 1.5, one spare replica"
    )
    columns = (
        Column("GPUs"),
        Column("replicas × size"),
        Column("users each"),
        Column("memory in all", "GiB"),
        Column("what binds", numeric=False),
    )
    try:
        found = size(
            model.id,
            context=longest,
            concurrent=64,
            burst=1.5,
            spare_replicas=1,
            gpus=() if len(site.gpus) == len(site.catalogue.accelerators) else [g.id for g in site.gpus],
            layouts=(),
            catalog=site.catalogue,
        )
    except InputError as error:
        return Table(f"{caption}: {error}", Column("accelerator", numeric=False), (), ())
    return Table(caption, Column("accelerator", numeric=False), columns, tuple(_rows(site, found)))


def _rows(site: SiteData, found: Sizing) -> list[Row]:
    rows = []
    for one in found.ranking.best_of_each()[:10]:
        cells = (
            Cell(units.count(one.devices), "kv-num", one.devices),
            Cell(f"{one.replicas[-1]} × {one.layout.devices}", "kv-num"),
            Cell(units.count(one.users_each), "kv-num", one.users_each),
            Cell(units.gib(one.memory_bytes, 0), "kv-num kv-size", one.memory_bytes),
            Cell(LIMITS[one.binds]),
        )
        gpu = one.offer.accelerator
        rows.append(Row(Cell(site.gpu_name(gpu.id), href=f"gpus/{gpu.id}/"), cells))
    return rows


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the page."""
    yield page(inputs.site)


TYPE: Final = PageType("sizer", pages)
