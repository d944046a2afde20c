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
from dataclasses import dataclass
from typing import Any, Final

from kvreport.accounting.deployment import Allocation, Case, Memo, allocate, plan_blocks, upper_bound
from kvreport.accounting.engines.registry import rules
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.accounting.profile import CacheProfile
from kvreport.accounting.stages import stages
from kvreport.accounting.support import judge
from kvreport.accounting.weights import active_parameters, parameters
from kvreport.catalog.accelerator import Accelerator, current_since
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.model import Model
from kvreport.dataset.matrix import laid_out, left_out
from kvreport.estimation.request import automatic_kv_format
from kvreport.publish.attention_types import cache_kind
from kvreport.publish.site_data import SiteData, short_name

SCHEMA: Final = 1
FOLDER: Final = "downloads/v1"
_NAMES: Final = ("family", "maker", "kind", "limit", "slots", "kv", "aliases")
"""What tells a model from others, beside its name."""
NONE: Final = -1
"""Index of a plan that cannot be made."""


@dataclass(frozen=True, slots=True)
class Place:
    """A column of a model's file: a layout, and which of its pipeline stages.

    Attributes:
        layout: How the model is spread over devices.
        stage: The stage, from 0.
    """

    layout: Layout
    stage: int = 0


def places(site: SiteData, *, further: bool) -> tuple[Place, ...]:
    """Return the columns of a model's lists: every tensor-parallel size, then further layouts stage by stage.

    Args:
        site: What every page may ask.
        further: Whether further layouts are listed; the files with all models leave them out.
    """
    grid = site.axes
    plain = tuple(Place(Layout(tensor=size)) for size in grid.tensor_parallel)
    if not further:
        return plain
    staged = (Place(layout, stage) for layout in grid.layouts for stage in range(layout.pipeline))
    return (*plain, *staged)


def files(site: SiteData) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of every JSON file, byte-identical for the same catalogue."""
    shared = site_facts(site)
    yield f"{FOLDER}/site.json", encode(shared)
    everything = []
    sizes = len(site.axes.tensor_parallel)
    # The other models decide which formats the lists have; their names decide nothing.
    shape = encode({name: value for name, value in shared.items() if name != "models"})
    with site.parts.group("profiles") as kept:
        for model in site.models:

            def make(model: Model = model) -> tuple[bytes, dict[str, Any]]:
                facts = model_facts(site, model, further=True)
                own = {"schema": SCHEMA, "release": site.version, **facts, **reserve_rates(site, model)}
                return encode(own), of_sizes(facts, sizes)

            content, few = kept.get(site.parts.key(site.parts.of_model(model), shape), make)
            everything.append(few)
            yield f"{FOLDER}/models/{model.slug}.json", content
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
    ``gpus[].kind`` say which of a model's reserves and plans apply to it; ``gpus[].rented`` whether several clouds rent it out, ``gpus[].rental`` its
    place in a ranking (2: current and commonly rented, 1: older, 0: not rented), ``gpus[].machine`` the devices of
    the smallest machine that is rented out; ``gpus[].step`` is [tokens of
    one scheduler step, requests at once] that they suppose, ``gpus[].own`` whether its kernels for experts
    bring their own buffers, ``gpus[].outside`` [whether links multicast, bytes shared with a CPU],
    ``gpus[].band`` [share of the reserve, bytes] of the error band, ``gpus[].runner`` which of a model's
    rates hold (1: ``other_rates``), ``gpus[].linked`` whether it stands in servers whose devices are linked,
    as further layouts need. ``engine.since`` is the first release with these rules. ``layouts[].places``
    are the columns of a model's lists, one for each pipeline stage.
    """
    grid = site.axes
    reserves, kinds = site.reserve_classes, site.device_kinds
    since = current_since(site.catalogue.accelerators.values())
    return {
        "schema": SCHEMA,
        "release": site.version,
        "engine": {
            "name": site.engine.name,
            "default": site.engine.name,
            "family": site.engine.family,
            "label": site.engine.label,
            "version": site.engine.version,
            "utilization": site.engine.utilization,
            "since": site.engine.versions[0] if site.engine.versions else None,
            "in_flight": site.engine.steps_in_flight,
        },
        "engines": engines(site),
        "known": list(site.known_gpus),
        "contexts": list(grid.contexts),
        "sizes": list(grid.tensor_parallel),
        "layouts": layouts(site),
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
                "memory": rules(site.engine).memory_bytes(gpu.usable_bytes),
                "reserve": reserves[gpu.id],
                "kind": kinds[gpu.id],
                "rented": gpu.is_commonly_rented,
                "rental": gpu.rental_class(since),
                "machine": gpu.rented_devices,
                "step": list(rules(site.engine).scheduler(gpu)),
                "own": rules(site.engine).brings_expert_buffers(gpu),
                "outside": list(rules(site.engine).outside_framework(gpu)),
                "band": list(rules(site.engine).error_band(gpu)),
                "runner": int(not rules(site.engine).runs_as_on_nvidia(gpu)),
                "linked": gpu.interconnect_bytes_per_s is not None,
            }
            for gpu in site.gpus
        ],
    }


