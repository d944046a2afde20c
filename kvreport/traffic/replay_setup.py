"""From an estimate to the pools, the clock and the limits of a replay.

vLLM's groups draw from one pool of equal blocks: how many each takes is in the plan's profile. SGLang keeps full
attention, windows and states in pools of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Final

from kvreport.accounting import capacity
from kvreport.accounting.demand import demand
from kvreport.accounting.deployment import Deployment
from kvreport.accounting.engines.sglang.pools import Division
from kvreport.accounting.plan import BlockPlan
from kvreport.accounting.profile import UNBOUNDED
from kvreport.accounting.roofline import Peaks
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.estimation import Estimate
from kvreport.traffic.block_pools import CacheKind, Pools, PoolSpec
from kvreport.traffic.results import Scheduler
from kvreport.traffic.timing import PipelineClock, RooflineClock, StepClock

SCHEDULERS: Final[dict[str, Scheduler]] = {"vllm": "vllm", "sglang": "sglang", "ceiling": "vllm"}
"""Engine families whose scheduler is known; the ceiling is scheduled as vLLM does."""


def pools_of(estimate: Estimate, pool_bytes: int | None = None) -> Pools:
    """The pools of one data rank, of ``pool_bytes`` in place of the estimate's where they are stated.

    All its devices hold their parts of the same blocks, so the device with room for the fewest requests decides
    how many there are (pipeline stages and accelerators may differ).

    Raises:
        InputError: If nothing is left for a pool, or the engine's scheduler is not known.
    """
    family = estimate.request.engine.family
    if family not in SCHEDULERS:
        raise InputError(
            f"engine: found {estimate.request.engine.label}, whose scheduler is not known here; "
            f"allowed: {', '.join(SCHEDULERS)}"
        )
    rank = tightest_rank(estimate)
    size = int(rank.budget.kv_pool_bytes) if pool_bytes is None else pool_bytes
    rule = rank.plan.pool
    if isinstance(rule, Division):
        return _sglang_pools(rule, size)
    return plan_pools(rank.plan, size, windows=_windows(estimate.request.model))


def tightest_rank(estimate: Estimate) -> Deployment:
    """The rank whose pool holds the fewest requests of the estimate's context.

    Raises:
        InputError: If the engine allocates its cache by another arithmetic (local engines).
    """
    if estimate.deployment is None:
        raise InputError(
            f"engine: found {estimate.request.engine.label}, whose scheduler is not known here; "
            f"allowed: {', '.join(SCHEDULERS)}"
        )
    context = estimate.request.context_tokens
    # A rank's own figure: ``concurrency`` of a deployment is already the least of all ranks.
    return min(
        estimate.deployment.ranks,
        key=lambda one: float(capacity.concurrency(one.pool_bytes, one.plan, context)),
    )


def clock_of(estimate: Estimate, efficiency: float) -> StepClock:
    """The clock of one data rank: the roofline of its device over an efficiency.

    Routed experts are divided over the data ranks, a cache's tokens over the ranks of decode context
    parallelism, as in the estimate's own bounds (:func:`kvreport.estimation.estimate.answer`). The slowest
    device's rates count where devices differ.

    Raises:
        InputError: If the device's rates are not known.
    """
    request, layout = estimate.request, estimate.request.layout
    wanted = (
        demand(
            request.model,
            request.weight_format,
            request.formats,
            request.kv_format,
            tensor_parallel=layout.tensor,
        )
        .shared_by(layout.data)
        .interleaved(layout.decode_context)
    )
    slowest = min((Peaks.of(one) for one in request.accelerators), key=lambda peaks: float(peaks.bytes_per_s))
    clock = RooflineClock(wanted, slowest, max_seqs=request.serving.max_seqs, efficiency=efficiency)
    return clock if layout.pipeline == 1 else PipelineClock(clock, layout.pipeline)


def _windows(model: Model) -> tuple[int, ...]:
    """The different windows of a model's layers, ascending."""
    caches = (cache for group in model.layers for cache in group.caches)
    found = (getattr(cache, "window", None) or getattr(cache, "chunk", None) for cache in caches)
    return tuple(sorted({window for window in found if window}))


