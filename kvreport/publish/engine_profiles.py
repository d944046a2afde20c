"""The same files under other engines and releases, for the engine switch of the pages.

``downloads/v1/engines/<engine>.json`` has the engine and what the accelerators are under it;
``downloads/v1/engines/<engine>/<model>.json`` what it decides of a model (:func:`profiles.engine_facts`). The rest,
weights and what the architecture needs, is the same under every engine and stands in the model's own file. Most devices
and formats have the same numbers, so equal lists are written once (:func:`in_runs`).
``downloads/v1/engines/<engine>/models.json`` has all models in one file, for pages that list them; that of the site's own
engine has only the rates that other scheduler sizes need (:func:`columns.reserve_rates`). Where no rates give a reserve,
``reserve-<class>.json`` beside it lists those of one class of devices, in the order of its models: of all classes
together they are nine tenths of what is known, and a page asks for a few devices. ``reserves`` in the engine's file are the
classes that have one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from kvreport.accounting.support_lookup import other_reader
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.publish import device_columns, profiles
from kvreport.publish.site_data import SiteData


def files(site: SiteData) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of every file."""
    for name in published(site):
        other = site.under(name)
        facts = profiles.site_facts(other)
        found = list(of_models(site, name, site.models))
        folder = f"{profiles.FOLDER}/engines/{name}"
        reserves = _by_class(other, [json.loads(reserved) for *_, reserved in found])
        yield (
            f"{folder}.json",
            profiles.encode(
                {key: facts[key] for key in ("schema", "release", "engine", "gpus")}
                | {"models": [model.slug for model, *_ in found], "reserves": list(reserves)}
            ),
        )
        for model, content, *_ in found:
            yield f"{folder}/{model.slug}.json", content
        yield f"{folder}/models.json", _together({model.slug: few for model, _, few, _ in found})
        for number, listed in reserves.items():
            yield f"{folder}/reserve-{number}.json", profiles.encode({"reserve": listed})
    yield f"{profiles.FOLDER}/engines/{site.engine.name}/models.json", _together(rates(site, site.models))


def of_models(
    site: SiteData, name: str, models: Sequence[Model]
) -> Iterator[tuple[Model, bytes, bytes, bytes]]:
    """Yield each model that another engine runs, its file, its part of the file with all models, and its reserves."""
    other = site.under(name)
    shape = other.once(
        "kinds", lambda: json.dumps([other.device_kinds, other.reserve_classes], sort_keys=True)
    )
    usual = {
        gpu.id for gpu in other.gpus if gpu.is_commonly_rented or gpu.is_card or gpu.id in other.known_gpus
    }
    served = (model for model in models if runs(other, model))
    for model, contents in site.parts.each(f"engine-{name}", served, partial(_contents, other, usual), shape):
        yield model, *contents


def rates(site: SiteData, models: Sequence[Model]) -> dict[str, bytes]:
    """Return the parts of some models in the file of the site's own engine with all models, by slug."""
    return {model.slug: part for model, part in site.parts.each("rates", models, partial(_rates, site))}


def _contents(site: SiteData, usual: set[str], model: Model) -> tuple[bytes, bytes, bytes]:
    """A model's file; its part of the file with all models, and its reserves by class: of the published layouts only."""
    facts = facts_of(site, model, usual)
    few = profiles.of_sizes(facts, device_columns.published_columns(site))
    apart = ("weights", "reserve")
    part = {name: few[name] for name in few if name not in apart}
    return profiles.encode(in_runs(facts)), profiles.encode(part), profiles.encode(few["reserve"])


def in_runs(facts: dict[str, Any]) -> dict[str, Any]:
    """Return what an engine decides of a model with every list by device once in ``lists``.

    A column of ``loaded``, ``plan`` and ``reserve`` is its place in ``lists``. In a list and in a list of places, ``[x, n]``
    means x, n times. ``decided`` in ``docs/assets/kv-capacity.js`` undoes this.
    """
    numbers: dict[str, int] = {}
    lists: list[Any] = []

    def place(column: Any) -> int:  # noqa: ANN401 - a list by device, or what holds on all
        key = json.dumps(column)
        if key not in numbers:
            numbers[key] = len(lists)
            lists.append(_runs(column) if isinstance(column, list) else column)
        return numbers[key]

    def folded(columns: list[Any] | None) -> list[Any] | None:
        return columns and _runs(map(place, columns))

    by_name = {
        group: {name: folded(columns) for name, columns in facts[group].items()}
        for group in ("loaded", "plan")
    }
    reserve = facts["reserve"] and [folded(columns) for columns in facts["reserve"]]
    return facts | by_name | {"reserve": reserve, "lists": lists}


def _runs(values: Iterable[Any]) -> list[Any]:
    each = [(value, len(list(run))) for value, run in groupby(values)]
    return [value if count == 1 else [value, count] for value, count in each]


def facts_of(site: SiteData, model: Model, usual: set[str]) -> dict[str, Any]:
    """What an engine decides of a model."""
    rates = device_columns.reserve_rates(site, model)
    return profiles.engine_facts(site, model, reserves=() if rates["rates"] else usual) | rates


def _rates(site: SiteData, model: Model) -> bytes:
    return profiles.encode(device_columns.reserve_rates(site, model, further=False))


def _by_class(site: SiteData, reserves: Sequence[list[Any]]) -> dict[int, list[Any]]:
    """Every model's reserve on each class of devices that has some, out of every class's of each model."""
    every = {
        number: [one[number] if one else None for one in reserves]
        for number in sorted(set(site.reserve_classes.values()))
    }
    return {number: listed for number, listed in every.items() if any(listed)}


def _together(contents: dict[str, bytes]) -> bytes:
    """Return encoded values under their keys as one encoded object."""
    return b"{" + b",".join(profiles.encode(name) + b":" + each for name, each in contents.items()) + b"}"


def published(site: SiteData) -> tuple[str, ...]:
    """Return the names of the engines that the catalog has, without the site's own."""
    return tuple(
        name for name in profiles.ENGINES if name in site.catalog.engines and name != site.engine.name
    )


def runs(site: SiteData, model: Model) -> bool:
    """Return whether the engine of a site runs a model, as far as a model alone tells."""
    if site.refusal(model):
        return False
    try:
        return other_reader(site.engine, model.weight_format) is None
    except InputError:
        return False
