"""From an engine's block plan to the pools of a replay.

vLLM's groups draw from one pool of equal blocks: how many each takes is in the plan's profile. SGLang keeps full
attention, windows and states in pools of their own.
"""

from __future__ import annotations

from kvreport.accounting.plan import BlockPlan
from kvreport.accounting.profile import UNBOUNDED
from kvreport.errors import InputError
from kvreport.traffic.pools import CacheKind, Pools, PoolSpec


def plan_pools(plan: BlockPlan, pool_bytes: int, *, max_batched_tokens: int) -> Pools:
    """The one pool of an engine's plan, and the kinds of cache that draw from it.

    Args:
        plan: The block plan of one device.
        pool_bytes: Bytes of the pool on one device.
        max_batched_tokens: Tokens of one step: windows hold those in flight besides their own.

    Raises:
        InputError: If the pool holds no block.
    """
    size = plan.block_bytes
    blocks = pool_bytes // size - plan.kept_blocks
    if blocks < 1:
        raise InputError(f"pool: {max(pool_bytes, 0):,} bytes hold no block of {size:,} bytes; enlarge the pool")
    terms = plan.profile.terms
    full: dict[int, int] = {}
    windows: dict[tuple[int, int], tuple[int, int]] = {}
    state = 0
    for term in terms:
        if not term.rate_bytes:
            state += term.constant_bytes
        elif term.cap_tokens >= UNBOUNDED:
            full[term.step_tokens] = full.get(term.step_tokens, 0) + term.rate_bytes
        else:
            key = (term.step_tokens, term.cap_tokens)
            rate, constant = windows.get(key, (0, 0))
            windows[key] = (rate + term.rate_bytes, constant + term.constant_bytes)
    kinds = [CacheKind("full", 0, step, _whole(rate, size)) for step, rate in sorted(full.items())]
    for (step, cap), (rate, constant) in sorted(windows.items()):
        most = _whole(rate * -(-cap // step) + constant, size)
        # The cap of a window holds the tokens of a step in flight (window - 1 + step, engines/vllm.py).
        window = max(cap + 1 - max_batched_tokens, step)
        kinds.append(CacheKind("window", 0, step, _whole(rate, size), window=window, most_blocks=most))
    if state:
        slots = _whole(state, size)
        groups = max(sum(1 for group in plan.groups if group.kind == "state"), 1)
        kinds.append(CacheKind("state", 0, plan.block_tokens, min(groups, slots), held_blocks=slots))
    if not kinds:
        raise InputError("model: it keeps no cache, so a replay has nothing to fill")
    return Pools((PoolSpec("KV pool", blocks, size),), tuple(kinds))


def _whole(value: int, size: int) -> int:
    return max(-(-value // size), 1)


def separate_pools(
    *,
    full_tokens: int,
    window_tokens: int = 0,
    window: int = 0,
    state_slots: int = 0,
    page_tokens: int = 1,
    token_bytes: int = 1,
    window_token_bytes: int = 1,
    state_bytes: int = 1,
) -> Pools:
    """Pools of their own for full attention, windows and states, as SGLang has them.

    Args:
        full_tokens: Tokens of the full-attention pool.
        window_tokens: Tokens of the window pool; 0 for none.
        window: Tokens that a window looks back on.
        state_slots: Slots of the state pool; 0 for none.
        page_tokens: Tokens per page (``--page-size``).
        token_bytes: Bytes of one token's full-attention cache.
        window_token_bytes: Bytes of one token's window cache.
        state_bytes: Bytes of one state.
    """
    pools = [PoolSpec("full attention", full_tokens // page_tokens, token_bytes * page_tokens)]
    kinds = [CacheKind("full", 0, page_tokens, 1)]
    if window_tokens:
        pools.append(PoolSpec("sliding window", window_tokens // page_tokens, window_token_bytes * page_tokens))
        kinds.append(
            CacheKind(
                "window",
                len(pools) - 1,
                page_tokens,
                1,
                window=window,
                most_blocks=-(-window // page_tokens) + 1,
                keeps_passed=False,
            )
        )
    if state_slots:
        pools.append(PoolSpec("recurrent state", state_slots, state_bytes))
        kinds.append(CacheKind("state", len(pools) - 1, page_tokens, 1, held_blocks=1))
    return Pools(tuple(pools), tuple(kinds))


