"""How many requests, how long a context, and the verdict: the last step of every estimate.

Everything here takes numbers or arrays and broadcasts; bytes are per device. A pool is divided
into blocks, a request takes whole blocks, and an engine may keep some blocks for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from itertools import count
from typing import Any, Final, Literal, cast

from kvreport.accounting import kernel
from kvreport.accounting import numeric as xp
from kvreport.accounting.numeric import Codes, Integers, Reals
from kvreport.accounting.plan import BlockPlan

UNLIMITED_USERS: Final = kernel.UNLIMITED_REQUESTS
"""Users of a model whose requests hold nothing; no pool ever limits them."""


MOST_MISSING: Final = kernel.MOST_MISSING
"""The largest shortfall that is looked for, in bytes: the memory of any device."""


class Verdict(IntEnum):
    """Whether one request of a context can be served; where several apply, the largest is the answer."""

    FITS = 0
    TIGHT = 1
    MAY_FIT = 2
    MAX_SEQS_EXCEEDS_STATES = 3
    CACHE_EXCEEDS_POOL = 4
    WEIGHTS_EXCEED_MEMORY = 5
    CONTEXT_EXCEEDS_MODEL = 6
    FORMAT_NOT_SUPPORTED = 7
    ENGINE_DOES_NOT_RUN = 8

    @property
    def label(self) -> str:
        """The name in the dataset and on the command line."""
        return self.name.lower()


def blocks(pool_bytes: xp.ArrayLike, plan: BlockPlan) -> Integers:
    """Whole blocks in a pool, those that the engine keeps for itself included."""
    pool = xp.maximum(xp.integers(pool_bytes), 0)
    if plan.pool is not None:
        return plan.pool.blocks(pool)
    # A model without caches has blocks of nothing in SGLang's plan.
    return cast(Integers, pool // xp.maximum(plan.block_bytes, 1))


def beside(pool_bytes: xp.ArrayLike, plan: BlockPlan, context_tokens: xp.ArrayLike) -> Integers | None:
    """Requests at once that pools of windows and states allow; None where nothing limits them."""
    if plan.pool is None:
        return None
    pool = xp.maximum(xp.integers(pool_bytes), 0)
    return plan.pool.requests_beside(pool, context_tokens)


def free_bytes(pool_bytes: xp.ArrayLike, plan: BlockPlan) -> Integers:
    """Bytes of a pool that requests can take: whole blocks, less those the engine keeps."""
    return _free_bytes(blocks(pool_bytes, plan), plan)


def _free_bytes(whole: Integers, plan: BlockPlan) -> Integers:
    """Bytes of so many blocks that requests can take."""
    return cast(Integers, xp.maximum(whole - plan.kept_blocks, 0) * plan.block_bytes)


def lacks(pool_bytes: xp.ArrayLike, plan: BlockPlan, context_tokens: xp.ArrayLike) -> xp.Numbers:
    """Whether a pool does not hold one request; a negative pool does not hold even one of no bytes."""
    there, request = blocks(pool_bytes, plan), plan.profile.request_bytes(context_tokens)
    return _lacks(pool_bytes, there, plan, context_tokens, request)


def _lacks(
    pool_bytes: xp.ArrayLike,
    there: Integers,
    plan: BlockPlan,
    context_tokens: xp.ArrayLike,
    request_bytes: Integers | int,
) -> xp.Numbers:
    """The same of a pool whose blocks are known, and of a request whose bytes are."""
    short = (request_bytes > _free_bytes(there, plan)) | (xp.integers(pool_bytes) < 0)
    most = beside(pool_bytes, plan, context_tokens)
    return cast(xp.Numbers, short if most is None else short | (most < 1))


def concurrency(pool_bytes: xp.ArrayLike, plan: BlockPlan, context_tokens: xp.ArrayLike) -> Reals:
    """Requests of this context that the pool holds, as a real number.

    This is what vLLM prints as "Maximum concurrency": all blocks (the null block among them)
    over the blocks of one request.

    Returns:
        Float64 of the broadcast shape; infinite where a request holds nothing.
    """
    request = plan.profile.request_bytes(context_tokens)
    if plan.printed is not None:
        pages = -(-plan.printed.request_bytes(context_tokens) // plan.first_page_bytes)
        request = xp.integers(pages * plan.block_bytes)
    pool = blocks(pool_bytes, plan) * plan.block_bytes
    unlimited = xp.where(xp.integers(pool_bytes) < 0, 0.0, xp.INFINITY)
    fitting = xp.reals(xp.where(request > 0, xp.divide(pool, request), unlimited))
    most = beside(pool_bytes, plan, context_tokens)
    return fitting if most is None else xp.minimum(fitting, most)


def users(pool_bytes: xp.ArrayLike, plan: BlockPlan, context_tokens: xp.ArrayLike) -> Integers:
    """Whole requests of this context that memory allows, if the engine is told to run as many (:func:`if_told`)."""
    request = plan.profile.request_bytes(context_tokens)
    return if_told(started(pool_bytes, plan, context_tokens), pool_bytes, plan, request)


def started(pool_bytes: xp.ArrayLike, plan: BlockPlan, context_tokens: xp.ArrayLike) -> Integers:
    """Whole requests of this context as it starts: the engine's own figure rounded down, 0 where it refuses.

    The engine counts the blocks that it keeps for itself when it prints its concurrency, but not
    when it decides whether one request fits. Where requests fill the pool to the last block, the
    last of them waits for the one block that is kept.
    """
    request = plan.profile.request_bytes(context_tokens)
    there = blocks(pool_bytes, plan)
    pool = there * plan.block_bytes
    whole = xp.where(request > 0, pool // xp.maximum(request, 1), UNLIMITED_USERS)
    fitting = xp.integers(xp.where(_lacks(pool_bytes, there, plan, context_tokens, request), 0, whole))
    most = beside(pool_bytes, plan, context_tokens)
    return fitting if most is None else xp.integers(xp.minimum(fitting, most))


def if_told(
    held: Integers, pool_bytes: xp.ArrayLike, plan: BlockPlan, request_bytes: xp.ArrayLike
) -> Integers:
    """Requests that memory allows, of an engine that reserves states for as many as it is told to run at once.

    ``held``: requests that run beside the states of those that the engine is told.
    """
    return held if plan.pool is None else plan.pool.if_told(held, pool_bytes, request_bytes)


def printed_tokens(
    pool_bytes: xp.ArrayLike,
    plan: BlockPlan,
    context_tokens: xp.ArrayLike,
    token_line: Literal["concurrency", "blocks"] = "concurrency",
) -> Integers:
    """Tokens as vLLM's line "GPU KV cache size" counts them.

    The current release prints concurrency times the context; until 0.20 it was the blocks of one
    cache group times the tokens of a block. -1 where nothing limits them.

    ``token_line``: how the release counts: a name of the engine record's ``token_line``.
    """
    if token_line == "blocks":
        per_group = blocks(pool_bytes, plan) // max(len(plan.groups), 1)
        least = min((group.block_tokens for group in plan.groups), default=plan.block_tokens)
        tokens = per_group * least * plan.context_parallel
        return xp.integers(tokens + xp.full_like(context_tokens, 0))
    fitting = concurrency(pool_bytes, plan, context_tokens)
    context = xp.reals(context_tokens)
    finite = xp.where(xp.isfinite(fitting), fitting, 0.0)
    return xp.integers(xp.where(xp.isfinite(fitting), xp.floor(finite * context), -1))


def longest_context(pool_bytes: xp.ArrayLike, plan: BlockPlan, limit_tokens: int) -> Integers:
    """Tokens of the longest single request that fits, at most ``limit_tokens``; 0 if none."""
    return boundary(pool_bytes, plan, 1, limit_tokens)


def boundary(
    pool_bytes: xp.ArrayLike, plan: BlockPlan, users_wanted: xp.ArrayLike, limit_tokens: int
) -> Integers:
    """The out-of-memory boundary: the longest context that each of so many users can have.

    ``pool_bytes``: pools. ``users_wanted``: simultaneous requests of equal length, at least 1.
    ``limit_tokens``: where to stop looking.
    """
    wanted = xp.maximum(xp.integers(users_wanted), 1)
    # Engines that round a pool up hold more bytes of blocks than the pool has; one below 0 holds nothing.
    share = blocks(pool_bytes, plan) * plan.block_bytes // wanted
    least = xp.minimum(xp.where(xp.integers(pool_bytes) < 0, -1, share), free_bytes(pool_bytes, plan))
    longest = plan.profile.longest_context(least, limit_tokens)
    return longest if plan.pool is None else _held_beside(pool_bytes, plan, wanted, longest, limit_tokens)


def _held_beside(
    pool_bytes: xp.ArrayLike, plan: BlockPlan, wanted: Integers | int, longest: Integers, limit_tokens: int
) -> Integers:
    """The longest context of which other pools hold so many requests, too: searched where they decide."""

    def enough(tokens: xp.ArrayLike) -> Any:  # noqa: ANN401 - a truth or an array of them
        return users(pool_bytes, plan, tokens) >= wanted

    further = (longest < limit_tokens) & enough(xp.minimum(longest + 1, limit_tokens))
    if not xp.any_of(further | ((longest > 0) & xp.logical_not(enough(longest)))):
        return longest
    low, high = xp.full_like(longest, 0), xp.full_like(longest, limit_tokens)
    while xp.any_of(low < high):
        middle = (low + high + 1) // 2
        holds = enough(middle)
        low, high = xp.where(holds, middle, low), xp.where(holds, high, xp.maximum(middle - 1, low))
    return xp.integers(low)


def followed(reach: Callable[[Any], Integers], limit_tokens: int, falls_beyond: int = 0) -> Integers:
    """The longest context that fits where the pool is larger for a server that is told a shorter one.

    ``reach``: the longest context that fits the pool of a server that is told so many tokens, which falls
    with them. ``limit_tokens``: where to stop looking. ``falls_beyond``: a length beyond which the pool is larger
    again (:func:`kvreport.accounting.kernel.falls_beyond`), so that the lengths on both sides are searched; 0 for none.
    """
    if not falls_beyond:
        return _followed(reach, 0, limit_tokens)
    long = _followed(lambda tokens: xp.maximum(reach(tokens), falls_beyond), falls_beyond, limit_tokens)
    if not xp.any_of(long == falls_beyond):
        return long
    short = _followed(lambda tokens: xp.minimum(reach(tokens), falls_beyond), 0, falls_beyond)
    return xp.integers(xp.where(long > falls_beyond, long, short))


def _followed(reach: Callable[[Any], Integers], above: int, limit_tokens: int) -> Integers:
    """The same among lengths above one; that one if none of them fits."""
    low = reach(xp.integers(limit_tokens))
    # What is reached falls about evenly with what is told: a line through a length that fits and one that does not
    # meets the answer or its neighbor. What a length reaches lies on the other side, so each probe narrows both ends.
    fits, beyond = xp.maximum(low, above + 1), xp.integers(limit_tokens)
    reached, missed = reach(fits), low
    high = xp.maximum(reached, low)
    for turn in count():
        if not xp.any_of(low < high):
            break
        over, under = xp.maximum(reached - fits, 0), xp.maximum(beyond - missed, 0)
        line = fits + over * xp.maximum(beyond - fits, 0) // xp.maximum(over + under, 1)
        halfway = turn % _HALVES_EACH == _HALVES_EACH - 1
        probe = (low + high + 1) // 2 if halfway else xp.minimum(xp.maximum(line, low + 1), high)
        found = reach(probe)
        enough = found >= probe
        low, high = (
            xp.maximum(low, xp.where(enough, probe, found)),
            xp.minimum(high, xp.where(enough, found, probe - 1)),
        )
        high = xp.maximum(low, high)
        fits, reached = xp.where(enough, probe, fits), xp.where(enough, found, reached)
        beyond, missed = xp.where(enough, beyond, probe), xp.where(enough, missed, found)
    return xp.integers(low)


_HALVES_EACH: Final = 3
"""One probe in so many is halfway: a line alone may close in from one side only."""


class Limit(IntEnum):
    """What keeps one more request from running at once."""

    KV_POOL = 0
    MAX_NUM_SEQS = 1
    STATE_SLOTS = 2
    CONTEXT = 3

    @property
    def label(self) -> str:
        """The name in the dataset and on the command line."""
        return self.name.lower()


def verdict(
    *,
    usable_bytes: xp.ArrayLike,
    weight_bytes: xp.ArrayLike,
    pool_bytes: xp.ArrayLike,
    plan: BlockPlan,
    context_tokens: xp.ArrayLike,
    limit_tokens: xp.ArrayLike,
    uncertainty_bytes: xp.ArrayLike = 0,
    state_slots_wanted: int | None = None,
) -> Codes:
    """Judge one request of each context.

    The first that applies: the context is longer than the model supports; the weights alone exceed the
    device; nothing is left for the cache, or one request does not fit the pool, nor would it if the pool were larger by
    its own uncertainty;
    fewer blocks for states than sequences; one does not fit but would within the uncertainty
    (``may_fit``); one fits, but would not if the pool were smaller by it (``tight``); it fits.

    ``pool_bytes``: left for the cache, or for a model without one what weights and reserve leave of the
    device (:func:`kvreport.accounting.kernel.room_left`); negative where nothing is. ``state_slots_wanted``:
    blocks that the engine wants at start, one for each sequence; None for engines and models without that
    rule.

    Returns:
        Codes of :class:`Verdict`, int8, of the broadcast shape.
    """
    context = xp.integers(context_tokens)
    pool = xp.integers(pool_bytes)
    error = xp.integers(uncertainty_bytes)
    request = plan.profile.request_bytes(context)
    wanted = 0 if state_slots_wanted is None else state_slots_wanted
    most, whole, least = blocks(pool + error, plan), blocks(pool, plan), blocks(pool - error, plan)
    return xp.select(
        [
            context > xp.integers(limit_tokens),
            xp.integers(weight_bytes) > xp.integers(usable_bytes),
            _lacks(pool + error, most, plan, context, request) | ((request > 0) & (pool <= 0)),
            most < wanted,
            _lacks(pool, whole, plan, context, request) | (whole < wanted),
            _lacks(pool - error, least, plan, context, request) | (least < wanted),
        ],
        [
            Verdict.CONTEXT_EXCEEDS_MODEL,
            Verdict.WEIGHTS_EXCEED_MEMORY,
            Verdict.CACHE_EXCEEDS_POOL,
            Verdict.MAX_SEQS_EXCEEDS_STATES,
            Verdict.MAY_FIT,
            Verdict.TIGHT,
        ],
        Verdict.FITS,
    )


def _for_other_pools(pool: Integers, plan: BlockPlan, context_tokens: xp.ArrayLike) -> Integers:
    """Bytes that a pool lacks until those of windows and states beside the tokens hold one request, too."""
    low = pool + xp.full_like(context_tokens, 0)
    lacking = lacks(low, plan, context_tokens)
    if not (lacking if xp.is_plain(lacking) else lacking.any()):
        return xp.full_like(low, 0)
    high = low + xp.where(lacking, MOST_MISSING, 0)
    for _ in range(MOST_MISSING.bit_length()):
        middle = (low + high) // 2
        short = lacks(middle, plan, context_tokens)
        low, high = xp.where(short, middle + 1, low), xp.where(short, high, middle)
    return xp.integers(high - pool)


def start_verdict(short_bytes: xp.ArrayLike, error_bytes: xp.ArrayLike) -> Codes:
    """Judge a start by what the engine asks for beyond what is free: codes of :class:`Verdict`.

    ``short_bytes``: what is asked for beyond what is free; negative where enough is. ``error_bytes``:
    half width of the band of what is free.
    """
    short, error = xp.integers(short_bytes), xp.integers(error_bytes)
    return xp.select(
        [short > error, short > 0, short > -error],
        [Verdict.CACHE_EXCEEDS_POOL, Verdict.MAY_FIT, Verdict.TIGHT],
        Verdict.FITS,
    )


def shortfall(
    pool_bytes: xp.ArrayLike,
    plan: BlockPlan,
    context_tokens: xp.ArrayLike,
    state_slots_wanted: int | None = None,
) -> Integers:
    """Bytes that a pool lacks for one request of each context, and for its states at start; 0 where none.

    ``state_slots_wanted``: blocks that must exist at start, or None.
    """
    request = plan.profile.request_bytes(context_tokens)
    slots = 0 if state_slots_wanted is None else state_slots_wanted
    least = xp.maximum(request + plan.kept_blocks * plan.block_bytes, slots * plan.block_bytes)
    pool = xp.integers(pool_bytes)
    if plan.pool is not None:
        pool = xp.where(pool > 0, blocks(pool, plan) * plan.block_bytes, pool)
    missing = least - pool
    if plan.pool is not None:
        missing = xp.maximum(missing, _for_other_pools(xp.integers(pool_bytes), plan, context_tokens))
    return xp.integers(xp.maximum(xp.where(request > 0, missing, -pool), 0))
