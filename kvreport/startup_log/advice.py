"""What to change, and what fits if requests are shorter than the longest allowed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvreport import words
from kvreport.accounting import kernel
from kvreport.accounting.allocation import allocate
from kvreport.accounting.capacity import longest_context, users
from kvreport.accounting.deployment import lay_out
from kvreport.accounting.kernel import RAISED_UTILIZATION
from kvreport.errors import InputError
from kvreport.startup_log.findings import AdvisedChange
from kvreport.startup_log.laid_out import TWO_BYTE_KV, LaidOut, plan_agrees
from kvreport.startup_log.reading import Reading, longest_of, runs_shorter, started, tokens_of

FEWER_REQUESTS: Final[tuple[int, ...]] = tuple(words.ALL["fewer_requests"])
"""Requests at once that are tried, where sampling from many rows of logits takes the cache's place."""


def changes(
    reading: Reading, laid: LaidOut | None, pool: int | None, total: int | None, fits: float | None
) -> list[AdvisedChange]:
    """What to change, in the order of least loss: shorter requests, a smaller type, more memory, fewer at once.

    Args:
        reading: The log.
        laid: The model's plan under the log's flags, if the model is known.
        pool: Bytes of the pool on a device, if stated.
        total: Bytes of the device, if known.
        fits: Requests of the longest length that fit, if known.
    """
    longest = longest_of(reading)
    found: list[AdvisedChange] = []
    if pool is not None and pool <= 0:
        found += _room(reading, laid, pool, total)
    elif fits is not None and longest is not None and fits < 1 and not runs_shorter(reading, fits):
        shorter = _fitting_length(reading, laid, pool, longest)
        if shorter and shorter < longest:
            found.append(AdvisedChange("max_model_len", shorter, 1.0))
        halved = _fp8_concurrency(reading, laid, pool, longest, fits)
        if halved is not None and halved >= 1:
            found.append(AdvisedChange("kv_dtype", "fp8", halved))
        share = reading.number("utilization")
        if share is not None and share < RAISED_UTILIZATION and total and pool:
            raised = kernel.concurrency_at(fits, pool, share, RAISED_UTILIZATION, total)
            if raised >= 1:
                found.append(AdvisedChange("utilization", RAISED_UTILIZATION, raised))
        found += _more_devices(reading, laid, pool) if len(found) < 2 else []
    spare, before, fraction = (
        reading.number("spare_memory"),
        reading.number("before_load"),
        reading.number("mem_fraction"),
    )
    if spare is not None and before and fraction is not None and spare > kernel.COMFORTABLE_SPARE_BYTES:
        found.append(AdvisedChange("mem_fraction", kernel.raised_fraction(fraction, spare, before)))
    return found


def _room(reading: Reading, laid: LaidOut | None, pool: int, total: int | None) -> list[AdvisedChange]:
    """What gives the cache a place at all, where weights and the engine's own memory leave none.

    Each is laid out again with our rules, and what it frees is added to what the log states; only what suffices
    for one request of the longest length is offered.
    """
    found = []
    needed = _one_request(reading, laid)
    share = reading.number("utilization")
    raisable = share is not None and share < RAISED_UTILIZATION and total
    if raisable and kernel.raised_pool(pool, share or 0, total or 0) >= needed:
        found.append(AdvisedChange("utilization", RAISED_UTILIZATION))
    if laid is not None and laid.deployment.case.accelerators:
        case = laid.deployment.case
        for rows in FEWER_REQUESTS:
            if rows >= case.serving.max_seqs:
                continue
            fewer = replace(case, serving=replace(case.serving, max_seqs=rows))
            freed = int(allocate(fewer).pool_bytes) - int(laid.deployment.pool_bytes)
            if pool + freed >= needed:
                found.append(AdvisedChange("fewer_requests", rows))
                break
    return found + _more_devices(reading, laid, pool)


