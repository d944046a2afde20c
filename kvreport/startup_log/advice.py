"""What to change, and what fits if requests are shorter than the longest allowed."""

from __future__ import annotations

from kvreport.accounting import kernel
from kvreport.accounting.capacity import longest_context, users
from kvreport.accounting.kernel import RAISED_UTILIZATION
from kvreport.startup_log.findings import Change
from kvreport.startup_log.laid_out import TWO_BYTE_KV, LaidOut, longest_of
from kvreport.startup_log.reading import Reading


def changes(
    reading: Reading, laid: LaidOut | None, pool: int | None, total: int | None, fits: float | None
) -> list[Change]:
    """What to change, in the order of least loss: shorter requests, a smaller type, more memory, fewer at once.

    Args:
        reading: The log.
        laid: The model's plan under the log's flags, if the model is known.
        pool: Bytes of the pool on a device, if stated.
        total: Bytes of the device, if known.
        fits: Requests of the longest length that fit, if known.
    """
    longest = longest_of(reading)
    found: list[Change] = []
    if fits is not None and longest is not None and fits < 1:
        shorter = _fitting_length(reading, laid, pool, longest)
        if shorter:
            found.append(Change("max_model_len", shorter, 1.0))
        halved = _fp8_concurrency(reading, laid, longest, fits)
        if halved is not None:
            found.append(Change("kv_dtype", "fp8", halved))
        share = reading.number("utilization")
        if share is not None and share < RAISED_UTILIZATION and total and pool and pool > 0:
            raised = kernel.concurrency_at(fits, pool, share, RAISED_UTILIZATION, total)
            found.append(Change("utilization", RAISED_UTILIZATION, raised))
    at_once = reading.whole("max_seqs")
    if fits is not None and at_once is not None and 1 <= fits < at_once and reading.engine == "vllm":
        found.append(Change("max_seqs", int(fits)))
    spare, before, fraction = (
        reading.number("spare_memory"),
        reading.number("before_load"),
        reading.number("mem_fraction"),
    )
    if spare is not None and before and fraction is not None and spare > kernel.COMFORTABLE_SPARE_BYTES:
        found.append(Change("mem_fraction", kernel.raised_fraction(fraction, spare, before)))
    return found


def _fitting_length(reading: Reading, laid: LaidOut | None, pool: int | None, longest: int) -> int | None:
    """The longest request that fits: the engine's word, our plan's, or the tokens it can store."""
    stated = reading.whole("estimated_len")
    if stated is not None:
        return stated
    if laid is not None and pool is not None and pool > 0:
        return int(longest_context(pool, laid.plan, longest)) or None
    return reading.whole("storable") or reading.whole("kv_tokens")


def _fp8_concurrency(reading: Reading, laid: LaidOut | None, longest: int, fits: float) -> float | None:
    if laid is not None:
        if laid.fp8 is None:
            return None
        own, other = (int(p.profile.request_bytes(longest)) for p in (laid.plan, laid.fp8))
        return fits * own / other
    # Without the model: all of the cache halves, which is the most that there can be.
    stated = reading.text("kv_dtype")
    return 2 * fits if stated is None or stated in TWO_BYTE_KV else None


def shorter(reading: Reading, laid: LaidOut | None, pool: int | None) -> list[tuple[int, int]]:
    """Requests that fit at the longest length and at a half, a quarter and an eighth of it."""
    longest, tokens = longest_of(reading), reading.whole("kv_tokens")
    if not longest:
        return []
    lengths = [length for length in (longest, longest // 2, longest // 4, longest // 8) if length >= 1]
    if laid is not None and pool is not None and pool > 0:
        return [(length, int(users(pool, laid.plan, length))) for length in lengths]
    return [] if tokens is None else [(length, tokens // length) for length in lengths]
