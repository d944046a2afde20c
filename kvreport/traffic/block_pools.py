"""An engine's block pools while a trace is replayed: what is held, what is cached, what is evicted.

A pool has blocks of one size. Caches of several kinds may draw from one pool (vLLM's groups), or each have
their own (SGLang). For each kind the prefix tree's nodes say how much of them is resident. A node that a running
request uses is *held*; when its last user releases it, it joins the queue of cached blocks, from which the
oldest release is evicted first and, within a release, the deepest block (vLLM 0.33.0,
``v1/core/kv_cache_manager.py::free`` and ``block_pool.py::free_blocks``; SGLang 0.5.23,
``mem_cache/radix_cache.py::evict`` takes the least recently used leaf, which is the same order).
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Growth = Literal["full", "window", "state"]


@dataclass(frozen=True, slots=True)
class CacheKind:
    """Layers of a model whose cache grows alike."""

    # ``full`` keeps every token, ``window`` the last ones, ``state`` one snapshot per position.
    growth: Growth
    pool: int = 0  # Which pool it draws from.
    block_tokens: int = 16  # Tokens per block.
    blocks: int = 1  # Pool blocks taken for every ``block_tokens`` tokens (``state``: for one snapshot).
    window: int = 0  # Tokens that a window looks back on; 0 elsewhere.
    held_blocks: int = 0  # Pool blocks that a running request holds at any length (``state``).
    most_blocks: int = 0  # Pool blocks that a running request never exceeds (``window``); 0 elsewhere.
    # True if blocks that a window has passed stay cached until they are evicted (vLLM); False if they are
    # freed at once (SGLang).
    keeps_passed: bool = True


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """A pool of equal blocks."""

    name: str  # What it holds, for people.
    blocks: int  # Blocks that requests may use.
    block_bytes: int = 1


@dataclass(frozen=True, slots=True)
class Pools:
    """The pools of a deployment and the kinds of cache in them."""

    pools: tuple[PoolSpec, ...]
    kinds: tuple[CacheKind, ...]  # The kinds of cache; the first keeps every token where any does.

    def request_blocks(self, tokens: int, pool: int) -> int:
        """Blocks of one pool that a request of so many tokens holds when nothing is shared."""
        return sum(kind_blocks(kind, tokens) for kind in self.kinds if kind.pool == pool)


def kind_blocks(kind: CacheKind, tokens: int, in_flight: int | None = None) -> int:
    """Pool blocks that a running request of so many tokens holds of one kind.

    A window holds the tokens ``in_flight`` besides its own; None is the most that a step can have (what admission counts with).
    """
    if kind.growth == "state":
        return kind.held_blocks
    blocks = -(-tokens // kind.block_tokens) * kind.blocks
    if kind.growth == "full":
        return blocks
    if in_flight is None:
        return min(blocks, kind.most_blocks)
    # A window may begin inside a block, so it needs one more than its tokens fill.
    reach = (-(-(kind.window - 1 + in_flight) // kind.block_tokens) + 1) * kind.blocks
    return min(blocks, reach, kind.most_blocks)


@dataclass(slots=True)
class ReleasedBlocks:
    """Blocks that one request released at one moment, evicted from the end."""

    kind: int  # Index of the kind of cache.
    time: float  # When they were released, in seconds.
    nodes: array[int]  # The path that they belong to.
    low: int  # First index in ``nodes`` that was released.
    high: int  # One behind the last index that may still be cached.
    anonymous: int  # Blocks that no later request can hit (outputs, copies); evicted first.
    stamp: int  # The number of the release.
    whole: bool = True  # True until the first block of it is evicted or used again.


@dataclass(slots=True)
class PoolState:
    """One pool during a replay. ``used`` + ``cached`` + free blocks are always ``blocks``."""

    blocks: int  # Blocks in all.
    used: int = 0  # Blocks that running requests hold.
    cached: int = 0  # Blocks that nobody holds and a later request could hit (or ``anonymous`` ones).
    queue: deque[ReleasedBlocks] = field(default_factory=deque)  # Releases, oldest first.
    peak_used: int = 0  # The most blocks ever held.
    evicted: int = 0  # Blocks evicted to make room.

    @property
    def available(self) -> int:
        """Blocks that can be allocated: free ones, and cached ones after eviction."""
        return self.blocks - self.used


class Resident:
    """What is resident of each node, for one kind of cache in one pool."""

    def __init__(self, kind: CacheKind, index: int, pool: PoolState, nodes: int) -> None:
        self.kind, self.index, self.pool = kind, index, pool
        self.amount = array("q", bytes(8 * nodes))  # Pool blocks resident of each node.
        self.users = array("q", bytes(8 * nodes))  # Running requests that hold each node.
        self.stamp = array("q", [-1]) * nodes  # The release that each was last part of.

    def hold(self, nodes: array[int], count: int) -> None:
        """Let one more running request use the first ``count`` nodes of a path."""
        users, amount, taken = self.users, self.amount, 0
        for node in nodes[:count]:
            if not users[node]:
                taken += amount[node]
            users[node] += 1
        self.pool.cached -= taken
        self.pool.used += taken

    def release(self, nodes: array[int], low: int, high: int, release: ReleasedBlocks) -> int:
        """Let a request go from ``nodes[low:high]``; what nobody holds joins ``release``.

        Returns:
            Blocks that became cached.
        """
        users, amount, stamp, freed = self.users, self.amount, self.stamp, 0
        number = release.stamp
        for index in range(low, high):
            node = nodes[index]
            users[node] -= 1
            if users[node] == 0:
                freed += amount[node]
                stamp[node] = number
        self.pool.used -= freed
        self.pool.cached += freed
        return freed


def make_room(
    pool: PoolState,
    residents: list[Resident],
    blocks: int,
    on_evict: Callable[[ReleasedBlocks, int], None] | None,
) -> None:
    """Evict cached blocks until ``blocks`` are free; the caller has checked ``pool.available``.

    ``on_evict`` is told the release that lost blocks, and where in it the loss began before.
    """
    short = blocks - (pool.blocks - pool.used - pool.cached)
    queue = pool.queue
    while short > 0 and queue:
        release = queue[0]
        short -= _shrink(pool, residents[release.kind], release, short, on_evict)
        if release.high <= release.low and not release.anonymous:
            queue.popleft()


def expire(
    pool: PoolState,
    residents: list[Resident],
    before: float,
    on_evict: Callable[[ReleasedBlocks, int], None] | None,
) -> None:
    """Free what was released before a moment.

    The ``residents`` are all kinds of cache, and ``on_evict`` is told as by :func:`make_room`.
    """
    queue = pool.queue
    while queue and queue[0].time < before:
        release = queue.popleft()
        _shrink(pool, residents[release.kind], release, pool.blocks, on_evict)


def _shrink(
    pool: PoolState,
    resident: Resident,
    release: ReleasedBlocks,
    wanted: int,
    on_evict: Callable[[ReleasedBlocks, int], None] | None,
) -> int:
    """Evict up to ``wanted`` blocks of one release, the deepest first; return how many."""
    taken = min(release.anonymous, wanted)
    release.anonymous -= taken
    amount, users, stamp, nodes = resident.amount, resident.users, resident.stamp, release.nodes
    number, low, high = release.stamp, release.low, release.high
    first = high
    while taken < wanted and high > low:
        node = nodes[high - 1]
        if stamp[node] == number and not users[node]:
            have = amount[node]
            if have > wanted - taken:
                amount[node] = have - (wanted - taken)
                taken = wanted
                break
            amount[node] = 0
            taken += have
        high -= 1
    release.high = high
    pool.cached -= taken
    pool.evicted += taken
    if taken and on_evict is not None:
        on_evict(release, first)
    return taken
