"""How a model remembers, in the few words that pages, JSON and filters share."""

from __future__ import annotations

from typing import Final

from kvreport.catalog.model import Model

KINDS: Final = ("full attention", "windows", "latent", "hybrid with states", "state only")


def cache_kind(model: Model) -> str:
    """Return how a model remembers, in one of :data:`KINDS`."""
    kinds = {cache.kind for group in model.layers for cache in group.caches}
    grows = kinds & {"full", "latent", "sliding", "chunked"}
    if "state" in kinds:
        return "hybrid with states" if grows else "state only"
    if "latent" in kinds:
        return "latent"
    return "windows" if kinds & {"sliding", "chunked"} else "full attention"
