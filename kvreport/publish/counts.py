"""How many models an accelerator serves: the one rule behind every page that says a number.

A model counts for a context where the dataset has the row that the sentence names: weights as released, at most so many
devices, that context, and a verdict that serves. A context is never cut to the limit of a model. The browser's twin is
``answers`` of ``docs/assets/kv-gpu.js``; the explorer counts its rows by the same verdicts.
"""

from __future__ import annotations

from kvreport.catalog.load import RELEASED
from kvreport.catalog.model import Model
from kvreport.publish.site_data import SiteData, page_format


def served(site: SiteData, gpu: str, context: int, devices: int) -> tuple[Model, ...]:
    """Return the models that at most so many devices serve as released."""
    return tuple(model for model in _fitting(site, gpu, context, devices) if page_format(model) == RELEASED)


def unread(site: SiteData, gpu: str, context: int, devices: int) -> tuple[Model, ...]:
    """Return the models that would fit as well, in the format that stands in for one that nobody has read.

    They have rows of that format and none as released, so that no sentence about released weights counts them.
    """
    return tuple(model for model in _fitting(site, gpu, context, devices) if page_format(model) != RELEASED)


def below(site: SiteData, context: int) -> tuple[Model, ...]:
    """Return the models that support fewer tokens than a context."""
    return tuple(model for model in site.models if model.context_tokens < context)


def largest(site: SiteData, models: tuple[Model, ...]) -> Model:
    """Return the model with most parameters among some.

    Raises:
        ValueError: There are none.
    """
    return max(models, key=lambda model: (site.parameters[model.id], model.id))


def _fitting(site: SiteData, gpu: str, context: int, devices: int) -> list[Model]:
    place = site.contexts.index(context)
    return [model for model in site.models if 0 < site.outcome(model, gpu).fewest[place] <= devices]
