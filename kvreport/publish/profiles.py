"""What a browser needs to answer by itself: profiles, weights and reserves, as small JSON.

Published under ``downloads/v1/``: ``site.json`` (accelerators, formats, contexts), one file per
model, ``explore.json`` with all of them, and ``explore/<size>.json`` with the numbers of one
tensor-parallel size each, for a quick first look. From these, ``docs/assets/kv-capacity.js``
evaluates the same arithmetic as :mod:`kvreport.accounting`; a test holds it equal to the dataset,
row by row.
Every size stays below 2^53, so a browser's numbers hold it exactly.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import astuple
from typing import Any, Final

from kvreport.accounting.blocks import BlockPlan
from kvreport.accounting.budget import memory_bytes, own_expert_kernels, scheduled_reserve, scheduler_sizes
from kvreport.accounting.kv_cache import held
from kvreport.accounting.loaded import load_overhead
from kvreport.accounting.profile import UNBOUNDED, CacheProfile
from kvreport.accounting.reserve import ReserveRates
from kvreport.accounting.weights import active_parameters, parameters, weight_bytes
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.model import Model
from kvreport.dataset.grid import Axes
from kvreport.dataset.matrix import laid_out_alike, layouts, plans
from kvreport.estimation.request import automatic_kv_format
from kvreport.publish.attention_types import cache_kind
from kvreport.publish.site_data import SiteData, short_name

SCHEMA: Final = 1
FOLDER: Final = "downloads/v1"
_NAMES: Final = ("family", "maker", "kind", "limit", "kv", "aliases")
"""What tells a model from others, beside its name."""
NONE: Final = -1
"""Index of a plan that cannot be made."""


def files(site: SiteData) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of every JSON file, byte-identical for the same catalogue."""
    shared = site_facts(site)
    yield f"{FOLDER}/site.json", encode(shared)
    everything = []
    for model in site.models:
        facts = model_facts(site, model)
        everything.append(facts)
        yield (
            f"{FOLDER}/models/{model.slug}.json",
            encode({"schema": SCHEMA, "release": site.version, **facts, "rates": reserve_rates(site, model)}),
        )
    yield f"{FOLDER}/explore.json", encode({"site": shared, "models": everything})
    for place, size in enumerate(shared["sizes"]):
        yield f"{FOLDER}/explore/{size}.json", encode(of_size(everything, place))


def names(site: SiteData) -> tuple[str, ...]:
    """Return the addresses of :func:`files` without making them."""
    models = tuple(f"{FOLDER}/models/{model.slug}.json" for model in site.models)
    sizes = tuple(f"{FOLDER}/explore/{size}.json" for size in site.catalogue.grid.tensor_parallel)
    return (f"{FOLDER}/site.json", *models, f"{FOLDER}/explore.json", *sizes)


