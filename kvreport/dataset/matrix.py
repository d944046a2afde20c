"""Every combination as a row, a piece at a time, through the same arithmetic as one estimate.

For each (layout, KV format, kind of device) a block plan is made once; everything after is evaluated for all
layouts, KV formats, accelerators, weight formats and contexts together, as many as fit the processor's cache
(:mod:`kvreport.accounting.stack`). A piece holds rows of one model and a bounded number of them, so a matrix of any
size takes the same memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kvreport.accounting import numeric as xp
from kvreport.accounting.allocation import format_name, shared_weights
from kvreport.accounting.case import Case, Memo
from kvreport.accounting.demand import Demand, demand, reaches_of
from kvreport.accounting.deployment import parts_of, refused
from kvreport.accounting.numeric import Codes, Integers
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.accounting.roofline import Peaks, step_bounds_ms
from kvreport.accounting.stack import MOST_CELLS, Rows, lay_out_rows, shared_plans
from kvreport.accounting.weights import on_host
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.model import Model
from kvreport.dataset.grid import Axes
from kvreport.resources import read_table

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Cube:
    """Answers for one model on some accelerators, an axis for each part of the key."""

    model: Model
    gpus: tuple[str, ...]  # Accelerator slugs: axis 0.
    layouts: tuple[Layout, ...]  # How the model is spread over devices: axis 1.
    engine: str  # Name of the engine whose answers these are.
    weight_formats: tuple[str, ...]  # Names: axis 2.
    kv_formats: tuple[str, ...]  # Names: axis 3.
    contexts: tuple[int, ...]  # Tokens: axis 4.
    # For each column beside the key, an array over those axes, which is not to be written to. ``verdict``
    # holds codes of :class:`~kvreport.accounting.capacity.Verdict`.
    values: dict[str, Array]
    possible: npt.NDArray[np.bool_]  # Which combinations can be configured, over the same axes but the last.

    @property
    def tensor_parallel(self) -> tuple[int, ...]:
        """Ranks that share each layer, by layout."""
        return tuple(layout.tensor for layout in self.layouts)

    def part(self, first: int, last: int) -> Cube:
        """The accelerators from position ``first`` up to ``last``."""
        if first == 0 and last == len(self.gpus):
            return self
        return replace(
            self,
            gpus=self.gpus[first:last],
            values={name: values[first:last] for name, values in self.values.items()},
            possible=self.possible[first:last],
        )

    @property
    def rows(self) -> int:
        """Number of rows: the possible combinations times the contexts."""
        return int(np.count_nonzero(self.possible)) * len(self.contexts)


def matrix(axes: Axes, shard: tuple[int, int] = (1, 1)) -> Iterator[Cube]:
    """Yield the matrix as cubes, models and accelerators in order; a large model and one with local machines has several.

    Args:
        axes: What to combine.
        shard: ``(i, n)``: only the i-th of n parts, from 1.
    """
    for part in axes.shard(*shard):
        model = part.models[0]
        if not _weight_formats(model, part):
            continue
        made: list[Cube] = []
        runs = []
        memo = Memo()
        for piece, spans in part.by_engine():
            # Runs of accelerators with the same engine share plans and every array operation.
            runs += [(first, last, start, len(made)) for first, last, start in spans]
            made.append(cube_of(model, piece, memo))
        for first, last, start, number in sorted(runs):
            cube = made[number].part(start, start + last - first)
            if cube.rows:
                yield cube


def cube_of(model: Model, axes: Axes, memo: Memo | None = None) -> Cube:
    """Compute one model's cube; its axis of weight formats has those that the model has rows in.

    ``memo``: what cubes of other engines have worked out; None to work it out here.
    """
    axes = replace(axes, weight_formats=_weight_formats(model, axes))
    layouts, caches = axes.layouts_of(model), axes.caches(model)
    contexts = xp.fixed(np.asarray(axes.contexts, dtype=np.int64))
    answer = _FilledColumns(
        (len(layouts), len(caches), len(axes.accelerators), len(axes.weight_formats)), len(contexts)
    )
    known = Memo() if memo is None else memo
    cases = [_case(model, axes, layout, cache) for layout in layouts for cache in caches]
    for rows in lay_out_rows(enumerate(cases), axes.ceiling, contexts, known):
        answer.put(rows, contexts)
    for t, layout in enumerate(layouts):
        if not layout.is_tensor_only:
            answer.possible[t][:, :, axes.converted] = False
    if caches:
        answer.put_bounds(cases[:: len(caches)], caches, axes.fleet.peaks, contexts, known)
    return Cube(
        model=model,
        gpus=tuple(device.id for device in axes.accelerators),
        layouts=layouts,
        engine=axes.engine.name,
        weight_formats=tuple(name for name, _ in axes.weight_formats),
        kv_formats=tuple(cache.name for cache in caches),
        contexts=axes.contexts,
        values=answer.values(),
        possible=answer.possible.transpose(_AXES[:4]),
    )


def left_out(model: Model, axes: Axes) -> list[bool]:
    """Which weight formats have no row: "as released" where nobody has read it, others of a copy.

    A quantized copy converted again would be its original's rows.
    """
    released = [form is None for _, form in axes.weight_formats]
    if model.quantized_from is not None:
        return [not one for one in released]
    return [one and not model.release_known for one in released]


def _weight_formats(model: Model, axes: Axes) -> tuple[tuple[str, WeightFormat | None], ...]:
    """The formats that a model has rows in."""
    gone = left_out(model, axes)
    return tuple(item for item, out in zip(axes.weight_formats, gone, strict=True) if not out)


def planned(
    model: Model, axes: Axes, layout: Layout, cache: KvFormat, memo: Memo
) -> Iterator[tuple[list[int], tuple[BlockPlan, ...], int | Codes]]:
    """Plan one layout and KV format on all accelerators, without laying anything out.

    Yields:
        Positions of accelerators with equal plans, the plan of each stage in the order of layers, and the codes of
        what the release refuses there, for each position and weight format; 0 without rules. Accelerators on which
        the combination is impossible are with none.
    """
    case = _case(model, axes, layout, cache)
    out = refused(case, memo)
    for shared in shared_plans(case, parts_of(case, memo), memo):
        members = [place for number in shared.groups for place in case.groups[number].places]
        yield members, shared.plans, out if isinstance(out, int) else out[members]


def _case(model: Model, axes: Axes, layout: Layout, cache: KvFormat) -> Case:
    return Case(
        model=model,
        engine=axes.engine,
        accelerators=axes.accelerators,
        alike=axes.fleet.alike_storing(cache, layout),
        weight_formats=tuple(form for _, form in axes.weight_formats),
        formats=axes.formats,
        kv_format=cache,
        layout=layout,
        serving=_UNASKED,
        many=True,
        support=axes.support,
    )


def _demands(case: Case, memo: Memo) -> list[Demand]:
    """What a step asks of a device in a case's layout, for each weight format, whatever the cache."""
    layout = case.layout
    plain = replace(case, layout=Layout(tensor=layout.tensor))
    return [
        memo.get(
            ("demand", layout.tensor, format_name(form)),
            lambda form=form: demand(  # type: ignore[misc]
                case.model,
                form,
                case.formats,
                tensor_parallel=layout.tensor,
                loaded=shared_weights(plain, form, memo),
                on_host=on_host(case.engine, case.model),
            ),
        ).shared_by(layout.data)
        for form in case.weight_formats
    ]


