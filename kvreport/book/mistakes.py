"""Known mistakes about a cache: the model that somebody has in mind who makes one.

A mistake changes what layers are said to keep. Its bytes follow from the usual arithmetic
(:mod:`kvreport.accounting.kv_cache`) over the changed record, so that no second formula stands beside the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kvreport.catalog.caches import (
    Cache,
    ChunkedAttention,
    FullAttention,
    Indexer,
    Latent,
    RecurrentState,
    Ring,
    SlidingWindow,
)
from kvreport.catalog.model import LayerGroup, Model
from kvreport.errors import InputError, shorten

Caches = tuple[Cache, ...]


def _each(change: Callable[[Cache, Model], Cache | None]) -> Callable[[Model], Model]:
    """A mistake about every cache on its own; None leaves the cache out."""

    def changed(model: Model) -> Model:
        groups = []
        for group in model.layers:
            caches = [change(cache, model) for cache in group.caches]
            groups.append(_with(group, tuple(cache for cache in caches if cache is not None)))
        return model.model_copy(update={"layers": tuple(groups)})

    return changed


def _with(group: LayerGroup, caches: Caches) -> LayerGroup:
    return group.model_copy(update={"caches": caches})


def _every_layer(model: Model) -> Model:
    """Layers that keep states, or nothing, get the caches of the group of most layers that grow."""
    growing = [group for group in model.layers if any(map(grows, group.caches))]
    if not growing:
        return model
    usual = max(growing, key=lambda group: group.count).caches
    return model.model_copy(
        update={
            "layers": tuple(
                group if any(_keeps_tokens(cache) for cache in group.caches) else _with(group, usual)
                for group in model.layers
            )
        }
    )


def grows(cache: Cache) -> bool:
    """Whether a cache grows with every token."""
    return isinstance(cache, FullAttention) or (isinstance(cache, Latent) and cache.window is None)


def _keeps_tokens(cache: Cache) -> bool:
    return isinstance(cache, FullAttention | SlidingWindow | ChunkedAttention | Latent)


def _no_window(cache: Cache, _: Model) -> Cache:
    if isinstance(cache, SlidingWindow | ChunkedAttention):
        return FullAttention(kv_heads=cache.kv_heads, key_dim=cache.key_dim, value_dim=cache.value_dim)
    if isinstance(cache, Latent) and cache.window is not None:
        return cache.model_copy(update={"window": None})
    return cache


def _query_heads(cache: Cache, model: Model) -> Cache:
    if isinstance(cache, FullAttention | SlidingWindow | ChunkedAttention):
        return cache.model_copy(update={"kv_heads": max(cache.kv_heads, model.attention_heads)})
    if isinstance(cache, Latent) and model.attention_heads and model.hidden_size:
        width = model.hidden_size // model.attention_heads
        return FullAttention(kv_heads=model.attention_heads, key_dim=width, value_dim=width)
    return cache


def _no_rope(cache: Cache, _: Model) -> Cache:
    return cache.model_copy(update={"rope_dim": 0}) if isinstance(cache, Latent) else cache


def _no_stride(cache: Cache, _: Model) -> Cache:
    return cache.model_copy(update={"stride": 1}) if isinstance(cache, Latent | Indexer) else cache


def _without(*kinds: type) -> Callable[[Cache, Model], Cache | None]:
    return lambda cache, _: None if isinstance(cache, kinds) else cache


MISTAKES: Final[Mapping[str, tuple[str, Callable[[Model], Model]]]] = {
    "all layers": (
        "every layer was counted, also those that keep a state of constant size, or nothing",
        _every_layer,
    ),
    "no states": ("the states that each request holds were left out", _each(_without(RecurrentState, Ring))),
    "no index keys": ("the index keys of sparse attention were left out", _each(_without(Indexer))),
    "no windows": ("sliding windows were counted as if they kept every token", _each(_no_window)),
    "query heads": ("every query head was given separate keys and values", _each(_query_heads)),
    "no rotary part": ("the rotary part of the latent was left out", _each(_no_rope)),
    "no compression": ("one entry was counted for every token, where several share one", _each(_no_stride)),
}
"""The mistakes by name: in words that complete "… because", and what is believed of the model."""


def mistaken(model: Model, mistake: str) -> Model:
    """Return the model as somebody has it in mind who makes a mistake; the same record where it changes nothing.

    Raises:
        InputError: If the mistake is not known.
    """
    if mistake not in MISTAKES:
        raise InputError(f"mistake: found {shorten(mistake)}; allowed: {', '.join(MISTAKES)}")
    changed = MISTAKES[mistake][1](model)
    return model if changed.layers == model.layers else changed
