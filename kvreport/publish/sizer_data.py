"""What a browser needs, beside :mod:`kvreport.publish.profiles`, to size a deployment by itself.

Published under ``downloads/v1/``: ``peaks.json`` (rates and limits of every accelerator) and
``times/<slug>.json`` for each model (what a step demands). ``docs/assets/kv-sizing.js`` evaluates
them with the arithmetic of :mod:`kvreport.accounting.sizing`, ``ranking`` and ``roofline``; a test
holds its answers equal to Python's over many workloads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any

from kvreport.accounting.case import SINGLE
from kvreport.accounting.demand import Demand, demand
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.sglang.settings import (
    MANY_SENDERS,
    captured_sizes,
    image_factor,
    most_expanded,
    prefill_graphs,
)
from kvreport.accounting.parallel import SERVER_DEVICES, Layout
from kvreport.accounting.roofline import MULTIPLIES, Peaks
from kvreport.accounting.sizing import MAX_REQUESTS
from kvreport.book.instruments import reach_of
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.model import Model
from kvreport.catalog.release import trait
from kvreport.publish.device_columns import one_or_each, places
from kvreport.publish.profiles import FOLDER, SCHEMA, encode, shape
from kvreport.publish.site_data import SiteData


def every_model(site: SiteData, models: Sequence[Model] | None = None) -> list[dict[str, Any]]:
    """Return :func:`times_facts` of every model, which several files are made from."""
    lists = site.once("shape", lambda: shape(site))
    each = site.models if models is None else models
    return [facts for _, facts in site.parts.each("times", each, partial(times_facts, site), lists)]


def files(site: SiteData, everything: Sequence[dict[str, Any]]) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of every JSON file from what :func:`every_model` returns, byte-identical for the same catalog."""
    yield f"{FOLDER}/peaks.json", encode(peaks_facts(site))
    for model, facts in zip(site.models, everything, strict=True):
        yield f"{FOLDER}/times/{model.slug}.json", encode({"schema": SCHEMA, **facts})


def peaks_facts(site: SiteData) -> dict[str, Any]:
    """Return rates and limits by accelerator.

    ``gpus[id]``: ``bytes`` per second of memory, ``rates`` by operand type, ``link`` bytes per second
    in one direction (each null where not known), ``seqs`` (requests that the engine runs at once),
    ``node`` (devices of a server), ``taken`` (bytes that SGLang takes before it loads weights: of one device, of
    several, of data-parallel ones), ``captured`` (what decides its static fraction).
    """
    return {
        "schema": SCHEMA,
        "multiplies": list(MULTIPLIES),
        "gpus": {gpu.id: _device(site, gpu) for gpu in site.gpus},
    }


def times_facts(site: SiteData, model: Model) -> dict[str, Any]:
    """Return what a step demands, with a column for each of :func:`kvreport.publish.device_columns.places`.

    ``weights[format][column]`` is [dense bytes, expert bytes, {type: operations per token}, {type:
    operations of the output head}]; ``reach[kv][column]`` is a list of [bytes per entry, operations,
    operations while prefilling, cap (0: none, -1: nothing is seen), tokens per entry, chunked, constant entries].
    ``static`` is [bytes that SGLang keeps of its static memory, what is left of a share: a number, or one by kind], and what
    else decides what it keeps if it is told how many requests run.
    """
    grid = site.axes
    offered = set(site.searched.layouts_of(model))
    columns = [place.layout if place.layout in offered else None for place in places(site, further=True)]
    caches = grid.caches(model)
    forms = dict(grid.weight_formats)
    first, plain = caches[0], next(iter(forms))
    by_name = {one.name: one for one in caches}

    @cache
    def whole(form: str, stored: str, ranks: int) -> Demand:
        return demand(model, forms[form], grid.formats, by_name[stored], tensor_parallel=ranks)

    def asked(form: str, stored: KvFormat, layout: Layout) -> Demand:
        one = whole(form, stored.name, layout.tensor)
        return one.shared_by(layout.data).interleaved(layout.decode_context)

    any_layout = next(layout for layout in columns if layout is not None)
    return {
        "slug": model.slug,
        "experts": [model.experts.routed, model.experts.per_token] if model.experts else [0, 0],
        "reduced": asked(plain, first, any_layout).reduced_bytes_per_token,
        "state": [layout and asked(plain, first, layout).state_bytes_touched for layout in columns],
        "weights": {
            form: [layout and _weights(asked(form, first, layout)) for layout in columns] for form in forms
        },
        "reach": {
            one.name: [
                layout and [reach_of(reach) for reach in asked(plain, one, layout).reaches]
                for layout in columns
            ]
            for one in caches
        },
        "attention": {one.name: asked(plain, one, any_layout).attention_multiplies for one in caches},
        "static": _static(site, model),
    }


