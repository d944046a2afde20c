"""The shipped traces for programs and pages: their files, and their hit-rate curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from functools import lru_cache
from hashlib import sha256
from typing import Final

from kvreport.publish.noted import kept
from kvreport.publish.parts import Parts
from kvreport.publish.profiles import FOLDER
from kvreport.traffic.hits import hit_counts, hit_curve
from kvreport.traffic.reuse import Reuse, reuse
from kvreport.traffic.shipped import open_trace, shipped_traces
from kvreport.traffic.trace import Trace

TRACES: Final = f"{FOLDER}/traffic"
"""Where the traces are published."""


def files() -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of every trace."""
    for one in shipped_traces().values():
        yield f"{TRACES}/{one.file}", one.path.read_bytes()


def names() -> tuple[str, ...]:
    """Return the addresses of :func:`files` without reading them."""
    return tuple(f"{TRACES}/{one.file}" for one in shipped_traces().values())


KEPT: Final[ContextVar[Parts | None]] = ContextVar("kept", default=None)
"""Where this build keeps values; set when it begins."""


@lru_cache(maxsize=64)
def reused(key: str, block_tokens: int) -> Reuse:
    """One shipped trace's reuse distances in full blocks of an engine, kept between builds."""
    parts, trace = KEPT.get() or Parts(None), shipped_traces()[key]
    decided = parts.key(sha256(trace.path.read_bytes()).digest(), str(block_tokens))
    return parts.value(f"reuse-{key}-{block_tokens}", decided, lambda: reuse(open_once(key), block_tokens))


@lru_cache(maxsize=8)
def open_once(key: str) -> Trace:
    """One shipped trace, read once."""
    return open_trace(key)


@lru_cache(maxsize=4096)
def _rates(key: str, block_tokens: int, units: int) -> tuple[float, float]:
    def computed() -> float:
        return hit_counts(reused(key, block_tokens), units, compute_last=True).rate()

    lru = kept(f"hits {key} {block_tokens} {units}", computed)
    return lru, units * block_tokens


def hits_of(key: str, sizes: Sequence[int], *, warmup: float) -> list[int]:
    """Hit tokens of a shipped trace under LRU, kept between builds.

    Args:
        key: The trace.
        sizes: Blocks of the trace that the cache holds.
        warmup: Share of the first requests that are not counted.
    """

    def computed() -> list[int]:
        return [one.hit_tokens for one in hit_curve(reuse(open_once(key)), sizes, warmup=warmup)]

    return kept(f"hit tokens {key} {warmup} {list(sizes)}", computed)


def curve_of(key: str, block_tokens: int, sizes: Sequence[int]) -> list[tuple[float, float]]:
    """Hit rates of a shipped trace under LRU.

    Args:
        key: The trace.
        block_tokens: Tokens of an engine's block.
        sizes: Full blocks that the cache holds.

    Returns:
        The hit rate (tokens) and the cache in tokens, for each size.
    """
    return [_rates(key, block_tokens, size) for size in sizes]
