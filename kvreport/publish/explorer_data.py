"""The explorer's numbers, cut so that the first question asks for little.

Published under ``downloads/v1/explore/``. Every file is a list for each field, with its models in the order of
``site.json``: alike stands beside alike, which travels a third smaller than a list of models. The explorer
fetches what a question needs and the rest when a reader begins to choose:

- ``site.json``: what the explorer reads of the whole ``site.json``.
- ``facts.json`` and ``names.json``: all of it in the same form, for the other pages; models' names apart, which the page of
  one model does not need.
- ``models.json``: what does not depend on a device: maker, limit, release, default formats, inputs, parameters.
- ``traits.json``: what else the explorer filters and sorts by: attention type, active parameters, whether it is a copy.
- ``aliases.json``: families and other names, for the text filter.
- ``<folder>/weights-<format>.json``: weights in a layout; ``weights-own.json`` has each model in the format that its page
  takes, which is not what its release stores where nobody has read that. The folder is the tensor-parallel size,
  or the layout's name (``dp8-ep``), or of pipeline stages one for each (``pp2-tp8-1``).
- ``<folder>/added-<format>-<class>.json``: what loading them adds on accelerators of one class, the ``loading`` of
  accelerators in ``site.json`` and ``facts.json``.
- ``<folder>/cache-<format>.json``: block plans; ``cache-own.json`` has each model's default KV format.
- ``<folder>/held-<format>.json``: what the architecture itself needs, for the upper bound.
- ``<folder>/reserve-<class>.json``: the reserve's bytes on accelerators of one class; their error is a formula, and for some
  models what a later start spares beside it, by the model's position.
- ``tensor/<name>.json``: those of ``weights``, ``added``, ``cache`` and ``reserve`` of all tensor-parallel sizes in one
  (:mod:`kvreport.publish.tensor_size_deltas`), for pages that ask for each size.
- ``<folder>/speed.json``: what a decode step demands, as in ``times/<slug>.json``.

``docs/assets/kv-matrix.js`` puts them together again; a test holds the result equal to the models' own files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kvreport.accounting.kernel import ReserveRates, error_bytes, follows_length
from kvreport.accounting.parallel import Layout
from kvreport.publish.device_columns import NONE, one_or_each, places
from kvreport.publish.layout_names import layout_words, ways
from kvreport.publish.profiles import FOLDER, encode, site_facts
from kvreport.publish.site_data import SiteData
from kvreport.publish.tensor_size_deltas import together
from kvreport.resources import read_table

OWN: Final = "own"
"""The name of the files with each model's default format, of weights or of the cache."""

_COMMON: Final = ("maker", "limit", "slots", "least_step", "form", "by_name", "kv")
_SITE: Final[tuple[str, ...]] = tuple(read_table("explorer site"))
_GPU: Final[tuple[str, ...]] = tuple(read_table("explorer gpu"))
"""What the explorer reads of ``site.json`` and of its accelerators."""

_LAYOUT: Final = ("label", "tp", "pp", "dp", "ep", "dcp", "devices", "places")
"""What it reads of a layout."""

_SHOWN_DIGITS: Final = 3
"""Digits of a parameter count that the explorer shows and sorts by; exact counts do not compress."""

Facts = dict[str, Any]


