"""How llama.cpp lays out each model on one device, for the pages of local engines and the files of questions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kvreport.catalog.model import Model
from kvreport.estimation.at_home import AtHome, at_home
from kvreport.publish.site_data import SiteData


def of_models(site: SiteData, models: Sequence[Model]) -> dict[str, AtHome]:
    """Return the layouts of some models by id, kept between builds.

    Models that llama.cpp does not convert are left out, and quantized copies: they are converted from their originals.
    """
    found = {}
    with site.parts.group("at-home") as kept:
        for model in models:
            if model.quantized_from is None:
                laid = kept.get(site.parts.of_model(model), partial(at_home, model))
                if laid is not None:
                    found[model.id] = laid
    return found


def every_model(site: SiteData) -> dict[str, AtHome]:
    """Return the layouts of all models of a site by id."""
    return site.once("at-home", lambda: of_models(site, site.models))
