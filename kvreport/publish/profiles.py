"""What a browser needs to answer by itself: profiles, weights and reserves, as small JSON.

Published under ``downloads/v1/``: ``site.json`` (accelerators, formats, contexts), one file per
model, and ``explore.json`` with all of them. From these, ``docs/assets/kv-capacity.js``
evaluates the same arithmetic as :mod:`kvreport.accounting`; a test holds it equal to the dataset,
row by row.
Every size stays below 2^53, so a browser's numbers hold it exactly.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kvreport.accounting.allocation import asked_memory, shared_reserve
from kvreport.accounting.deployment import (
    Allocation,
    Case,
    Memo,
    allocate,
    load_overheads,
    plan_blocks,
    upper_bound,
)
from kvreport.accounting.engines.registry import rules
from kvreport.accounting.parallel import Layout, stage_layers
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.accounting.profile import CacheProfile
from kvreport.accounting.stages import stages
from kvreport.accounting.support import Asked, alone_codes, judge, spread_codes
from kvreport.accounting.weights import active_parameters, parameters
from kvreport.catalog.accelerator import Accelerator, current_since
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.model import Model
from kvreport.dataset.matrix import laid_out, left_out
from kvreport.errors import InputError
from kvreport.estimation.request import automatic_kv_format, storable_on
from kvreport.publish.attention_types import cache_kind
from kvreport.publish.site_data import SiteData, page_format, short_name

SCHEMA: Final = 1
FOLDER: Final = "downloads/v1"
ENGINES: Final = ("vllm-0.25", "vllm-0.19", "vllm-0.11", "sglang")
"""Other engines that pages can switch to (:mod:`kvreport.publish.engine_profiles`), where the catalog has them."""
BF16: Final = "bf16"
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
        further: Whether further layouts are listed, those of the search for a deployment last; the files with all
            models leave them out.
    """
    grid = site.searched
    plain = tuple(Place(Layout(tensor=size)) for size in grid.tensor_parallel)
    if not further:
        return plain
    staged = (Place(layout, stage) for layout in grid.layouts for stage in range(layout.pipeline))
    return (*plain, *staged)


def every_model(site: SiteData) -> list[tuple[bytes, dict[str, Any]]]:
    """Return each model's file, and its facts at the tensor-parallel sizes, which several files are made from."""
    sizes = len(site.axes.tensor_parallel)
    # The other models decide which formats the lists have; their names decide nothing.
    shape = encode({name: value for name, value in site_facts(site).items() if name != "models"})
    with site.parts.group("profiles") as kept:

        def one(model: Model) -> tuple[bytes, dict[str, Any]]:
            def make() -> tuple[bytes, dict[str, Any]]:
                facts = model_facts(site, model, further=True)
                own = {"schema": SCHEMA, "release": site.version, **facts, **reserve_rates(site, model)}
                return encode(own), of_sizes(facts, sizes)

            content, few = kept.get(site.parts.key(site.parts.of_model(model), shape), make)
            return content, few

        return [one(model) for model in site.models]


def files(site: SiteData, everything: Sequence[tuple[bytes, dict[str, Any]]]) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of every JSON file, byte-identical for the same catalog.

    Args:
        site: The catalog.
        everything: What :func:`every_model` returns.
    """
    shared = site_facts(site)
    yield f"{FOLDER}/site.json", encode(shared)
    for model, (content, _) in zip(site.models, everything, strict=True):
        yield f"{FOLDER}/models/{model.slug}.json", content
    models = [facts for _, facts in everything]
    yield f"{FOLDER}/explore.json", encode({"site": shared, "models": models})


def names(site: SiteData) -> tuple[str, ...]:
    """Return the addresses of :func:`files` without making them."""
    models = tuple(f"{FOLDER}/models/{model.slug}.json" for model in site.models)
    return (f"{FOLDER}/site.json", *models, f"{FOLDER}/explore.json")


def encode(value: object) -> bytes:
    """Return compact JSON that may also stand inside HTML."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode()