def _static(site: SiteData, model: Model) -> list[Any]:
    """What SGLang keeps of its static memory for images, and what its attention leaves of a share.

    The first, second, fourth and seventh are one number, or one for each kind of device. The second leaves all where the
    longest request is no longer than the third. The fourth is kept of a server that is told to run as many requests as the fifth,
    or more. The sixth is what serving images lowers the share by. The seventh are requests up to which graphs are captured for
    all that are told. The eighth are MiB kept for graphs of prefill by the tokens of a chunk: one number, or one for each column
    of :func:`kvreport.publish.device_columns.places`.
    """
    engine = site.catalog.engines.get("sglang")
    if engine is None:
        return [0, 1, 0, 0, 0, 1, 0, {}]
    kinds = site.device_kinds
    examples = {kinds[gpu.id]: gpu for gpu in reversed(site.gpus)}
    ordered = [gpu for _, gpu in sorted(examples.items())]
    static = [one for gpu in ordered if (one := rules(engine).static_memory(gpu, SINGLE)) is not None]
    layouts = [place.layout for place in places(site, further=True)]
    chunks = sorted({captured_sizes(engine, gpu)[1] for gpu in site.gpus})
    prefill = {
        chunk: one_or_each([prefill_graphs(model, engine, chunk, layout) for layout in layouts])
        for chunk in chunks
    }
    return [
        one_or_each([one.kept_bytes(model, None) for one in static]),
        one_or_each([one.left(model, None) for one in static]),
        trait(engine, "short_context_tokens") or 0,
        one_or_each([one.kept_bytes(model, MANY_SENDERS) for one in static]),
        MANY_SENDERS,
        image_factor(model, engine),
        one_or_each([most_expanded(model, engine, gpu) for gpu in ordered]),
        prefill,
    ]


def _taken(site: SiteData, gpu: Accelerator) -> list[int] | None:
    """What SGLang takes before weights are loaded: of one device, of two and of more, the latter also data-parallel."""
    engine = site.catalog.engines.get("sglang")
    if engine is None:
        return None
    layouts = (SINGLE, Layout(tensor=2), Layout(tensor=4), Layout(data=2), Layout(data=4))
    static = (rules(engine).static_memory(gpu, layout) for layout in layouts)
    return [gpu.usable_bytes - one.free_bytes for one in static if one is not None]


def _captured(site: SiteData, gpu: Accelerator) -> tuple[float, ...] | None:
    """What decides SGLang's static fraction (:func:`kvreport.accounting.engines.sglang.settings.captured_sizes`)."""
    engine = site.catalog.engines.get("sglang")
    return None if engine is None else captured_sizes(engine, gpu)


def _device(site: SiteData, gpu: Accelerator) -> dict[str, Any]:
    peaks = Peaks.of(gpu)
    return {
        "bytes": _known(float(peaks.bytes_per_s)),
        "rates": {name: _known(float(peaks.operations_per_s[name])) for name in MULTIPLIES},
        "link": _known(float(peaks.link_bytes_per_s)),
        "seqs": rules(site.engine).scheduler(gpu)[1] if site.engine.device_classes else MAX_REQUESTS,
        "node": gpu.devices_per_node or SERVER_DEVICES,
        "taken": _taken(site, gpu),
        "captured": _captured(site, gpu),
    }


def _weights(asked: Demand) -> list[Any]:
    return [asked.dense_bytes, asked.expert_bytes, asked.operations_per_token, asked.head_operations]


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
