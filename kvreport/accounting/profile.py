"""The cache profile: one request as a short list of (rate, step, cap, constant) terms.

Every cache kind of every architecture, held ideally or reserved by an engine, reduces to

    bytes(n) = sum over terms of  constant + rate * ceil(min(n, cap) / step)

where ``n`` is the context in tokens. One estimate, five million rows, the boundary in a chart
and the slider in the browser all evaluate this and nothing else. Arrays in, arrays out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from kvreport.accounting import kernel
from kvreport.accounting import numeric as xp
from kvreport.accounting.numeric import Integers
from kvreport.accounting.remembered import remembered

UNBOUNDED: Final = 1 << 40
"""A cap that no context reaches (contexts are at most 2^30 tokens)."""

Kind = Literal["full", "sliding", "chunked", "latent", "indexer", "ring", "state", "cross"]


@dataclass(frozen=True, slots=True)
class Term:
    """One addend of a request's bytes on one device.

    Attributes:
        kind: Cache kind it comes from (its colour on the pages).
        rate_bytes: Bytes added by every started step.
        step_tokens: Tokens per step: 1 for plain caches, the block size for an engine's blocks,
            the ratio for compressed attention.
        cap_tokens: Tokens after which it stops growing (window), or ``UNBOUNDED``.
        constant_bytes: Bytes that a request holds whatever its length.
    """

    kind: Kind
    rate_bytes: int = 0
    step_tokens: int = 1
    cap_tokens: int = UNBOUNDED
    constant_bytes: int = 0

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


@dataclass(frozen=True, slots=True)
class CacheProfile:
    """What one request holds on one device, as a function of its context.

    Attributes:
        terms: The addends; equal shapes are merged by :meth:`of`.
    """

    terms: tuple[Term, ...]

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

        Args:
            context_tokens: Contexts, any shape, whole numbers >= 0.

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
        tokens = xp.integers(context_tokens)
        total: xp.Reals = xp.full_like(tokens, 0.0)
        for term in self.terms:
            total += xp.where(tokens < term.cap_tokens, term.rate_bytes / term.step_tokens, 0.0)
        return total

    @property
    def constant_bytes(self) -> int:
        """Bytes that a request holds whatever its length."""
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
    def holds_nothing(self) -> bool:
        """True if a request holds no bytes whatever its length: an encoder, an embedding or a reward model."""
        return not any(term.constant_bytes or term.rate_bytes for term in self.terms)

    @property
    def grows(self) -> bool:
        """True if a longer context ever needs more memory without bound."""
        return any(t.rate_bytes and t.cap_tokens >= UNBOUNDED for t in self.terms)

    def longest_context(self, pool_bytes: xp.ArrayLike, limit_tokens: int) -> Integers:
        """The longest context, up to ``limit_tokens``, whose request fits the pool.

        Args:
            pool_bytes: Pools, any shape.
            limit_tokens: Where to stop looking, at least 1.

        Returns:
            Tokens, the shape of ``pool_bytes``; 0 where not even one token fits.
        """
        pool = xp.integers(pool_bytes)
        growing = [term for term in self.terms if term.rate_bytes]
        steps_of = {term.step_tokens for term in growing}
        if len(steps_of) == 1 and all(term.cap_tokens >= limit_tokens for term in growing):
            # One step size and no cap in reach, as most models have: a division.
            (step,) = steps_of
            steps = (pool - self.constant_bytes) // sum(term.rate_bytes for term in growing)
            return xp.minimum(xp.minimum(xp.maximum(steps, 0), -(-limit_tokens // step)) * step, limit_tokens)
        low, high = xp.full_like(pool, 0), xp.full_like(pool, limit_tokens)
        for _ in range(int(limit_tokens).bit_length()):
            middle = (low + high + 1) // 2
            fits = self.request_bytes(middle) <= pool
            low = xp.where(fits, middle, low)
            high = xp.where(fits, high, middle - 1)
        return low


def _request(profile: CacheProfile, tokens: Integers) -> Integers:
    total: Integers = xp.full_like(tokens, profile.constant_bytes)
    for term in profile.terms:
        if term.rate_bytes:
            held = xp.minimum(tokens, term.cap_tokens)
            total += term.rate_bytes * -(-held // term.step_tokens)
    return total


@remembered
def _requests(profile: CacheProfile, tokens: Integers) -> Integers:
    return xp.fixed(_request(profile, tokens))