def site_facts(site: SiteData) -> dict[str, Any]:
    """Return what all models share.

    ``gpus[].memory`` is what the engine may take of ``usable``; ``gpus[].reserve`` and
    ``gpus[].kind`` say which of a model's reserves and plans apply to it; ``gpus[].rented`` whether several clouds rent it out, ``gpus[].rental`` its
    place in a ranking (2: current and commonly rented, 1: older, 0: not rented), ``gpus[].most`` how many a computer holds of its own chip, ``gpus[].providers`` how many clouds that are, ``gpus[].machine`` the devices of
    the smallest machine that is rented out; ``gpus[].step`` is [tokens of
    one scheduler step, requests at once] that they suppose, ``gpus[].own`` whether its kernels for experts
    bring their own buffers, ``gpus[].outside`` [whether links multicast, bytes shared with a CPU],
    ``gpus[].share`` the default share of memory, ``gpus[].free`` [bytes free at start, half width of their band]
    where the engine asks, ``gpus[].band`` [share of the reserve, bytes] of the error band and the same of pipeline stages, ``gpus[].runner`` which of a model's
    rates hold (1: ``other_rates``), ``gpus[].local`` the engine whose rows the pages of a machine print where the
    site's has no platform for it, ``gpus[].linked`` whether it stands in servers whose devices are linked,
    as further layouts need, ``gpus[].card`` whether it is a card, of which a machine holds any number, as
    ``layouts[].row`` has in a row of stages. ``engine.since`` is the first release with these rules. ``layouts[].places``
    are the columns of a model's lists, one for each pipeline stage; ``sizing_layouts`` are those that only the
    sizer tries beside them.
    """
    grid = site.axes
    reserves, kinds = site.reserve_classes, site.device_kinds
    since = current_since(site.catalog.accelerators.values())
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
        "layouts": layouts(site, searched=False),
        "sizing_layouts": layouts(site, searched=True),
        "weight_formats": [
            {"name": name, "label": form.label if form else "as released"}
            for name, form in sorted(grid.weight_formats, key=lambda item: item[1] is not None)
        ],
        "kv_formats": [{"name": name, "label": site.catalog.kv_format(name).label} for name in site.kv_names],
        "models": [[model.slug, model.name] for model in site.models],
        "gpus": [
            {
                "id": gpu.id,
                "name": gpu.name,
                "short": short_name(gpu),
                "vendor": gpu.vendor,
                "usable": gpu.usable_bytes,
                "memory": asked_memory(
                    rules(site.engine), gpu.usable_bytes, rules(site.engine).share_on(gpu, None)
                ),
                "share": rules(site.engine).share_on(gpu, None),
                "free": None
                if rules(site.engine).start_shortage(gpu, None) is None
                else list(gpu.free_at_start),
                "reserve": reserves[gpu.id],
                "kind": kinds[gpu.id],
                "rented": gpu.is_commonly_rented,
                "rental": gpu.rental_class(since),
                "providers": len(gpu.rented_as),
                "machine": gpu.rented_devices,
                "most": gpu.most_per_machine if gpu.is_computer else None,
                "step": list(rules(site.engine).scheduler(gpu)),
                "own": rules(site.engine).brings_expert_buffers(gpu),
                "outside": list(rules(site.engine).outside_framework(gpu)),
                "band": [
                    one
                    for stages in (False, True)
                    for one in rules(site.engine).error_band(gpu, stages=stages)
                ],
                "runner": int(not rules(site.engine).runs_as_on_nvidia(gpu)),
                "linked": gpu.interconnect_bytes_per_s is not None,
                "card": gpu.is_card,
                "local": _local(site, gpu),
            }
            for gpu in site.gpus
        ],
    }


def _local(site: SiteData, gpu: Accelerator) -> dict[str, str] | None:
    engine = site.local_engine(gpu)
    return None if engine is None else {"name": engine.name, "label": engine.label}


def engines(site: SiteData) -> list[dict[str, Any]]:
    """Return the engines that pages can switch to, the site's own first."""
    others = (name for name in ENGINES if name in site.catalog.engines and name != site.engine.name)
    listed = (site.engine, *map(site.catalog.engine, others), site.catalog.engine("ceiling"))
    return [
        {
            "name": engine.name,
            "label": engine.label,
            "family": engine.family,
            "versions": list(engine.versions) if engine.versions else None,
        }
        for engine in listed
    ]


def layouts(site: SiteData, *, searched: bool) -> list[dict[str, Any]]:
    """Return how models are spread: tensor parallel first, each with the columns that its stages have.

    Args:
        site: What every page may ask.
        searched: True for the layouts that only a search for a deployment tries, False for the others.
    """
    own = set(site.searched.layouts) - set(site.axes.layouts)
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
            "row": layout.is_row_of_cards,
            "places": numbers,
        }
        for layout, numbers in found.items()
        if (layout in own) == searched
    ]


