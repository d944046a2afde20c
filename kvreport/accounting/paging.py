"""Pages against contiguous reservation: what a request occupies while it lives, in closed form.

A request of ``prompt`` tokens that will write ``output`` tokens holds ``prompt + t`` tokens when
it has written ``t`` of them. What it *occupies* depends on how memory is handed out: a stretch for
the longest request allowed, a stretch for a guess, or pages as it grows. The difference is waste,
and all of it has a closed form; :mod:`kvreport.accounting.batching` simulates the rest (who waits,
who is preempted).

Sizes here are tokens; one token's bytes are the cache profile's affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from kvreport.accounting.numeric import Integers
from kvreport.errors import InputError, shorten

Reservation = Literal["maximum", "power_of_two", "exact", "pages"]
"""How memory is handed out.

``maximum``: one stretch for the longest request allowed (FasterTransformer, Orca's ``Max``).
``power_of_two``: prompt plus the next power of two above the output (Orca's ``Pow2``).
``exact``: prompt plus output, as an oracle would know (Orca's ``Oracle``).
``pages``: pages of a fixed size as the request grows (PagedAttention).
"""

MAX_SAMPLES: Final = 1_000_000
_SAMPLES: Final = 1024


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of lengths in tokens, drawn without a random generator."""

    tokens: tuple[int, ...]  # Equally likely lengths, ascending, each at least 1.

    @classmethod
    def of(cls, values: Sequence[int]) -> Lengths:
        """Take lengths as they were observed.

        Raises:
            InputError: If there are none, too many, or one is not a positive whole number.
        """
        if not 0 < len(values) <= MAX_SAMPLES:
            raise InputError(f"lengths: found {len(values)} of them; allowed: 1 to {MAX_SAMPLES:,}")
        for value in values:
            if value < 1:
                raise InputError(f"lengths: found {shorten(value)}; allowed: whole numbers from 1")
        return cls(tuple(sorted(values)))

    @classmethod
    def spread(cls, mean: float, maximum: int) -> Lengths:
        """Lengths with a given mean below a maximum, at evenly spaced quantiles.

        They are geometric (every next token may be the last, at equal odds). Lengths above ``maximum`` are left out, and
        the parameter is chosen so that the mean *after* the cut is ``mean``.

        Raises:
            InputError: If no such distribution has that mean below that maximum.
        """
        # A cut geometric distribution cannot lean to the right: its mean stays below the middle.
        highest = (1 + maximum) / 2
        if not 1 <= mean < highest:
            raise InputError(
                f"lengths: a mean of {mean:g} with a maximum of {maximum:,} is impossible for a "
                f"geometric distribution; allowed: a mean from 1 to below {highest:g}, "
                "or give the lengths themselves"
            )
        quantiles = (np.arange(_SAMPLES) + 0.5) / _SAMPLES
        low, high = 1e-3, float(maximum) * 1e3
        found = np.ones(_SAMPLES)
        for _ in range(80):
            middle = sqrt(low * high)
            # An exponential of this mean, cut and rounded up, is geometric.
            values = -middle * np.log1p(quantiles * np.expm1(-maximum / middle))
            found = np.clip(np.ceil(values), 1, maximum)
            low, high = (middle, high) if found.mean() < mean else (low, middle)
        return cls(tuple(int(value) for value in np.sort(found)))

    @property
    def mean(self) -> float:
        """Mean length in tokens."""
        return sum(self.tokens) / len(self.tokens)

    @property
    def maximum(self) -> int:
        """Longest length in tokens."""
        return self.tokens[-1]

    def draw(self, count: int, base: int = 2) -> Integers:
        """``count`` lengths in an order without pattern, the same every time.

        Request ``i`` takes the quantile whose digits in ``base`` are those of ``i`` mirrored
        (van der Corput's sequence), so any stretch of requests covers the distribution evenly.

        ``count``: how many. ``base``: prime base; two distributions drawn with different bases are
        independent.
        """
        index = np.arange(1, count + 1)
        place = np.zeros(count)
        scale = 1.0
        while index.any():
            scale /= base
            place += scale * (index % base)
            index //= base
        known = np.asarray(self.tokens, dtype=np.int64)
        drawn: Integers = known[(place * len(known)).astype(np.int64)]
        return drawn


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Token-steps over the lives of requests: what was stored, and what was set aside for it."""

    stored: float  # Tokens that held something, summed over steps and requests.
    occupied: float  # Tokens' worth of memory set aside, summed likewise.

    @property
    def used_share(self) -> float:
        """Share of the set-aside memory that held tokens."""
        return self.stored / self.occupied if self.occupied else 1.0

    @property
    def waste_share(self) -> float:
        """Share of the set-aside memory that held nothing."""
        return 1.0 - self.used_share


def last_page_waste(page_tokens: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Tokens of the last page that stay empty, on average: ``(page - 1) / 2``.

    A request's length modulo the page is taken as uniform, which every smooth distribution
    much wider than a page is.
    """
    return (np.asarray(page_tokens, dtype=np.float64) - 1) / 2


def pages(tokens: npt.ArrayLike, page_tokens: npt.ArrayLike) -> Integers:
    """Pages that ``tokens`` need: ``ceil(tokens / page)``."""
    held = np.asarray(tokens, dtype=np.int64)
    return -(-held // np.asarray(page_tokens, dtype=np.int64))


def reserved_tokens(
    prompt_tokens: npt.ArrayLike,
    output_tokens: npt.ArrayLike,
    reservation: Reservation,
    *,
    maximum_tokens: int,
    page_tokens: int = 16,
) -> Integers:
    """Tokens' worth of memory that a finished request had set aside at its end.

    ``reservation``: how memory is handed out. ``maximum_tokens``: longest request allowed, prompt and output
    together.
    """
    prompt = np.asarray(prompt_tokens, dtype=np.int64)
    output = np.asarray(output_tokens, dtype=np.int64)
    match reservation:
        case "maximum":
            return np.full(np.broadcast(prompt, output).shape, maximum_tokens, dtype=np.int64)
        case "power_of_two":
            powers = np.int64(1) << np.arange(62, dtype=np.int64)
            return prompt + powers[np.searchsorted(powers, output)]
        case "exact":
            return prompt + output
        case "pages":
            return pages(prompt + output, page_tokens) * page_tokens


def occupancy(
    prompt_tokens: npt.ArrayLike,
    output_tokens: npt.ArrayLike,
    reservation: Reservation,
    *,
    maximum_tokens: int,
    page_tokens: int = 16,
) -> Occupancy:
    """What requests store and occupy over their lives, one step per output token.

    A request that lives longer weighs more, as it does in a running server.

    Arguments are those of :func:`reserved_tokens`.
    """
    prompt = np.asarray(prompt_tokens, dtype=np.int64)
    output = np.asarray(output_tokens, dtype=np.int64)
    if reservation == "pages":
        occupied = page_steps(prompt + output, page_tokens) - page_steps(prompt, page_tokens)
        occupied = occupied * page_tokens
    else:
        stretch = reserved_tokens(
            prompt, output, reservation, maximum_tokens=maximum_tokens, page_tokens=page_tokens
        )
        occupied = stretch * output
    stored = prompt * output + output * (output + 1) // 2
    return Occupancy(float(stored.sum()), float(occupied.sum()))


def page_steps(tokens: npt.ArrayLike, page_tokens: int) -> Integers:
    """Pages held, summed while a request grows from 1 to ``tokens``: sum of ``ceil(t / page)``."""
    held = np.asarray(tokens, dtype=np.int64)
    full, rest = held // page_tokens, held % page_tokens
    return page_tokens * full * (full + 1) // 2 + rest * (full + 1)
