"""The roofline: how fast a step could be at best, and what stops it from being faster.

A step cannot end before its bytes were read, its operations done and its partial results passed
between devices. Each of the three has a peak rate; with perfect overlap the step takes as long as
the slowest:

    seconds >= max( bytes read / memory bandwidth,
                    sum over types of operations / peak rate of the type,
                    bytes passed / link bandwidth )

These are bounds, never promises. No kernel reaches a peak, nothing overlaps
perfectly, and launches, sampling and scheduling are left out. A rate that is not known drops out
of the maximum, which keeps the rest a bound.

What a step demands is :mod:`kvreport.accounting.demand`; here are only the rates and the times.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from kvreport.accounting import numeric as xp
from kvreport.accounting.demand import Demand, Multiplies
from kvreport.accounting.numeric import Integers, Reals
from kvreport.catalog.accelerator import Accelerator

Binds = Literal["memory", "compute", "link", "unknown"]

MULTIPLIES: Final[tuple[Multiplies, ...]] = get_args(Multiplies)

MAX_BATCH: Final = 1 << 20
"""Where the search for the knee stops."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """Peak rates of one device, or of many as arrays that broadcast; NaN where not known."""

    bytes_per_s: float | Reals  # Memory bandwidth.
    operations_per_s: Mapping[Multiplies, float | Reals]  # Dense peak rates by operand type.
    link_bytes_per_s: float | Reals  # Bandwidth to other devices of the node, one direction.

    @classmethod
    def of(cls, accelerator: Accelerator) -> Peaks:
        """Read an accelerator's peaks.

        A type that the device does not have is multiplied in bf16; one that it has at a rate
        nobody stated is unknown. Makers state link bandwidth for both directions together.
        """
        rates = accelerator.rates
        bf16 = float(rates.bf16.value) if rates.bf16 else xp.NAN
        known: dict[Multiplies, float] = {"bf16": bf16}
        for name in MULTIPLIES[1:]:
            figure = getattr(rates, name)
            native = any(text.lower().startswith(name) for text in accelerator.native_formats)
            known[name] = float(figure.value) if figure else xp.NAN if native else bf16
        bandwidth, link = accelerator.bandwidth_bytes_per_s, accelerator.interconnect_bytes_per_s
        return cls(
            bytes_per_s=float(bandwidth.value) if bandwidth else xp.NAN,
            operations_per_s=known,
            link_bytes_per_s=link.value / 2 if link else xp.NAN,
        )

    @classmethod
    def stacked(cls, accelerators: Sequence[Accelerator], axes: int = 0) -> Peaks:
        """Peaks of many accelerators along the first axis, with ``axes`` further axes of length 1."""
        each = [cls.of(accelerator) for accelerator in accelerators]
        shape = (len(each),) + (1,) * axes

        def column(values: Iterable[float | Reals]) -> Reals:
            return xp.reals(list(values)).reshape(shape)

        return cls(
            bytes_per_s=column(peaks.bytes_per_s for peaks in each),
            operations_per_s={kind: column(p.operations_per_s[kind] for p in each) for kind in MULTIPLIES},
            link_bytes_per_s=column(peaks.link_bytes_per_s for peaks in each),
        )


@dataclass(frozen=True, slots=True)
class StepTime:
    """The three times of a step, each a lower bound by itself, in seconds."""

    memory_s: Reals  # Reading weights, cache and states; NaN if the bandwidth is not known.
    compute_s: Reals  # Matrix products and attention at peak rates; NaN if a rate is not known.
    link_s: Reals  # Passing partial results around the ring; 0 on one device, NaN if not known.

    @property
    def seconds(self) -> Reals:
        """The bound: the longest of the known times; NaN if neither memory nor compute is known."""
        longest: Reals = xp.fmax(xp.fmax(self.memory_s, self.compute_s), self.link_s)
        return xp.where(xp.isnan(self.memory_s) & xp.isnan(self.compute_s), xp.NAN, longest)

    @property
    def binds(self) -> xp.Numbers:
        """Which of the three is longest, by name."""
        np = xp.numpy()
        names: list[Binds] = ["memory", "compute", "link"]
        times = np.stack(xp.broadcast(self.memory_s, self.compute_s, self.link_s))
        longest = np.argmax(np.nan_to_num(times, nan=-1.0), axis=0)
        return xp.where(xp.isnan(self.seconds), "unknown", np.asarray(names)[longest])


def decode(demand: Demand, peaks: Peaks, batch: xp.ArrayLike, context_tokens: xp.ArrayLike) -> StepTime:
    """One decode step: every request of the batch gets one token (TPOT).

    ``batch``: requests in the batch; broadcasts with ``context_tokens``. ``context_tokens``: tokens that
    each request already holds.
    """
    requests, context = xp.broadcast(xp.reals(batch), xp.integers(context_tokens))
    held = demand.cache_bytes_read(context) + demand.state_bytes_touched
    attention = requests * demand.decode_attention_operations(context)
    return _step(demand, peaks, requests, requests, requests * held, attention)


def prefill(
    demand: Demand,
    peaks: Peaks,
    prompt_tokens: xp.ArrayLike,
    *,
    batch: xp.ArrayLike = 1,
    cached_tokens: xp.ArrayLike = 0,
) -> StepTime:
    """Prefilling ``batch`` prompts, each after a cached prefix; the time to first token (TTFT).

    ``prompt_tokens``: tokens of each prompt, the cached ones included. ``batch``: prompts that are
    prefilled together. ``cached_tokens``: leading tokens whose keys and values are already there.
    """
    prompts, requests, cached = xp.broadcast(
        xp.integers(prompt_tokens),
        xp.reals(batch),
        xp.integers(cached_tokens),
    )
    new = xp.maximum(prompts - cached, 1)
    # Only a prompt's last token is turned into logits.
    attention = requests * demand.prefill_attention_operations(cached, cached + new)
    return _step(demand, peaks, requests * new, requests, requests * demand.state_bytes_touched, attention)


def _step(
    demand: Demand, peaks: Peaks, tokens: Reals, sampled: Reals, cache_bytes: Reals, attention: Reals
) -> StepTime:
    """One step of so many tokens, some of which are sampled after; what it reads of caches, and attention's operations."""
    compute: Reals = xp.full_like(tokens, 0.0)
    for times, work in ((tokens, demand.operations_per_token), (sampled, demand.head_operations)):
        for kind, operations in work.items():
            compute = compute + times * _seconds_each(operations, peaks.operations_per_s[kind])
    compute = compute + attention / peaks.operations_per_s[demand.attention_multiplies]
    return StepTime(
        memory_s=xp.reals((demand.weight_bytes_read(tokens) + cache_bytes) / peaks.bytes_per_s),
        compute_s=xp.reals(compute),
        link_s=_link_seconds(demand, peaks, tokens),
    )