def files(site: SiteData, models: Sequence[Facts], times: Sequence[Facts]) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of every file.

    ``models`` are :func:`kvreport.publish.profiles.model_facts` with :func:`kvreport.publish.device_columns.following`, and ``times`` are
    :func:`kvreport.publish.sizer_data.times_facts`, of every model.
    """
    for name, content in _files(site, models, times):
        yield f"{FOLDER}/explore/{name}.json", encode(content)


def _files(site: SiteData, models: Sequence[Facts], times: Sequence[Facts]) -> Iterator[tuple[str, Facts]]:
    whole = site_facts(site)
    classes = {gpu["reserve"]: (gpu["band"], gpu["runner"]) for gpu in whole["gpus"]} if models else {}
    loading = _loading_classes(models, 1 + max((gpu["kind"] for gpu in whole["gpus"]), default=0))
    gpus = _by_field(whole) | {"loading": [loading[gpu["kind"]] for gpu in whole["gpus"]]}
    yield "site", _site(whole, gpus, {one.layout.label: one.layout for one in places(site, further=True)})
    yield "facts", {name: value for name, value in whole.items() if name != "models"} | {"gpus": gpus}
    yield "names", {"models": _names(whole)}
    yield "models", _common(site, models)
    yield "traits", _traits(site, models)
    yield "aliases", {name: [facts[name] for facts in models] for name in ("family", "aliases")}
    sizes = whole["sizes"]
    of_sizes: dict[str, list[Facts]] = {}
    for place, folder in enumerate(_folders(whole["layouts"])):
        for name, content in _of_folder(site, models, folder, place, loading, classes):
            yield f"{folder.name}/{name}", content
            if place < len(sizes) and not name.startswith("held"):
                of_sizes.setdefault(name, []).append(content)
        yield f"{folder.name}/speed", _speed(site, times, place)
    for name, each in of_sizes.items() if len(sizes) > 1 else ():
        yield f"tensor/{name}", together(name.partition("-")[0], each, sizes)


def _of_folder(
    site: SiteData,
    models: Sequence[Facts],
    folder: _Folder,
    place: int,
    loading: Sequence[int],
    classes: dict[int, tuple[Sequence[float], bool]],
) -> Iterator[tuple[str, Facts]]:
    """What a layout's folder has of capacity."""
    for form, converted in (*site.axes.weight_formats, *([(OWN, None)] if folder.plain else [])):
        if folder.plain or converted is None:  # the matrix has further layouts of checkpoints as released
            weights = [_in_format(facts, "weights", form, place) for facts in models]
            yield f"weights-{form}", {"weights": weights}
            for number in sorted(set(loading)):
                yield f"added-{form}-{number}", {"added": _added(models, form, place, loading.index(number))}
    for cache in (OWN, *site.kv_names):
        yield f"cache-{cache}", _caches(models, cache, place)
        yield f"held-{cache}", {"held": [_held(facts, cache, place) for facts in models]}
    for number, (band, runner) in classes.items():
        kept = [facts["reserve"][number][place] for facts in models]
        share, least = band[-2:] if folder.staged else band[:2]
        yield f"reserve-{number}", _reserves(kept, (share, least)) | {"rates": _rates(models, place, runner)}


@dataclass(frozen=True, slots=True)
class _Folder:
    """The folder of a column."""

    name: str
    plain: bool
    staged: bool


def _folders(layouts: Sequence[Facts]) -> Iterator[_Folder]:
    """Yield the folder of every column, in order."""
    for layout in layouts:
        plain = layout["devices"] == layout["tp"] and not layout["ep"] and layout["dcp"] == 1
        name = str(layout["tp"]) if plain else layout["label"]
        staged = layout["pp"] > 1
        for stage in range(1, layout["pp"] + 1):
            yield _Folder(f"{name}-{stage}" if staged else name, plain, staged)


def _site(whole: Facts, gpus: dict[str, list[Any]], named: dict[str, Layout]) -> Facts:
    """The facts that the explorer shares with other pages."""
    layouts = [
        {name: layout[name] for name in _LAYOUT}
        | {"words": layout_words(named[layout["label"]]), "ways": ways(named[layout["label"]])}
        for layout in whole["layouts"]
    ]
    return {
        **{name: whole[name] for name in _SITE},
        "layouts": layouts,
        "models": _names(whole),
        "gpus": {name: gpus[name] for name in _GPU},
    }


def _names(whole: Facts) -> list[str | list[str]]:
    """Slug and name of each model; the slug alone where it says the name."""
    return [
        slug if slug.partition("--")[2].replace("-", " ") == name else [slug, name]
        for slug, name in whole["models"]
    ]


def _by_field(whole: Facts) -> dict[str, list[Any]]:
    """Each field of all accelerators, memory as the difference to what follows from other fields: often the same number."""
    gpus = [gpu | _differences(gpu) for gpu in whole["gpus"]]
    return {name: [gpu[name] for gpu in gpus] for name in (gpus[0] if gpus else _GPU)}


def _differences(gpu: Facts) -> Facts:
    """Memory as what it has more than the share of what is usable; free bytes as those that are used."""
    usable, free = gpu["usable"], gpu["free"]
    memory = gpu["memory"] - math.ceil(usable * gpu["share"])
    return {"memory": memory, "free": free and [usable - free[0], *free[1:]]}


