"""What a build needs of each model, computed by several processes before it is asked for.

Values of single models depend on records and axes alone. A build that keeps few of them computes most of its time;
another process opens the same catalog and computes its share. What is published does not depend on how many do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvreport import processes
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.catalog.model import Model
from kvreport.dataset.staged_files import available_processors
from kvreport.publish import engine_changes, engine_profiles, profiles, question_data, sizer_data
from kvreport.publish.kept_values import Collected
from kvreport.publish.page_data import ModelRows, facts_alone
from kvreport.publish.site_data import SiteData

_FEW: Final = 16
"""Models: a process takes about 2 s to begin, and a model's values a quarter of a second (measured)."""
_TOGETHER: Final = 4
"""Models that are computed together: about a second."""

Values = dict[str, dict[bytes, object]]
"""Values of some models, by group of :class:`kvreport.publish.kept_values.Parts` and by key."""


@dataclass(frozen=True)
class ModelInputs:
    """What decides the values of a build's models."""

    folder: Path
    models: str
    gpus: str
    version: str
    state: str


class Work:
    """The values of single models, for the groups of one build."""

    def __init__(self, site: SiteData, parts: Collected, asked: ModelInputs) -> None:
        """Take the facts, without any rows, and what collects the values."""
        self._site, self._parts = site, parts
        self._rows = ModelRows.of(site, asked.models, asked.gpus)

    def values(self, models: Sequence[Model]) -> Values:
        """Compute everything that a build asks of some models."""
        self._rows.on_headline_gpu(models)
        self._rows.on_one(models)
        self._site.capacities_of(models)
        profiles.every_model(self._site, models)
        sizer_data.every_model(self._site, models)
        for name in engine_profiles.published(self._site):
            list(engine_profiles.of_models(self._site, name, models))
        engine_profiles.rates(self._site, models)
        list(question_data.of_models(self._site, models))
        engine_changes.of_models(self._site, models)
        return self._parts.taken()

    def at(self, places: Sequence[int]) -> Values:
        """The same, for models by their place among those of the site."""
        return self.values([self._site.models[place] for place in places])


def compute(facts: SiteData, models: str, gpus: str) -> None:
    """Compute the values that a build does not keep, if they are many, and give them to its parts."""
    parts = facts.parts
    missing = parts.missing("rates", map(parts.of_model, facts.models))
    others = min(available_processors() - 1, len(missing) // _FEW)
    if others < 1:
        return
    asked = ModelInputs(facts.catalog.folder, models, gpus, facts.version, parts.state)
    here = _work(facts.catalog, asked)
    together = [missing[first : first + _TOGETHER] for first in range(0, len(missing), _TOGETHER)]
    with processes.workers(others, _begin, (asked,)) as pool:
        for values in processes.shared_out(together, pool, others, _there, here.at):
            parts.give(values)


def _work(catalog: Catalog, asked: ModelInputs) -> Work:
    parts = Collected(asked.state)
    site = facts_alone(catalog, models=asked.models, gpus=asked.gpus, version=asked.version, parts=parts)
    return Work(site, parts, asked)


_works: list[Work] = []


def _begin(asked: ModelInputs) -> None:
    """Open the catalog in another process."""
    catalog = open_catalog(asked.folder)
    _works[:] = [_work(catalog, asked)]
    processes.collect_garbage_less()


def _there(places: Sequence[int]) -> Values:
    return _works[0].at(places)
