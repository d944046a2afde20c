"""Gathering what pages are made from: the catalog, and the matrix's rows that pages show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from kvreport.catalog.load import RELEASED, Catalog
from kvreport.catalog.model import Model
from kvreport.dataset.grid import Axes, axes
from kvreport.dataset.matrix import Cube, matrix
from kvreport.estimation.named import AUTO
from kvreport.publish import traffic_data
from kvreport.publish.capacities import Released
from kvreport.publish.downloads import NOTHING
from kvreport.publish.kept_values import Parts
from kvreport.publish.series import Config, Series, series
from kvreport.publish.site_data import KNOWN_GPUS, SiteData, counted_context, page_format

CEILING: Final = "ceiling"
"""The policy that runs every model: those that the engine does not run have their page too."""

T = TypeVar("T")


def gather(
    catalog: Catalog,
    *,
    models: str = "*",
    gpus: str = "*",
    version: str,
    parts: Parts | None = None,
) -> SiteData:
    """Return what every page may ask, without the published files.

    Raises:
        InputError: If nothing matches a pattern.
    """
    facts = facts_alone(catalog, models=models, gpus=gpus, version=version, parts=parts or Parts(None))
    return with_rows(facts, models, gpus)


def with_rows(site: SiteData, models: str, gpus: str) -> SiteData:
    """Return the facts of a site with the rows that its pages show; patterns as for :func:`gather`."""
    traffic_data.KEPT.set(site.parts)
    rows = ModelRows.of(site, models, gpus)
    return replace(
        site,
        on_headline_gpu=rows.on_headline_gpu(site.models),
        on_one=_by_device(rows.alone, rows.on_one(site.models)),
    )


def facts_alone(catalog: Catalog, *, models: str, gpus: str, version: str, parts: Parts) -> SiteData:
    """Return the same without any rows and downloads: all that a single model's own values need.

    Raises:
        InputError: If nothing matches a pattern.
    """
    released_axes = axes(catalog, models=models, gpus=gpus, weights=[RELEASED], kv=[AUTO])
    everything = axes(catalog, models=models, gpus=gpus, engine=CEILING)

    def released(model: Model) -> dict[Config, Series]:
        form = page_format(model)
        chosen = released_axes
        if form != RELEASED:
            chosen = axes(catalog, models=models, gpus=gpus, weights=[form], kv=[AUTO])
        return _all_series(matrix(replace(chosen, models=(model,))))

    return SiteData(
        catalog=catalog,
        engine=released_axes.engine,
        contexts=released_axes.contexts,
        models=tuple(sorted(everything.models, key=lambda m: (m.name.lower(), m.id))),
        accelerators=tuple(released_axes.accelerators),
        released=Released(released_axes.models, released),
        on_headline_gpu={},
        on_one={},
        version=version,
        downloads=NOTHING,
        parts=parts,
    )


Served = list[tuple[str, str, int]]
"""(accelerator, weight format, weight bytes) of what one device serves."""


@dataclass(frozen=True)
class ModelRows:
    """The rows of each model that pages about all of them show."""

    on_known: Axes
    alone: Axes
    parts: Parts

    @classmethod
    def of(cls, site: SiteData, models: str, gpus: str) -> ModelRows:
        """Return those of a site; patterns as for :func:`gather`."""
        catalog, here = site.catalog, {one.id for one in site.accelerators}
        known = next((gpu for gpu in KNOWN_GPUS if gpu in here), site.accelerators[0].id)
        counted = counted_context(tuple(catalog.grid.contexts))
        return cls(
            axes(catalog, models=models, gpus=known),
            axes(catalog, models=models, gpus=gpus, kv=[AUTO], tensor_parallel=[1], contexts=[counted]),
            site.parts,
        )

    def on_headline_gpu(self, models: Sequence[Model]) -> dict[str, dict[Config, Series]]:
        """Return the series of some models in all formats, by model id; without models that have none."""
        return _each(self.on_known, models, self.parts, "headline-gpu", _all_series)

    def on_one(self, models: Sequence[Model]) -> dict[str, Served]:
        """Return what one device of each kind serves of some models, by model id."""
        return _each(self.alone, models, self.parts, "on-one", _served)


def _each(
    wanted: Axes, models: Sequence[Model], parts: Parts, name: str, take: Callable[[Iterable[Cube]], T]
) -> dict[str, T]:
    """Return what ``take`` makes of the cubes of each of some models, by model id; without models that have none."""
    chosen = {model.id for model in models}

    def make(model: Model) -> T | None:
        return take(matrix(replace(wanted, models=(model,)))) or None

    found = parts.each(name, (model for model in wanted.models if model.id in chosen), make)
    return {model.id: one for model, one in found if one is not None}


def _all_series(cubes: Iterable[Cube]) -> dict[Config, Series]:
    """Return the series of all of a model's cubes: a model has several where local machines are among its devices."""
    return {config: one for cube in cubes for config, one in series(cube).items()}


def _served(cubes: Iterable[Cube]) -> Served:
    """Return (accelerator, weight format, weight bytes) of what one device serves at the context that is counted."""
    return [
        (config.gpu, config.weight_format, one.weight_bytes)
        for config, one in _all_series(cubes).items()
        if one.holds(one.at(counted_context(one.contexts)))
    ]


def _by_device(alone: Axes, served: dict[str, Served]) -> dict[tuple[str, str], tuple[tuple[str, int], ...]]:
    """Return what one device of each kind serves in each weight format: (model id, weight bytes)."""
    found: dict[tuple[str, str], list[tuple[str, int]]] = {
        (gpu.id, form): [] for gpu in alone.accelerators for form, _ in alone.weight_formats
    }
    for model, many in served.items():
        for gpu, form, weight_bytes in many:
            found[gpu, form].append((model, weight_bytes))
    return {key: tuple(many) for key, many in found.items()}