def of_sizes(facts: dict[str, Any], number: int) -> dict[str, Any]:
    """Return a model's facts with the first ``number`` columns only, and the plans that they use.

    Args:
        facts: What :func:`model_facts`, :func:`engine_facts` or :func:`reserve_rates` says, or several of them.
        number: How many columns are kept.
    """
    listed = [name for name in ("rates", "other_rates") if facts.get(name)]
    kept = facts | {name: facts[name][:number] for name in listed}
    if "plan" not in facts:
        return kept
    used = sorted({n for rows in facts["plan"].values() for row in rows[:number] for n in row if n >= 0})
    where = {index: place for place, index in enumerate(used)} | {NONE: NONE}
    return {
        **kept,
        **{
            group: {name: rows[:number] for name, rows in facts[group].items()}
            for group in ("weights", "loaded", "held")
            if group in facts
        },
        "reserve": facts["reserve"] and [rows and rows[:number] for rows in facts["reserve"]],
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
    columns = places(site, further=further)
    work = _Columns(site, model, columns)
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
        "form": page_format(model),
        "kv": own_kv(site, model),
        "kvs": work.own_kvs(),
        **work.of_engine(),
        "weights": work.weights(),
        "held": work.held(),
    }


def engine_facts(site: SiteData, model: Model, *, reserves: Collection[str] = ()) -> dict[str, Any]:
    """Return what of a model's facts an engine decides, with a column for each of :func:`places`.

    Args:
        site: What every page may ask, under that engine.
        model: The model.
        reserves: Ids of the accelerators whose reserve is listed; it is left out where rates give it.
    """
    work = _Columns(site, model, places(site, further=True))
    plans, placed = work.plans_alone()
    wanted = {site.reserve_classes[gpu.id] for gpu in site.gpus if gpu.id in reserves}
    classes = {number: gpu for gpu, number in _by_number(site, site.reserve_classes)}
    numbers = range(len(work.columns))
    return {
        "slots": _waits_for_slots(site, model),
        "kv": own_kv(site, model),
        "kvs": work.own_kvs(),
        "loaded": work.loaded(),
        "reserve": [
            [work.kept(gpu, n) for n in numbers] if number in wanted else None
            for number, gpu in sorted(classes.items())
        ]
        if wanted
        else None,
        "plans": plans,
        "plan": placed,
        # What is divided otherwise weighs something else than in the model's own file.
        **({"weights": work.weights()} if work.divides_otherwise else {}),
        # Pools that are no division of one pool have no plan here, although the engine runs them.
        **({"pools": True} if work.has_own_pools else {}),
    }


def format_facts(site: SiteData, model: Model) -> dict[str, Any]:
    """Return ``plans``, ``plan`` and ``held`` of a model for the KV formats of the site's axes, tensor parallel only."""
    work = _Columns(site, model, places(site, further=False))
    plans, placed = work.plans_alone()
    return {"plans": plans, "plan": placed, "held": work.held()}


