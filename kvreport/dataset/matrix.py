"""Every combination as a row, a piece at a time, through the same arithmetic as one estimate.

For each (tensor-parallel size, KV format, kind of device) a block plan is made once; everything
after is evaluated for all accelerators, weight formats and contexts together. A piece holds rows of
one model and a bounded number of them, so a matrix of any size takes the same memory.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kvreport.accounting.blocks import (
    BlockPlan,
    Serving,
    plan,
    reserves_for_steps,
    same_on_every_device,
    stored_format,
)
from kvreport.accounting.budget import memory_bytes, pool_bytes, scheduled_reserve, scheduler_sizes
from kvreport.accounting.capacity import longest_context, users, verdict
from kvreport.accounting.demand import Demand, demand
from kvreport.accounting.kv_cache import held
from kvreport.accounting.loaded import load_overhead
from kvreport.accounting.profile import Integers
from kvreport.accounting.roofline import step_bounds_ms
from kvreport.accounting.weights import weight_bytes
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.model import Model
from kvreport.dataset.grid import Axes
from kvreport.errors import InputError
from kvreport.estimation.request import storable_on

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Cube:
    """Answers for one model on some accelerators, an axis for each part of the key.

    Attributes:
        model: The model.
        gpus: Accelerator slugs: axis 0.
        tensor_parallel: Device counts: axis 1.
        weight_formats: Names: axis 2.
        kv_formats: Names: axis 3.
        contexts: Tokens: axis 4.
        values: For each column beside the key, an array over those axes. ``verdict`` holds codes of
            :class:`~kvreport.accounting.capacity.Verdict`.
        possible: Which combinations can be configured, over the same axes but the last.
    """

    model: Model
    gpus: tuple[str, ...]
    tensor_parallel: tuple[int, ...]
    weight_formats: tuple[str, ...]
    kv_formats: tuple[str, ...]
    contexts: tuple[int, ...]
    values: dict[str, Array]
    possible: npt.NDArray[np.bool_]

    @property
    def rows(self) -> int:
        """Number of rows: the possible combinations times the contexts."""
        return int(np.count_nonzero(self.possible)) * len(self.contexts)


def matrix(axes: Axes, shard: tuple[int, int] = (1, 1)) -> Iterator[Cube]:
    """Yield the matrix as cubes, models and accelerators in order; a large model has several.

    Args:
        axes: What to combine.
        shard: ``(i, n)``: only the i-th of n parts, from 1.
    """
    for part in axes.shard(*shard):
        cube = cube_of(part.models[0], part)
        if cube.rows:
            yield cube


def cube_of(model: Model, axes: Axes) -> Cube:
    """Compute one model's cube."""
    sizes, caches = axes.parallel_sizes(model), axes.caches(model)
    contexts = np.asarray(axes.contexts, dtype=np.int64)
    answer = _Answer(
        (len(axes.accelerators), len(sizes), len(axes.weight_formats), len(caches), len(contexts))
    )
    total = np.asarray([device.usable_bytes for device in axes.accelerators], dtype=np.int64)
    memory = np.asarray([memory_bytes(axes.engine, size) for size in total.tolist()], dtype=np.int64)
    kinds = laid_out_alike(model, axes)
    for t, size in enumerate(sizes):
        loaded = np.asarray(
            [weight_bytes(model, form, axes.formats, size) for _, form in axes.weight_formats], dtype=np.int64
        )
        kept, unsure = np.zeros_like(total), np.zeros_like(total)
        resident = np.zeros((len(total), len(loaded)), dtype=np.int64)
        for members in axes.fleet.scheduled_alike:
            reserve = scheduled_reserve(
                model, axes.engine, axes.accelerators[members[0]], tensor_parallel=size
            )
            kept[members], unsure[members] = reserve.total, reserve.uncertainty
        for members in axes.fleet.loaded_alike:
            device = axes.accelerators[members[0]]
            for w, (_, form) in enumerate(axes.weight_formats):
                added = load_overhead(model, axes.engine, form, axes.formats, device, size)
                resident[members, w] = loaded[w] + sum(added.values())
        pool = np.maximum(pool_bytes(axes.engine, total[:, None], resident, kept[:, None]), 0)
        top = pool_bytes(axes.ceiling, total[:, None], loaded)
        answer.weights[:, t] = loaded[:, None, None]
        answer.pool[:, t] = pool[:, :, None, None]
        asked = Demand.stacked(
            [demand(model, form, axes.formats, tensor_parallel=size) for _, form in axes.weight_formats]
        )
        for k, cache in enumerate(caches):
            for layout, members in layouts(model, axes, cache, kinds):
                need = held(model, layout, tensor_parallel=size)
                answer.per_token[members, t, :, k] = np.rint(need.marginal_bytes(contexts))
                answer.state[members, t, :, k] = need.state_bytes
                unrounded = BlockPlan(block_bytes=1, profile=need)
                answer.ceiling[members, t, :, k] = users(top[members][:, :, None], unrounded, contexts)
            for blocks, members in plans(model, axes, size, cache, kinds):
                room = pool[members]
                answer.possible[members, t, :, k] = True
                answer.request[members, t, :, k] = blocks.profile.request_bytes(contexts)
                answer.users[members, t, :, k] = users(room[:, :, None], blocks, contexts)
                answer.longest[members, t, :, k] = longest_context(room, blocks, model.context_tokens)[
                    :, :, None
                ]
                answer.verdict[members, t, :, k] = verdict(
                    memory_bytes=memory[members, None, None],
                    weight_bytes=resident[members][:, :, None],
                    pool_bytes=room[:, :, None],
                    plan=blocks,
                    context_tokens=contexts,
                    limit_tokens=model.context_tokens,
                    uncertainty_bytes=unsure[members, None, None],
                )
            seen = demand(model, None, axes.formats, cache, tensor_parallel=size)
            answer.decode[:, t, :, k], answer.prefill[:, t, :, k] = step_bounds_ms(
                asked.seeing(seen), axes.fleet.peaks, answer.users[:, t, :, k], contexts
            )
    return Cube(
        model=model,
        gpus=tuple(device.id for device in axes.accelerators),
        tensor_parallel=sizes,
        weight_formats=tuple(name for name, _ in axes.weight_formats),
        kv_formats=tuple(cache.name for cache in caches),
        contexts=axes.contexts,
        values={name: getattr(answer, field) for name, field in _FIELDS.items()},
        possible=answer.possible,
    )


