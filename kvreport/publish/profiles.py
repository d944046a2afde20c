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
from typing import Any, Final

from kvreport.accounting.allocation import state_slots_wanted
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.parallel import Layout, allowed_tensor_parallel
from kvreport.accounting.plan import Serving
from kvreport.accounting.shares import asked_memory, share_on, start_shortage
from kvreport.accounting.weights import active_parameters, parameters
from kvreport.catalog.accelerator import Accelerator, current_since
from kvreport.catalog.model import Model
from kvreport.publish.attention_types import cache_kind
from kvreport.publish.device_columns import (
    NONE,
    Columns,
    by_number,
    following,
    own_kv,
    places,
    published_columns,
    reserve_rates,
)
from kvreport.publish.log_coverage import confirmed, expected_error, is_logged
from kvreport.publish.site_data import SiteData, page_format, short_name

SCHEMA: Final = 1
FOLDER: Final = "downloads/v1"
ENGINES: Final = (
    "vllm-0.32",
    "vllm-0.28",
    "vllm-0.25",
    "vllm-0.23",
    "vllm-0.20",
    "vllm-0.19",
    "vllm-0.11",
    "sglang",
)
"""Other engines that pages can switch to (:mod:`kvreport.publish.engine_profiles`), where the catalog has them."""


def shape(site: SiteData) -> bytes:
    """Return what decides the lists of every model's file.

    The other models decide which formats the lists have; their names decide nothing.
    """
    facts = site_facts(site)
    return encode({name: value for name, value in facts.items() if name != "models"})


def every_model(site: SiteData, models: Sequence[Model] | None = None) -> list[tuple[bytes, dict[str, Any]]]:
    """Return each model's file, and its facts in the published layouts, which several files are made from.

    A file also has ``splits``, the tensor-parallel sizes up to 16 that the model's shapes allow.
    """
    published = published_columns(site)
    lists = site.once("shape", lambda: shape(site))

    def make(model: Model) -> tuple[bytes, dict[str, Any]]:
        facts = model_facts(site, model, further=True)
        rates = reserve_rates(site, model)
        splits = list(allowed_tensor_parallel(model))
        own = {"schema": SCHEMA, "release": site.version, **facts, **rates, "splits": splits}
        return encode(own), of_sizes(facts | following(rates), published)

    each = site.parts.each("profiles", site.models if models is None else models, make, lists)
    return [made for _, made in each]


def files(site: SiteData, everything: Sequence[tuple[bytes, dict[str, Any]]]) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of every JSON file from what :func:`every_model` returns, byte-identical for the same catalog."""
    shared = site_facts(site)
    yield f"{FOLDER}/site.json", encode(shared)
    for model, (content, _) in zip(site.models, everything, strict=True):
        yield f"{FOLDER}/models/{model.slug}.json", content
    models = [facts for _, facts in everything]
    yield f"{FOLDER}/explore.json", encode({"site": shared, "models": models})


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
    bring their own buffers, ``gpus[].splits`` whether a workspace is cut out of what compiling freed,
    ``gpus[].partial`` whether graphs keep partial results of attention, ``gpus[].outside`` [whether links multicast, bytes shared with a CPU, whether handles of linear algebra are taken off],
    ``gpus[].share`` the default share of memory, ``gpus[].free`` [bytes free at start, half width of their band]
    where the engine asks, ``gpus[].band`` [share of the reserve, bytes] of the error band of each kind of start, in the order that a model's rates count them, pipeline stages last, ``gpus[].errors``
    its half widths with converted weights where it follows their format: of eight bits or more and of four, on one rank and on several,
    ``gpus[].runner`` which of a model's
    rates hold (1: ``other_rates``), ``gpus[].local`` the engine whose rows the pages of a machine print where the
    site's has no platform for it, ``gpus[].linked`` whether it stands in servers whose devices are linked,
    as further layouts need, ``gpus[].card`` whether it is a card, of which a machine holds any number, as
    ``layouts[].row`` has in a row of stages. ``engine.since`` is the first release with these rules. ``layouts[].places``
    are the columns of a model's lists, one for each pipeline stage; ``sizing_layouts`` are those that the
    sizer tries beside them, and that a state may name.
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
                "memory": asked_memory(site.engine, gpu.usable_bytes, share_on(site.engine, gpu, None)),
                "share": share_on(site.engine, gpu, None),
                "free": None if start_shortage(site.engine, gpu, None) is None else list(gpu.free_at_start),
                "reserve": reserves[gpu.id],
                "kind": kinds[gpu.id],
                "rented": gpu.is_commonly_rented,
                "rental": gpu.rental_class(since),
                "providers": len(gpu.rented_as),
                "machine": gpu.rented_devices,
                "most": gpu.most_per_machine if gpu.is_computer else None,
                "step": list(rules(site.engine).scheduler(gpu)),
                **rules(site.engine).browser_traits(gpu),
                "linked": gpu.interconnect_bytes_per_s is not None,
                "card": gpu.is_card,
                "local": _local(site, gpu),
                "at_home": gpu.id in site.catalog.local_first,
                "logged": is_logged(site.catalog, gpu),
            }
            for gpu in site.gpus
        ],
    }


def _local(site: SiteData, gpu: Accelerator) -> dict[str, str] | None:
    engine = site.local_engine(gpu)
    return None if engine is None else {"name": engine.name, "label": engine.label}


def engines(site: SiteData) -> list[dict[str, Any]]:
    """Return the engines that pages can switch to, the site's own first, and how well logs confirm each."""
    others = (name for name in ENGINES if name in site.catalog.engines and name != site.engine.name)
    listed = (site.engine, *map(site.catalog.engine, others), site.catalog.engine("ceiling"))
    return [
        {
            "name": engine.name,
            "label": engine.label,
            "family": engine.family,
            "versions": list(engine.versions) if engine.versions else None,
            "version": engine.version or None,
            "confirmed": confirmed(site.catalog, engine),
            "expected": expected_error(site.catalog, engine),
        }
        for engine in listed
    ]


