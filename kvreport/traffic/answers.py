"""What people ask of recorded traffic: how much is found again, who waits, and what would help.

One door, :func:`replay`: a trace, a model and a device in; hit rates by cache size, the course over time and what
more memory, more replicas or a host tier would change out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from kvreport.accounting.kv_cache import held
from kvreport.accounting.sizing import DEFAULT_EFFICIENCY
from kvreport.accounting.tiers import LINKS
from kvreport.accounting.weights import parameters
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.catalog.model import Model
from kvreport.errors import InputError, require_numbers, shorten
from kvreport.estimation import Estimate, estimate
from kvreport.estimation.answer import layout_to_dict
from kvreport.estimation.estimate import hypothetical
from kvreport.estimation.hardware import refuse_beyond_one_memory
from kvreport.estimation.home_names import engine_of
from kvreport.query import MOST_BYTES, SERVER_ENGINE
from kvreport.traffic.block_pools import Pools
from kvreport.traffic.curves import CurvePoint, SharedPrefixes
from kvreport.traffic.hits import DEFINITIONS, Definition
from kvreport.traffic.memory import HostPolicy, HostTier
from kvreport.traffic.replay import replay_trace
from kvreport.traffic.replay_setup import SCHEDULERS, clock_of, pools_of
from kvreport.traffic.results import ReplayOptions, ReplayResult
from kvreport.traffic.shipped import open_trace
from kvreport.traffic.timing import StepClock
from kvreport.traffic.trace import (
    MAX_LEFT_OUT,
    Trace,
    arrival_note,
    left_out_note,
    split,
    with_outputs,
    within_context,
)
from kvreport.units import parse_bytes

MAX_REPLICAS: Final = 256
HOST_LINK: Final = "PCIe 5.0 x16"


@dataclass(frozen=True, slots=True)
class TrafficAnswer:
    """The result of a replay.

    Attributes:
        trace: The trace.
        estimate: The deployment of one replica.
        pools: The memory pools of one replica.
        replicas: Number of replicas that share the trace. Each data rank of a replica gets a part of it.
        too_long: Number of requests left out because their prompts exceed the model's context.
        definition: Name of the definition of the hit rate (:data:`~kvreport.traffic.hits.DEFINITIONS`).
        efficiency: Share of the roofline that steps reach.
        runs: One result per data rank of each replica; empty if time was not simulated.
        hit_rate: Hit rate of the pool for requests in order of arrival; None if the trace shares no prefixes.
        hit_rate_best: Hit rate of the best possible policy. For models with windows or states, an upper bound.
        best_is_bound: True if ``hit_rate_best`` is an upper bound.
        hit_rate_unlimited: Hit rate of a cache without a size limit.
        curve: Hit rates by cache size.
        cache_bytes_for_hit_rate: Bytes per device that reach ``wanted_hit_rate``; None if no size reaches it, or no
            rate was given.
        wanted_hit_rate: The target hit rate, or None.
        replicas_for_wait: Number of replicas that meet ``wanted_wait_s``; None if no target was given.
        wanted_wait_s: The target for the 95th percentile of the waiting time, in seconds.
        host_bytes: Bytes of the host tier per device.
        hit_rate_with_host: Hit rate with the host tier, for requests in order of arrival.
    """

    trace: Trace
    estimate: Estimate
    pools: Pools
    replicas: int
    too_long: int
    definition: Definition
    efficiency: float
    runs: tuple[ReplayResult, ...]
    hit_rate: float | None
    hit_rate_best: float | None
    best_is_bound: bool
    hit_rate_unlimited: float | None
    curve: tuple[CurvePoint, ...]
    cache_bytes_for_hit_rate: int | None
    wanted_hit_rate: float | None
    replicas_for_wait: int | None
    wanted_wait_s: float | None
    host_bytes: int
    hit_rate_with_host: float | None

    def __repr__(self) -> str:
        """One line."""
        rate = "nothing shared" if self.hit_rate is None else f"hit rate {self.hit_rate:.1%}"
        return f"<TrafficAnswer {self.trace.name} on {self.estimate.request.accelerator.id}: {rate}>"

    @property
    def binding_pool(self) -> str | None:
        """The most frequent cause of waiting: the name of a pool, ``max_seqs``, or None if no request waited."""
        totals: dict[str, int] = {}
        for run in self.runs:
            for name, count in run.blocked_by.items():
                totals[name] = totals.get(name, 0) + count
        most = max(totals, key=totals.__getitem__, default="")
        return most if totals.get(most) else None

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings to show before the numbers: missing times, requests left out, and options not taken into account."""
        times = arrival_note(self.trace) if self.runs else ""
        left_out = left_out_note(self.trace, self.estimate.request.context_tokens)
        unfollowed = (f"not followed: {one}" for one in self.estimate.request.not_followed)
        return tuple(note for note in (times, left_out, *unfollowed) if note)

    def times(self, name: str) -> dict[str, float] | None:
        """Return the mean and percentiles of a time over all replicas; None if no request was served."""
        values = sorted(value for run in self.runs for value in getattr(run, name))
        return summarize(values)

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``kvreport replay --format json`` prints."""
        request = self.estimate.request
        return {
            "trace": trace_summary(self.trace)
            | {"left_out_too_long": self.too_long, "left_out_share": self.too_long / len(self.trace)},
            "notes": list(self.notes),
            "model": request.model.id,
            "gpu": request.accelerator.id,
            "tensor_parallel": request.tensor_parallel,
            "layout": layout_to_dict(request.layout),
            "engine": request.engine.name,
            "engine_version": request.engine.version,
            "replicas": self.replicas,
            "max_seqs": request.serving.max_seqs,
            "max_batched_tokens": request.serving.max_batched_tokens,
            "kv_pool_bytes_per_gpu": self.estimate.budget.kv_pool_bytes,
            "pools": [asdict(pool) for pool in self.pools.pools],
            "hit_rate_definition": {"name": self.definition, "is": DEFINITIONS[self.definition]},
            "hit_rate": self.hit_rate,
            "hit_rate_best_possible": self.hit_rate_best,
            "best_possible_is_bound": self.best_is_bound,
            "hit_rate_unlimited": self.hit_rate_unlimited,
            "curve": [asdict(point) for point in self.curve],
            "wanted_hit_rate": self.wanted_hit_rate,
            "cache_bytes_for_hit_rate": self.cache_bytes_for_hit_rate,
            "wanted_wait_s": self.wanted_wait_s,
            "replicas_for_wait": self.replicas_for_wait,
            "host_bytes": self.host_bytes,
            "hit_rate_with_host": self.hit_rate_with_host,
            "replay": self._replay(),
        }

    def _replay(self) -> dict[str, Any] | None:
        if not self.runs:
            return None
        runs = self.runs
        sums = (
            "requests refused prompt_tokens hit_tokens host_tokens prefilled_tokens output_tokens preemptions "
            "preempted_requests recomputed_tokens"
        )
        found: dict[str, Any] = {name: sum(getattr(run, name) for run in runs) for name in sums.split()}
        found |= {
            "efficiency": self.efficiency,
            "seconds": max(run.seconds for run in runs),
            "hit_rate": found["hit_tokens"] / max(found["prompt_tokens"], 1),
            "peak_running": max(run.peak_running for run in runs),
            "peak_running_s": max(runs, key=lambda run: run.peak_running).peak_running_s,
            "mean_running": fmean(run.mean_running for run in runs),
            "peak_waiting": max(run.peak_waiting for run in runs),
            "peak_waiting_s": max(runs, key=lambda run: run.peak_waiting).peak_waiting_s,
            "wait_s": self.times("wait_s"),
            "first_token_s": self.times("first_token_s"),
            "end_to_end_s": self.times("end_to_end_s"),
            "binding_pool": self.binding_pool,
            "peak_used_share": [
                max(run.peak_used[index] for run in runs) / spec.blocks
                for index, spec in enumerate(self.pools.pools)
            ],
            "evicted_blocks": [
                sum(run.evicted[index] for run in runs) for index in range(len(self.pools.pools))
            ],
            "peak_idle_contexts": max(run.peak_resident_contexts for run in runs),
            "idle_lifetime_s": self.times("idle_lifetimes_s"),
            "samples": [asdict(sample) for sample in thin(runs[0].samples, 200)],
        }
        return found


def replay(
    trace: str | Path | Trace,
    model: str | Path | Model,
    *,
    gpu: str | Accelerator | Sequence[str | Accelerator],
    replicas: int = 1,
    host_memory: int | str | None = None,
    host_policy: HostPolicy = "write_through",
    time_to_live_s: float | None = None,
    speed: float = 1.0,
    closed_loop: bool = False,
    efficiency: float = DEFAULT_EFFICIENCY,
    order_only: bool = False,
    curve: bool = True,
    hit_rate: float | None = None,
    wait_s: float | None = None,
    block_tokens: int | None = None,
    rate: float | None = None,
    limit: int | None = None,
    catalog: Catalog | None = None,
    **options: Any,  # noqa: ANN401 - the fields of Query, checked there
) -> TrafficAnswer:
    """Replay recorded traffic on a deployment.

    Args:
        trace: A trace, the path of its file, or the name of an included trace (``mooncake-conversation``).
        model: Same as in :func:`kvreport.estimate`.
        gpu: Same as in :func:`kvreport.estimate`: an accelerator, or a list with one entry per rank.
        replicas: Number of replicas that share the trace. Sessions stay whole; requests without a session are
            assigned in turn. Each data rank of a replica (``data_parallel``) has separate pools and gets a part of the trace.
        host_memory: Host tier per device, in bytes or as text such as ``"256GiB"``.
        host_policy: ``write_through`` copies the blocks of a request when it ends, ``on_eviction`` when they are evicted.
        time_to_live_s: Number of seconds after which cached blocks expire.
        speed: Arrival-rate multiplier.
        closed_loop: If True, each request of a session waits for the previous answer plus the think time.
        efficiency: Share of the roofline that steps reach.
        order_only: If True, compute hit rates only and do not simulate time.
        curve: If False, leave out the hit rates by cache size.
        hit_rate: Target hit rate, from 0 to 1. The answer has the cache size that reaches it.
        wait_s: Target for the 95th percentile of the waiting time in seconds. The answer has the number of replicas
            that meets it.
        block_tokens: Number of tokens per block of the trace, if the trace does not state it.
        rate: Requests per second, for traces without times.
        limit: Read at most this many requests.
        catalog: Catalog that resolves names; None for the public catalog.
        **options: Options of :func:`kvreport.estimate`, such as layout, formats, engine and ``utilization``.
            ``context_tokens`` is the longest request served; ``kv_offload`` is the host tier of one data-parallel
            rank, which its devices divide if they do not share one copy.

    Returns:
        The ``TrafficAnswer``, with hit rates, waiting times, preemptions and the sizes or replicas that meet the targets.

    Raises:
        InputError: If a name is unknown, or a value is out of range or impossible.

    >>> replay("mooncake-conversation", "Qwen/Qwen3-8B", gpu="h200-sxm-141gb", limit=50, order_only=True)
    <TrafficAnswer mooncake-conversation on h200-sxm-141gb: hit rate 5.1%>
    """
    require_numbers(whole=True, replicas=replicas)
    require_numbers(speed=speed, efficiency=efficiency)
    require_numbers(none=True, time_to_live_s=time_to_live_s, hit_rate=hit_rate, wait_s=wait_s, rate=rate)
    require_numbers(none=True, whole=True, block_tokens=block_tokens, limit=limit)
    if not 1 <= replicas <= MAX_REPLICAS:
        raise InputError(f"replicas: found {replicas}; allowed: 1 to {MAX_REPLICAS}")
    if hit_rate is not None and not 0 < hit_rate < 1:
        raise InputError(f"hit rate: found {hit_rate}; allowed: a share above 0 and below 1")
    if wait_s is not None and not wait_s > 0:
        raise InputError(f"wait: found {wait_s}; allowed: seconds above 0")
    books = open_catalog() if catalog is None else catalog
    # A replay needs a scheduler, which a machine at home has only where its model's name says so.
    usual = {} if isinstance(model, str | Path) and engine_of(model, books) else {"engine": SERVER_ENGINE}
    # Hit rates alone can be asked of any size of cache.
    asked = hypothetical if order_only else estimate
    deployment = asked(model, gpu=gpu, catalog=books, **{**usual, **options})
    pools, ranks = pools_of(deployment), deployment.request.layout.data
    given = (
        trace
        if isinstance(trace, Trace)
        else open_trace(trace, block_tokens=block_tokens, rate=rate, limit=limit)
    )
    refuse_another(given, deployment.request.model, deployment.request.context_tokens, books)
    whole, too_long = within_context(given, deployment.request.context_tokens)
    whole = with_outputs(whole)
    offloaded = options.get("kv_offload") is not None
    if host_memory is not None and offloaded:
        raise InputError("kv-offload: found together with host-memory; allowed: one of them")
    copies = 1 if deployment.deployment is None else deployment.deployment.host_memory.copies
    per_device = deployment.request.kv_offload_bytes // copies
    host = _host(per_device if offloaded else host_memory, host_policy, pools)
    if host is not None:
        taken, kept = deployment.budget.requested_bytes, host.blocks * pools.pools[0].block_bytes
        refuse_beyond_one_memory("host-memory", deployment.request.accelerators, taken, kept)
    rules = ReplayOptions(
        scheduler=SCHEDULERS[deployment.request.engine.family],
        max_seqs=deployment.request.serving.max_seqs,
        # Every pipeline stage works on a micro-batch with a budget of its own.
        max_batched_tokens=deployment.request.serving.max_batched_tokens * deployment.request.layout.pipeline,
        host=host,
        time_to_live_s=time_to_live_s,
        speed=speed,
        closed_loop=closed_loop,
    )
    runs: tuple[ReplayResult, ...] = ()
    needed = None
    if not order_only:
        clock = clock_of(deployment, efficiency)
        runs = tuple(replay_trace(part, pools, clock, rules) for part in split(whole, replicas * ranks))
        if wait_s is not None:
            needed = _replicas_for(whole, pools, clock, rules, wait_s, ranks)
    part = split(whole, replicas * ranks)[0]
    shared = (
        SharedPrefixes.of(part, deployment, pools, time_to_live_s)
        if part.shares_prefixes and (curve or order_only)
        else None
    )
    points = () if shared is None or not curve else tuple(shared.curve())
    return TrafficAnswer(
        trace=given,
        estimate=deployment,
        pools=pools,
        replicas=replicas,
        too_long=too_long,
        definition="tokens",
        efficiency=efficiency,
        runs=runs,
        hit_rate=None if shared is None else shared.at(None),
        hit_rate_best=None if shared is None else shared.best(None),
        best_is_bound=shared is not None and shared.best_is_bound,
        hit_rate_unlimited=None if shared is None else shared.unlimited(),
        curve=points,
        cache_bytes_for_hit_rate=None
        if shared is None or hit_rate is None
        else shared.cache_for(hit_rate, points),
        wanted_hit_rate=hit_rate,
        replicas_for_wait=needed,
        wanted_wait_s=wait_s,
        host_bytes=0 if host is None else host.blocks * pools.pools[0].block_bytes,
        hit_rate_with_host=None if shared is None or host is None else shared.with_host(host),
    )


def refuse_another(trace: Trace, model: Model, limit_tokens: int, catalog: Catalog) -> None:
    """Refuse a trace of which too much would be left out, and name a model that fits.

    Raises:
        InputError: If more than :data:`~kvreport.traffic.trace.MAX_LEFT_OUT` of the requests are too long.
    """
    long = sum(tokens >= limit_tokens for tokens in trace.prompt_tokens)
    if long <= MAX_LEFT_OUT * len(trace):
        return
    longest = max(trace.prompt_tokens)
    if model.context_tokens > longest:
        fits = f"a context above {longest:,} tokens ({model.id} supports {model.context_tokens:,})"
    else:
        other = longer_model(model, longest, catalog.models.values())
        fits = (
            f"a trace of shorter prompts; the longest here has {longest:,} tokens"
            if other is None
            else f"a model for prompts of {longest:,} tokens, such as {other.id} ({other.context_tokens:,} tokens)"
        )
    raise InputError(
        f"trace {trace.name}: found {left_out_note(trace, limit_tokens)}; with more than {MAX_LEFT_OUT:.0%} left out "
        f"the answer is that of another trace; allowed: {fits}"
    )


def longer_model(model: Model, longest: int, models: Iterable[Model]) -> Model | None:
    """Return a model that serves prompts of a length: of those with a cache that grows, the nearest in size."""
    size = parameters(model)
    able = (one for one in models if one.context_tokens > longest and may_stand_in(one))
    return min(able, key=lambda one: (abs(log(parameters(one) / size)), one.id), default=None)


def may_stand_in(model: Model) -> bool:
    """Say whether a model may be named for a trace: an original whose cache grows with every token of a prompt."""
    return model.quantized_from is None and bool(held(model, None).marginal_bytes(model.context_tokens) > 0)


def _host(memory: int | str | None, policy: HostPolicy, pools: Pools) -> HostTier | None:
    if memory is None:
        return None
    try:
        size = parse_bytes(memory)
    except InputError as error:
        raise InputError(f"host-memory: {error}") from error
    if size > MOST_BYTES:
        raise InputError(f"host-memory: found {shorten(memory)}; allowed: at most {MOST_BYTES >> 40} TiB")
    return HostTier(max(size // pools.pools[0].block_bytes, 1), LINKS[HOST_LINK], policy)


def _replicas_for(
    trace: Trace, pools: Pools, clock: StepClock, options: ReplayOptions, wait_s: float, ranks: int
) -> int | None:
    """The fewest replicas whose 95th percentile of waiting is at most ``wait_s``; None if none up to the most.

    Each replica has ``ranks`` data ranks, which schedule requests of their own.
    """

    def waits(replicas: int) -> bool:
        values = sorted(
            value
            for part in split(trace, replicas * ranks)
            for value in replay_trace(part, pools, clock, options).wait_s
        )
        found = summarize(values)
        return found is None or found["p95"] > wait_s

    high = 1
    while waits(high):
        high *= 2
        if high > MAX_REPLICAS:
            return None
    low = high // 2 + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if waits(middle) else (low, middle)
    return high


def summarize(values: Sequence[float]) -> dict[str, float] | None:
    """Mean and percentiles of ascending values; None without any."""
    if not values:
        return None
    last = len(values) - 1

    def at(share: float) -> float:
        return values[round(share * last)]

    return {"mean": fmean(values), "p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "max": values[-1]}


def trace_summary(trace: Trace) -> dict[str, Any]:
    """What a trace holds, in numbers."""
    prompts, outputs = sorted(trace.prompt_tokens), sorted(trace.output_tokens)
    return {
        "name": trace.name,
        "requests": len(trace),
        "duration_s": trace.duration_s,
        "prompt_tokens": summarize(prompts),
        "output_tokens": summarize(outputs),
        "block_tokens": trace.block_tokens,
        "distinct_blocks": trace.num_nodes,
        "sessions": len({one for one in trace.session if one >= 0}),
        "reordered": trace.reordered,
        "arrivals": trace.arrivals,
    }


def thin(values: Sequence[Any], most: int) -> Sequence[Any]:
    """At most so many of some values, evenly."""
    step = -(-len(values) // most) or 1
    return values[::step]