def encode(value: object) -> bytes:
    """Return compact JSON that may also stand inside HTML."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode()


def site_facts(site: SiteData) -> dict[str, Any]:
    """Return what all models share.

    ``gpus[].memory`` is what the engine may take of ``usable``; ``gpus[].reserve`` and
    ``gpus[].kind`` say which of a model's reserves and plans apply to it; ``gpus[].rented`` whether
    a ranking puts it first; ``gpus[].step`` is [tokens of
    one scheduler step, requests at once] that they suppose, ``gpus[].own`` whether its kernels for experts
    bring their own buffers. ``engine.since`` is the first release with these rules.
    """
    grid = site.axes
    reserves, kinds = site.reserve_classes, site.device_kinds
    return {
        "schema": SCHEMA,
        "release": site.version,
        "engine": {
            "name": site.engine.name,
            "label": site.engine.label,
            "version": site.engine.version,
            "utilization": site.engine.utilization,
            "since": site.engine.versions[0] if site.engine.versions else None,
            "in_flight": site.engine.steps_in_flight,
        },
        "known": list(site.known_gpus),
        "contexts": list(grid.contexts),
        "sizes": list(grid.tensor_parallel),
        "weight_formats": [
            {"name": name, "label": form.label if form else "as released"}
            for name, form in sorted(grid.weight_formats, key=lambda item: item[1] is not None)
        ],
        "kv_formats": [
            {"name": name, "label": site.catalogue.kv_format(name).label} for name in site.kv_names
        ],
        "models": [[model.slug, model.name] for model in site.models],
        "gpus": [
            {
                "id": gpu.id,
                "name": gpu.name,
                "short": short_name(gpu),
                "vendor": gpu.vendor,
                "usable": gpu.usable_bytes,
                "memory": memory_bytes(site.engine, gpu.usable_bytes),
                "reserve": reserves[gpu.id],
                "kind": kinds[gpu.id],
                "rented": gpu.is_commonly_rented,
                "step": list(scheduler_sizes(site.engine, gpu)),
                "own": own_expert_kernels(gpu),
            }
            for gpu in site.gpus
        ],
    }


def model_facts(site: SiteData, model: Model) -> dict[str, Any]:
    """Return one model: weights, reserves, plans, in the order of the shared lists.

    ``weights[format][size]`` is bytes per device or null, and ``loaded[format][size]`` what loading
    adds: one number, or one for each kind of device; ``reserve[class][size]`` is [bytes,
    uncertainty]; ``plans[n]`` is [block bytes, kept blocks, constant, [[rate, step, cap], …]];
    ``plan[kv][size][kind]`` is an index into ``plans`` or -1; ``held[kv][size]`` is what the
    architecture itself needs, [constant, [[rate, step, cap], …], state], or {kinds: [one for each kind
    of device]} where their kernels lay the format out differently; a cap of 0 is none.
    """
    grid = site.axes
    sizes = grid.parallel_sizes(model)
    made: dict[str, int] = {}
    caches = {form.name: form for form in grid.caches(model)}
    kinds = site.device_kinds
    kind_at = [kinds[gpu.id] for gpu in grid.accelerators]
    alike = laid_out_alike(model, grid)
    examples = {number: gpu for gpu, number in _by_number(site, kinds)}
    classes = {number: gpu for gpu, number in _by_number(site, site.reserve_classes)}
    placed = {}
    for name, cache in caches.items():
        rows = placed[name] = [[NONE] * len(examples) for _ in grid.tensor_parallel]
        for row, size in zip(rows, grid.tensor_parallel, strict=True):
            if size not in sizes or site.refusal(model):
                continue
            for blocks, members in plans(model, grid, size, cache, alike):
                index = made.setdefault(json.dumps(_plan(blocks)), len(made))
                for position in members:
                    row[kind_at[position]] = index
    return {
        "slug": model.slug,
        "id": model.id,
        "name": model.name,
        "family": model.family,
        "maker": model.maker,
        "aliases": list(model.aliases),
        "kind": cache_kind(model),
        "limit": model.context_tokens,
        "parameters": parameters(model),
        "active": active_parameters(model),
        "kv": own_kv(site, model),
        "weights": {
            name: [
                weight_bytes(model, form, grid.formats, size) if size in sizes else None
                for size in grid.tensor_parallel
            ]
            for name, form in grid.weight_formats
        },
        "loaded": {
            name: [
                _loaded(site, model, form, size, examples) if size in sizes else None
                for size in grid.tensor_parallel
            ]
            for name, form in grid.weight_formats
        },
        "reserve": [
            [
                _reserve(site, model, classes[number], size) if size in sizes else None
                for size in grid.tensor_parallel
            ]
            for number in sorted(classes)
        ],
        "plans": [json.loads(text) for text in made],
        "plan": placed,
        "held": {
            name: [
                _held(model, grid, cache, size, kind_at, alike) if size in sizes else None
                for size in grid.tensor_parallel
            ]
            for name, cache in caches.items()
        },
    }


def reserve_rates(site: SiteData, model: Model) -> list[list[float] | None] | None:
    """Return what a log's own flags need: the reserve's rates for every size, None without such rules.

    ``[forward, workspace, streams, row, encoding, non-framework, graphs]``: bytes per token of a step (three),
    per row of logits, of an encoder pass, outside the framework, and per captured batch size.
    """
    if site.engine.family != "vllm":
        return None
    sizes = site.axes.parallel_sizes(model)
    return [
        list(astuple(ReserveRates.of(model, site.engine, tensor_parallel=size))) if size in sizes else None
        for size in site.axes.tensor_parallel
    ]


def _held(
    model: Model, grid: Axes, cache: KvFormat, size: int, kind_at: list[int], alike: tuple[list[int], ...]
) -> list[Any] | dict[str, list[Any]]:
    """What a request holds: a profile and which of its bytes are state, or one for each kind of device."""
    by_kind: dict[int, list[Any]] = {}
    for layout, members in layouts(model, grid, cache, alike):
        profile = held(model, layout, tensor_parallel=size)
        one = [*_profile(profile), profile.state_bytes]
        by_kind |= {kind_at[position]: one for position in members}
    each = [by_kind[kind] for kind in sorted(by_kind)]
    return each[0] if all(one == each[0] for one in each) else {"kinds": each}


def of_size(everything: list[dict[str, Any]], place: int) -> dict[str, Any]:
    """Return every model with the numbers of one tensor-parallel size only, for a quick first look.

    A list for each field, its models in the order of ``site.json``, which has their names: like
    stands beside like, and it travels a third smaller than a list of models.
    """
    used = [
        sorted({index for rows in facts["plan"].values() for index in rows[place] if index >= 0})
        for facts in everything
    ]
    where = [{index: position for position, index in enumerate(indices)} | {NONE: NONE} for indices in used]
    return {
        **{name: [facts[name] for facts in everything] for name in _NAMES},
        "plans": [
            [facts["plans"][index] for index in indices]
            for facts, indices in zip(everything, used, strict=True)
        ],
        "plan": {
            kv: [
                _alike([new[index] for index in facts["plan"][kv][place]]) if kv in facts["plan"] else None
                for facts, new in zip(everything, where, strict=True)
            ]
            for kv in _members(everything, "plan")
        },
        "reserve": [
            [facts["reserve"][number][place] for facts in everything]
            for number in range(max((len(facts["reserve"]) for facts in everything), default=0))
        ],
        **{
            group: {
                name: [facts[group][name][place] if name in facts[group] else None for facts in everything]
                for name in _members(everything, group)
            }
            for group in ("weights", "loaded", "held")
        },
    }


def _members(everything: list[dict[str, Any]], group: str) -> list[str]:
    """Names that any model has in a group, in the order in which they first come."""
    return list(dict.fromkeys(name for facts in everything for name in facts[group]))


def _alike(indices: list[int]) -> int | list[int]:
    """Return one number for a list that has only one."""
    return indices[0] if len(set(indices)) == 1 else indices


def own_kv(site: SiteData, model: Model) -> str:
    """Return the KV format that ``auto`` means for a model."""
    return site.catalogue.kv_format(automatic_kv_format(model)).name


def _by_number(site: SiteData, numbers: dict[str, int]) -> Iterator[tuple[Accelerator, int]]:
    for gpu in reversed(site.gpus):
        yield gpu, numbers[gpu.id]


def _reserve(site: SiteData, model: Model, gpu: Accelerator, size: int) -> list[int]:
    kept = scheduled_reserve(model, site.engine, gpu, tensor_parallel=size)
    return [kept.total, kept.uncertainty]


def _loaded(
    site: SiteData, model: Model, form: WeightFormat | None, size: int, examples: dict[int, Accelerator]
) -> int | list[int]:
    """Return what loading adds to the weights: one number, or one per kind of device where they differ."""
    formats = site.catalogue.weight_formats
    added = [
        sum(load_overhead(model, site.engine, form, formats, examples[kind], size).values())
        for kind in sorted(examples)
    ]
    return added[0] if len(set(added)) == 1 else added


def _plan(blocks: BlockPlan) -> list[Any]:
    return [blocks.block_bytes, blocks.kept_blocks, *_profile(blocks.profile)]


def _profile(profile: CacheProfile) -> list[Any]:
    terms = [
        [t.rate_bytes, t.step_tokens, 0 if t.cap_tokens >= UNBOUNDED else t.cap_tokens]
        for t in profile.terms
        if t.rate_bytes
    ]
    return [profile.constant_bytes, terms]