def layouts(site: SiteData, *, searched: bool) -> list[dict[str, Any]]:
    """Return how models are spread: tensor parallel first, each with the columns that its stages have.

    Those that only a search for a deployment tries are ``searched``.
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
            "order": layout.order,
            "places": numbers,
        }
        for layout, numbers in found.items()
        if (layout in own) == searched
    ]


def of_sizes(facts: dict[str, Any], number: int) -> dict[str, Any]:
    """Return facts of a model, of whichever functions here, with their first ``number`` columns only and the plans of these."""
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
    uncertainty]; ``plans[n]`` is [block bytes, kept blocks, constant, [[rate, step, cap], …]], with
    the fields of :class:`kvreport.accounting.kernel.PoolRule` as a fifth where states or windows have pools of their own, else
    null, and as a sixth how many scheduler steps its windows hold where these are not ``engine.in_flight``;
    ``plan[kv][size][kind]`` is an index into ``plans`` or -1; ``held[kv][size]`` is what the
    architecture itself needs, [constant, [[rate, step, cap], …], state], or {kinds: [one for each kind
    of device]} where their kernels lay the format out differently; a cap of 0 is none. ``refused`` is why the engine does not
    run the model. ``least_step`` is how many tokens a step must have, which a default has at least.
    """
    columns = places(site, further=further)
    work = Columns(site, model, columns)
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
        "least_step": rules(site.engine).least_step(model),
        "parameters": parameters(model),
        "active": active_parameters(model),
        "form": page_format(model),
        "by_name": int(model.by_name),
        "kv": own_kv(site, model),
        "kvs": work.own_kvs(),
        **work.of_engine(),
        "weights": work.weights(),
        "held": work.held(),
        **({"refused": reason} if (reason := site.refusal(model)) else {}),
    }


def engine_facts(site: SiteData, model: Model, *, reserves: Collection[str] = ()) -> dict[str, Any]:
    """Return what of a model's facts an engine decides, with a column for each of :func:`places`.

    The reserves of accelerators with the ids ``reserves`` are listed; they are left out where rates give them.
    """
    work = Columns(site, model, places(site, further=True))
    plans, placed = work.plans()
    wanted = {site.reserve_classes[gpu.id] for gpu in site.gpus if gpu.id in reserves}
    classes = {number: gpu for gpu, number in by_number(site, site.reserve_classes)}
    numbers = range(len(work.columns))
    return {
        "slots": _waits_for_slots(site, model),
        "least_step": rules(site.engine).least_step(model),
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
    work = Columns(site, model, places(site, further=False))
    plans, placed = work.plans()
    return {"plans": plans, "plan": placed, "held": work.held()}


def _waits_for_slots(site: SiteData, model: Model) -> bool:
    """Whether the engine wants a block for the states of every sequence before it starts."""
    serving = Serving(max_batched_tokens=1, max_seqs=1)
    return state_slots_wanted(site.engine, model, serving, eager=False) is not None
