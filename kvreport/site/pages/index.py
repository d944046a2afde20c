"""The indexes: every model, every accelerator, with what a filter looks at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kvreport import units
from kvreport.accounting.weights import active_parameters, parameters
from kvreport.book.quantities import Quantities
from kvreport.catalog.load import RELEASED
from kvreport.catalog.model import Model
from kvreport.publish import counts
from kvreport.publish.attention_types import KINDS, attention_label, cache_kind
from kvreport.publish.series import Series
from kvreport.publish.site_data import SiteData, page_format
from kvreport.site.kit import charts, tables
from kvreport.site.kit.elements import Chart
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.site.kit.templating import Names, render
from kvreport.site.page_type import Inputs, PageType
from kvreport.site.pages.gpu_memory import advertised
from kvreport.site.pages.model.headline import HEADLINE_CONTEXT
from kvreport.words import MODEL_SIZES, counted

SHORT: Final = frozenset({"weights", "cache", "seqs", "may_fit", "limit"})
"""Why a model is not served where the engine supports it: memory, requests or context."""

INPUTS: Final = {"text": "Text only", "vision": "Vision", "audio": "Audio"}
"""What a model reads, in words."""


def size_class(model: Model) -> str:
    """Return the class of a model's size, by its parameters."""
    billions = parameters(model) / 10**9
    return next(label for label, least in reversed(MODEL_SIZES) if billions >= least)


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the index of models and the index of accelerators."""
    yield _index(
        inputs,
        "models/",
        "Models",
        models(inputs.site),
        "Models with their memory and capacity",
        names=("models", "model"),
    )
    yield _index(
        inputs,
        "gpus/",
        "GPUs and other accelerators",
        gpus(inputs.site),
        "GPUs and other accelerators with their memory",
        names=("GPUs", "GPU", "accelerators"),
    )


def requests(site: SiteData) -> Iterator[charts.ChartRequest]:
    """Yield the picture of all models."""
    yield landscape_request(site)


def _index(
    inputs: Inputs,
    uri: str,
    title: str,
    context: Names,
    description: str,
    *,
    names: tuple[str, ...],
) -> Page:
    given = {**context} | {
        "facet_values": facet_values(context),
        "index_help": "Part of a name, id or alias. All words must match.",
        "drawing": inputs.drawing(context["chart"]),
    }
    return Page(
        uri=uri,
        kind="index",
        title=title,
        heading=title,
        description=f"{description}. {context['headline']}",
        sections=(Section("all", "", render("index/body.html", uri, given)),),
        names=names,
        boost=3.0,
    )


def models(site: SiteData) -> Names:
    """Return the index of models."""
    gpu = site.known_gpus[0]
    name = site.gpu_name(gpu)
    rows = []
    stand_in = sum(page_format(model) != RELEASED for model in site.models)
    for model in sorted(site.models, key=lambda one: -_month(one.release)):
        here = site.serving(model, gpu)
        whole = one_device(site, model)
        long = _index_of_longest(model, whole)
        growth = whole.token_bytes[long] if whole and long is not None else None
        users = (
            tables.users_cell(here.users[here.at(HEADLINE_CONTEXT)], here.verdicts[here.at(HEADLINE_CONTEXT)])
            if here and HEADLINE_CONTEXT in here.contexts
            else Cell("not supported", "kv-no", value=0, hint=refusal)
            if (refusal := site.refusal(model))
            else tables.users_cell(0, "context_exceeds_model")
            if model.context_tokens < site.axes.contexts[0]
            else Cell(f"exceeds 8 × {name}", "kv-no", value=0, hint=f"does not fit on 8 × {name}")
            if (why := site.outcome(model, gpu).why).kind in SHORT
            else Cell("not supported", "kv-no", value=0, hint=why.group)
        )
        cells = (
            _count_cell(parameters(model)),
            _count_cell(active_parameters(model)),
            replace(
                size := tables.size_cell(whole.weight_bytes if whole else None, 1), value=_rough(size.value)
            ),
            token_cell(growth, _average_token(site, model) if growth == 0 else 0.0),
            Cell(units.human_tokens(model.context_tokens), "kv-num", value=model.context_tokens),
            Cell(
                str(here.config.tensor_parallel) if here else "–",
                "kv-num",
                value=here.config.tensor_parallel if here else 99,
            ),
            users,
            Cell(attention_label(cache_kind(model))),
            Cell(model.release or "–", value=_month(model.release)),
        )
        keys = (
            ("maker", model.maker),
            ("kind", cache_kind(model)),
            ("input", "|".join(model.inputs)),
            ("size", size_class(model)),
            ("year", model.release[:4] if model.release else "unknown"),
        )
        words = _search_words(model.name, model.id, *model.aliases, model.family, model.maker, *model.inputs)
        rows.append(
            Row(
                Cell(model.name, href=f"models/{model.slug}/", hint=model.maker),
                cells,
                anchor=model.slug,
                keys=keys,
                search=words,
            )
        )
    return {
        "headline": (
            f"{len(site.models)} models, newest first: memory for the weights, KV cache per token, and concurrent requests of 8K tokens "
            f"on the fewest {name}s that serve the model."
        ),
        "table": Table(
            caption=f"Weights are as released{_stand_in(stand_in)}. Requests are concurrent requests of 8K tokens each on the fewest "
            f"{name}s that serve the model, with {site.engine.label}. KV per token is what one more token adds at full context. Where "
            "windows or recurrent states stop that growth, it is the cache of a full-context request divided by the number of tokens",
            head=Column("Model", numeric=False),
            columns=(
                Column("Parameters"),
                Column("Active", hint="Parameters that one token reads"),
                Column("Weights", "GiB"),
                Column(
                    "KV per token",
                    "KiB",
                    hint="KV cache of one more token at full context, on one device; where it stops growing, the average of a full context",
                ),
                Column("Context", "tokens"),
                Column(f"{name}s", hint=f"The fewest {name}s that serve the model"),
                Column("Requests", "at 8K"),
                Column("Attention type", numeric=False),
                Column("Released", numeric=False),
            ),
            rows=tuple(rows),
            name="models-table",
            css="kv-index",
            sortable=True,
            dense=True,
            noun="models",
        ),
        "facets": (
            ("size", "Parameters"),
            ("kind", "Attention type"),
            ("input", "Input"),
            ("maker", "Maker"),
            ("year", "Released"),
        ),
        "noun": "model|models",
        "example": "llama 70b",
        "chart": landscape(site),
    }


def _stand_in(number: int) -> str:
    """What the table says of models whose rows are of another format than the stored one, which nobody has read."""
    if not number:
        return ""
    models = counted(number, "model|models")
    return f"; for {models} with unverified storage formats, they are in the format that the name of the model suggests"


def one_device(site: SiteData, model: Model) -> Series | None:
    """Return the released model on one device, whichever; its weights and its cache are the same on all."""
    return site.capacities[model.id].single


def _average_token(site: SiteData, model: Model) -> float:
    """Bytes of a request of full context, states included, for each of its tokens."""
    return Quantities(site.catalog).kv_request(model.id, tokens=model.context_tokens) / model.context_tokens


def token_cell(growth: int | None, average: float) -> Cell:
    """One more token at full context; where the cache has stopped to grow there, what a token of a whole request costs."""
    if growth is None:
        return Cell("–", "kv-num", value=-1, hint="unknown")
    size_bytes = growth or average
    return Cell(_kib(size_bytes) if size_bytes else "no cache", "kv-num", value=_rough(size_bytes))


def _count_cell(count: int) -> Cell:
    return Cell(units.human_parameters(count), "kv-num", value=_rough(count))


def _rough(value: float | None) -> int | float | None:
    """A number to sort by, to four digits: the page has five hundred rows, and exact figures do not compress."""
    return None if value is None else int(float(f"{value:.4g}"))


def landscape_request(site: SiteData) -> charts.ChartRequest:
    """Return the request of the picture of all models."""
    marks = []
    for model in site.models:
        one = one_device(site, model)
        long = _index_of_longest(model, one)
        if one and long is not None and one.token_bytes[long] > 0:
            marks.append(
                charts.Mark(
                    model.name,
                    round(one.weight_bytes / units.GIB, 3),
                    one.token_bytes[long] / 1024,
                    attention_label(cache_kind(model)),
                )
            )
    labels = tuple(attention_label(kind) for kind in KINDS)
    kinds = tuple(label for label in labels if any(mark.kind == label for mark in marks))
    return charts.ChartRequest("landscape", charts.Landscape(tuple(marks), kinds))


def landscape(site: SiteData) -> Chart:
    """Return the picture of all models; its data is the index's own table."""
    request = landscape_request(site)
    assert isinstance(request.data, charts.Landscape)  # noqa: S101 (made one line above)
    return Chart(
        id="landscape-chart",
        title="Memory for the weights and KV cache of one more token, one point per model",
        digest=request.digest,
        legend=tuple((number, kind) for number, kind in enumerate(request.data.kinds, start=1)),
        notes=(),
        caption="The KV cache per token is what one more token adds at each model's full context. "
        "Both axes are logarithmic. Models whose cache does not grow with the context are not shown.",
        table=Table("", Column(""), (), ()),
        points=True,
        finding=finding(request.data),
    )