def laid_out_alike(model: Model, axes: Axes) -> tuple[list[int], ...]:
    """Accelerators, by position, on which the engine lays this model out alike."""
    if same_on_every_device(model, axes.engine):
        return (list(range(len(axes.accelerators))),)
    return axes.fleet.planned_alike if reserves_for_steps(model, axes.engine) else axes.fleet.loaded_alike


def layouts(
    model: Model, axes: Axes, cache: KvFormat, kinds: tuple[list[int], ...]
) -> Iterator[tuple[KvFormat | None, list[int]]]:
    """Yield the layouts that kernels give a format, with the accelerators, by position, that have each.

    ``kinds`` are those of :func:`laid_out_alike`.
    """
    found: list[tuple[KvFormat | None, list[int]]] = []
    for members in kinds:
        layout = stored_format(model, axes.engine, cache, axes.accelerators[members[0]])
        same = next((others for known, others in found if known == layout), None)
        if same is None:
            found.append((layout, list(members)))
        else:
            same.extend(members)
    yield from found


def plans(
    model: Model, axes: Axes, size: int, cache: KvFormat, kinds: tuple[list[int], ...]
) -> Iterator[tuple[BlockPlan, list[int]]]:
    """Yield the different block plans with the accelerators, by position, that they serve.

    ``kinds`` are those of :func:`laid_out_alike`. Accelerators on which the combination is impossible are
    with none.
    """
    found: dict[Hashable, tuple[BlockPlan, list[int]]] = {}
    for alike in kinds:
        members = [position for position in alike if storable_on(cache, axes.accelerators[position])]
        if not members:
            continue
        device = axes.accelerators[members[0]]
        tokens, rows = scheduler_sizes(axes.engine, device)
        try:
            blocks = plan(
                model,
                axes.engine,
                serving=Serving(max_batched_tokens=tokens, max_seqs=rows),
                kv_format=cache,
                tensor_parallel=size,
                accelerator=device,
            )
        except InputError:
            continue
        key = (blocks.block_bytes, blocks.kept_blocks, blocks.profile)
        found.setdefault(key, (blocks, []))[1].extend(members)
    yield from found.values()


class _Answer:
    """The columns while they are being filled, one axis for each part of the key."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.weights: Integers = np.zeros(shape, dtype=np.int64)
        self.per_token: Integers = np.zeros(shape, dtype=np.int64)
        self.state: Integers = np.zeros(shape, dtype=np.int64)
        self.request: Integers = np.zeros(shape, dtype=np.int64)
        self.pool: Integers = np.zeros(shape, dtype=np.int64)
        self.users: Integers = np.zeros(shape, dtype=np.int64)
        self.ceiling: Integers = np.zeros(shape, dtype=np.int64)
        self.longest: Integers = np.zeros(shape, dtype=np.int64)
        self.decode = np.zeros(shape, dtype=np.float32)
        self.prefill = np.zeros(shape, dtype=np.float32)
        self.verdict = np.zeros(shape, dtype=np.int8)
        self.possible = np.zeros(shape[:-1], dtype=np.bool_)


_FIELDS: Final = {
    "weight_bytes_per_gpu": "weights",
    "kv_bytes_per_token_per_gpu": "per_token",
    "state_bytes_per_request_per_gpu": "state",
    "kv_bytes_per_request_per_gpu": "request",
    "kv_pool_bytes_per_gpu": "pool",
    "max_concurrent_requests": "users",
    "max_concurrent_requests_ceiling": "ceiling",
    "max_context_tokens": "longest",
    "verdict": "verdict",
    "decode_ms_lower_bound": "decode",
    "prefill_ms_lower_bound": "prefill",
}