def plan_pools(plan: BlockPlan, pool_bytes: int, *, windows: Sequence[int] = ()) -> Pools:
    """The one pool of an engine's plan, and the kinds of cache that draw from it.

    The model's ``windows`` ascend; a plan's caps add the tokens in flight to them.

    Raises:
        InputError: If the pool holds no block.
    """
    size = plan.block_bytes
    blocks = pool_bytes // size - plan.kept_blocks
    if blocks < 1:
        raise InputError(
            f"pool: {max(pool_bytes, 0):,} bytes hold no block of {size:,} bytes; enlarge the pool"
        )
    full: dict[int, int] = {}
    capped: dict[tuple[int, int], tuple[int, int]] = {}
    state = 0
    for term in plan.profile.terms:
        if not term.rate_bytes:
            state += term.constant_bytes
        elif term.cap_tokens >= UNBOUNDED:
            full[term.step_tokens] = full.get(term.step_tokens, 0) + term.rate_bytes
        else:
            key = (term.step_tokens, term.cap_tokens)
            rate, constant = capped.get(key, (0, 0))
            capped[key] = (rate + term.rate_bytes, constant + term.constant_bytes)
    kinds = [CacheKind("full", 0, step, _blocks(rate, size)) for step, rate in sorted(full.items())]
    caps = sorted({cap for _, cap in capped})
    reach = dict(zip(caps, windows, strict=True)) if len(caps) == len(windows) else {cap: cap for cap in caps}
    for (step, cap), (rate, constant) in sorted(capped.items()):
        most = _blocks(rate * -(-cap // step) + constant, size)
        kinds.append(CacheKind("window", 0, step, _blocks(rate, size), window=reach[cap], most_blocks=most))
    if state:
        slots = _blocks(state, size)
        groups = max(sum(1 for group in plan.groups if group.kind == "state"), 1)
        kinds.append(CacheKind("state", 0, plan.block_tokens, min(groups, slots), held_blocks=slots))
    if not kinds:
        raise InputError("model: it keeps no cache, so a replay has nothing to fill")
    return Pools((PoolSpec("KV pool", blocks, size),), tuple(kinds))


def _blocks(value: int, size: int) -> int:
    return max(-(-value // size), 1)


def _sglang_pools(rule: Division, pool_bytes: int) -> Pools:
    """SGLang's pools under its own rule: tokens, window tokens and states that a budget becomes."""
    flags = rule.flags
    tokens, slots = int(rule.tokens(pool_bytes)), rule.state_slots(pool_bytes)
    windows = None if rule.shared_window else rule.window_tokens(tokens)
    if tokens < flags.page_tokens or (slots is not None and int(slots) < 1):
        raise InputError(f"pool: {max(pool_bytes, 0):,} bytes hold no page of tokens; enlarge the pool")
    return separate_pools(
        full_tokens=tokens,
        window_tokens=0 if windows is None else int(windows),
        window=rule.window or 0,
        state_slots=0 if slots is None else int(slots),
        states_per_request=flags.states_per_request,
        page_tokens=flags.page_tokens,
        # One more token's bytes, its share of the window pool included.
        token_bytes=max(ceil(rule.cell_bytes), 1),
        state_bytes=max(rule.state_bytes, 1),
    )


def separate_pools(
    *,
    full_tokens: int,
    window_tokens: int = 0,
    window: int = 0,
    state_slots: int = 0,
    states_per_request: int = 1,
    page_tokens: int = 1,
    token_bytes: int = 1,
    state_bytes: int = 1,
) -> Pools:
    """Pools of their own for full attention, windows and states, as SGLang has them.

    A ``window`` is the tokens that it looks back on, and a running request holds ``states_per_request`` slots.
    """
    pools = [PoolSpec("full attention", full_tokens // page_tokens, token_bytes * page_tokens)]
    kinds = [CacheKind("full", 0, page_tokens, 1)]
    if window_tokens:
        pools.append(PoolSpec("sliding window", window_tokens // page_tokens, token_bytes * page_tokens))
        most = -(-window // page_tokens) + 1
        kinds.append(
            CacheKind(
                "window", len(pools) - 1, page_tokens, 1, window=window, most_blocks=most, keeps_passed=False
            )
        )
    if state_slots:
        pools.append(PoolSpec("recurrent state", state_slots, state_bytes))
        kinds.append(
            CacheKind(
                "state", len(pools) - 1, page_tokens, 1, held_blocks=min(states_per_request, state_slots)
            )
        )
    return Pools(tuple(pools), tuple(kinds))
