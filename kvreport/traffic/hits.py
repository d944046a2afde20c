"""Hit-rate curves: how much of the prompts a prefix cache of any size would have held.

A request's *hit* is its longest leading run of resident blocks. Two policies:

- ``lru``: evicts the least recently used leaf, as vLLM's free queue and SGLang's radix tree do. Exact for every
  size from one pass over the trace (:mod:`kvreport.traffic.reuse`).
- ``best``: Belady's MIN with bypass. It evicts the block whose next use is furthest away and does not store a
  block whose own next use is farther than all others'. A parent's next use never lies behind its child's, so the
  farthest block is always a leaf, and the bound is reached by a prefix cache.

One trace has many hit rates. Each definition here has a name (:data:`DEFINITIONS`), and a result states its own.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kvreport.errors import InputError
from kvreport.resources import read_table
from kvreport.traffic.reuse import Reuse

Definition = Literal["tokens", "blocks", "full_blocks", "strict_full_blocks", "per_request"]
Policy = Literal["lru", "best"]

DEFINITIONS: Final[dict[Definition, str]] = read_table("hit rates")


@dataclass(frozen=True, slots=True)
class HitCounts:
    """Hits over a window of a trace, under one policy and one capacity."""

    capacity: int | None  # Units that the cache holds; None for no limit.
    requests: int  # Requests in the window.
    prompt_tokens: int  # Their prompt tokens.
    blocks: int  # Their blocks (units), a last part counted as one where units are blocks of the trace.
    full_blocks: int  # Their blocks that the prompt fills.
    hit_tokens: int  # Tokens found in the cache.
    hit_blocks: int  # Blocks found in the cache.
    hit_full_blocks: int  # The same, without last parts.
    request_rates: float  # Sum over requests of hit blocks ÷ blocks.

    def rate(self, definition: Definition = "tokens") -> float:
        """The hit rate under one of :data:`DEFINITIONS`, from 0 to 1."""
        match definition:
            case "tokens":
                return self.hit_tokens / max(self.prompt_tokens, 1)
            case "blocks":
                return self.hit_blocks / max(self.blocks, 1)
            case "full_blocks":
                return self.hit_blocks / max(self.full_blocks, 1)
            case "strict_full_blocks":
                return self.hit_full_blocks / max(self.full_blocks, 1)
            case "per_request":
                return self.request_rates / max(self.requests, 1)


def hit_counts(
    reuse: Reuse,
    capacity: int | None,
    *,
    policy: Policy = "lru",
    warmup: float = 0.0,
    time_to_live_s: float | None = None,
    compute_last: bool = False,
) -> HitCounts:
    """Count the hits of one cache size.

    Without a ``capacity`` in units there is no limit. The ``warmup`` share of the first requests fills the cache and is not
    counted. With ``lru``, a block expires ``time_to_live_s`` after the arrival of the request that used it last. With
    ``compute_last``, the last token of each prompt is computed, as engines must to get its logits. ``policy`` is ``lru`` or ``best``.

    Raises:
        InputError: If an argument is out of range.
    """
    if capacity is not None and capacity < 0:
        raise InputError(f"capacity: found {capacity}; allowed: 0 or more blocks")
    if not 0 <= warmup < 1:
        raise InputError(f"warmup: found {warmup}; allowed: a share from 0 to below 1")
    if policy == "best":
        if time_to_live_s is not None:
            raise InputError("time to live: found with the best possible policy; allowed: with lru only")
        found = _best_units(reuse, reuse.distinct if capacity is None else capacity)
    else:
        found = _lru_units(reuse, capacity, time_to_live_s)
    return _count(reuse, found, capacity, warmup, compute_last=compute_last)


def _lru_units(reuse: Reuse, capacity: int | None, time_to_live_s: float | None) -> list[int]:
    """Leading units of each request that an LRU cache of this size holds when the request arrives."""
    found = [0] * len(reuse.trace)
    limit = reuse.distinct if capacity is None else capacity
    times = reuse.trace.arrival_s
    columns = zip(reuse.request, reuse.previous, reuse.begin, reuse.length, reuse.distance, strict=True)
    for request, previous, begin, length, distance in columns:
        if distance < 0 or distance >= limit or found[request] < begin:
            continue
        if time_to_live_s is not None and times[request] - times[previous] > time_to_live_s:
            continue
        found[request] += min(length, limit - distance)
    return found


def _count(
    reuse: Reuse, found: Sequence[int], capacity: int | None, warmup: float, *, compute_last: bool
) -> HitCounts:
    trace = reuse.trace
    first = int(len(trace) * warmup)
    tokens = blocks = full = hit_tokens = hit_blocks = hit_full = 0
    rates = 0.0
    unit = reuse.unit_tokens
    for request in range(first, len(trace)):
        prompt, units = trace.prompt_tokens[request], reuse.units[request]
        hit = min(found[request], units)
        if compute_last and hit * unit >= prompt:
            hit = (prompt - 1) // unit
        whole = min(units, prompt // unit)
        tokens += prompt
        blocks += units
        full += whole
        hit_blocks += hit
        hit_full += min(hit, whole)
        hit_tokens += min(hit * unit, prompt)
        rates += hit / units if units else 0.0
    return HitCounts(
        capacity, len(trace) - first, tokens, blocks, full, hit_tokens, hit_blocks, hit_full, rates
    )


def _best_units(reuse: Reuse, capacity: int) -> list[int]:
    """Leading units of each request that the best possible cache of this size holds."""
    upcoming = _next_uses(reuse)
    found = [0] * len(reuse.trace)
    # What is resident of the blocks that request r used last and request n will use next, by (n, r).
    resident: dict[tuple[int, int], int] = {}
    farthest: list[tuple[int, int, int]] = []
    free = capacity
    for request in range(len(reuse.trace)):
        hit = 0
        for run in range(reuse.starts[request], reuse.starts[request + 1]):
            if reuse.previous[run] >= 0:
                hit += resident.pop((request, reuse.previous[run]), 0)
        found[request] = hit
        for begin, stop, use in upcoming[request]:
            kept = min(max(hit - begin, 0), stop - begin)
            wanted = stop - begin - kept
            taken = min(wanted, free)
            free -= taken
            while taken < wanted and farthest and -farthest[0][0] > use:
                taken += _evict(farthest, resident, wanted - taken)
            if kept + taken:
                resident[use, request] = kept + taken
                heapq.heappush(farthest, (-use, -begin, request))
            if taken < wanted:
                break
    return found


def _evict(farthest: list[tuple[int, int, int]], resident: dict[tuple[int, int], int], wanted: int) -> int:
    """Evict up to ``wanted`` units of the run with the farthest next use; return how many."""
    use, _, owner = farthest[0]
    have = resident.get((-use, owner), 0)
    if have > wanted:
        resident[-use, owner] = have - wanted
        return wanted
    resident.pop((-use, owner), None)
    heapq.heappop(farthest)
    return have


def _next_uses(reuse: Reuse) -> list[list[tuple[int, int, int]]]:
    """For each request its path as (begin, stop, next request) from the root; never used again comes last."""
    never = len(reuse.trace) + 1
    uses: list[list[tuple[int, int, int]]] = [[] for _ in range(len(reuse.trace))]
    columns = zip(reuse.request, reuse.previous, reuse.begin, reuse.length, strict=True)
    for request, previous, begin, length in columns:
        if previous >= 0:
            uses[previous].append((begin, begin + length, request))
    for request, path in enumerate(uses):
        end = path[-1][1] if path else 0
        if end < reuse.stored[request]:
            path.append((end, reuse.stored[request], never))
    return uses
