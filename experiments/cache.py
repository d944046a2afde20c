"""What a cache object of transformers really holds: its tensors, by shape and by storage."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Held:
    """The tensors of a cache."""

    shape_bytes: int  # Elements times element size, summed over tensors.
    # Bytes of the memory blocks behind them; larger where a tensor is a view of something longer.
    storage_bytes: int
    tensors: int  # Number of tensors.


def held(cache: object) -> Held:
    """Return what a cache holds, each tensor counted once."""
    found = list(tensors(cache))
    storages = {}
    for _, tensor in found:
        if tensor.device.type != "meta":
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return Held(
        shape_bytes=sum(tensor.numel() * tensor.element_size() for _, tensor in found),
        storage_bytes=sum(storages.values()),
        tensors=len(found),
    )


def tensors(holder: object, name: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield every tensor reachable from an object, once, with the path that leads to it.

    Counters and position indices, which hold a handful of integers, are no cache and are left out.
    """
    import torch

    seen = set() if seen is None else seen
    if holder is None or id(holder) in seen or isinstance(holder, str | int | float | bool | type):
        return
    seen.add(id(holder))
    if isinstance(holder, torch.Tensor):
        if holder.is_floating_point() and holder.numel():
            yield name, holder
    elif isinstance(holder, dict):
        for key, value in holder.items():
            yield from tensors(value, f"{name}.{key}", seen)
    elif isinstance(holder, list | tuple):
        for number, value in enumerate(holder):
            yield from tensors(value, f"{name}.{number}", seen)
    elif type(holder).__module__.startswith("transformers") and hasattr(holder, "__dict__"):
        if hasattr(holder, "model_type"):  # a config, not a cache
            return
        for key, value in vars(holder).items():
            yield from tensors(value, f"{name}.{key}", seen)


def shaped(cache: object, make: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    """Return a copy of a cache in which every tensor that caches is replaced by ``make(tensor)``."""
    replaced = {id(tensor): make(tensor) for _, tensor in tensors(cache)}
    return copy.deepcopy(cache, replaced)


def template(cache: object) -> Any:  # noqa: ANN401
    """Return a copy of a cache that has its shapes and holds no memory."""
    import torch

    return shaped(cache, lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype, device="meta"))


def filled(pattern: object, batch: int, device: str) -> Any:  # noqa: ANN401
    """Return a cache of zeros with a template's shapes, for ``batch`` requests."""
    import torch

    return shaped(
        pattern,
        lambda tensor: torch.zeros((batch, *tensor.shape[1:]), dtype=tensor.dtype, device=device),
    )