SAME_SIZE: Final = 1.05
"""Weights that differ by less count as of one size."""
FAR_APART: Final = 2.0
"""Least factor between caches of one size that is a finding."""


def finding(data: charts.Landscape) -> str:
    """Return the two models of one size whose caches differ most, in a sentence; "" where none differ much."""
    marks = sorted(data.marks, key=lambda mark: mark.weights_gib)
    pairs = (
        sorted((one, other), key=lambda mark: mark.token_kib)
        for place, one in enumerate(marks)
        for other in marks[place + 1 :]
        if other.weights_gib <= one.weights_gib * SAME_SIZE
    )
    small, large = max(pairs, key=lambda pair: pair[1].token_kib / pair[0].token_kib, default=(None, None))
    if small is None or large is None:
        return ""
    factor = large.token_kib / small.token_kib
    if factor < FAR_APART:
        return ""
    return (
        f"{large.name} and {small.name} have weights of the same size ({large.weights_gib:,.0f} GiB), "
        f"but a token of {large.name} takes {factor:,.0f} times as much KV cache in the models' default formats"
    )


def gpus(site: SiteData) -> Names:
    """Return the index of accelerators."""
    rows = []
    most, context = max(site.catalog.grid.tensor_parallel), units.human_tokens(site.counted_context)
    for gpu in site.gpus:
        alone, node = (len(counts.served(site, gpu.id, site.counted_context, number)) for number in (1, most))
        bandwidth = gpu.bandwidth_bytes_per_s
        rate = gpu.rates.bf16
        cells = (
            Cell(advertised(gpu), "kv-num", value=gpu.memory.advertised.value),
            tables.size_cell(gpu.usable_bytes),
            Cell(gpu.memory.usable.evidence),
            Cell(
                f"{bandwidth.value / 10**12:,.2f}" if bandwidth else "–",
                "kv-num",
                value=bandwidth.value if bandwidth else -1,
            ),
            Cell(f"{rate.value / 10**12:,.0f}" if rate else "–", "kv-num", value=rate.value if rate else -1),
            tables.count_cell(alone),
            tables.count_cell(node),
            Cell(gpu.architecture),
            Cell(gpu.release or "–", value=_month(gpu.release)),
        )
        keys = (
            ("vendor", gpu.vendor),
            ("architecture", gpu.architecture),
            ("memory", gpu.memory_type or "unknown"),
            ("evidence", gpu.memory.usable.evidence),
        )
        words = _search_words(gpu.name, gpu.id, *gpu.aliases, gpu.vendor)
        rows.append(
            Row(
                Cell(gpu.name, href=f"gpus/{gpu.id}/", hint=gpu.vendor),
                cells,
                anchor=gpu.id,
                keys=keys,
                search=words,
            )
        )
    return {
        "headline": (
            f"{len(site.gpus)} accelerators: installed and usable memory, bandwidth, and how many of "
            f"{len(site.models)} models each can serve in the weight format of the release, at {context} tokens per request."
        ),
        "table": Table(
            caption="Each row is one device as software sees it. Devices with the same memory can differ in the number of models, "
            "because the engine's default step is larger on some of them and reserves more memory",
            head=Column("Accelerator", numeric=False),
            columns=(
                Column("Installed", hint="Memory as advertised"),
                Column("Usable", "GiB", hint="Memory that a process can use"),
                Column("Evidence", numeric=False, hint="Evidence for the usable memory"),
                Column("Bandwidth", "TB/s"),
                Column("16-bit", "TFLOP/s"),
                Column(
                    "Models",
                    "on one",
                    hint=f"As released, one request of {context} tokens; on Macs, with the engine that their pages use",
                ),
                Column("Models", f"on up to {most}", hint=f"As released, one request of {context} tokens"),
                Column("Architecture", numeric=False),
                Column("Released", numeric=False),
            ),
            rows=tuple(rows),
            name="gpus-table",
            css="kv-index",
            sortable=True,
            noun="accelerators",
        ),
        "facets": (
            ("vendor", "Maker"),
            ("memory", "Memory type"),
            ("architecture", "Architecture"),
            ("evidence", "Evidence for usable memory"),
        ),
        "noun": "accelerator|accelerators",
        "example": "h100",
        "chart": None,
    }


