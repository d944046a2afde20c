"""The arithmetic of the chapters' instruments: short formulas over those of the kernel.

:mod:`kvreport.publish.browser` translates this file to JavaScript together with the kernel, under the
same rules, so that a slider on a page and the table that is printed in its place give the same numbers.
Formulas that the rest of the package needs too are in :mod:`kvreport.accounting.kernel` and imported.

Units: sizes are bytes on one device, lengths are tokens, times are seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvreport.accounting.kernel import (
    Step,
    Term,
    decode_bytes,
    decode_compute_seconds,
    decode_seconds,
    num_requests,
    prefill_seconds,
    price_per_million,
    request_bytes,
    requests_in_flight,
    weight_bytes_read,
)

__all__ = [
    "decode_bytes",
    "decode_compute_seconds",
    "decode_seconds",
    "num_requests",
    "prefill_seconds",
    "price_per_million",
    "request_bytes",
    "requests_in_flight",
    "weight_bytes_read",
]

WITHIN: Final = 0
OUT_OF_MEMORY: Final = 1


def attention_token_bytes(layers: int, kv_heads: int, head_dim: int, element_bytes: float) -> float:
    """Return the bytes of one token's keys and values: 2 x layers x KV heads x head dim x bytes."""
    return 2 * layers * kv_heads * head_dim * element_bytes


def latent_token_bytes(layers: int, latent: int, rotary: int, element_bytes: float) -> float:
    """Return the bytes of one token's latents (MLA): layers x (latent + rotary part) x bytes.

    Args:
        layers: Layers with a cache.
        latent: Width of the latent.
        rotary: Width of the rotary part.
        element_bytes: Bytes of one number.
    """
    return layers * (latent + rotary) * element_bytes


def product(first: float, second: float) -> float:
    """Return first x second."""
    return first * second


def total(first: float, second: float) -> float:
    """Return first + second."""
    return first + second


def rest(whole: float, part: float) -> float:
    """Return what is left of a whole, never below 0."""
    return max(whole - part, 0)


def ratio(part: float, whole: float) -> float:
    """Return part / whole; 0 where the whole is 0."""
    return 0 if whole == 0 else part / whole


def whole_number(part: float, each: float) -> int:
    """Return how many times ``each`` fits into ``part``."""
    return 0 if each == 0 else int(part / each)


def memory_state(used: float, usable: float) -> int:
    """Return 0 where ``used`` bytes are within ``usable`` bytes, else 1."""
    return WITHIN if used <= usable else OUT_OF_MEMORY


def all_requests_bytes(constant: int, terms: Sequence[Term], context: int, requests: int) -> int:
    """Return what ``requests`` requests of ``context`` tokens hold together.

    Args:
        constant: Bytes of a request that do not grow.
        terms: What grows with the tokens.
        context: Tokens of a request.
        requests: Number of requests.
    """
    return request_bytes(constant, terms, context) * requests


def divided_heads(kv_heads: int, ranks: int) -> int:
    """Return the KV heads that each tensor-parallel rank holds: at least one, copied if need be."""
    return max(1, -(-kv_heads // ranks))


def reserved_tokens(tokens: int, block: int) -> int:
    """Return the tokens of the blocks that ``tokens`` tokens occupy."""
    return -(-tokens // block) * block


def memory_seconds(step: Step, batch: float, context: int) -> float:
    """Return the least seconds in which one decode step can read what it needs."""
    return decode_bytes(step, batch, context) / step.bytes_rate


def slower_side(reading: float, computing: float) -> int:
    """Return 0 where reading memory takes longer, 1 where computing does."""
    return 0 if reading >= computing else 1


def average_tokens(batch: float, seconds: float) -> float:
    """Return the tokens per second of a batch whose step takes ``seconds``."""
    return 0 if seconds == 0 else batch / seconds


def replicas_needed(requests: float, each: int) -> int:
    """Return the replicas that hold ``requests`` at ``each`` per replica; 0 where one holds none."""
    return 0 if each == 0 else int(-(-requests // each))


def resident_sessions(pool: float, running: float, session: float) -> int:
    """Return the idle sessions whose cache fits beside what running requests hold."""
    return whole_number(max(pool - running, 0), session)


def left_share(pool: float, running: float) -> float:
    """Return the share of a pool that running requests leave."""
    return ratio(max(pool - running, 0), pool)


def entry(values: Sequence[float], place: int) -> float:
    """Return the value at a place of a list, counted from 0; 0 beyond its end."""
    found = 0.0
    left = place
    for one in values:
        if left == 0:
            found = one
        left -= 1
    return found


def sizes_within(sizes: Sequence[int], room: float) -> int:
    """Return how many of rising sizes are at most ``room``."""
    found = 0
    for size in sizes:
        if size <= room:
            found += 1
    return found


def context_within(contexts: Sequence[int], sizes: Sequence[int], room: float) -> int:
    """Return the longest context that fits, in tokens; 0 if not even the shortest of ``contexts`` does.

    Between two contexts bytes rise evenly. Such a context is cut to 1,024 tokens, and 256 lower before, to which llama.cpp
    rounds the length of a cache.

    Args:
        contexts: Rising lengths whose sizes are known.
        sizes: Bytes at each of them.
        room: Bytes that are there.
    """
    count = sizes_within(sizes, room)
    if count == 0:
        return 0
    low = entry(contexts, count - 1)
    high = entry(contexts, count)
    if high == 0:
        return whole_number(low, 1)
    held = entry(sizes, count - 1)
    more = whole_number((high - low) * (room - held), entry(sizes, count) - held)
    return whole_number(max(low, whole_number(low + more - 256, 1024) * 1024), 1)


def layers_to_move(over: float, layers: Sequence[int]) -> int:
    """Return the fewest leading layers whose experts must leave the device; -1 if all of them are not enough.

    The device also holds a copy of one layer's experts while it computes on weights of the host.

    Args:
        over: Bytes by which everything on the device exceeds its memory.
        layers: Bytes of the routed experts of each layer.
    """
    if over <= 0:
        return 0
    largest = 0
    for one in layers:
        largest = max(largest, one)
    left = over + largest
    moved = 0
    for size in layers:
        if left > 0:
            left -= size
            moved += 1
    return -1 if left > 0 else moved
