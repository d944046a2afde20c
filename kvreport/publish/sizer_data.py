"""What a browser needs, beside :mod:`kvreport.publish.profiles`, to size a deployment by itself.

Published under ``downloads/v1/``: ``peaks.json`` (rates and limits of every accelerator) and
``times/<slug>.json`` for each model (what a step demands). ``docs/assets/kv-sizing.js`` evaluates
them with the arithmetic of :mod:`kvreport.accounting.sizing`, ``ranking`` and ``roofline``; a test
holds its answers equal to Python's over many workloads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from kvreport.accounting.demand import Demand, Reach, demand
from kvreport.accounting.engines.registry import rules
from kvreport.accounting.profile import UNBOUNDED
from kvreport.accounting.ranking import USUAL_NODE
from kvreport.accounting.roofline import MULTIPLIES, Peaks
from kvreport.accounting.sizing import MAX_REQUESTS, sglang_reserve
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.model import Model
from kvreport.publish.profiles import FOLDER, SCHEMA, encode
from kvreport.publish.site_data import SiteData

NOTHING_SEEN: Final = -1


def files(site: SiteData) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of every JSON file, byte-identical for the same catalogue."""
    yield f"{FOLDER}/peaks.json", encode(peaks_facts(site))
    for model in site.models:
        yield f"{FOLDER}/times/{model.slug}.json", encode({"schema": SCHEMA, **times_facts(site, model)})


def names(site: SiteData) -> tuple[str, ...]:
    """Return the addresses of :func:`files` without making them."""
    return (f"{FOLDER}/peaks.json", *(f"{FOLDER}/times/{model.slug}.json" for model in site.models))


def peaks_facts(site: SiteData) -> dict[str, Any]:
    """Return rates and limits by accelerator.

    ``gpus[id]``: ``bytes`` per second of memory, ``rates`` by operand type, ``link`` bytes per second
    in one direction (each null where not known), ``seqs`` (requests that the engine runs at once),
    ``node`` (devices of a server), ``kept`` (bytes that SGLang keeps by itself, by size).
    """
    return {
        "schema": SCHEMA,
        "multiplies": list(MULTIPLIES),
        "gpus": {gpu.id: _device(site, gpu) for gpu in site.gpus},
    }


def times_facts(site: SiteData, model: Model) -> dict[str, Any]:
    """Return what a step demands, in the order of the sizes of ``site.json``.

    ``weights[format][size]`` is [dense bytes, expert bytes, {type: operations per token}, {type:
    operations of the output head}]; ``reach[kv][size]`` is a list of [bytes per entry, operations,
    operations while prefilling, cap (0: none, -1: nothing is seen), tokens per entry, chunked, constant entries].
    """
    grid = site.axes
    sizes = grid.parallel_sizes(model)
    caches = grid.caches(model)
    first = caches[0]

    def asked(form: str, cache: KvFormat, size: int) -> Demand:
        return demand(model, dict(grid.weight_formats)[form], grid.formats, cache, tensor_parallel=size)

    return {
        "slug": model.slug,
        "experts": [model.experts.routed, model.experts.per_token] if model.experts else [0, 0],
        "reduced": asked(grid.weight_formats[0][0], first, sizes[0]).reduced_bytes_per_token,
        "state": [
            asked(grid.weight_formats[0][0], first, size).state_bytes_touched if size in sizes else None
            for size in grid.tensor_parallel
        ],
        "weights": {
            form: [
                _weights(asked(form, first, size)) if size in sizes else None for size in grid.tensor_parallel
            ]
            for form, _ in grid.weight_formats
        },
        "reach": {
            cache.name: [
                [_reach(reach) for reach in asked(grid.weight_formats[0][0], cache, size).reaches]
                if size in sizes
                else None
                for size in grid.tensor_parallel
            ]
            for cache in caches
        },
        "attention": {
            cache.name: asked(grid.weight_formats[0][0], cache, sizes[0]).attention_multiplies
            for cache in caches
        },
    }


def _device(site: SiteData, gpu: Accelerator) -> dict[str, Any]:
    peaks = Peaks.of(gpu)
    sglang = site.catalogue.engines.get("sglang")
    default = sglang.device_class(gpu.id, gpu.usable_bytes) if sglang else None
    return {
        "bytes": _known(float(peaks.bytes_per_s)),
        "rates": {name: _known(float(peaks.operations_per_s[name])) for name in MULTIPLIES},
        "link": _known(float(peaks.link_bytes_per_s)),
        "seqs": rules(site.engine).scheduler(gpu)[1] if site.engine.device_classes else MAX_REQUESTS,
        "node": gpu.devices_per_node or USUAL_NODE,
        "kept": [
            sglang_reserve(gpu.usable_bytes, default.max_batched_tokens, default.max_seqs, size)
            if default
            else None
            for size in site.axes.tensor_parallel
        ],
    }


def _weights(asked: Demand) -> list[Any]:
    return [asked.dense_bytes, asked.expert_bytes, asked.operations_per_token, asked.head_operations]


def _reach(reach: Reach) -> list[Any]:
    cap = 0 if reach.cap_tokens >= UNBOUNDED else reach.cap_tokens or NOTHING_SEEN
    return [
        reach.bytes_per_entry,
        reach.operations_per_entry,
        reach.prefill_operations_per_entry,
        cap,
        reach.step_tokens,
        int(reach.chunked),
        reach.constant_entries,
    ]


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
