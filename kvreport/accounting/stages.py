"""A pipeline stage as a model of its own: the layers it runs, their caches and their weights.

Which layers a row of weights belongs to is read off its count, which is exact where layers weigh the same,
where dense layers come first and mixtures follow, and where attention and state layers alternate. What is
neither is spread evenly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kvreport.accounting.parallel import Layout, stage_layers
from kvreport.accounting.weights import is_tied
from kvreport.catalog.caches import RecurrentState
from kvreport.catalog.engine import Engine
from kvreport.catalog.model import Component, LayerGroup, Model, WeightGroup, compress
from kvreport.catalog.release import trait
from kvreport.catalog.remembered import remembered

_FIRST: Final[frozenset[Component]] = frozenset({"vision", "audio"})
_MIXERS: Final[frozenset[Component]] = frozenset({"attention", "recurrent"})


@dataclass(frozen=True, slots=True)
class Stage:
    """One pipeline stage."""

    model: Model  # The part of the model that it runs, its layers numbered from 0.
    layers: range  # Which layers of the whole these are.


def stages(model: Model, number: int, partition: tuple[int, ...] = ()) -> tuple[Stage, ...]:
    """Divide a model into pipeline stages as vLLM does (``distributed/utils.py::get_pp_indices``, 0.33).

    The embedding and the encoders are on the first stage, the output head, the last norm and the prediction
    layers on the last; a tied embedding is on both.

    Raises:
        InputError: If there are more stages than layers.
    """
    known = _divided(model)
    if (number, partition) not in known:
        known[number, partition] = tuple(
            _stage(model, layers, place, number)
            for place, layers in enumerate(stage_layers(model.layer_count, number, partition))
        )
    return known[number, partition]


def partition_of(engine: Engine, model: Model, layout: Layout) -> tuple[int, ...]:
    """The layers of each stage: as given, or as the engine divides them where that is otherwise than vLLM; empty as vLLM does."""
    if layout.partition or not trait(engine, "left_over_layers_last"):
        return layout.partition
    each, left = divmod(model.layer_count, layout.pipeline)
    number = layout.pipeline
    return tuple(each + (place >= number - left) for place in range(number)) if left else ()


@remembered
def _divided(model: Model) -> dict[tuple[int, tuple[int, ...]], tuple[Stage, ...]]:
    """What of a model is divided already: engines divide most of them in the same ways."""
    del model
    return {}


def _stage(model: Model, layers: range, place: int, number: int) -> Stage:
    if number == 1:
        return Stage(model, layers)
    rows: list[WeightGroup] = []
    for row in model.weights:
        count = _count(model, row, layers, first=place == 0, last=place == number - 1)
        if count:
            rows.append(row if count == row.count else row.model_copy(update={"count": count}))
    values = {name: getattr(model, name) for name in type(model).model_fields}
    values |= {"layers": tuple(_groups(model, layers)), "weights": tuple(rows)}
    if place < number - 1:
        # Only the last stage samples, so the measuring run of the others makes no logits
        # (vLLM 0.33, ``v1/worker/gpu_model_runner.py::profile_run``).
        values["vocabulary"] = 0
    # Not validated again, and without the properties that the whole model has worked out.
    return Stage(type(model).model_construct(**values), layers)


def _groups(model: Model, layers: range) -> Iterator[LayerGroup]:
    for group in model.layers:
        inside = [index - layers.start for index in group.indices if index in layers]
        if inside:
            yield LayerGroup(name=group.name, layers=compress(inside), caches=group.caches)


def _count(model: Model, row: WeightGroup, layers: range, *, first: bool, last: bool) -> int:
    """How many of a row's tensors a stage has."""
    if row.component in _FIRST:
        return row.count if first else 0
    if row.component == "embedding":
        return row.count if first or (last and is_tied(model)) else 0
    if row.component in ("output_head", "mtp"):
        return row.count if last else 0
    if "*" not in row.name:
        return row.count if last else 0
    where = _layers_of(model, row)
    if where is None:
        share = row.count * len(layers)
        done = row.count * layers.start
        return (done + share) // model.layer_count - done // model.layer_count
    inside = sum(index in layers for index in where)
    return row.count * inside // len(where)


def _layers_of(model: Model, row: WeightGroup) -> tuple[int, ...] | None:
    """The layers that a row's tensors stand in, or None where its count does not tell."""
    each = model.experts.routed if row.component == "routed_experts" and model.experts else 1
    tensors = row.count if row.count % each else row.count // each
    if row.component == "routed_experts" and row.count <= model.layer_count:
        tensors = row.count  # all experts of a layer stacked in one tensor
    total = model.layer_count
    if tensors % total == 0:
        return tuple(range(total))
    if row.component in _MIXERS:
        for group in model.layers:
            states = any(isinstance(cache, RecurrentState) for cache in group.caches)
            if tensors % group.count == 0 and states == (row.component == "recurrent"):
                return group.indices
    if row.component == "dense_mlp":
        return tuple(range(min(tensors, total)))
    if row.component in ("routed_experts", "shared_experts", "router") and tensors < total:
        return tuple(range(total - tensors, total))
    matching = [group.indices for group in model.layers if group.count == tensors]
    return matching[0] if len(matching) == 1 else None