def _common(site: SiteData, models: Sequence[Facts]) -> Facts:
    return {
        **{name: [facts[name] for facts in models] for name in _COMMON},
        "release": [model.release for model in site.models],
        "inputs": ["|".join(model.inputs) for model in site.models],
        "parameters": [_rounded(facts["parameters"]) for facts in models],
    }


def _traits(site: SiteData, models: Sequence[Facts]) -> Facts:
    return {
        "kind": [facts["kind"] for facts in models],
        "copy": [int(model.quantized_from is not None) for model in site.models],
        "active": [_rounded(facts["active"]) for facts in models],
    }


def _in_format(facts: Facts, name: str, form: str, place: int) -> Any:  # noqa: ANN401 - a size, or what loading adds
    found = facts[name].get(facts["form"] if form == OWN else form)
    return found and found[place]


def _loading_classes(models: Sequence[Facts], kinds: int) -> list[int]:
    """For each kind of device its class: on those of one, loading adds the same to every model."""
    lists = {
        tuple(added)
        for facts in models
        for columns in facts["loaded"].values()
        for added in columns
        if isinstance(added, list)
    }
    classes: dict[tuple[int | None, ...], int] = {}
    return [classes.setdefault(tuple(added[kind] for added in lists), len(classes)) for kind in range(kinds)]


def _added(models: Sequence[Facts], form: str, place: int, kind: int) -> list[int | None]:
    """What loading adds to every model on devices of one kind; null where the release refuses the weights."""
    found = (_in_format(facts, "loaded", form, place) for facts in models)
    return [added[kind] if isinstance(added, list) else added for added in found]


def _caches(models: Sequence[Facts], cache: str, place: int) -> Facts:
    """Plans in one KV format, each model's own numbered from 0."""
    plans: list[list[Any]] = []
    plan: list[int | list[int] | None] = []
    for facts in models:
        name = facts["kv"] if cache == OWN else cache
        indices = facts["plan"][name][place] if name in facts["plan"] else None
        used = sorted({index for index in indices or () if index >= 0})
        where = {index: number for number, index in enumerate(used)} | {NONE: NONE}
        plans.append([facts["plans"][index] for index in used])
        plan.append(None if indices is None else one_or_each([where[index] for index in indices]))
    return {"plans": plans, "plan": plan}


def _held(facts: Facts, cache: str, place: int) -> Any:  # noqa: ANN401 - a list, or one for each kind of device
    name = facts["kv"] if cache == OWN else cache
    return facts["held"][name][place] if name in facts["held"] else None


def _reserves(kept: Sequence[list[int] | None], band: tuple[float, float]) -> Facts:
    """Every model's reserve on accelerators of one class, and what of its error is no formula of it."""
    spared = {
        str(place): more
        for place, one in enumerate(kept)
        if one is not None and (more := one[1] - error_bytes(*band, one[0]))
    }
    return {"reserve": [None if one is None else one[0] for one in kept], "spared": spared}


def _rates(models: Sequence[Facts], place: int, runner: bool) -> Facts:  # noqa: FBT001 - of a device
    """The rates of models whose reserve follows the longest request, on devices of one class."""
    found = {}
    for number, facts in enumerate(models):
        rates = (runner and facts.get("other_rates")) or facts.get("rates")
        own = rates and rates[place]
        if own and follows_length(ReserveRates(*own)):
            found[str(number)] = own
    return found


def _speed(site: SiteData, times: Sequence[Facts], place: int) -> Facts:
    """What a decode step of one request reads and computes, in every format."""
    return {
        "experts": [facts["experts"] for facts in times],
        "reduced": [facts["reduced"] for facts in times],
        "state": [facts["state"][place] for facts in times],
        "weights": {
            form: [facts["weights"][form][place] for facts in times] for form, _ in site.axes.weight_formats
        },
        "reach": {
            cache: [facts["reach"][cache][place] if cache in facts["reach"] else None for facts in times]
            for cache in site.kv_names
        },
        "attention": {cache: [facts["attention"].get(cache) for facts in times] for cache in site.kv_names},
    }


def _rounded(count: int) -> int:
    return int(float(f"{count:.{_SHOWN_DIGITS}g}"))
