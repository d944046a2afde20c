"""The shipped traces for programs and pages: their files, and their hit-rate curves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from functools import lru_cache
from hashlib import sha256
from typing import Final

from kvreport import units
from kvreport.accounting.weights import parameters
from kvreport.catalog.model import Model
from kvreport.publish.kept_values import Parts
from kvreport.publish.profiles import FOLDER, encode
from kvreport.publish.tracked_values import kept
from kvreport.traffic.answers import may_stand_in
from kvreport.traffic.hits import hit_counts
from kvreport.traffic.reuse import Reuse, reuse
from kvreport.traffic.shipped import open_trace, shipped_traces
from kvreport.traffic.trace import MAX_LEFT_OUT, Trace, within_context

TRACES: Final = f"{FOLDER}/traffic"
"""Where the traces are published."""


MODELS: Final = f"{TRACES}/models.json"
"""Models: slug, id, name, context in tokens, parameters, 1 if it may be named. A page that refuses a trace names one."""


def files(models: Sequence[Model]) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of every trace, and of the models that may be named for one."""
    for one in shipped_traces().values():
        yield f"{TRACES}/{one.file}", one.path.read_bytes()
    yield (
        MODELS,
        encode(
            [
                [
                    model.slug,
                    model.id,
                    model.name,
                    model.context_tokens,
                    parameters(model),
                    int(may_stand_in(model)),
                ]
                for model in models
            ]
        ),
    )


KEPT: Final[ContextVar[Parts | None]] = ContextVar("kept", default=None)
"""Where this build keeps values; set when it begins."""


def reused(key: str, block_tokens: int, limit_tokens: int) -> Reuse:
    """One shipped trace's reuse distances in full blocks of an engine, kept between builds.

    Requests whose prompt has ``limit_tokens`` are left out, as engines refuse them.
    """
    return _reused(key, block_tokens, _effective(key, limit_tokens))


@lru_cache(maxsize=64)
def _reused(key: str, block_tokens: int, limit_tokens: int) -> Reuse:
    parts, trace = KEPT.get() or Parts(None), shipped_traces()[key]
    decided = parts.key(sha256(trace.path.read_bytes()).digest(), str(block_tokens), str(limit_tokens))
    return parts.value(
        f"reuse-{key}-{block_tokens}-{limit_tokens}",
        decided,
        lambda: reuse(within_context(open_once(key), limit_tokens)[0], block_tokens),
    )


@lru_cache(maxsize=8)
def _longest(key: str) -> int:
    return max(open_once(key).prompt_tokens)


def _effective(key: str, limit_tokens: int) -> int:
    """Limits above the longest prompt leave out nothing, and are one value."""
    return min(limit_tokens, _longest(key) + 1)


def left_out(key: str, limit_tokens: int) -> int:
    """Return how many requests of a shipped trace are left out because their prompts reach a limit."""
    return _left_out(key, _effective(key, limit_tokens))


@lru_cache(maxsize=256)
def _left_out(key: str, limit_tokens: int) -> int:
    return sum(tokens >= limit_tokens for tokens in open_once(key).prompt_tokens)


def served(key: str, limit_tokens: int) -> bool:
    """Say whether a model of a limit serves enough of a shipped trace for a number to stand for it."""
    return left_out(key, limit_tokens) <= MAX_LEFT_OUT * shipped_traces()[key].requests


def said_left_out(keys: Iterable[str], limit_tokens: int) -> str:
    """Say what a model leaves out of shipped traces; empty where it leaves out nothing."""
    known = shipped_traces()
    gone = [
        f"{units.count(left_out(key, limit_tokens))} of {units.count(known[key].requests)} requests in the {known[key].label} trace"
        for key in keys
        if left_out(key, limit_tokens)
    ]
    if not gone:
        return ""
    return f"Requests with prompts of {units.count(limit_tokens)} tokens or more are excluded: {', '.join(gone)}."


@lru_cache(maxsize=8)
def open_once(key: str) -> Trace:
    """One shipped trace, read once."""
    return open_trace(key)


@lru_cache(maxsize=4096)
def _rates(key: str, block_tokens: int, limit_tokens: int, units: int) -> tuple[float, float]:
    def computed() -> float:
        return hit_counts(reused(key, block_tokens, limit_tokens), units, compute_last=True).rate()

    lru = kept(f"hits {key} {block_tokens} {limit_tokens} {units}", computed)
    return lru, units * block_tokens


def hits_of(key: str, sizes: Sequence[int], *, warmup: float) -> list[int]:
    """Hit tokens of a shipped trace under LRU after the share ``warmup`` of its requests, kept between builds."""

    def computed() -> list[int]:
        runs = reuse(open_once(key))
        return [hit_counts(runs, size, warmup=warmup).hit_tokens for size in sizes]

    return kept(f"hit tokens {key} {warmup} {list(sizes)}", computed)


def curve_of(
    key: str, block_tokens: int, limit_tokens: int, sizes: Sequence[int]
) -> list[tuple[float, float]]:
    """Hit rates of a shipped trace under LRU.

    Requests whose prompt has ``limit_tokens`` are left out; ``sizes`` are full blocks of an engine.

    Returns:
        The hit rate (tokens) and the cache in tokens, for each size.
    """
    limit = _effective(key, limit_tokens)
    return [_rates(key, block_tokens, limit, size) for size in sizes]
