"""Cache memory during a replay: what a request finds, takes, fills and leaves behind.

Full attention is kept by whole leading runs of blocks. A window's hit needs the blocks in front of it; a
recurrent state's needs a snapshot exactly there (vLLM 0.33.0, ``v1/core/kv_cache_coordinator.py``,
``single_type_kv_cache_manager.py``). Windows and states are found at the ends of the trace's blocks only: that is
the trace's resolution.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from kvreport.traffic.block_pools import (
    Pools,
    PoolState,
    ReleasedBlocks,
    Resident,
    expire,
    kind_blocks,
    make_room,
)
from kvreport.traffic.trace import Trace

HostPolicy = Literal["write_through", "on_eviction"]

_WINDOW_PARTS: Final = 2
"""Nodes are at most a window over this, so that what a window holds is not rounded up by much."""


@dataclass(frozen=True, slots=True)
class HostTier:
    """Cache in host memory."""

    blocks: int  # Blocks of the first pool that it holds.
    bytes_per_s: float  # How fast blocks come back to the device.
    # Copy blocks when a request ends, or when they are evicted from the device.
    policy: HostPolicy = "write_through"


@dataclass(slots=True)
class Running:
    """A request while it runs."""

    request: int  # Its number in the trace.
    nodes: array[int]  # Its path.
    ends: array[int]  # Tokens up to the end of each node.
    path_tokens: int  # Tokens that the path covers.
    prompt: int  # Tokens to prefill: the prompt, and what was generated before a preemption.
    left: int  # Tokens still to generate.
    stored: int = 0  # Tokens in the cache.
    hit: int = 0  # Tokens found in the cache when it was admitted, those from the host included.
    loaded: int = 0  # Tokens of these that came from the host.
    # Blocks of each kind that it has, in the kind's own blocks; shared ones included.
    units: list[int] = field(default_factory=list)
    private: list[int] = field(default_factory=list)  # Pool blocks of each kind that only it has.
    next: list[int] = field(default_factory=list)  # For each kind the node that is filled next.
    held: list[int] = field(default_factory=list)  # For each kind, one behind the last node that it holds.
    order: int = 0  # Number of its admission.
    decoding_since: int = -1  # Decode step at which it began to decode; -1 before.


class CacheMemory:
    """The pools, the resident nodes and the host tier."""

    def __init__(
        self,
        trace: Trace,
        pools: Pools,
        *,
        host: HostTier | None = None,
        time_to_live_s: float | None = None,
    ) -> None:
        self.spec, self.trace, self.host, self.ttl = pools, trace, host, time_to_live_s
        self.split, self.node_tokens = _split(trace, pools)
        self.pools = [PoolState(spec.blocks) for spec in pools.pools]  # One state per pool.
        nodes = trace.num_nodes * self.split
        self.residents = [
            Resident(kind, index, self.pools[kind.pool], nodes) for index, kind in enumerate(pools.kinds)
        ]
        self.full = [one for one in self.residents if one.kind.growth == "full"]
        self.other = [one for one in self.residents if one.kind.growth != "full"]
        self.on_host: OrderedDict[int, None] = OrderedDict()
        self.host_nodes = 0
        if host is not None and self.full and self.node_tokens:
            kind = self.full[0].kind
            self.host_nodes = host.blocks * kind.block_tokens // (kind.blocks * self.node_tokens)
        # Where only whole prefixes count, nodes that always come together are one.
        alone = self.node_tokens and not self.other and host is None
        self.merged = _merged_paths(trace) if alone else None
        self.whole: dict[int, ReleasedBlocks] = {}
        self.releases = 0
        self.lifetimes: list[float] = []  # Seconds from a release until its first block was evicted.
        self.now = 0.0

    @property
    def resident_contexts(self) -> int:
        """Released contexts that are still whole."""
        return len(self.whole)

    def start(self, request: int, generated: int) -> Running:
        """A request that is not in memory yet."""
        trace = self.trace
        nodes = trace.path(request)
        prompt = trace.prompt_tokens[request]
        named = prompt + (trace.output_tokens[request] if trace.outputs_named else 0)
        if self.merged is not None:
            nodes, ends = self.merged.path(request)
        else:
            if self.split > 1:
                nodes = self._expand(nodes, named)
            size = self.node_tokens
            ends = array("q", range(size, len(nodes) * size + 1, size)) if size else array("q")
        if ends:
            ends[-1] = min(ends[-1], named)
        kinds = len(self.residents)
        return Running(
            request=request,
            nodes=nodes,
            ends=ends,
            path_tokens=ends[-1] if ends else 0,
            prompt=prompt + generated,
            left=trace.output_tokens[request] - generated,
            units=[0] * kinds,
            private=[0] * kinds,
            next=[0] * kinds,
            held=[0] * kinds,
        )

    def _expand(self, nodes: array[int], tokens: int) -> array[int]:
        parts = array("q")
        for node in nodes:
            parts.extend(range(node * self.split, (node + 1) * self.split))
        return parts[: -(-tokens // self.node_tokens)]

    # --- finding ---------------------------------------------------------------------------------

    def find(self, run: Running) -> tuple[int, int, int]:
        """What of a request's prompt is resident.

        Returns:
            Whole nodes, tokens on the device, and tokens that the host adds.
        """
        if self.ttl is not None:
            for pool in self.pools:
                expire(pool, self.residents, self.now - self.ttl, self._evicted)
        nodes, size, most = run.nodes, self.node_tokens, run.prompt - 1
        if not len(nodes):
            return 0, 0, 0
        count = min(bisect_left(run.ends, most) + 1, len(nodes))
        tokens = most
        for resident in self.full:
            count, tokens = self._leading(resident, run, count, tokens)
        if self.other:
            count = self._boundary(nodes, min(count, tokens // size))
            tokens = count * size
        extra = 0
        if self.host_nodes and not self.other:
            reach = tokens // size
            on_host = self.on_host
            while reach < len(nodes) and (reach + 1) * size <= most and nodes[reach] in on_host:
                reach += 1
            extra = max(reach * size - tokens, 0)
        return count, tokens, extra

    def _leading(self, resident: Resident, run: Running, count: int, tokens: int) -> tuple[int, int]:
        """The leading run of one kind of full attention: whole nodes, and tokens in whole blocks."""
        kind, amount, nodes, ends = resident.kind, resident.amount, run.nodes, run.ends
        unit, blocks = kind.block_tokens, kind.blocks
        begin = 0
        for index in range(count):
            end = ends[index] // unit
            have = amount[nodes[index]] // blocks
            if have < end - begin:
                return index, min(tokens, (begin + have) * unit)
            begin = end
        return count, min(tokens, begin * unit) // unit * unit

    def _boundary(self, nodes: array[int], count: int) -> int:
        """The last node boundary, up to ``count``, at which windows and states can go on."""
        size = self.node_tokens
        for boundary in range(count, 0, -1):
            for resident in self.other:
                kind = resident.kind
                back = 1 if kind.growth == "state" else -(-(kind.window - 1) // size)
                amount = resident.amount
                if any(not amount[nodes[index]] for index in range(max(boundary - back, 0), boundary)):
                    break
            else:
                return boundary
        return 0

    # --- taking ----------------------------------------------------------------------------------

    def admission_blocks(self, run: Running, found: tuple[int, int, int], tokens: int) -> list[int]:
        """Blocks of each pool that admitting a request up to ``tokens`` would take out of what is available."""
        need = [0] * len(self.pools)
        count, hit, _ = found
        for resident in self.residents:
            kind = resident.kind
            blocks = kind_blocks(kind, tokens)
            if kind.growth == "full":
                blocks -= hit // kind.block_tokens * kind.blocks
                amount, users, nodes = resident.amount, resident.users, run.nodes
                last = min(count + 1, len(nodes)) if hit else 0
                blocks += sum(amount[node] for node in nodes[:last] if not users[node])
            need[kind.pool] += blocks
        return need

    def admit(self, run: Running, found: tuple[int, int, int]) -> None:
        """Take what was found for a request. The caller has checked that the rest fits."""
        count, hit, extra = found
        run.hit, run.stored, run.loaded = hit + extra, hit, extra
        for resident in self.full:
            kind, nodes = resident.kind, run.nodes
            last = count
            reached = run.ends[count - 1] if count else 0
            if hit // kind.block_tokens > reached // kind.block_tokens:
                last = count + 1
            self._touch(resident, nodes, last)
            resident.hold(nodes, last)
            run.units[resident.index] = hit // kind.block_tokens
            run.next[resident.index], run.held[resident.index] = min(count, last), last
        for resident in self.other:
            kind = resident.kind
            self._take(resident, run, kind_blocks(kind, max(hit, 1), 0))
            run.next[resident.index] = count
            if count and hit:
                self._refresh(resident, run, count)
        if extra:
            self.grow(run, hit + extra)

    def _touch(self, resident: Resident, nodes: array[int], last: int) -> None:
        """Note that idle contexts are used again."""
        if not last or resident.index:
            return
        before = -1
        for node in nodes[:last]:
            stamp = resident.stamp[node]
            if stamp != before:
                before = stamp
                if stamp >= 0 and not resident.users[node]:
                    self.whole.pop(stamp, None)

    def _refresh(self, resident: Resident, run: Running, count: int) -> None:
        """Move the blocks that a hit needed to the young end of the queue."""
        kind = resident.kind
        back = 1 if kind.growth == "state" else -(-(kind.window - 1) // self.node_tokens)
        low = max(count - back, 0)
        stamp = self._release(resident, run.nodes, low, count, 0).stamp
        for node in run.nodes[low:count]:
            resident.stamp[node] = stamp

    def _take(self, resident: Resident, run: Running, blocks: int) -> None:
        """Hold so many pool blocks of one kind, in all, for a request alone."""
        more = blocks - run.private[resident.index]
        if more > 0:
            self.allocate(resident.kind.pool, more)
        else:
            resident.pool.used += more
        run.private[resident.index] = blocks

    def allocate(self, pool: int, blocks: int) -> None:
        """Take blocks out of a pool, evicting what is needed."""
        state = self.pools[pool]
        if state.blocks - state.used - state.cached < blocks:
            make_room(state, self.residents, blocks, self._evicted)
        state.used += blocks
        state.peak_used = max(state.peak_used, state.used)

    def growth_blocks(self, run: Running, tokens: int) -> list[int]:
        """Further blocks of each pool that a running request needs to store ``tokens``."""
        need = [0] * len(self.pools)
        for resident in self.residents:
            kind = resident.kind
            if kind.growth == "full":
                more = (-(-tokens // kind.block_tokens) - run.units[resident.index]) * kind.blocks
            else:
                more = kind_blocks(kind, tokens, tokens - run.stored) - run.private[resident.index]
            need[kind.pool] += max(more, 0)
        return need

    def grow(self, run: Running, tokens: int) -> None:
        """Store a request's tokens up to ``tokens``; the caller has checked that they fit."""
        for resident in self.residents:
            kind, index = resident.kind, resident.index
            if kind.growth == "full":
                units = -(-tokens // kind.block_tokens)
                more = (units - run.units[index]) * kind.blocks
                if more > 0:
                    self.allocate(kind.pool, more)
                    run.private[index] += more
                    run.units[index] = units
                self._attach(resident, run, tokens)
            else:
                self._take(resident, run, kind_blocks(kind, tokens, tokens - run.stored))
                self._pass(resident, run, tokens)
        run.stored = tokens

    def settle(self, run: Running) -> None:
        """Bring what a request holds up to the tokens it has stored: when it begins to decode, and at its end."""
        for resident in self.residents:
            if resident.kind.growth == "full":
                self._attach(resident, run, run.stored)
            else:
                held = kind_blocks(resident.kind, run.stored, 1)
                self._take(resident, run, min(held, run.private[resident.index]))
                self._pass(resident, run, run.stored)
                if not resident.kind.keeps_passed:
                    self._leave_tail(resident, run)

    def _attach(self, resident: Resident, run: Running, tokens: int) -> None:
        """Make the blocks that are full known to other requests."""
        kind, index, nodes, ends = resident.kind, resident.index, run.nodes, run.ends
        unit, blocks = kind.block_tokens, kind.blocks
        filled = min(tokens, run.path_tokens) // unit
        at, held, private = run.next[index], run.held[index], run.private[index]
        amount, users, count, replaced = resident.amount, resident.users, len(nodes), 0
        begin = (ends[at - 1] if at else 0) // unit
        while at < count and begin < filled:
            end = ends[at] // unit
            node = nodes[at]
            if at >= held:
                held = at + 1
                if not users[node]:
                    # A copy that was computed again takes the place of the cached one.
                    replaced += amount[node]
                    amount[node] = 0
                users[node] += 1
            more = ((end if end < filled else filled) - begin) * blocks - amount[node]
            if more > 0:
                more = more if more < private else private
                amount[node] += more
                private -= more
            if end > filled:
                break
            at += 1
            begin = end
        resident.pool.cached -= replaced
        run.next[index], run.held[index], run.private[index] = at, held, private

    def _pass(self, resident: Resident, run: Running, tokens: int) -> None:
        """Leave behind what a window has passed, and snapshots of states."""
        kind, size, index = resident.kind, self.node_tokens, resident.index
        if not size:
            return
        if kind.growth == "state":
            boundary = min(tokens, run.path_tokens) // size
            if boundary > run.next[index]:
                run.next[index] = boundary
                self._expose(resident, run, boundary - 1, boundary)
        elif kind.keeps_passed:
            boundary = min(max(tokens - kind.window + 1, 0), run.path_tokens) // size
            if boundary > run.next[index]:
                self._expose(resident, run, run.next[index], boundary)
                run.next[index] = boundary

    def _expose(self, resident: Resident, run: Running, low: int, high: int) -> None:
        """Put nodes of a window or state among the cached blocks, if there is room."""
        kind, nodes, size = resident.kind, run.nodes, self.node_tokens
        pool, amount = resident.pool, resident.amount
        each = kind.blocks if kind.growth == "state" else max(size // kind.block_tokens, 1) * kind.blocks
        missing = sum(each - amount[node] for node in nodes[low:high])
        if missing > pool.available:
            return
        if pool.blocks - pool.used - pool.cached < missing:
            make_room(pool, self.residents, missing, self._evicted)
            missing = sum(each - amount[node] for node in nodes[low:high])
            if pool.blocks - pool.used - pool.cached < missing:
                return
        stamp = self._release(resident, nodes, low, high, 0).stamp
        for node in nodes[low:high]:
            amount[node] = each
            resident.stamp[node] = stamp
        pool.cached += missing

    # --- leaving ---------------------------------------------------------------------------------

    def leave(self, run: Running, *, keep_outputs: bool) -> None:
        """Take a request out of memory; what it computed stays cached until it is evicted.

        With ``keep_outputs``, blocks that no later request can name (outputs, copies) stay too, as in engines that cache every full
        block.
        """
        for resident in self.residents:
            kind, index = resident.kind, resident.index
            pool, private = resident.pool, run.private[index]
            pool.used -= private
            run.private[index] = 0
            if kind.growth != "full":
                self._leave_tail(resident, run)
                continue
            partial = kind.blocks if run.stored % kind.block_tokens else 0
            anonymous = max(private - partial, 0) if keep_outputs and len(run.nodes) else 0
            pool.cached += anonymous
            held = run.held[index]
            if held or anonymous:
                release = self._release(resident, run.nodes, 0, held, anonymous)
                resident.release(run.nodes, 0, held, release)
                if held and not index and keep_outputs:
                    self.whole[release.stamp] = release
        if self.host_nodes and self.host is not None and self.host.policy == "write_through":
            self._to_host(run.nodes[: run.next[0]])

    def _leave_tail(self, resident: Resident, run: Running) -> None:
        kind, size = resident.kind, self.node_tokens
        if kind.growth == "state" or not size:
            return
        high = min(run.stored, run.path_tokens) // size
        low = max(run.next[resident.index], 0)
        if not kind.keeps_passed:
            # The tree keeps the window in front of what it was given (the trace's block in front of it).
            low = max(high - -(-(kind.window - 1) // size), 0)
        if high > low:
            self._expose(resident, run, low, high)

    def _release(
        self, resident: Resident, nodes: array[int], low: int, high: int, anonymous: int
    ) -> ReleasedBlocks:
        release = ReleasedBlocks(resident.index, self.now, nodes, low, high, anonymous, self.releases)
        self.releases += 1
        resident.pool.queue.append(release)
        return release

    def _evicted(self, release: ReleasedBlocks, first: int) -> None:
        if self.whole.pop(release.stamp, None) is not None:
            self.lifetimes.append(self.now - release.time)
        if (
            self.host_nodes
            and self.host is not None
            and self.host.policy == "on_eviction"
            and not release.kind
        ):
            self._to_host(release.nodes[max(release.high - 1, release.low) : first])

    def _to_host(self, nodes: Sequence[int]) -> None:
        """Copy nodes to the host, the root last, so that leaves are evicted there first, too."""
        on_host = self.on_host
        for node in reversed(nodes):
            on_host[node] = None
            on_host.move_to_end(node)
        while len(on_host) > self.host_nodes:
            on_host.popitem(last=False)


def _split(trace: Trace, pools: Pools) -> tuple[int, int]:
    """Into how many nodes a block of the trace is cut, and the tokens of a node."""
    size = trace.block_tokens
    if not size:
        return 1, 0
    narrow = min((kind.window for kind in pools.kinds if kind.growth == "window"), default=0)
    parts = 1
    while narrow and size // parts > max(narrow // _WINDOW_PARTS, 16) and size % (parts * 2) == 0:
        parts *= 2
    return parts, size // parts


@dataclass(frozen=True, slots=True)
class _MergedPaths:
    """Paths in which blocks that every request uses together are one node, named after the first of them."""

    nodes: array[int]
    ends: array[int]
    starts: array[int]

    def path(self, request: int) -> tuple[array[int], array[int]]:
        """A request's nodes, and the tokens up to the end of each."""
        low, high = self.starts[request], self.starts[request + 1]
        return self.nodes[low:high], self.ends[low:high]


def _merged_paths(trace: Trace) -> _MergedPaths:
    """Merge each node with the one before wherever all requests that use the one go on to the other."""
    visits = array("q", bytes(8 * trace.num_nodes))
    for node in trace.nodes:
        visits[node] += 1
    nodes, ends, starts = array("q"), array("q"), array("q", [0])
    size = trace.block_tokens
    for request in range(len(trace)):
        before, tokens = -1, 0
        for node in trace.path(request):
            count = visits[node]
            if count != before:
                if tokens:
                    ends.append(tokens)
                nodes.append(node)
                before = count
            tokens += size
        if tokens:
            ends.append(tokens)
        starts.append(len(nodes))
    return _MergedPaths(nodes, ends, starts)
