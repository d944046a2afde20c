"""The cache profile: one request as a short list of (rate, step, cap, constant) terms.

Every cache kind of every architecture, held ideally or reserved by an engine, reduces to

    bytes(n) = sum over terms of  constant + rate * ceil(min(n, cap) / step)

where ``n`` is the context in tokens. One estimate, five million rows, the boundary in a chart
and the slider in the browser all evaluate this and nothing else. Arrays in, arrays out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

from kvreport.accounting import kernel
from kvreport.accounting import numeric as xp
from kvreport.accounting.numeric import Integers
from kvreport.catalog.remembered import remembered

UNBOUNDED: Final = 1 << 40
"""A cap that no context reaches (contexts are at most 2^30 tokens)."""

Kind = Literal["full", "sliding", "chunked", "latent", "indexer", "ring", "state", "cross"]


@dataclass(frozen=True, slots=True)
class Term:
    """One addend of a request's bytes on one device."""

    kind: Kind  # Cache kind it comes from (its colour on the pages).
    rate_bytes: int = 0  # Bytes added by every started step.
    # Tokens per step: 1 for plain caches, the block size for an engine's blocks, the ratio for compressed
    # attention.
    step_tokens: int = 1
    cap_tokens: int = UNBOUNDED  # Tokens after which it stops growing (window), or ``UNBOUNDED``.
    constant_bytes: int = 0  # Bytes that a request holds at any length.

    def __post_init__(self) -> None:
        """Refuse terms that could make bytes negative or divide by zero."""
        if self.rate_bytes < 0 or self.constant_bytes < 0:
            raise ValueError("a term cannot have negative bytes")
        if self.step_tokens < 1 or self.cap_tokens < 0:
            raise ValueError("a term needs step_tokens >= 1 and cap_tokens >= 0")

    def scaled(self, times: int) -> Term:
        """Return the same term for ``times`` layers."""
        return replace(
            self,
            rate_bytes=self.rate_bytes * times,
            constant_bytes=self.constant_bytes * times,
        )

    @property
    def without_asking_token(self) -> Term:
        """The same of a window that keeps one token less than it looks back, because the token that asks brings its own."""
        if self.cap_tokens < UNBOUNDED and self.kind != "ring":
            return replace(self, cap_tokens=max(self.cap_tokens - 1, 1))
        return self