class _Columns:
    """A model's facts in each column, under the engine of a site."""

    def __init__(self, site: SiteData, model: Model, columns: tuple[Place, ...]) -> None:
        offered = set(site.searched.layouts_of(model))
        self.site, self.model, self.columns = site, model, columns
        self.parts = _parts(site, model, [place if place.layout in offered else None for place in columns])
        memo = Memo()
        self.memos = [memo if part is model else Memo() for part in self.parts]
        self.caches = site.axes.caches(model)
        self.examples = {number: gpu for gpu, number in _by_number(site, site.device_kinds)}
        self.has_own_pools = False

    @property
    def divides_otherwise(self) -> bool:
        """Whether engines may divide layers among stages, or components among data ranks, each in its own way."""
        layouts = {place.layout for place, part in zip(self.columns, self.parts, strict=True) if part}
        return any(one.data > 1 or _sizes(self.site, self.model, one.pipeline) for one in layouts)

    def taken(self, gpu: Accelerator, number: int) -> Allocation | None:
        """What is taken of one device in a column."""
        if self.parts[number] is None:
            return None
        return allocate(self.case(number, gpu, None), self.memos[number])

    def kept(self, gpu: Accelerator, number: int) -> list[int] | None:
        """The reserve of one device in a column, and its uncertainty."""
        if self.parts[number] is None:
            return None
        found = shared_reserve(self.case(number, gpu, None), self.memos[number])
        return [found.total, found.uncertainty]

    def case(self, number: int, gpu: Accelerator, cache: KvFormat | None) -> Case:
        """What is laid out on a device in a column that the model has."""
        part, place = self.parts[number], self.columns[number]
        case = _case(self.site, part or self.model, gpu, place.layout, cache)
        if place.layout.pipeline == 1:
            return case
        number = place.layout.pipeline
        layers = stage_layers(self.model.layer_count, number, _sizes(self.site, self.model, number))
        return replace(case, stage_of=(self.model, layers[place.stage]))

    def own_kvs(self) -> list[str] | None:
        """The KV format that the engine takes by itself on each kind of device; None where it is the same."""
        site, model = self.site, self.model
        engine = rules(site.engine)
        found = [
            site.catalog.kv_format(engine.default_kv_format(model, gpu) or BF16).name
            for _, gpu in sorted(self.examples.items())
        ]
        return None if set(found) <= {own_kv(site, model)} else found

    def plans(self) -> tuple[list[Any], dict[str, list[list[int]]]]:
        """The block plans, and which of them each KV format has in each column on each kind of device."""
        site, model, grid = self.site, self.model, self.site.axes
        made: dict[str, int] = {}
        kind_at = [site.device_kinds[gpu.id] for gpu in grid.accelerators]
        placed = {}
        for cache in self.caches:
            rows = placed[cache.name] = [[NONE] * len(self.examples) for _ in self.columns]
            for first, (place, part) in enumerate(zip(self.columns, self.parts, strict=True)):
                if part is None or place.stage or site.refusal(model):
                    continue
                for members, laid in laid_out(model, grid, place.layout, cache, self.memos[0]):
                    for n, stage in enumerate(
                        sorted((laid, *laid.others), key=lambda rank: rank.layers.start)
                    ):
                        if stage.plan.pool is not None:
                            continue  # pools of their own are no division of one pool
                        index = made.setdefault(json.dumps(_plan(stage.plan)), len(made))
                        for number, position in enumerate(members):
                            # What a release refuses in every weight format is left out, like what cannot be stored.
                            if isinstance(laid.refused, int) or not laid.refused[number].all():
                                rows[first + n][kind_at[position]] = index
        return [json.loads(text) for text in made], placed

    def plans_alone(self) -> tuple[list[Any], dict[str, list[list[int]]]]:
        """The same without laying anything out: a plan for each kind of device."""
        made: dict[str, int] = {}
        refused = self.refused()
        placed = {}
        for cache in self.caches:
            rows = placed[cache.name] = [[NONE] * len(self.examples) for _ in self.columns]
            for number, (row, place, part) in enumerate(zip(rows, self.columns, self.parts, strict=True)):
                if part is None or self.site.refusal(self.model) or all(self.cut(place.layout)):
                    continue
                alone = self.alone(place.layout)
                for kind, gpu in self.examples.items():
                    out = kind in alone or all(many[kind] for many in refused.values())
                    if out or not storable_on(cache, gpu):
                        continue
                    try:
                        plan = plan_blocks(self.case(number, gpu, cache), self.memos[number])
                    except InputError:
                        continue
                    if plan.pool is None or plan.pool.is_division:
                        row[kind] = made.setdefault(json.dumps(_plan(plan)), len(made))
                    elif place.layout.is_tensor_only:  # pools of their own are no division of one pool
                        self.has_own_pools = True
        return [json.loads(text) for text in made], placed

    def alone(self, layout: Layout) -> set[int]:
        """Kinds of devices on which the release refuses a layout, whatever the weight format."""
        site, kinds = self.site, sorted(self.examples)
        if site.catalog.support is None:
            return set()
        devices = [self.examples[kind] for kind in kinds]
        found = alone_codes(site.catalog.support, site.engine, devices, self.model, layout)
        return {kind for kind, code in zip(kinds, found, strict=True) if code}

    def refused(self) -> dict[str, list[bool]]:
        """For each weight format and kind of device, whether the release refuses the model so."""
        site = self.site
        return {
            name: [
                site.catalog.support is not None
                and judge(site.catalog.support, site.engine, gpu, self.model, form).verdict is not None
                for _, gpu in sorted(self.examples.items())
            ]
            for name, form in site.axes.weight_formats
        }

    def loaded(self) -> dict[str, list[Any]]:
        """What loading adds, by weight format and column: one number, or one per kind where they differ."""
        refused = self.refused()
        found = []
        for place, part, memo in zip(self.columns, self.parts, self.memos, strict=True):
            kinds = [gpu for _, gpu in sorted(self.examples.items())]
            found.append(
                None
                if part is None
                else [load_overheads(_case(self.site, part, gpu, place.layout, None), memo) for gpu in kinds]
            )
        cut = [self.cut(place.layout) for place in self.columns]
        return {
            name: [
                each and _alike_added([one[n] for one in each], [out or cut[at][n] for out in refused[name]])
                for at, each in enumerate(found)
            ]
            for n, (name, _) in enumerate(self.site.axes.weight_formats)
        }

    def cut(self, layout: Layout) -> list[bool]:
        """For each weight format, whether the release refuses a layout, because it cuts blocks or lacks stages."""
        site = self.site
        forms = [form for _, form in site.axes.weight_formats]
        if site.catalog.support is None:
            return [False] * len(forms)
        asked = Asked(layout=layout, formats=site.catalog.weight_formats)
        return [
            bool(code) for code in spread_codes(site.catalog.support, site.engine, self.model, forms, asked)
        ]

    def of_engine(self) -> dict[str, Any]:
        """What the engine decides: plans, what loading adds, the reserve."""
        plans, placed = self.plans()
        numbers = range(len(self.columns))
        classes = {number: gpu for gpu, number in _by_number(self.site, self.site.reserve_classes)}
        return {
            "loaded": self.loaded(),
            "reserve": [[self.kept(gpu, number) for number in numbers] for _, gpu in sorted(classes.items())],
            "plans": plans,
            "plan": placed,
        }

    def weights(self) -> dict[str, list[int | None]]:
        """Weights per device by format and column."""
        gone = left_out(self.model, self.site.axes)
        some = next(iter(self.examples.values()))
        each = [self.taken(some, number) for number in range(len(self.columns))]
        return {
            name: [
                None if one is None or gone[place] else int(one.weight_bytes[place])  # type: ignore[index]
                for one in each
            ]
            for place, (name, _) in enumerate(self.site.axes.weight_formats)
        }

    def held(self) -> dict[str, list[Any]]:
        """What the architecture itself needs, by KV format and column."""
        kinds = [gpu for _, gpu in sorted(self.examples.items())]
        return {
            cache.name: [
                None
                if part is None
                else _held([self.case(number, gpu, cache) for gpu in kinds], self.site, known)
                for number, (part, known) in enumerate(zip(self.parts, self.memos, strict=True))
            ]
            for cache in self.caches
        }