def _more_devices(reading: Reading, laid: LaidOut | None, pool: int | None) -> list[AdvisedChange]:
    """Twice, four or eight times the devices, the first that suffices for one longest request.

    Nothing is said of unequal devices, as which others there would be is not known, nor by a plan that is not the log's.
    """
    if laid is None or pool is None or not laid.deployment.case.accelerators or laid.deployment.case.replica:
        return []
    if not plan_agrees(reading, laid, pool):
        return []
    case, longest = laid.whole, longest_of(reading)
    for factor in (2, 4, 8):
        try:
            layout = replace(case.layout, tensor=case.layout.tensor * factor)
            other = lay_out(replace(case, layout=layout))
        except InputError:
            continue
        freed = int(other.pool_bytes) - int(laid.deployment.pool_bytes)
        needed = int(other.plan.profile.request_bytes(longest)) if longest else 1
        if pool + freed >= needed:
            return [AdvisedChange("tensor_parallel", layout.tensor)]
    return []


def _one_request(reading: Reading, laid: LaidOut | None) -> int:
    """Bytes of one longest request; 1 where the length or the model is not known."""
    longest, needed = longest_of(reading), reading.whole("needed")
    if needed is not None:
        return needed
    return int(laid.plan.profile.request_bytes(longest)) if laid is not None and longest else 1


def _fitting_length(reading: Reading, laid: LaidOut | None, pool: int | None, longest: int) -> int | None:
    """The longest request that fits: the engine's word, our plan's, or the tokens it can store."""
    stated = reading.whole("estimated_len")
    if stated is not None:
        return stated
    if laid is not None and pool is not None and pool > 0 and plan_agrees(reading, laid, pool):
        plans = (rank.plan for rank in laid.deployment.ranks)
        return min(int(longest_context(pool, plan, longest)) for plan in plans) or None
    needed = reading.whole("needed")
    if needed and pool is not None and pool > 0:
        return kernel.proportional_length(longest, pool, needed) or None
    return reading.whole("storable") or tokens_of(reading)


def _fp8_concurrency(
    reading: Reading, laid: LaidOut | None, pool: int | None, longest: int, fits: float
) -> float | None:
    """Requests with an FP8 cache; None where the log's cache is not known to be wider than that."""
    stated = reading.text("kv_dtype")
    wide = stated in TWO_BYTE_KV and stated != "auto"  # a checkpoint may bring an FP8 cache of its own
    if laid is None:
        return 2 * fits if wide else None  # all of the cache halves, which is the most that there can be
    if laid.fp8 is None or not (wide or _met(reading, laid, pool)):
        return None
    own, other = (int(p.profile.request_bytes(longest)) for p in (laid.plan, laid.fp8))
    return fits * own / other if other else None


def _met(reading: Reading, laid: LaidOut, pool: int | None) -> bool:
    """Whether a figure of the log is the plan's, which tells that its cache type is the log's."""
    stated = reading.whole("needed") or (reading.number("concurrency") and pool)
    return bool(stated) and plan_agrees(reading, laid, pool or 0)


def shorter(reading: Reading, laid: LaidOut | None, pool: int | None) -> list[tuple[int, int]]:
    """Requests that fit at the longest length and at a half, a quarter and an eighth of it."""
    longest, tokens = longest_of(reading), tokens_of(reading)
    if not longest:
        return []
    lengths = [length for length in (longest, longest // 2, longest // 4, longest // 8) if length >= 1]
    if laid is not None and pool is not None and pool > 0 and plan_agrees(reading, laid, pool):
        plans = [rank.plan for rank in laid.deployment.ranks]
        return [(length, min(int(users(pool, plan, length)) for plan in plans)) for length in lengths]
    stated = reading.number("concurrency")
    if stated is not None:
        return [(length, int(stated * longest / length)) for length in lengths]
    needed = reading.number("needed")
    if needed and pool is not None:
        return [(length, int(max(pool, 0) * longest / (needed * length))) for length in lengths]
    if tokens is None:
        return []
    # Tokens of blocks are fewer than windows and states hold: no row says that a running server holds none.
    return [(length, tokens // length) for length in lengths if tokens >= length or not started(reading)]
