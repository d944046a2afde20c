"""Reuse distances of a trace: one pass that answers every cache size.

A prompt's path is cut into *runs*: stretches of blocks that were last used by the same earlier request. In a
prefix cache that evicts the least recently used leaf, blocks are ordered by the request that used them last,
and within a request from the root outwards, because a parent is used whenever its child is. That order does not
depend on the cache's size, so LRU over leaves is a stack algorithm (Mattson et al. 1970, "Evaluation techniques
for storage hierarchies"): a block hits in every cache larger than the number of blocks in front of it.

A run's blocks lie one behind the other in that order. Its distance and its length are all that a hit-rate curve
needs; a trace of 288,500 blocks has about 38,000 runs.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from kvreport.errors import InputError
from kvreport.traffic.trace import Trace


@dataclass(frozen=True, slots=True)
class Reuse:
    """The runs of a trace, in order of requests and from the root outwards. Lengths are in units.

    A unit is a block of the trace, or a full block of an engine (:func:`reuse`).
    """

    trace: Trace = field(repr=False)
    unit_tokens: int
    request: array[int] = field(repr=False)  # The request that each run belongs to.
    # The request that used the run's blocks last; -1 for blocks seen for the first time.
    previous: array[int] = field(repr=False)
    begin: array[int] = field(repr=False)  # Units of the path in front of the run.
    length: array[int] = field(repr=False)  # Units of the run; runs of none are left out.
    distance: array[int] = field(repr=False)  # Units in front of the run in the LRU order; -1 for first uses.
    # Where the runs of each request start; one more than there are requests.
    starts: array[int] = field(repr=False)
    units: array[int] = field(repr=False)  # Units of each request's prompt.
    # Units of each request's path: the prompt's, and those of an output that is named.
    stored: array[int] = field(repr=False)
    distinct: int = 0  # Units ever used.

    def tokens(self, request: int, units: int) -> int:
        """Tokens of the first ``units`` units of a request's prompt."""
        return min(units * self.unit_tokens, self.trace.prompt_tokens[request])


def reuse(trace: Trace, engine_block_tokens: int | None = None) -> Reuse:
    """Reduce a trace to runs with their reuse distances.

    With ``engine_block_tokens``, full blocks of this size are counted, as an engine caches them; else blocks of the trace, a last
    part included.

    Raises:
        InputError: If the trace names no prefix blocks.
    """
    if not trace.shares_prefixes:
        raise InputError(
            f"{trace.name}: found no prefix ids, so nothing is shared; allowed: a trace with block ids or sessions"
        )
    work = _Pass(trace, engine_block_tokens)
    for request in range(len(trace)):
        work.take(request)
    return work.result()


class _Pass:
    """The state of the one pass: who used each node last, and how many units each request still owns."""

    def __init__(self, trace: Trace, engine_block_tokens: int | None) -> None:
        self.trace = trace
        self.unit = engine_block_tokens or trace.block_tokens
        self.whole = engine_block_tokens is not None
        self.last = array("q", [-1]) * trace.num_nodes
        self.owned = Counter(len(trace))
        self.columns = [array("q") for _ in range(5)]
        self.starts = array("q", [0])
        self.units, self.stored = array("q"), array("q")
        self.distinct = 0

    def take(self, request: int) -> None:
        """Cut the path of one request into runs and move its blocks to the front."""
        trace, last = self.trace, self.last
        first, stop = trace.starts[request], trace.starts[request + 1]
        path = trace.nodes[first:stop]
        runs: list[tuple[int, int]] = []
        owner = -2
        for index, node in enumerate(path):
            if last[node] != owner:
                owner = last[node]
                runs.append((owner, index))
            last[node] = request
        prompt = trace.prompt_tokens[request]
        named = prompt + trace.output_tokens[request] if trace.outputs_named else prompt
        end = self._units(len(path), named)
        begins = [self._units(index, named) for _, index in runs]
        for (previous, _), begin, close in zip(runs, begins, [*begins[1:], end], strict=True):
            self._add(request, previous, begin, close - begin)
        self.owned.add(request, end)
        self.units.append(min(self._units(len(path), prompt), self._prompt_blocks(prompt), end))
        self.stored.append(end)
        self.starts.append(len(self.columns[0]))

    def _units(self, blocks: int, prompt: int) -> int:
        return min(blocks * self.trace.block_tokens, prompt) // self.unit if self.whole else blocks

    def _prompt_blocks(self, prompt: int) -> int:
        return prompt // self.unit if self.whole else -(-prompt // self.unit)

    def _add(self, request: int, previous: int, begin: int, length: int) -> None:
        if not length:
            return
        distance = -1
        if previous < 0:
            self.distinct += length
        else:
            # Owned by later requests, and (already taken) by this request's own earlier runs.
            distance = self.owned.after(previous) + begin
            self.owned.add(previous, -min(length, self.owned.at(previous)))
        for column, value in zip(self.columns, (request, previous, begin, length, distance), strict=True):
            column.append(value)

    def result(self) -> Reuse:
        request, previous, begin, length, distance = self.columns
        return Reuse(
            trace=self.trace,
            unit_tokens=self.unit,
            request=request,
            previous=previous,
            begin=begin,
            length=length,
            distance=distance,
            starts=self.starts,
            units=self.units,
            stored=self.stored,
            distinct=self.distinct,
        )


class Counter:
    """Counts at positions, with sums of all behind a position in logarithmic time (Fenwick's tree)."""

    def __init__(self, positions: int) -> None:
        self._counts = array("q", bytes(8 * positions))
        self._tree = array("q", bytes(8 * (positions + 1)))
        self._total = 0

    def at(self, position: int) -> int:
        """The count at one position."""
        return self._counts[position]

    def add(self, position: int, amount: int) -> None:
        """Add to the count at one position."""
        self._counts[position] += amount
        self._total += amount
        tree, size = self._tree, len(self._tree)
        index = position + 1
        while index < size:
            tree[index] += amount
            index += index & -index

    def after(self, position: int) -> int:
        """The sum of the counts behind a position."""
        tree, index, below = self._tree, position + 1, 0
        while index:
            below += tree[index]
            index -= index & -index
        return self._total - below