_UNASKED: Final = Serving(max_batched_tokens=1)
"""A fleet takes the scheduler sizes of each accelerator."""


class _FilledColumns:
    """The columns while they are being filled: layouts, KV formats, accelerators, weight formats, contexts.

    What is filled at once lies together: all accelerators of one layout and KV format.
    """

    def __init__(self, shape: tuple[int, int, int, int], contexts: int) -> None:
        self.shape = shape
        self.possible = np.zeros(shape, dtype=np.bool_)
        self.columns: dict[str, Array] = {
            name: np.zeros(shape if name in _ONCE else (*shape, contexts), dtype=_KINDS.get(name, np.int64))
            for name in _COLUMNS
        }
        self._contexts = contexts
        self.spread = False

    def put(self, rows: Rows, contexts: Integers) -> None:
        """Fill in some devices under their plans: all weight formats."""
        laid, bound = rows.laid, rows.bound
        contexts = contexts if rows.at is None else contexts[rows.at : rows.at + 1]
        if laid.following is not None:
            self._spread()
        held, codes = laid.requests(contexts), laid.verdicts(contexts)
        at_start = laid.at_start(contexts)

        def of_all(requests: Integers) -> Integers:
            return requests if isinstance(rows.copies, int) and rows.copies == 1 else requests * rows.copies

        found: dict[str, Any] = {
            "weight_bytes_per_gpu": laid.weight_bytes,
            "kv_pool_bytes_per_gpu": np.maximum(
                laid.pools_for(contexts) if self.spread else laid.pool_bytes, 0
            ),
            "kv_bytes_per_token_per_gpu": np.rint(bound.profile.marginal_bytes(contexts)),
            "state_bytes_per_request_per_gpu": bound.profile.state_bytes,
            "max_concurrent_requests_ceiling": of_all(bound.requests),
            "kv_bytes_per_request_per_gpu": laid.plan.request_bytes(contexts),
            "max_concurrent_requests_by_memory": of_all(held),
            "max_concurrent_requests": of_all(laid.running(held, codes, at_start)),
            "limited_by": laid.limited_by(contexts, held, codes, at_start),
            "shortfall_bytes_per_gpu": laid.shortfall(contexts),
            "verdict": codes,
        }
        if rows.at is None:
            found["max_context_tokens"] = laid.longest_context()
        self._flat(self.possible)[rows.places] = True
        for name, values in found.items():
            column = self._flat(self.columns[name])
            if self.spread and name in _ONCE and np.ndim(values) and np.ndim(values) < column.ndim:
                values = np.asarray(values)[..., None]  # noqa: PLW2901
            if rows.at is None:
                column[rows.places] = values
            else:
                column[rows.places, :, rows.at] = np.broadcast_to(
                    values, (*np.shape(laid.resident_bytes), 1)
                )[..., 0]

    def put_bounds(
        self, cases: Sequence[Case], caches: Sequence[KvFormat], peaks: Peaks, contexts: Integers, memo: Memo
    ) -> None:
        """Fill in the least times of a step, some layouts at a time.

        ``peaks``: of all accelerators. ``contexts``: contexts in tokens.
        """
        decode, prefill = (self.columns[name] for name in ("decode_ms_lower_bound", "prefill_ms_lower_bound"))
        users = self.columns["max_concurrent_requests"]
        at_once = max(MOST_CELLS // (users[:1, :1].size or 1), 1)
        for first in range(0, len(cases), at_once):
            some = slice(first, first + at_once)
            layouts = [case.layout for case in cases[some]]
            weights = Demand.stacked([_demands(case, memo) for case in cases[some]])
            data, stages = ([getattr(one, way) for one in layouts] for way in ("data", "pipeline"))
            for k, cache in enumerate(caches):
                seen = [reaches_of(cases[0].model, cache, one.tensor, one.decode_context) for one in layouts]
                batch = users[some, k]
                decode[some, k], prefill[some, k] = step_bounds_ms(
                    weights.seeing(cache, seen),
                    peaks,
                    batch if max(data) == 1 else batch // np.reshape(data, (-1, 1, 1, 1)),
                    contexts,
                    1 if max(stages) == 1 else np.reshape(stages, (-1, 1, 1, 1)),
                )

    def _spread(self) -> None:
        """Give every column an axis for contexts, each of which has its own reserve."""
        if self.spread:
            return
        self.spread = True
        for name in _ONCE:
            self.columns[name] = np.repeat(self.columns[name][..., None], self._contexts, axis=-1)

    def _flat(self, column: Array) -> Array:
        """A column with one axis for layouts, KV formats and accelerators together."""
        return column.reshape(-1, *column.shape[3:])

    def values(self) -> dict[str, Array]:
        """The columns over the axes of a cube, as views."""
        whole = (*self.shape, self._contexts)
        return {
            name: np.broadcast_to(
                column if column.ndim == len(whole) else column[..., None], whole
            ).transpose(_AXES)
            for name, column in self.columns.items()
        }


_COLUMNS: Final[tuple[str, ...]] = tuple(read_table("cube columns"))
_ONCE: Final[frozenset[str]] = frozenset(read_table("columns without contexts"))
"""Columns that are the same at every context, unless the reserve follows the longest request."""

_KINDS: Final[dict[str, type]] = {
    "limited_by": np.int8,
    "verdict": np.int8,
    "decode_ms_lower_bound": np.float32,
    "prefill_ms_lower_bound": np.float32,
}
"""What is not counted in whole numbers of 64 bits."""

_AXES: Final = (2, 0, 3, 1, 4)
"""Where an answer has the axes of a cube: accelerators, layouts, weight formats, KV formats, contexts."""