def engines(site: SiteData) -> list[dict[str, Any]]:
    """Return the engines that pages can switch to, the site's own first."""
    listed = (site.engine, site.catalogue.engine("ceiling"))
    return [
        {
            "name": engine.name,
            "label": engine.label,
            "family": engine.family,
            "versions": list(engine.versions) if engine.versions else None,
        }
        for engine in listed
    ]


def layouts(site: SiteData) -> list[dict[str, Any]]:
    """Return how models are spread: tensor parallel first, each with the columns that its stages have."""
    found: dict[Layout, list[int]] = {}
    for number, place in enumerate(places(site, further=True)):
        found.setdefault(place.layout, []).append(number)
    return [
        {
            "label": layout.label,
            "tp": layout.tensor,
            "pp": layout.pipeline,
            "dp": layout.data,
            "ep": layout.expert,
            "dcp": layout.decode_context,
            "nodes": layout.nodes,
            "devices": layout.devices,
            "places": numbers,
        }
        for layout, numbers in found.items()
    ]


def of_sizes(facts: dict[str, Any], number: int) -> dict[str, Any]:
    """Return a model's facts with the first ``number`` columns only, and the plans that they use."""
    used = sorted({n for rows in facts["plan"].values() for row in rows[:number] for n in row if n >= 0})
    where = {index: place for place, index in enumerate(used)} | {NONE: NONE}
    return {
        **facts,
        **{
            group: {name: rows[:number] for name, rows in facts[group].items()}
            for group in ("weights", "loaded", "held")
        },
        "reserve": [rows[:number] for rows in facts["reserve"]],
        "plans": [facts["plans"][index] for index in used],
        "plan": {
            name: [[where[index] for index in row] for row in rows[:number]]
            for name, rows in facts["plan"].items()
        },
    }


def model_facts(site: SiteData, model: Model, *, further: bool = False) -> dict[str, Any]:
    """Return one model: weights, reserves, plans, in the order of the shared lists.

    A list by size has a column for each of :func:`places`.
    ``weights[format][size]`` is bytes per device or null, and ``loaded[format][size]`` what loading
    adds: one number, or one for each kind of device (null where the release refuses the weights); ``reserve[class][size]`` is [bytes,
    uncertainty]; ``plans[n]`` is [block bytes, kept blocks, constant, [[rate, step, cap], …]];
    ``plan[kv][size][kind]`` is an index into ``plans`` or -1; ``held[kv][size]`` is what the
    architecture itself needs, [constant, [[rate, step, cap], …], state], or {kinds: [one for each kind
    of device]} where their kernels lay the format out differently; a cap of 0 is none.
    """
    grid = site.axes
    offered = set(grid.layouts_of(model))
    columns = places(site, further=further)
    parts = [_part(model, place) if place.layout in offered else None for place in columns]
    made: dict[str, int] = {}
    kinds = site.device_kinds
    kind_at = [kinds[gpu.id] for gpu in grid.accelerators]
    examples = {number: gpu for gpu, number in _by_number(site, kinds)}
    classes = {number: gpu for gpu, number in _by_number(site, site.reserve_classes)}
    memo = Memo()
    memos = [memo if part is model else Memo() for part in parts]
    caches = grid.caches(model)
    placed = {}
    gone = left_out(model, grid)
    for cache in caches:
        rows = placed[cache.name] = [[NONE] * len(examples) for _ in columns]
        for row, place, part in zip(rows, columns, parts, strict=True):
            if part is None or site.refusal(model):
                continue
            for members, laid in laid_out(model, grid, place.layout, cache, memo):
                stage = sorted((laid, *laid.others), key=lambda rank: rank.layers.start)[place.stage]
                index = made.setdefault(json.dumps(_plan(stage.plan)), len(made))
                for number, position in enumerate(members):
                    # What a release refuses in every weight format is left out, like what cannot be stored.
                    if isinstance(laid.refused, int) or not laid.refused[number].all():
                        row[kind_at[position]] = index

    def taken(gpu: Accelerator, number: int) -> Allocation | None:
        part = parts[number]
        if part is None:
            return None
        return allocate(_case(site, part, gpu, columns[number].layout, None), memos[number])

    numbers = range(len(columns))
    by_kind = [
        [each for kind in sorted(examples) if (each := taken(examples[kind], number)) is not None] or None
        for number in numbers
    ]
    formats = [name for name, _ in grid.weight_formats]
    refused = {
        name: [
            site.catalogue.support is not None
            and judge(site.catalogue.support, site.engine, examples[kind], model, form).verdict is not None
            for kind in sorted(examples)
        ]
        for name, form in grid.weight_formats
    }
    return {
        "slug": model.slug,
        "id": model.id,
        "name": model.name,
        "family": model.family,
        "maker": model.maker,
        "aliases": list(model.aliases),
        "kind": cache_kind(model),
        "limit": model.context_tokens,
        "slots": _waits_for_slots(site, model),
        "parameters": parameters(model),
        "active": active_parameters(model),
        "kv": own_kv(site, model),
        "weights": {
            name: [
                None if each is None or gone[place] else int(each[0].weight_bytes[place])  # type: ignore[index]
                for each in by_kind
            ]
            for place, name in enumerate(formats)
        },
        "loaded": {
            name: [each and _loaded(each, place, refused[name]) for each in by_kind]
            for place, name in enumerate(formats)
        },
        "reserve": [
            [_kept(each) if (each := taken(gpu, number)) else None for number in numbers]
            for _, gpu in sorted(classes.items())
        ],
        "plans": [json.loads(text) for text in made],
        "plan": placed,
        "held": {
            cache.name: [
                _held(
                    [_case(site, part, examples[kind], place.layout, cache) for kind in sorted(examples)],
                    site,
                    known,
                )
                if part is not None
                else None
                for place, part, known in zip(columns, parts, memos, strict=True)
            ]
            for cache in caches
        },
    }


