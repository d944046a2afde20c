"""From a workload to deployments, and the questions asked backwards.

A workload says how many requests are in flight, how long they are and how fast they must be. A
replica is one copy of the model on one tensor-parallel group; a deployment is as many replicas as
the workload's peak needs, plus spares. Everything rests on the same pools, block plans and cache
profiles as an estimate; time comes from :mod:`kvreport.accounting.roofline`, divided by the share of
the roofline that a real server is expected to reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final, Literal, cast

import numpy as np
import numpy.typing as npt

from kvreport.accounting import kernel
from kvreport.accounting.capacity import beside, blocks, if_told, lacks
from kvreport.accounting.demand import Demand
from kvreport.accounting.numeric import Integers
from kvreport.accounting.plan import BlockPlan
from kvreport.accounting.profile import CacheProfile
from kvreport.accounting.roofline import Peaks, decode, prefill
from kvreport.errors import InputError
from kvreport.units import MAX_BYTES

Binds = Literal["weights", "cache", "state", "max_seqs", "time", "context"]

DEFAULT_EFFICIENCY: Final = kernel.DEFAULT_EFFICIENCY
"""Share of the roofline that a server is taken to reach: the published ones in the tests reach 22 to 77%, dense models 41 to 77%."""

MAX_REQUESTS: Final = kernel.MAX_REQUESTS
MAX_BURST: Final = 1000
MAX_SPARES: Final = 1000


@dataclass(frozen=True, slots=True)
class Load:
    """What must be served."""

    concurrent: float  # Requests in flight at the same time, on average.
    longest_tokens: int  # Longest request allowed, prompt and output together.
    mean_tokens: int  # Tokens that a request in flight holds on average.
    prompt_tokens: int  # Prompt length, for the time to the first token.
    output_tokens: int  # Output length.
    ttft_s: float | None = None  # Time to first token that must be met, or None.
    tpot_s: float | None = None  # Time per further token that must be met, or None.
    burst: float = 1.0  # Peak requests over average requests, at least 1.
    spare_replicas: int = 0  # Replicas that may fail (1 is N+1).
    shared_prefix_tokens: int = 0  # Leading tokens that all requests have in common and the engine caches.
    efficiency: float = DEFAULT_EFFICIENCY  # Share of the roofline that is taken to be reached.
    latency_s: float | None = (
        None  # Time that each request takes, where the requests in flight follow from it.
    )

    def __post_init__(self) -> None:
        """Refuse what contradicts itself, with what to relax."""
        _check(
            0 < self.concurrent <= MAX_REQUESTS,
            "concurrent",
            self.concurrent,
            f"above 0, to {MAX_REQUESTS:,}",
        )
        _check(self.longest_tokens >= 1, "context", self.longest_tokens, "at least 1 token")
        _check(1 <= self.burst <= MAX_BURST, "burst", self.burst, f"a factor from 1 to {MAX_BURST:,}")
        _check(
            0 <= self.spare_replicas <= MAX_SPARES,
            "redundancy",
            self.spare_replicas,
            f"0 to {MAX_SPARES:,} spare replicas",
        )
        _check(0 < self.efficiency <= 1, "efficiency", self.efficiency, "a share above 0 and at most 1")
        for name, value in (("ttft", self.ttft_s), ("tpot", self.tpot_s)):
            _check(value is None or value > 0, name, value, "a time above 0")
        if self.prompt_tokens < 1 or self.output_tokens < 1:
            raise InputError("prompt and output: found less than 1 token; allowed: at least 1 each")
        if self.prompt_tokens + self.output_tokens > self.longest_tokens:
            raise InputError(
                f"prompt and output: {self.prompt_tokens:,} + {self.output_tokens:,} tokens are more than the "
                f"maximum length of {self.longest_tokens:,}; shorten one of them or raise the context"
            )
        if not 1 <= self.mean_tokens <= self.longest_tokens:
            raise InputError(
                f"average context: found {self.mean_tokens:,} tokens; allowed: 1 to the maximum length of "
                f"{self.longest_tokens:,}; lower the average or raise the maximum"
            )
        if not 0 <= self.shared_prefix_tokens <= min(self.prompt_tokens, self.mean_tokens):
            raise InputError(
                f"shared prefix: found {self.shared_prefix_tokens:,} tokens; allowed: 0 to the prompt of "
                f"{self.prompt_tokens:,} and the average context of {self.mean_tokens:,}"
            )

    @property
    def peak(self) -> int:
        """Requests in flight at the peak."""
        return ceil(self.concurrent * self.burst)


def in_flight(requests_per_second: float, seconds_each: float) -> float:
    """Little's law: requests in flight = arrival rate x time that each stays.

    Raises:
        InputError: If one of them is not above 0.
    """
    _check(requests_per_second > 0, "rate", requests_per_second, "above 0 requests per second")
    _check(seconds_each > 0, "latency", seconds_each, "above 0 seconds")
    return requests_per_second * seconds_each


def shared_bytes(profile: CacheProfile, prefix_tokens: int) -> int:
    """Bytes of a prefix that requests can share: whole blocks of caches that keep every token.

    Windows move on and states are each request's own, so they are not shared.
    """
    return kernel.shared_bytes(profile.flat[1], prefix_tokens)


def replica_users(
    pool_bytes: npt.ArrayLike, plan: BlockPlan, mean_tokens: int, longest_tokens: int, prefix_tokens: int = 0
) -> Integers:
    """Requests that one replica holds at their average length; 0 if one of the longest does not fit.

    Without a shared prefix, and with all requests as long as the longest, this is
    :func:`kvreport.accounting.capacity.users`, and counts the engine's own blocks as that does.
    """
    pool = blocks(pool_bytes, plan) * plan.block_bytes
    shared = shared_bytes(plan.profile, prefix_tokens)
    each = int(plan.profile.request_bytes(mean_tokens)) - shared
    held = np.maximum(pool - shared, 0) // each if each else np.full(np.shape(pool), MAX_REQUESTS)
    fits = np.logical_not(lacks(pool_bytes, plan, longest_tokens))
    most = beside(pool_bytes, plan, mean_tokens)
    held = held if most is None else np.minimum(held, most)
    held = if_told(held, pool_bytes, plan, each)
    return np.asarray(np.where(fits, np.minimum(held, MAX_REQUESTS), 0), dtype=np.int64)


def fast_enough(demand: Demand, peaks: Peaks, workload: Load, at_most: npt.ArrayLike) -> Integers:
    """The largest batch, up to ``at_most``, that meets the workload's time targets.

    A time that is not known (no published rate) meets no target: such a device gives 0.

    ``workload``: targets, lengths and the expected share of the roofline. ``at_most``: what memory holds;
    the shape of the answer.
    """
    high = np.asarray(at_most, dtype=np.int64)
    if workload.ttft_s is not None:
        first = prefill(
            demand, peaks, workload.prompt_tokens, cached_tokens=workload.shared_prefix_tokens
        ).seconds
        high = np.where(first <= workload.ttft_s * workload.efficiency, high, 0)
    if workload.tpot_s is None:
        return high
    target = workload.tpot_s * workload.efficiency
    low = np.zeros(high.shape, dtype=np.int64)
    while np.any(low < high):
        middle = (low + high + 1) // 2
        step = decode(demand, peaks, np.maximum(middle, 1), workload.mean_tokens).seconds
        met = step <= target
        low = np.where(met, middle, low)
        high = np.where(met, high, np.minimum(middle - 1, high))
        high = np.maximum(low, high)
    return low


def pool_for(
    plan: BlockPlan,
    requests: int,
    mean_tokens: int,
    longest_tokens: int | None = None,
    prefix_tokens: int = 0,
) -> int:
    """The smallest pool per device for which :func:`replica_users` is ``requests``.

    ``longest_tokens``: the longest that must fit; None for ``mean_tokens``. ``prefix_tokens``: leading tokens
    that all of them share.
    """
    longest = mean_tokens if longest_tokens is None else longest_tokens
    needed = kernel.bytes_for(_kernel_plan(plan), requests, mean_tokens, longest, prefix_tokens)
    return needed if plan.pool is None else _pool_with_others(plan, needed, requests, mean_tokens)


def _kernel_plan(plan: BlockPlan) -> kernel.Plan:
    """The blocks of a plan, without what other pools take of a budget."""
    return kernel.Plan(plan.block_bytes, plan.kept_blocks, *plan.profile.flat, ())


def _pool_with_others(plan: BlockPlan, needed: int, requests: int, mean_tokens: int) -> int:
    """The smallest pool whose blocks hold ``needed`` bytes and whose other pools hold the requests.

    An engine that rounds tokens up to blocks needs less than whole blocks take. Where memory buys one state more, it leaves
    fewer tokens than a little less memory does (:func:`kvreport.accounting.kernel.pool_for`).
    """
    low, high = max(needed - plan.block_bytes, 0), needed
    while not _holds(plan, high, needed, requests, mean_tokens) and high < MAX_BYTES:
        high *= 2
    while low < high:
        middle = (low + high) // 2
        if _holds(plan, middle, needed, requests, mean_tokens):
            high = middle
        else:
            low = middle + 1
    tooth = 0 if plan.pool is None else plan.pool.state_bytes - 1
    while tooth > 0 and _holds(plan, low - tooth, needed, requests, mean_tokens):
        low -= tooth
    return low


def holds(
    plan: BlockPlan, pool_bytes: int, requests: int, mean_tokens: int, longest_tokens: int, prefix: int
) -> bool:
    """Whether a pool holds so many requests, and one of the longest; arguments as of :func:`pool_for`."""
    needed = kernel.bytes_for(_kernel_plan(plan), requests, mean_tokens, longest_tokens, prefix)
    return _holds(plan, pool_bytes, needed, requests, mean_tokens)


def _holds(plan: BlockPlan, pool_bytes: int, needed: int, requests: int, mean_tokens: int) -> bool:
    most = beside(pool_bytes, plan, mean_tokens)
    return int(blocks(pool_bytes, plan)) * plan.block_bytes >= needed and (
        most is None or int(most) >= requests
    )


def fraction_interval(
    kept: int, of_bytes: float, pool_bytes: int, weight_bytes: int, reserve_bytes: int, total_bytes: int
) -> tuple[float, float]:
    """The lowest and highest ``--mem-fraction-static`` of SGLang that work, in steps of 0.001.

    SGLang 0.5 sizes the pool as ``free after loading - free before * (1 - fraction)``, so the pool
    is ``free before * fraction - weights``; the rest is left to activations and graphs.

    Below the lowest, weights and the wanted cache do not fit in the static part. The highest is what SGLang takes by
    itself: above it, less is left for activations and graphs.

    ``kept``: bytes of the static part that hold neither weights nor pools. ``of_bytes``: bytes that a fraction of 1
    would be. ``reserve_bytes``: what SGLang keeps when no fraction is given.
    """
    return (
        kernel.lowest_static_fraction(pool_bytes, weight_bytes, kept, of_bytes),
        kernel.own_static_fraction(total_bytes, reserve_bytes, kept, of_bytes),
    )


def what_binds(plan: BlockPlan, mean_tokens: int, *, held: int, fast: int, limit: int | None) -> Binds:
    """What keeps one more request from running: time, the sequence limit, states or cache.

    ``mean_tokens``: tokens that a request holds. ``held``: requests that memory holds. ``fast``: requests
    that meet the time targets. ``limit``: requests that the engine may run at once, or None.
    """
    constant, terms = plan.profile.flat
    request = kernel.request_bytes(constant, terms, mean_tokens)
    most = MAX_REQUESTS + 1 if limit is None else limit
    return cast("Binds", kernel.what_limits(request, constant, held, fast, most))


def _check(condition: bool, name: str, value: object, allowed: str) -> None:  # noqa: FBT001 - a condition, not a mode
    if not condition:
        raise InputError(f"{name}: found {value}; allowed: {allowed}")