def step_bounds_ms(
    demand: Demand,
    peaks: Peaks,
    users: xp.ArrayLike,
    context_tokens: xp.ArrayLike,
    stages: int | Integers = 1,
) -> tuple[Reals, Reals]:
    """The dataset's two bounds in milliseconds, NaN where nobody is served or no rate is known.

    Rounded down to three digits: rates on paper bear no more, and down keeps them bounds.

    ``users``: requests that fit; all of them decode together. ``context_tokens``: tokens of each request,
    which is also the prompt of the prefill. ``stages``: pipeline stages: they work on as many
    micro-batches at once, and on as many parts of a prompt.

    Returns:
        One decode step of all users, and the prefill of one prompt.
    """
    served = xp.integers(users) > 0
    batch, first = xp.maximum(users, 1), prefill(demand, peaks, context_tokens).seconds
    if not xp.is_plain(stages) or stages > 1:
        batch, first = -(-batch // stages), first / stages
    step = decode(demand, peaks, batch, context_tokens).seconds
    return _round_down(xp.where(served, 1e3 * step, xp.NAN)), _round_down(
        xp.where(served, 1e3 * first, xp.NAN)
    )


def knee(demand: Demand, peaks: Peaks, context_tokens: int = 0) -> int | None:
    """The smallest batch at which computing takes as long as reading: users stop being free.

    Below it a further user costs almost no time; above it each one slows all others. At a long
    context every request brings so many cache bytes of its own that the knee may never come:
    the batch is memory-bound for ever.

    Returns:
        The batch, or None if there is no knee up to ``MAX_BATCH`` or a rate is not known.
    """

    def bound_by_compute(batch: int) -> bool:
        step = decode(demand, peaks, batch, context_tokens)
        return bool(step.compute_s >= step.memory_s)

    if not bound_by_compute(MAX_BATCH):
        return None
    return bisect_left(range(MAX_BATCH), 1, lo=1, key=bound_by_compute)


def _seconds_each(operations: float | Reals, rate: float | Reals) -> Reals:
    """Seconds of so many operations; none take none, even at a rate that nobody knows."""
    each, per_second = xp.reals(operations), xp.reals(rate)
    return xp.where(each == 0, 0.0, each / per_second)


def _round_down(values: Reals) -> Reals:
    """Cut positive values to three significant digits; NaN stays."""
    factor = 10.0 ** (2 - xp.floor(xp.log10(values)))
    return xp.reals(xp.floor(values * factor) / factor)


def _link_seconds(demand: Demand, peaks: Peaks, tokens: Reals) -> Reals:
    """Ring all-reduce: each device sends ``2 (p - 1) / p`` of the data over its own link."""
    ranks = demand.tensor_parallel
    if xp.is_plain(ranks) and ranks == 1:
        return xp.full_like(tokens, 0.0)
    sent = 2 * (ranks - 1) / ranks * demand.reduced_bytes_per_token * tokens
    # A single rank passes nothing on, even over a link that nobody knows.
    return xp.reals(xp.where(ranks > 1, sent / peaks.link_bytes_per_s, 0.0))
