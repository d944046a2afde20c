"""Small pictures drawn by our own templates: the layer strip and the memory bar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvreport import units
from kvreport.catalog.caches import (
    Cache,
    ChunkedAttention,
    CrossAttention,
    FullAttention,
    Indexer,
    Latent,
    RecurrentState,
    Ring,
    Shared,
    SlidingWindow,
)
from kvreport.catalog.model import LayerGroup, Model
from kvreport.site.kit.elements import Bar, BarPart, Strip, StripShape
from kvreport.words import counted

TICK: Final = 10
_BOX: Final = 8.6
_HEIGHT: Final = 28
"""Width of a layer's place in the strip, of its box, and the strip's height."""


def role(group: LayerGroup) -> tuple[str, str]:
    """Return the colour role of a group's layers, and a second one where they keep two kinds."""
    kinds = {_role(cache) for cache in group.caches} - {"none"}
    order = [name for name in ("cache", "window", "state") if name in kinds]
    return (order[0] if order else "none", order[1] if len(order) > 1 else "")


def _role(cache: Cache) -> str:
    match cache:
        case FullAttention() | Indexer() | CrossAttention():
            return "cache"
        case Latent():
            return "window" if cache.window else "cache"
        case SlidingWindow() | ChunkedAttention() | Ring():
            return "window"
        case RecurrentState():
            return "state"
        case Shared():
            return "none"


def strip(model: Model) -> Strip:
    """Return a model's layers in order, coloured by what they keep."""
    shapes = []
    for number, group in enumerate(model.layers):
        layers = [index for index, one in enumerate(model.pattern) if one == number]
        css, below = role(group)
        said = f"{group.name}: {'layer' if len(layers) == 1 else 'layers'} {_ranges(layers)}"
        shapes.append(StripShape(css, _boxes(layers, 0, _HEIGHT // 2 if below else _HEIGHT), said))
        if below:
            shapes.append(StripShape(below, _boxes(layers, _HEIGHT // 2, _HEIGHT // 2), said))
    legend = tuple(
        (role(group)[0], f"{group.count} × {group.name}: {describe(group.caches)}") for group in model.layers
    )
    words = "; ".join(f"{group.count} {group.name}" for group in model.layers)
    title = f"{model.layer_count} layers in order: {words}"
    return Strip(title=title, shapes=tuple(shapes), width=model.layer_count * TICK, legend=legend)


def _boxes(layers: Sequence[int], top: int, height: int) -> str:
    """Return the outline of a box for each layer: one shape a kind takes a fifth of what one a layer does."""
    return "".join(f"M{index * TICK} {top}h{_BOX}v{height}h-{_BOX}z" for index in layers)


def _ranges(layers: Sequence[int]) -> str:
    """Return ascending numbers as text, those that follow each other as a range: "0 to 2, 4"."""
    runs: list[list[int]] = []
    for index in layers:
        if runs and runs[-1][-1] == index - 1:
            runs[-1] = [runs[-1][0], index]
        else:
            runs.append([index])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def describe(caches: Sequence[Cache]) -> str:
    """Say what a layer keeps, in words with its shape."""
    return " + ".join(_describe(cache) for cache in caches) or "nothing is kept"


def _describe(cache: Cache) -> str:
    match cache:
        case FullAttention():
            return f"{_heads(cache)} for every token"
        case SlidingWindow():
            return f"{_heads(cache)} for the last {units.count(cache.window)} tokens"
        case ChunkedAttention():
            return f"{_heads(cache)} for the current chunk of {units.count(cache.chunk)} tokens"
        case Latent():
            which = "every token" if cache.stride == 1 else f"every {cache.stride} tokens"
            if cache.window:
                which = f"the last {units.count(cache.window)} tokens"
            return f"one latent of {cache.latent_dim} + {cache.rope_dim} for {which}"
        case Indexer():
            which = "every token" if cache.stride == 1 else f"every {cache.stride} tokens"
            return f"an index key of {cache.index_dim} for {which}"
        case Ring():
            return f"partial sums of the last {units.count(cache.window)} tokens"
        case RecurrentState():
            return "a state of constant size"
        case CrossAttention():
            return f"{_heads(cache)} for {units.count(cache.encoder_tokens)} encoder tokens"
        case Shared():
            return "reads another layer's cache"


def _heads(cache: FullAttention | SlidingWindow | ChunkedAttention | CrossAttention) -> str:
    heads = counted(cache.kv_heads, "KV head|KV heads")
    if cache.key_dim == cache.value_dim:
        return f"{heads} × {cache.key_dim}, keys and values"
    return f"{heads} × ({cache.key_dim} + {cache.value_dim}), keys and values"


def bar(title: str, parts: Sequence[tuple[str, str, int]], total_bytes: int, caption: str) -> Bar:
    """Return a bar of one device's memory.

    Args:
        title: What it shows, for a screen reader.
        parts: (role, label, bytes) from left to right; empty ones are left out.
        total_bytes: Bytes of the whole bar.
        caption: What is held in it.
    """
    slices = []
    start = 0
    for css, label, size in parts:
        if size <= 0:
            continue
        end = min(1000, start + max(2, round(1000 * size / total_bytes)))
        text = f"{units.gib(size, 1)} GiB"
        slices.append(BarPart(css, label, text, start, end - start))
        start = end
    return Bar(title=title, slices=tuple(slices), caption=caption)
