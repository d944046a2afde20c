"""How long a scheduler step takes: the roofline's bound over an efficiency, tabulated once.

A replay has tens of thousands of steps, so the roofline (:mod:`kvreport.accounting.roofline`) is evaluated on a
grid once and read by linear interpolation. Memory, compute and link time are kept apart, because a step that
mixes prefill and decode reads the weights once and adds the rest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from kvreport.accounting.demand import Demand
from kvreport.accounting.roofline import Peaks, StepTime, decode, prefill
from kvreport.errors import InputError

DEFAULT_STEP_OVERHEAD_S: Final = 0.0
"""Seconds that a step takes besides the roofline; a measured figure can be given."""

_CONTEXTS: Final = (
    0,
    512,
    1 << 10,
    1 << 11,
    1 << 12,
    1 << 13,
    1 << 14,
    1 << 15,
    1 << 16,
    1 << 17,
    1 << 18,
    1 << 20,
)
_CHUNKS: Final = (1, 16, 64, 256, 512, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16)
_PARTS: Final = 3


class StepClock(Protocol):
    """Anything that tells how long a step takes."""

    def seconds(self, decodes: int, mean_context: float, chunks: Sequence[tuple[int, int]]) -> float:
        """Seconds of one step: requests that decode one token, their mean tokens, and prefilled tokens with those in front of them."""
        ...


class RooflineClock:
    """The roofline's bound over an efficiency."""

    def __init__(
        self,
        demand: Demand,
        peaks: Peaks,
        *,
        max_seqs: int,
        efficiency: float,
    ) -> None:
        """Tabulate the roofline.

        The ``efficiency`` is the share of the roofline that is reached, above 0 and at most 1.

        Raises:
            InputError: If the efficiency is out of range, or the device's rates are not known.
        """
        if not 0 < efficiency <= 1:
            raise InputError(f"efficiency: found {efficiency}; allowed: a share above 0 and at most 1")
        self._scale, self._overhead = 1 / efficiency, DEFAULT_STEP_OVERHEAD_S
        self._batches = sorted(
            {1, *(min(1 << power, max_seqs) for power in range(max_seqs.bit_length() + 1))}
        )
        batches = np.asarray(self._batches)[:, None]
        self._decode = _table(decode(demand, peaks, batches, np.asarray(_CONTEXTS)[None, :]))
        chunks, fronts = np.asarray(_CHUNKS)[:, None], np.asarray(_CONTEXTS)[None, :]
        self._prefill = _table(prefill(demand, peaks, chunks + fronts, cached_tokens=fronts))
        if not np.isfinite(np.asarray(self._decode)[:, :, :2]).any():
            raise InputError(
                "gpu: its bandwidth and rates are not known, so a replay has no time; use hit rates"
            )

    def seconds(self, decodes: int, mean_context: float, chunks: Sequence[tuple[int, int]]) -> float:
        """Seconds of one step."""
        memory = compute = link = 0.0
        if decodes:
            memory, compute, link = _look_up(self._decode, self._batches, _CONTEXTS, decodes, mean_context)
        for new, front in chunks:
            more, operations, passed = _look_up(self._prefill, _CHUNKS, _CONTEXTS, new, front)
            # The weights are read once, for all requests of the step.
            memory = max(memory, more)
            compute += operations
            link += passed
        return max(memory, compute, link) * self._scale + self._overhead


class PipelineClock:
    """Pipeline stages that work on as many micro-batches at once.

    A round gives every running request its step: each micro-batch has its share of the decodes and of the
    prefilled tokens, and passes all stages. It is a bound: no stage waits for another.
    """

    def __init__(self, clock: StepClock, stages: int) -> None:
        """Share a clock's steps out over ``stages`` micro-batches."""
        self._clock, self._stages = clock, stages

    def seconds(self, decodes: int, mean_context: float, chunks: Sequence[tuple[int, int]]) -> float:
        """Seconds of one round."""
        share = [(-(-new // self._stages), front) for new, front in chunks]
        return self._clock.seconds(-(-decodes // self._stages), mean_context, share)


Cells = list[list[tuple[float, ...]]]


def _table(step: StepTime) -> Cells:
    parts = [
        np.nan_to_num(np.asarray(part), nan=0.0) for part in (step.memory_s, step.compute_s, step.link_s)
    ]
    shape = np.broadcast_shapes(*(part.shape for part in parts))
    stacked = np.stack([np.broadcast_to(part, shape) for part in parts], axis=-1)
    return [[tuple(cell) for cell in row] for row in stacked.tolist()]


def _look_up(
    table: Cells, rows: Sequence[int], columns: Sequence[int], row: float, column: float
) -> tuple[float, float, float]:
    """Interpolate between the four neighbors; beyond the table's end the last two are prolonged."""
    low = min(max(bisect_right(rows, row) - 1, 0), max(len(rows) - 2, 0))
    left = min(max(bisect_right(columns, column) - 1, 0), len(columns) - 2)
    high = min(low + 1, len(rows) - 1)
    across = (column - columns[left]) / (columns[left + 1] - columns[left])
    down = (row - rows[low]) / (rows[high] - rows[low]) if high > low else 0.0
    a, b, c, d = table[low][left], table[low][left + 1], table[high][left], table[high][left + 1]
    first, second, third = (
        (a[part] + (b[part] - a[part]) * across) * (1 - down)
        + (c[part] + (d[part] - c[part]) * across) * down
        for part in range(_PARTS)
    )
    return first, second, third
