"""Hit rates of a deployment by size of its cache, in order of arrival.

For full attention only, one pass answers every size (:mod:`kvreport.traffic.hits`). Where windows or states
compete for the pools, each size is replayed in order (:mod:`kvreport.traffic.order`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from kvreport.estimation import Estimate
from kvreport.traffic.block_pools import Pools
from kvreport.traffic.hits import hit_counts
from kvreport.traffic.memory import HostTier
from kvreport.traffic.order import replay_in_order
from kvreport.traffic.replay_setup import pools_of
from kvreport.traffic.reuse import Reuse, reuse
from kvreport.traffic.trace import Trace

CURVE_POINTS: Final = 20
HYBRID_POINTS: Final = 6
"""Sizes of a curve: many where one pass answers all, few where each takes a replay."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Hit rates at one size of the cache."""

    cache_bytes: int  # Bytes of the cache on one device.
    lru: float  # Hit rate of the engine's policy.
    # Hit rate of the best possible policy, or a bound of it (:attr:`SharedPrefixes.best_is_bound`); None
    # without full attention.
    best: float | None


@dataclass(frozen=True, slots=True)
class SharedPrefixes:
    """Hit rates of one replica's share of a trace, in order of arrival."""

    trace: Trace  # The share.
    estimate: Estimate  # The deployment.
    pools: Pools
    ttl: float | None  # Seconds after which a cached block expires, or None.
    reused: Reuse  # The share's reuse distances in the deployment's blocks.

    @classmethod
    def of(cls, trace: Trace, deployment: Estimate, pools: Pools, ttl: float | None) -> SharedPrefixes:
        """Work out the reuse distances of a trace in a deployment's blocks, each of which lives ``ttl`` seconds unused, or for ever."""
        unit = pools.kinds[0].block_tokens if pools.kinds[0].growth == "full" else trace.block_tokens
        return cls(trace, deployment, pools, ttl, reuse(trace, unit))

    @property
    def plain(self) -> bool:
        """True for full attention only: one pass answers every size."""
        return len(self.pools.kinds) == 1 and self.pools.kinds[0].growth == "full"

    def at(self, cache_bytes: int | None) -> float:
        """Hit rate of the engine's policy with a pool of so many bytes; None: the deployment's."""
        if self.plain:
            counts = hit_counts(
                self.reused, self._units(cache_bytes), time_to_live_s=self.ttl, compute_last=True
            )
            return counts.rate()
        pools = self.pools if cache_bytes is None else pools_of(self.estimate, cache_bytes)
        return replay_in_order(
            self.trace,
            pools,
            time_to_live_s=self.ttl,
            max_batched_tokens=self.estimate.request.serving.max_batched_tokens,
        ).hit_rate

    def best(self, cache_bytes: int | None) -> float | None:
        """Hit rate of the best possible policy; None without full attention.

        With windows or states it is a bound: the best policy of full attention alone, as if it had the whole
        pool. No policy finds more, because a hit needs the leading run of full attention in any case.
        """
        if self.pools.kinds[0].growth != "full":
            return None
        return hit_counts(self.reused, self._units(cache_bytes), policy="best", compute_last=True).rate()

    @property
    def best_is_bound(self) -> bool:
        """True if :meth:`best` is an upper bound and not reached by a policy."""
        return not self.plain

    def unlimited(self) -> float:
        """Hit rate without a limit."""
        return hit_counts(self.reused, None, time_to_live_s=self.ttl, compute_last=True).rate()

    def with_host(self, host: HostTier) -> float:
        """Hit rate with a host tier."""
        if not self.plain:
            return replay_in_order(self.trace, self.pools, host=host, time_to_live_s=self.ttl).hit_rate
        device, beside = self._units(None), host.blocks // self.pools.kinds[0].blocks
        # Two LRU tiers: copies on eviction make one of both sizes, copies at the end one of the larger.
        units = device + beside if host.policy == "on_eviction" else max(device, beside)
        return hit_counts(self.reused, units, time_to_live_s=self.ttl, compute_last=True).rate()

    def curve(self) -> list[CurvePoint]:
        """Hit rates from a hundredth of all distinct blocks to all of them."""
        sizes = self.sizes(CURVE_POINTS if self.plain else HYBRID_POINTS)
        return [CurvePoint(size, self.at(size), self.best(size)) for size in sizes]

    def sizes(self, points: int) -> list[int]:
        """Sizes of the curve, evenly on a logarithmic scale."""
        most = self.footprint_bytes()
        least = max(most // 256, self._least_bytes())
        if most <= least:
            return [least]
        steps = (least * (most / least) ** (index / (points - 1)) for index in range(points))
        return sorted({int(step) for step in steps})

    def footprint_bytes(self) -> int:
        """Bytes of all distinct blocks in the layers that keep every token."""
        kind = self.pools.kinds[0]
        return self.reused.distinct * kind.blocks * self.pools.pools[kind.pool].block_bytes

    def cache_for(self, wanted: float, curve: Sequence[CurvePoint]) -> int | None:
        """The least bytes that reach a hit rate; None if no size does.

        Exact for full attention only; else between two points of the curve.
        """
        if self.plain:
            return self._units_for(wanted)
        for low, high in pairwise(curve):
            if low.lru < wanted <= high.lru:
                share = (wanted - low.lru) / (high.lru - low.lru)
                return int(low.cache_bytes * (high.cache_bytes / low.cache_bytes) ** share)
        return curve[0].cache_bytes if curve and curve[0].lru >= wanted else None

    def _units_for(self, wanted: float) -> int | None:
        if self.unlimited() < wanted:
            return None
        low, high = 0, self.reused.distinct
        while low < high:
            middle = (low + high) // 2
            counts = hit_counts(self.reused, middle, time_to_live_s=self.ttl, compute_last=True)
            low, high = (low, middle) if counts.rate() >= wanted else (middle + 1, high)
        return low * self.pools.kinds[0].blocks * self.pools.pools[0].block_bytes

    def _least_bytes(self) -> int:
        """Bytes with which pools exist."""
        size = self.estimate.plan.block_bytes * (self.estimate.plan.kept_blocks + 1)
        share = self.estimate.budget.kv_pool_bytes // 64
        return max(size, share if not self.plain else size)

    def _units(self, cache_bytes: int | None) -> int:
        kind = self.pools.kinds[0]
        if cache_bytes is None:
            blocks = self.pools.pools[kind.pool].blocks
        elif self.plain:
            blocks = cache_bytes // self.pools.pools[kind.pool].block_bytes
        else:
            blocks = pools_of(self.estimate, cache_bytes).pools[kind.pool].blocks
        return blocks // kind.blocks