def reserve_rates(site: SiteData, model: Model) -> dict[str, Any]:
    """Return what other scheduler sizes need: the reserve's rates for every column, None without such rules.

    A list for each column, in the order of :class:`kvreport.accounting.engines.vllm.reserve.ReserveRates`;
    ``other_rates`` are those of devices where another runner serves the model, None where none does.
    """
    offered = set(site.axes.layouts_of(model))
    engine = rules(site.engine)

    def listed(*, nvidia: bool) -> list[list[float] | None] | None:
        found = [
            engine.reserve_rates(_part(model, place), place.layout, nvidia=nvidia)
            if place.layout in offered
            else None
            for place in places(site, further=True)
        ]
        return [None if one is None else list(one) for one in found] if any(found) else None

    usual, other = listed(nvidia=True), listed(nvidia=False)
    return {"rates": usual, "other_rates": None if other == usual else other}


def _part(model: Model, place: Place) -> Model:
    """The part of a model that one stage runs."""
    return stages(model, place.layout.pipeline)[place.stage].model


def _case(site: SiteData, model: Model, gpu: Accelerator, layout: Layout, cache: KvFormat | None) -> Case:
    tokens, rows = rules(site.engine).scheduler(gpu)
    return Case(
        model=model,
        engine=site.engine,
        accelerators=(gpu,),
        weight_formats=tuple(form for _, form in site.axes.weight_formats),
        formats=site.axes.formats,
        kv_format=cache,
        layout=layout,
        serving=Serving(max_batched_tokens=tokens, max_seqs=rows),
        many=True,
    )


def _held(cases: list[Case], site: SiteData, memo: Memo) -> list[Any] | dict[str, list[Any]]:
    """What a request holds: a profile and which of its bytes are state, or one for each kind of device."""
    each = []
    for case in cases:
        profile = plan_blocks(upper_bound(case, site.axes.ceiling), memo).profile
        each.append([*_profile(profile), profile.state_bytes])
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


def _waits_for_slots(site: SiteData, model: Model) -> bool:
    """Whether the engine wants a block for the states of every sequence before it starts."""
    serving = Serving(max_batched_tokens=1, max_seqs=1)
    return rules(site.engine).state_slots_wanted(model, serving, eager=False) is not None


def _kept(taken: Allocation) -> list[int]:
    return [taken.reserve.total, taken.reserve.uncertainty]


def _loaded(each: list[Allocation], place: int, refused: list[bool]) -> int | list[int | None] | None:
    """Return what loading adds to the weights: one number, or one per kind of device where they differ.

    None where the release refuses the weights.
    """
    added = [
        None if out else sum(one.overhead[place].values()) for one, out in zip(each, refused, strict=True)
    ]
    return added[0] if len(set(added)) == 1 else added


def _plan(blocks: BlockPlan) -> list[Any]:
    return [blocks.block_bytes, blocks.kept_blocks, *_profile(blocks.profile)]


def _profile(profile: CacheProfile) -> list[Any]:
    constant, terms = profile.flat
    return [constant, [list(term) for term in terms]]
