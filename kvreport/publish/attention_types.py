"""The attention types of models: one id for addresses and files, one label for readers."""

from __future__ import annotations

from typing import Final

from kvreport.catalog.model import Model
from kvreport.words import ATTENTION_TYPES

KINDS: Final = tuple(ATTENTION_TYPES)
"""Ids: ``full``, ``window``, ``latent``, ``hybrid``, ``recurrent``, ``none``."""


def cache_kind(model: Model) -> str:
    """Return a model's attention type, one of :data:`KINDS`."""
    kinds = {cache.kind for group in model.layers for cache in group.caches}
    grows = kinds & {"full", "latent", "sliding", "chunked"}
    if "state" in kinds:
        return "hybrid" if grows else "recurrent"
    if "latent" in kinds:
        return "latent"
    if kinds & {"sliding", "chunked"}:
        return "window"
    return "full" if kinds else "none"


def attention_label(kind: str) -> str:
    """Return the words for one of :data:`KINDS`, or the text itself where it is none of them."""
    return ATTENTION_TYPES.get(kind, kind)
