"""Cache beyond the device, and cache that is shared: what they hold, and what they cost in time.

A finished conversation's cache can be kept in host memory or on NVMe and brought back when the
user returns, instead of prefilling again. Bringing back takes ``bytes / link bandwidth``; prefilling
takes at least what the roofline says. Whichever is shorter decides. A prefix that many requests
share saves both: its bytes are held once and its operations are done once.

Offloaded cache does not raise the number of requests that run at once: what is being read must be
on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import Final

import numpy as np
import numpy.typing as npt

from kvreport.accounting.demand import Demand
from kvreport.accounting.numeric import Integers
from kvreport.accounting.profile import CacheProfile
from kvreport.accounting.roofline import Peaks, prefill
from kvreport.accounting.sizing import shared_bytes
from kvreport.errors import InputError

Reals = npt.NDArray[np.float64]

LINKS: Final[dict[str, float]] = {
    "PCIe 3.0 x16": 15.75e9,
    "PCIe 4.0 x16": 31.5e9,
    "PCIe 5.0 x16": 63.0e9,
    "PCIe 6.0 x16": 121.0e9,
    "NVLink-C2C": 450e9,
    "NVMe (PCIe 4.0 x4)": 7.0e9,
    "NVMe (PCIe 5.0 x4)": 14.0e9,
    "200 Gb/s network": 25.0e9,
    "400 Gb/s network": 50.0e9,
}
"""Bytes per second in one direction, at best: the signalling rate less its coding (PCI-SIG), NVIDIA's
figure for NVLink-C2C (900 GB/s both ways), the usual sequential read of one drive, the line rate."""


@dataclass(frozen=True, slots=True)
class Tier:
    """A place for cache that is not being read."""

    name: str  # What people call it.
    capacity_bytes: int  # What it holds for one device of a tensor-parallel group.
    bytes_per_s: float  # How fast it comes back to that device, at best.

    def __post_init__(self) -> None:
        """Refuse a tier of no size or no speed."""
        if self.capacity_bytes < 1 or not self.bytes_per_s > 0:
            raise InputError(
                f"tier {self.name}: found {self.capacity_bytes} bytes at {self.bytes_per_s:g} B/s; "
                "allowed: a size and a speed above 0"
            )


def requests_kept(tier: Tier, profile: CacheProfile, context_tokens: npt.ArrayLike) -> Integers:
    """Finished requests of this context that a tier keeps."""
    held = profile.request_bytes(context_tokens)
    return np.asarray(tier.capacity_bytes // np.maximum(held, 1), dtype=np.int64)


def restore_seconds(tier: Tier, profile: CacheProfile, context_tokens: npt.ArrayLike) -> Reals:
    """Time to bring one request's cache back to the device; the ranks of a group do it side by side."""
    return np.asarray(profile.request_bytes(context_tokens) / tier.bytes_per_s, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Offload:
    """What a tier does for requests of one context."""

    context_tokens: Integers  # Their length.
    request_bytes: Integers  # What one of them holds on one device.
    kept: Integers  # How many the tier keeps.
    restore_s: Reals  # Time to bring one back.
    prefill_s: Reals  # Lower bound of prefilling it again.

    @property
    def speedup(self) -> Reals:
        """How many times faster bringing back is than the fastest prefill."""
        return np.asarray(self.prefill_s / self.restore_s, dtype=np.float64)


def offload(
    tier: Tier, profile: CacheProfile, demand: Demand, peaks: Peaks, context_tokens: npt.ArrayLike
) -> Offload:
    """Tabulate a tier over contexts."""
    contexts = np.asarray(context_tokens, dtype=np.int64)
    return Offload(
        contexts,
        profile.request_bytes(contexts),
        requests_kept(tier, profile, contexts),
        restore_seconds(tier, profile, contexts),
        prefill(demand, peaks, contexts).seconds,
    )


@dataclass(frozen=True, slots=True)
class PrefixReuse:
    """What a shared prefix saves. Bytes are per device."""

    alone_bytes: Integers  # What the requests hold if each keeps the prefix.
    shared_bytes: Integers  # What they hold if it is kept once.
    prefill_alone_s: Reals  # Lower bound of one prefill that computes the prefix.
    prefill_shared_s: Reals  # The same when the prefix is there.

    @property
    def saved_share(self) -> Reals:
        """Share of the cache that sharing saves."""
        return np.asarray(1 - self.shared_bytes / self.alone_bytes, dtype=np.float64)


def prefix_reuse(
    profile: CacheProfile,
    demand: Demand,
    peaks: Peaks,
    *,
    prompt_tokens: int,
    prefix_tokens: npt.ArrayLike,
    requests: int,
) -> PrefixReuse:
    """Tabulate what sharing the whole blocks of a prefix saves among ``requests`` prompts of equal length.

    Raises:
        InputError: If a prefix is longer than the prompt.
    """
    prefixes = np.asarray(prefix_tokens, dtype=np.int64)
    if (prefixes > prompt_tokens).any() or (prefixes < 0).any():
        raise InputError(
            f"prefix: found {int(prefixes.max()):,} tokens; allowed: 0 to the prompt of {prompt_tokens:,}"
        )
    once = np.asarray([shared_bytes(profile, int(tokens)) for tokens in prefixes.ravel()], dtype=np.int64)
    once = once.reshape(prefixes.shape)
    alone = np.full(prefixes.shape, int(profile.request_bytes(prompt_tokens)) * requests, dtype=np.int64)
    block = lcm(*(term.step_tokens for term in profile.terms))
    return PrefixReuse(
        alone,
        alone - (requests - 1) * once,
        prefill(demand, peaks, np.full(prefixes.shape, prompt_tokens)).seconds,
        prefill(demand, peaks, prompt_tokens, cached_tokens=prefixes // block * block).seconds,
    )