def reserve_rates(site: SiteData, model: Model, *, further: bool = True) -> dict[str, Any]:
    """Return what other scheduler sizes need: the reserve's rates for every column, None without such rules.

    A list for each column, in the order of :class:`kvreport.accounting.engines.vllm.reserve.ReserveRates`;
    ``other_rates`` are those of devices where another runner serves the model, None where none does.
    """
    offered = set(site.searched.layouts_of(model))
    engine = rules(site.engine)

    columns = [place if place.layout in offered else None for place in places(site, further=further)]
    parts = _parts(site, model, columns)

    def listed(*, nvidia: bool) -> list[list[float] | None] | None:
        found = [
            engine.reserve_rates(part, place.layout, nvidia=nvidia, receives=place.stage > 0)
            if place and part
            else None
            for place, part in zip(columns, parts, strict=True)
        ]
        return [None if one is None else list(one) for one in found] if any(found) else None

    usual, other = listed(nvidia=True), listed(nvidia=False)
    return {"rates": usual, "other_rates": None if other == usual else other}


def _parts(site: SiteData, model: Model, columns: Sequence[Place | None]) -> list[Model | None]:
    """The part of a model that each column's stage runs; None where a column is not offered."""
    numbers = {place.layout.pipeline for place in columns if place}
    divided = {number: stages(model, number, _sizes(site, model, number)) for number in numbers}
    return [divided[place.layout.pipeline][place.stage].model if place else None for place in columns]


def _sizes(site: SiteData, model: Model, number: int) -> tuple[int, ...]:
    """The layers of each of so many stages where the engine divides them in a way of its own."""
    return rules(site.engine).stage_sizes(model.layer_count, number)


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


def own_kv(site: SiteData, model: Model) -> str:
    """Return the KV format that ``auto`` means for a model."""
    return site.catalog.kv_format(automatic_kv_format(model)).name


def _by_number(site: SiteData, numbers: dict[str, int]) -> Iterator[tuple[Accelerator, int]]:
    for gpu in reversed(site.gpus):
        yield gpu, numbers[gpu.id]


def _waits_for_slots(site: SiteData, model: Model) -> bool:
    """Whether the engine wants a block for the states of every sequence before it starts."""
    serving = Serving(max_batched_tokens=1, max_seqs=1)
    return rules(site.engine).state_slots_wanted(model, serving, eager=False) is not None


def _alike_added(added: list[int], refused: list[bool]) -> int | list[int | None] | None:
    """Return what loading adds: one number, or one per kind of device where they differ.

    None where the release refuses the weights.
    """
    shown = [None if out else one for one, out in zip(added, refused, strict=True)]
    return shown[0] if len(set(shown)) == 1 else shown


def _plan(blocks: BlockPlan) -> list[Any]:
    return [blocks.block_bytes, blocks.kept_blocks, *_profile(blocks.profile)]


def _profile(profile: CacheProfile) -> list[Any]:
    constant, terms = profile.flat
    return [constant, [list(term) for term in terms]]
