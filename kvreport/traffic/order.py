"""Replay without time: one request after another through the engine's pools.

Every request finds what it can, stores its prompt and its output, and leaves before the next one comes. What it
finds is the pure hit rate of the pools: all kinds of cache at once, in the engine's own blocks. For a model with
full attention only, :mod:`kvreport.traffic.hits` gives the same for all sizes in one pass.
"""

from __future__ import annotations

from kvreport.traffic.block_pools import Pools
from kvreport.traffic.memory import CacheMemory, HostTier
from kvreport.traffic.results import ReplayResult
from kvreport.traffic.trace import Trace


def replay_in_order(
    trace: Trace,
    pools: Pools,
    *,
    host: HostTier | None = None,
    time_to_live_s: float | None = None,
    outputs: bool = True,
    max_batched_tokens: int = 8192,
) -> ReplayResult:
    """Send a trace through the pools one request at a time.

    Without ``outputs`` only prompts are stored. States are kept at the ends of steps of ``max_batched_tokens``. A block expires
    after ``time_to_live_s``, or never.

    Returns:
        Requests, tokens and evicted blocks, without times.
    """
    memory = CacheMemory(trace, pools, host=host, time_to_live_s=time_to_live_s)
    found = ReplayResult()
    for request in range(len(trace)):
        prompt = trace.prompt_tokens[request]
        total = prompt + (max(trace.output_tokens[request] - 1, 0) if outputs else 0)
        if any(pools.request_blocks(total, index) > spec.blocks for index, spec in enumerate(pools.pools)):
            found.refused += 1
            continue
        memory.now = trace.arrival_s[request]
        run = memory.start(request, 0)
        memory.admit(run, memory.find(run))
        found.prompt_tokens += prompt
        found.hit_tokens += run.hit
        found.host_tokens += run.loaded
        found.requests += 1
        while run.stored < prompt:
            memory.grow(run, min(run.stored + max_batched_tokens, prompt))
        memory.settle(run)
        if total > prompt:
            memory.grow(run, total)
        memory.leave(run, keep_outputs=True)
    found.evicted = tuple(pool.evicted for pool in memory.pools)
    return found
