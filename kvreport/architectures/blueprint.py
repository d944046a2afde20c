"""What a family module says about a config: layers, tensors, sizes; and how that becomes a Model.

A family describes each layer on its own (:class:`Layer`: what it caches, which tensors it has).
:func:`assemble` then folds equal layers into groups and equal tensors into rows, after the
quantisation has had its say about each tensor by its full path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kvreport.catalog.caches import Cache
from kvreport.catalog.model import Component, LayerGroup, Split, WeightGroup, compress
from kvreport.errors import InputError

Released = Callable[[str, "Weight"], str | None]
"""Given a tensor's full module path, the storage format it was published in (None: unquantised)."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor of one layer (or of the model outside its layers)."""

    name: str  # Module path below the layer, such as ``self_attn.q_proj.weight``; ``*`` for experts.
    component: Component
    shape: tuple[int, ...]  # Output dimension first.
    split: Split = "replicated"  # How tensor parallelism divides it.
    heads: int | None = None  # Heads or groups to divide, where the split needs them.
    count: int = 1
    linear: bool = False  # True if it is the weight of a linear layer, which quantisers may convert.
    looked_up: bool = False  # True for a table of which a token reads single rows.
    # Format of the checkpoint's own tensor where that is not the model's 16-bit type (``fp32``, ``int64``).
    stored: str | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: what a reader calls it, what it keeps, which tensors it has."""

    kind: str
    caches: tuple[Cache, ...]
    tensors: tuple[Weight, ...]


@dataclass(slots=True)
class Blueprint:
    """Everything a family knows of one config."""

    hidden_size: int
    attention_heads: int
    vocabulary: int
    context_tokens: int
    layers: list[Layer]  # The layers in order.
    outer: list[Weight]  # Tensors outside the layers (embedding, head, final norm, vision), by full path.
    prefix: str = "model.layers"  # Module path of the layers, ``model.layers``.
    intermediate_size: int | None = None
    experts: tuple[int, int] | None = None  # ``(routed, per_token)`` or None.
    kv_format: str | None = None  # The KV format that the architecture imposes, or None.
    # The format that the class's checkpoints have without saying so, or None.
    weight_format: str | None = None
    notes: list[str] = field(default_factory=list)
    rotates: bool = True  # False for a class whose heads do not rotate by position.
    # True if the config lets the tokens of an image attend to one another in both directions.
    both_ways: bool = False
    # What a prediction layer keeps, where the config says it; None where it is as the class has it.
    predicting: tuple[Cache, ...] | None = None


def layer_groups(layers: Iterable[Layer], first: tuple[Cache, ...] | None = None) -> tuple[LayerGroup, ...]:
    """Fold layers that keep exactly the same caches into groups, in order of first appearance.

    Args:
        layers: The layers in order.
        first: The caches of the group that is listed first; a prediction layer is counted as one of that group.

    Raises:
        InputError: If no layer keeps the caches that are to be listed first.
    """
    found: dict[tuple[str, tuple[Cache, ...]], list[int]] = {}
    for index, layer in enumerate(layers):
        found.setdefault((layer.kind, layer.caches), []).append(index)
    groups = tuple(
        LayerGroup(name=kind, layers=compress(indices), caches=caches)
        for (kind, caches), indices in found.items()
    )
    if first is None:
        return groups
    if all(group.caches != first for group in groups):
        allowed = "attention as one of the layers has it"
        raise InputError(f"config: MTP layers: found separate {first[0].kind} attention; allowed: {allowed}")
    return tuple(sorted(groups, key=lambda group: group.caches != first))


def weight_groups(blueprint: Blueprint, released: Released) -> tuple[WeightGroup, ...]:
    """Fold equal tensors into rows; layers that were published in different formats stay apart.

    Raises:
        InputError: If a tensor that every model of the class has is without elements.
    """
    rows: dict[tuple[object, ...], int] = {}

    def add(name: str, path: str, tensor: Weight) -> None:
        if 0 in tensor.shape and tensor.count:
            if tensor.component == "shared_experts":
                return  # a model may have none
            found = " x ".join(map(str, tensor.shape))
            raise InputError(f"config: {path}: found sizes that make it {found}; allowed: 1 or more for each")
        form = released(path, tensor) or tensor.stored
        key = (name, tensor.component, tensor.shape, tensor.split, tensor.heads, form, tensor.looked_up)
        rows[key] = rows.get(key, 0) + tensor.count

    for tensor in blueprint.outer:
        add(tensor.name, tensor.name, tensor)
    for index, layer in enumerate(blueprint.layers):
        for tensor in layer.tensors:
            path = f"{blueprint.prefix}.{index}.{tensor.name}"
            add(f"{blueprint.prefix}.*.{tensor.name}", path, tensor)
    fields = ("name", "component", "shape", "split", "heads", "released", "looked_up")
    return tuple(
        WeightGroup.model_validate({**dict(zip(fields, key, strict=True)), "count": count})
        for key, count in rows.items()
        if count  # one stream has no projection to others
    )