def facet_values(context: Names) -> tuple[tuple[str, str, tuple[tuple[str, str, int], ...]], ...]:
    """Return each facet as (key, label, ((value, value in words, count), …)).

    Sizes rise, years fall, and of everything else the most frequent comes first; what is not known
    comes last.
    """
    rising = {label: place for place, (label, _) in enumerate(MODEL_SIZES)}

    def place(key: str, value: str, count: int) -> tuple[bool, int, str]:
        order = {"size": rising.get(value, 0), "year": -int(value) if value.isdigit() else 0}
        return value == "unknown", order.get(key, -count), value

    found = []
    for key, label in context["facets"]:
        said = (dict(row.keys).get(key, "") for row in context["table"].rows)
        counts = Counter(value for values in said for value in values.split("|"))
        values = sorted(counts.items(), key=lambda item: place(key, *item))
        labels = {"kind": attention_label, "input": INPUTS.__getitem__}
        named = tuple((value, labels.get(key, str)(value), n) for value, n in values)
        found.append((key, label, named))
    return tuple(found)


def _index_of_longest(model: Model, one: Series | None) -> int | None:
    if one is None:
        return None
    inside = [n for n, c in enumerate(one.contexts) if c <= model.context_tokens]
    return inside[-1] if inside else 0


def _kib(size_bytes: float) -> str:
    value = size_bytes / 1024
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def _search_words(*names: str) -> str:
    """Return the words of some names, each once; a word that is inside another finds it, too."""
    words = sorted(
        {word for name in names for word in name.lower().split()}, key=lambda word: (-len(word), word)
    )
    kept: list[str] = []
    for word in words:
        if not any(word in longer for longer in kept):
            kept.append(word)
    return " ".join(kept)


def _month(release: str | None) -> int:
    return int(release.replace("-", "").ljust(6, "0")) if release else 0


TYPE: Final = PageType("index", pages, requests=requests)
