"""Replay without time: one request after another through the engine's pools.

Every request finds what it can, stores its prompt and its output, and leaves before the next one comes. What it
finds is the pure hit rate of the pools: all kinds of cache at once, in the engine's own blocks. For a model with
full attention only, :mod:`kvreport.traffic.hits` gives the same for all sizes in one pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvreport.traffic.memory import CacheMemory, HostTier
from kvreport.traffic.pools import Pools
from kvreport.traffic.trace import Trace


@dataclass(frozen=True, slots=True)
class OrderResult:
    """Hits of a replay without time."""

    requests: int  # Requests that fit the pools alone.
    refused: int  # Requests that do not.
    prompt_tokens: int  # Prompt tokens of the former.
    hit_tokens: int  # Of these, tokens found on the device or the host.
    host_tokens: int  # Of these, tokens found on the host only.
    evicted: tuple[int, ...]  # Blocks of each pool that were evicted.

    @property
    def hit_rate(self) -> float:
        """Hit tokens over prompt tokens."""
        return self.hit_tokens / max(self.prompt_tokens, 1)


def replay_in_order(
    trace: Trace,
    pools: Pools,
    *,
    host: HostTier | None = None,
    time_to_live_s: float | None = None,
    outputs: bool = True,
    max_batched_tokens: int = 8192,
) -> OrderResult:
    """Send a trace through the pools one request at a time.

    Without ``outputs`` only prompts are stored. States are kept at the ends of steps of ``max_batched_tokens``. A block expires
    after ``time_to_live_s``, or never.
    """
    memory = CacheMemory(trace, pools, host=host, time_to_live_s=time_to_live_s)
    served = refused = prompts = hits = from_host = 0
    for request in range(len(trace)):
        prompt = trace.prompt_tokens[request]
        total = prompt + (max(trace.output_tokens[request] - 1, 0) if outputs else 0)
        if any(pools.request_blocks(total, index) > spec.blocks for index, spec in enumerate(pools.pools)):
            refused += 1
            continue
        memory.now = trace.arrival_s[request]
        run = memory.start(request, 0)
        memory.admit(run, memory.find(run))
        prompts += prompt
        hits += run.hit
        from_host += run.loaded
        served += 1
        while run.stored < prompt:
            memory.grow(run, min(run.stored + max_batched_tokens, prompt))
        memory.settle(run)
        if total > prompt:
            memory.grow(run, total)
        memory.leave(run, keep_outputs=True)
    evicted = tuple(pool.evicted for pool in memory.pools)
    return OrderResult(served, refused, prompts, hits, from_host, evicted)