@dataclass(frozen=True, slots=True)
class CacheProfile:
    """What one request holds on one device, as a function of its context."""

    terms: tuple[Term, ...]  # The addends; equal shapes are merged by :meth:`of`.

    @classmethod
    def of(cls, terms: Iterable[Term]) -> CacheProfile:
        """Build a profile, merging terms that differ in rate and constant only."""
        merged: dict[tuple[Kind, int, int], Term] = {}
        for term in terms:
            if not term.rate_bytes and not term.constant_bytes:
                continue
            key = (term.kind, term.step_tokens, term.cap_tokens)
            known = merged.get(key)
            merged[key] = (
                term
                if known is None
                else replace(
                    known,
                    rate_bytes=known.rate_bytes + term.rate_bytes,
                    constant_bytes=known.constant_bytes + term.constant_bytes,
                )
            )
        return cls(tuple(merged.values()))

    def request_bytes(self, context_tokens: xp.ArrayLike) -> Integers:
        """Bytes that one request of this context holds.

        ``context_tokens``: contexts, any shape, whole numbers >= 0.

        Returns:
            Bytes, the same shape, int64.
        """
        tokens = xp.integers(context_tokens)
        # A matrix asks for the same contexts, which nobody can change, for every column.
        return _requests(self, tokens) if xp.is_fixed(tokens) else _request(self, tokens)

    def marginal_bytes(self, context_tokens: xp.ArrayLike) -> xp.Reals:
        """Bytes of one further token at this context, block rounding spread evenly.

        A window contributes below its cap and nothing from the cap on.
        """
        return marginal(xp.integers(context_tokens), self.growing)

    @property
    def constant_bytes(self) -> int:
        """Bytes that a request holds at any length."""
        return sum(term.constant_bytes for term in self.terms)

    @property
    def state_bytes(self) -> int:
        """Bytes of a request that do not depend on its tokens once it is under way.

        Recurrent states and encoder tokens; and, where a model compresses its cache (DeepSeek-V4),
        the compressors' rings and the short windows beside the compressed latents, full. Windows of
        ordinary attention are not among them: they are cache that stops growing.
        """
        return self.constant_bytes + sum(
            term.rate_bytes * -(-term.cap_tokens // term.step_tokens)
            for term in self.terms
            if term.kind in ("ring", "latent") and term.cap_tokens < UNBOUNDED
        )

    @property
    def flat(self) -> tuple[int, tuple[kernel.Term, ...]]:
        """The profile as :mod:`kvreport.accounting.kernel` takes it: constant bytes and plain terms."""
        return self.constant_bytes, tuple(
            (term.rate_bytes, term.step_tokens, 0 if term.cap_tokens >= UNBOUNDED else term.cap_tokens)
            for term in self.terms
            if term.rate_bytes
        )

    @property
    def growing(self) -> tuple[tuple[int, int, int], ...]:
        """Rate, step and cap of each term that grows."""
        return tuple((t.rate_bytes, t.step_tokens, t.cap_tokens) for t in self.terms if t.rate_bytes)

    @property
    def holds_nothing(self) -> bool:
        """True if a request holds no bytes at any length: an encoder, an embedding or a reward model."""
        return not any(term.constant_bytes or term.rate_bytes for term in self.terms)

    def longest_context(self, pool_bytes: xp.ArrayLike, limit_tokens: int) -> Integers:
        """The longest context, up to ``limit_tokens``, whose request fits the pool.

        Returns:
            Tokens, the shape of ``pool_bytes``; 0 where not even one token fits.
        """
        pool = xp.integers(pool_bytes)
        constant, terms = self.constant_bytes, self.growing
        slope = slope_of(constant, terms, limit_tokens)
        if slope is None:
            return searched(pool, constant, terms, limit_tokens)
        found = along(pool, slope, limit_tokens)
        if slope.start_tokens == 0:
            return found
        before = partial(searched, constant=constant, terms=terms, most=int(slope.start_tokens))
        if xp.is_plain(found):
            return found if found >= slope.start_tokens else before(pool)
        short = found < slope.start_tokens
        if short.any():
            found[short] = before(pool[short])
        return found


Terms = Sequence[tuple[int | Integers, int | Integers, int | Integers]]
"""Rate, step and cap of each term that grows; arrays hold those of many profiles and broadcast."""


def held(tokens: Integers, constant: int | Integers, terms: Terms) -> Integers:
    """Bytes that requests hold: ``constant + rate * ceil(min(tokens, cap) / step)`` of every term."""
    total = xp.integers(xp.full_like(tokens, 0) + constant)
    for rate, step, cap in terms:
        total = xp.integers(total + rate * -(-xp.minimum(tokens, cap) // step))
    return total


def marginal(tokens: Integers, terms: Terms) -> xp.Reals:
    """Bytes of one further token: ``rate / step`` of every term whose cap is not reached."""
    total: xp.Reals = xp.reals(xp.full_like(tokens, 0.0))
    for rate, step, cap in terms:
        total = xp.reals(total + xp.where(tokens < cap, rate / step, 0.0))
    return total


@dataclass(frozen=True, slots=True)
class Slope:
    """Where a request grows by equal steps, so that the longest context is a division."""

    start_tokens: int | Integers  # Contexts from which on nothing else grows.
    constant_bytes: int | Integers  # Bytes held there whatever the context.
    rate_bytes: int | Integers  # Bytes of a step.
    step_tokens: int | Integers

    @property
    def parts(self) -> tuple[int | Integers, ...]:
        """The attributes in order."""
        return self.start_tokens, self.constant_bytes, self.rate_bytes, self.step_tokens


_NO_POOL: Final = 1 << 61
"""More bytes than any pool has."""


def slope_of(constant: int, terms: Terms, limit_tokens: int) -> Slope | None:
    """The slope of a profile past all windows that end before a limit; None where steps differ."""
    ending = [term for term in terms if term[2] < limit_tokens]
    growing = [term for term in terms if term[2] >= limit_tokens]
    steps = {step for _, step, _ in growing}
    if len(steps) > 1:
        return None
    start = max((cap for _, _, cap in ending), default=0)
    full = constant + sum(rate * -(-cap // step) for rate, step, cap in ending)
    if not growing:
        # One step, up to the limit, for every pool that holds the rest.
        return Slope(start, full - _NO_POOL, _NO_POOL, limit_tokens)
    return Slope(start, full, sum(rate for rate, _, _ in growing), steps.pop())


def along(pool: Integers, slope: Slope, limit_tokens: int) -> Integers:
    """The longest context whose request fits; where it is before the slope's start, some context before that."""
    steps = xp.maximum((pool - slope.constant_bytes) // slope.rate_bytes, 0)
    most = -(-limit_tokens // slope.step_tokens)
    return xp.integers(xp.minimum(xp.minimum(steps, most) * slope.step_tokens, limit_tokens))


def searched(pool: Integers, constant: int | Integers, terms: Terms, most: int) -> Integers:
    """The longest context up to ``most`` whose request fits ``pool``, by halving; 0 where not even one token fits."""
    low, high = xp.full_like(pool, 0), xp.full_like(pool, most)
    for _ in range(most.bit_length()):
        middle = (low + high + 1) // 2
        fits = held(middle, constant, terms) <= pool
        low = xp.where(fits, middle, low)
        high = xp.where(fits, high, middle - 1)
    return xp.integers(low)


def _request(profile: CacheProfile, tokens: Integers) -> Integers:
    return held(tokens, profile.constant_bytes, profile.growing)


@remembered
def _requests(profile: CacheProfile, tokens: Integers) -> Integers:
    return xp.fixed(_request(profile, tokens))
