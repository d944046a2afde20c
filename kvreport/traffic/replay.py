"""Replay a trace on one replica: who runs, who waits, who is preempted, what is found in the cache.

The scheduler is the engine's:

- ``vllm``: every step serves all decodes and as many prefill tokens as the step has left (chunked prefill). A
  request is admitted first come, first served, if its whole prompt fits the blocks that nobody holds
  (``scheduler_reserve_full_isl``). When a block is missing, the request admitted last is preempted, goes to
  the front of the queue and is prefilled again (vLLM 0.33.0, ``v1/core/sched/scheduler.py::schedule``).
- ``sglang``: prefill steps come before decode steps. A request is admitted if its prompt and a share of all
  outputs still to come fit (``new_token_ratio``: from 0.7 down to 0.098 over 600 decode steps). When tokens are
  missing, the requests with the fewest generated tokens are retracted until 20 steps fit (SGLang 0.5.23,
  ``managers/schedule_policy.py::PrefillAdder``, ``managers/schedule_batch.py::retract_decode``,
  ``managers/scheduler_components/new_token_ratio_tracker.py``).

Between two events (an arrival, an end, a missing block) decode steps change nothing but lengths, so they are
taken in one jump. A request that no pool could ever hold alone is refused, as engines refuse it.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from kvreport.traffic.block_pools import Pools
from kvreport.traffic.memory import CacheMemory, Running
from kvreport.traffic.results import MAX_SAMPLES, ReplayOptions, ReplayResult, Sample
from kvreport.traffic.timing import StepClock
from kvreport.traffic.trace import Trace

# SGLang 0.5.23, ``environ.py`` and ``managers/schedule_policy.py``.
_RATIO_AT_FIRST: Final = 0.7
_RATIO_AT_LEAST: Final = 0.7 * 0.14
_RATIO_STEPS: Final = 600
_RETRACT_STEPS: Final = 20
_CLIP_NEW_TOKENS: Final = 4096


def replay_trace(
    trace: Trace,
    pools: Pools,
    clock: StepClock,
    options: ReplayOptions | None = None,
    *,
    watch: Callable[[CacheMemory, Sequence[Running]], None] | None = None,
) -> ReplayResult:
    """Replay a trace on one replica.

    ``watch`` is called after every step with the memory and the running requests, for tests.

    Returns:
        Counts, times and the course over time.
    """
    replica = _Replica(trace, pools, clock, options or ReplayOptions())
    replica.watch = watch
    return replica.run()


class _Replica:
    """One replica during a replay."""

    def __init__(self, trace: Trace, pools: Pools, clock: StepClock, options: ReplayOptions) -> None:
        self.trace, self.pools, self.clock, self.options = trace, pools, clock, options
        self.memory = CacheMemory(trace, pools, host=options.host, time_to_live_s=options.time_to_live_s)
        self.result = ReplayResult(blocked_by={spec.name: 0 for spec in pools.pools} | {"max_seqs": 0})
        self.now, self.step = 0.0, 0
        self.waiting: deque[int] = deque()
        self.prefilling: list[Running] = []
        self.decoding: dict[int, Running] = {}
        self.ends: list[tuple[int, int, Running]] = []
        self.contexts = 0
        self.generated: dict[int, int] = {}
        self.arrived: dict[int, float] = {}
        self.reached: dict[int, int] = {}
        self.started: set[int] = set()
        self.admissions = 0
        self.ratio = _RATIO_AT_FIRST
        self.busy_requests = 0.0
        self.kinds = [(one.kind.block_tokens, one.kind.blocks, one.kind.pool) for one in self.memory.full]
        self.most = sum(blocks for _, blocks, _ in self.kinds)
        self.phases = [[0] * unit for unit, _, _ in self.kinds]
        self.every, self.skipped = 1, 0
        self.changes, self.known_state, self.known_need = 0, (-1, 0, 0), [0]
        self.watch: Callable[[CacheMemory, Sequence[Running]], None] | None = None
        self.arrivals, self.after = _arrivals(trace, options)
        self.block_bytes = pools.pools[0].block_bytes

    # --- the loop --------------------------------------------------------------------------------

    def run(self) -> ReplayResult:
        """Serve all requests."""
        step = self._vllm_step if self.options.scheduler == "vllm" else self._sglang_step
        while self.arrivals or self.waiting or self.prefilling or self.decoding:
            self._arrive()
            if not (self.waiting or self.prefilling or self.decoding):
                if self.arrivals:
                    self.now = max(self.now, self.arrivals[0][0])
                continue
            step()
            self.result.steps += 1
            self._sample()
            if self.watch is not None:
                self.watch(self.memory, [*self.prefilling, *self.decoding.values()])
        return self._finished()

    def _arrive(self) -> None:
        while self.arrivals and self.arrivals[0][0] <= self.now:
            moment, request = heapq.heappop(self.arrivals)
            self.arrived[request] = moment
            if self._too_large(request):
                self.result.refused += 1
                self._next_turn(request, moment)
            else:
                self.waiting.append(request)
        if len(self.waiting) > self.result.peak_waiting:
            self.result.peak_waiting, self.result.peak_waiting_s = len(self.waiting), self.now

    def _too_large(self, request: int) -> bool:
        tokens = self.trace.prompt_tokens[request] + max(self.trace.output_tokens[request] - 1, 0)
        return any(
            self.pools.request_blocks(tokens, index) > spec.blocks
            for index, spec in enumerate(self.pools.pools)
        )

    def _next_turn(self, request: int, moment: float) -> None:
        after = self.after.get(request)
        if after is not None:
            think = self.trace.think_s[after]
            heapq.heappush(self.arrivals, (moment + (0.0 if math.isnan(think) else think), after))

    # --- vLLM ------------------------------------------------------------------------------------

    def _vllm_step(self) -> None:
        lost = self._ensure_decode_room()
        budget = self.options.max_batched_tokens - len(self.decoding)
        chunks: list[tuple[Running, int]] = []
        for run in list(self.prefilling):
            tokens = min(run.prompt - run.stored, budget)
            if tokens <= 0 or run not in self.prefilling:
                continue
            preempted = self._ensure_prefill_room(run, run.stored + tokens)
            lost += preempted
            if run in self.prefilling:
                budget -= tokens
                chunks.append((run, tokens))
                self._store(run, run.stored + tokens)
            elif not preempted:
                break
        if not lost:
            while self.waiting and budget > 0:
                admitted = self._admit(self.waiting[0], budget)
                if admitted is None:
                    break
                self.waiting.popleft()
                run, tokens = admitted
                budget -= tokens
                chunks.append((run, tokens))
        kept = [(run, tokens) for run, tokens in chunks if run in self.prefilling]
        self._advance(kept, decodes=True)

    def _ensure_decode_room(self) -> int:
        """Preempt the last admitted until every decode can store one more token."""
        lost = 0
        if all(pool.blocks - pool.used >= len(self.decoding) * self.most for pool in self.memory.pools):
            return 0
        while self.decoding and not self._fits(self._decode_blocks(1)):
            self._preempt(self._last())
            lost += 1
        return lost

    def _ensure_prefill_room(self, run: Running, tokens: int) -> int:
        """Preempt the last admitted until a chunk fits beside this step's decodes."""
        lost = 0
        while True:
            need = [
                more + own
                for more, own in zip(
                    self._decode_blocks(1), self.memory.growth_blocks(run, tokens), strict=True
                )
            ]
            if self._fits(need):
                return lost
            victim = self._last()
            self._preempt(victim)
            lost += 1
            if victim is run:
                return lost

    def _last(self) -> Running:
        candidates = [
            *self.prefilling[-1:],
            *([next(reversed(self.decoding.values()))] if self.decoding else []),
        ]
        return max(candidates, key=lambda run: run.order)

    def _fits(self, need: Sequence[float]) -> bool:
        for pool, more in zip(self.memory.pools, need, strict=True):
            if pool.blocks - pool.used < more:
                return False
        return True

    # --- SGLang ----------------------------------------------------------------------------------

    def _sglang_step(self) -> None:
        budget = self.options.max_batched_tokens
        chunks: list[tuple[Running, int]] = []
        for run in self.prefilling[:1]:
            tokens = min(run.prompt - run.stored, budget)
            need = self.memory.growth_blocks(run, run.stored + tokens)
            if tokens and self._fits(need):
                self._store(run, run.stored + tokens)
                chunks.append((run, tokens))
                budget -= tokens
        while self.waiting and budget > 0 and not (self.prefilling and not chunks):
            admitted = self._admit(self.waiting[0], budget, reserve=self._outputs_to_come)
            if admitted is None:
                break
            self.waiting.popleft()
            run, tokens = admitted
            budget -= tokens
            chunks.append((run, tokens))
        if chunks:
            self._advance(chunks, decodes=False)
            return
        if self.decoding and not self._fits(self._decode_blocks(1)):
            self._retract()
        elif not self.decoding and self.prefilling:
            # A chunk that cannot go on, and nobody who would end: the request gives its room back.
            self._preempt(self.prefilling[-1])
        self._advance([], decodes=True)

    def _outputs_to_come(self, run: Running) -> int:
        """Tokens that SGLang keeps free: a share of what running requests may generate, all of the new one's."""
        running = sum(min(self._left(one), _CLIP_NEW_TOKENS) for one in self.decoding.values())
        running += sum(min(one.left, _CLIP_NEW_TOKENS) for one in self.prefilling)
        return int(running * self.ratio) + min(run.left, _CLIP_NEW_TOKENS)

    def _left(self, run: Running) -> int:
        return run.left - (self.step - run.decoding_since)

    def _retract(self) -> None:
        """Retract the requests with the fewest generated tokens until 20 steps fit."""
        trace = self.trace
        order = sorted(
            self.decoding.values(),
            key=lambda run: (
                trace.output_tokens[run.request] - self._left(run),
                -trace.prompt_tokens[run.request],
            ),
            reverse=True,
        )
        while len(order) > 1:
            self._preempt(order.pop(), front=False)
            if self._fits([len(self.decoding) * _RETRACT_STEPS * each for each in self._blocks_per_token()]):
                break
        done = sum(trace.output_tokens[run.request] - self._left(run) for run in order)
        total = sum(trace.output_tokens[run.request] for run in order)
        self.ratio = min(1.0, (done + _RETRACT_STEPS * len(order)) / (total + 1))

    def _blocks_per_token(self) -> list[float]:
        each = [0.0] * len(self.pools.pools)
        for unit, blocks, pool in self.kinds:
            each[pool] += blocks / unit
        return each

    # --- what both do ----------------------------------------------------------------------------

    def _admit(
        self, request: int, budget: int, reserve: Callable[[Running], int] | None = None
    ) -> tuple[Running, int] | None:
        """Admit one request if it fits; return it and the tokens of its first chunk."""
        if len(self.decoding) + len(self.prefilling) >= self.options.max_seqs:
            self.result.blocked_by["max_seqs"] += 1
            return None
        self.memory.now = self.now
        run = self.memory.start(request, self.generated.get(request, 0))
        found = self.memory.find(run)
        need = self.memory.admission_blocks(run, found, run.prompt)
        pending = self._pending_prefill()
        future = 0 if reserve is None else reserve(run)
        per_token = self._blocks_per_token() if future else [0.0] * len(need)
        ahead = self._decode_blocks(1)
        alone = not self.decoding and not self.prefilling
        for index, pool in enumerate(self.memory.pools):
            extra = 0 if alone else ahead[index] + (pending[index] if reserve is not None else 0)
            room = pool.available - need[index] - extra
            if room < (0 if alone else per_token[index] * future):
                self.result.blocked_by[self.pools.pools[index].name] += 1
                return None
        self._enter(run, found)
        tokens = min(run.prompt - run.stored, budget)
        if tokens:
            self._store(run, run.stored + tokens)
        return run, tokens

    def _pending_prefill(self) -> list[int]:
        need = [0] * len(self.memory.pools)
        for run in self.prefilling:
            for index, more in enumerate(self.memory.growth_blocks(run, run.prompt)):
                need[index] += more
        return need

    def _enter(self, run: Running, found: tuple[int, int, int]) -> None:
        self.memory.admit(run, found)
        run.order = self.admissions
        self.admissions += 1
        self.prefilling.append(run)
        running = len(self.prefilling) + len(self.decoding)
        if running > self.result.peak_running:
            self.result.peak_running, self.result.peak_running_s = running, self.now
        self.result.host_tokens += run.loaded
        if run.request not in self.reached:
            self.result.hit_tokens += run.hit
            self.result.wait_s.append(self.now - self.arrived[run.request])
        else:
            # What of the prompt was never prefilled before the preemption is no second time.
            fresh = max(self.trace.prompt_tokens[run.request] - max(self.reached[run.request], run.hit), 0)
            self.result.recomputed_tokens += run.prompt - run.hit - fresh

    def _store(self, run: Running, tokens: int) -> None:
        self.memory.now = self.now
        self.result.prefilled_tokens += tokens - run.stored
        self.memory.grow(run, tokens)

    def _advance(self, chunks: list[tuple[Running, int]], *, decodes: bool) -> None:
        """Let time pass: one step with prefills, or as many decode steps as pass without an event."""
        batch = len(self.decoding) if decodes else 0
        mean = self.contexts / batch if batch else 0.0
        steps = 1
        if not chunks and batch:
            steps = self._jump(batch, mean)
        mean += (steps - 1) / 2
        spent = (
            self.clock.seconds(batch, mean, [(tokens, run.stored - tokens) for run, tokens in chunks]) * steps
        )
        host = self.options.host
        if host is not None:
            loaded = sum(run.loaded for run, tokens in chunks if run.stored - tokens == run.hit)
            if loaded:
                spent = max(spent, loaded * self._blocks_per_token()[0] * self.block_bytes / host.bytes_per_s)
        if batch:
            for (_, _, pool), more in zip(self.kinds, self._phase_blocks(steps), strict=True):
                if more:
                    self.memory.allocate(pool, more)
            self.step += steps
            self.contexts += batch * steps
            self.ratio = max(
                self.ratio - steps * (_RATIO_AT_FIRST - _RATIO_AT_LEAST) / _RATIO_STEPS, _RATIO_AT_LEAST
            )
        self.busy_requests += spent * (len(self.prefilling) + len(self.decoding))
        self.now += spent
        self._end_decodes()
        for run, _ in chunks:
            if run.stored >= run.prompt:
                self._first_token(run)

    def _jump(self, batch: int, mean: float) -> int:
        """The most decode steps that pass without an event."""
        steps = self.ends[0][0] - self.step
        need = self._decode_blocks(steps)
        if not self._fits(need):
            low = 1
            while low < steps:
                middle = (low + steps + 1) // 2
                if self._fits(self._decode_blocks(middle)):
                    low = middle
                else:
                    steps = middle - 1
            steps = low
        if self.arrivals and not (self.waiting and self.options.scheduler == "vllm"):
            each = self.clock.seconds(batch, mean + steps / 2, [])
            if each > 0:
                steps = min(steps, math.ceil((self.arrivals[0][0] - self.now) / each))
        if self.waiting and self.options.scheduler == "sglang":
            # The share of outputs that is kept free falls with every step, so the queue is looked at again.
            steps = min(steps, 10)
        return max(steps, 1)

    def _phase_blocks(self, steps: int) -> list[int]:
        """Pool blocks of each kind that all decodes take in the next steps."""
        found = []
        for (unit, blocks, _), phase in zip(self.kinds, self.phases, strict=True):
            cycles, rest = divmod(steps, unit)
            count = cycles * len(self.decoding)
            if rest:
                # A request whose phase is p starts a block at every step s with (p + s) % unit == 0.
                high = -self.step % unit
                low = high - rest + 1
                count += sum(phase[max(low, 0) : high + 1])
                if low < 0:
                    count += sum(phase[low:])
            found.append(count * blocks)
        return found

    def _decode_blocks(self, steps: int) -> list[int]:
        """Blocks of each pool that all decodes take in the next steps."""
        state = (self.step, steps, self.changes)
        if state != self.known_state:
            need = [0] * len(self.memory.pools)
            if self.decoding:
                for (_, _, pool), more in zip(self.kinds, self._phase_blocks(steps), strict=True):
                    need[pool] += more
            self.known_state, self.known_need = state, need
        return self.known_need

    def _first_token(self, run: Running) -> None:
        """A prefill has ended and with it the first token is there."""
        self.prefilling.remove(run)
        if run.request not in self.started:
            self.started.add(run.request)
            self.result.first_token_s.append(self.now - self.arrived[run.request])
        run.left -= 1
        if run.left <= 0:
            self._end(run)
            return
        run.decoding_since = self.step
        if self.memory.other:
            self.memory.settle(run)
        for (unit, _, _), phase in zip(self.kinds, self.phases, strict=True):
            phase[(run.stored - self.step) % unit] += 1
        self.contexts += run.stored
        self.decoding[run.request] = run
        self.changes += 1
        heapq.heappush(self.ends, (self.step + run.left, run.order, run))

    def _settle(self, run: Running) -> None:
        """Bring a decoding request's record up to the present step."""
        steps = self.step - run.decoding_since
        del self.decoding[run.request]
        self.changes += 1
        for (unit, _, _), phase in zip(self.kinds, self.phases, strict=True):
            phase[(run.stored - run.decoding_since) % unit] -= 1
        run.stored += steps
        run.left -= steps
        self.contexts -= run.stored
        for resident in self.memory.full:
            unit, index = resident.kind.block_tokens, resident.index
            units = -(-run.stored // unit)
            run.private[index] += (units - run.units[index]) * resident.kind.blocks
            run.units[index] = units

    def _end_decodes(self) -> None:
        while self.ends and self.ends[0][0] <= self.step:
            _, _, run = heapq.heappop(self.ends)
            if self.decoding.get(run.request) is run:
                self._settle(run)
                self._end(run)

    def _end(self, run: Running) -> None:
        self.memory.now = self.now
        self.memory.settle(run)
        self.memory.leave(run, keep_outputs=True)
        result, trace = self.result, self.trace
        result.requests += 1
        result.prompt_tokens += trace.prompt_tokens[run.request]
        result.output_tokens += trace.output_tokens[run.request]
        result.end_to_end_s.append(self.now - self.arrived[run.request])
        result.peak_resident_contexts = max(result.peak_resident_contexts, self.memory.resident_contexts)
        self._next_turn(run.request, self.now)

    def _preempt(self, run: Running, *, front: bool = True) -> None:
        """Take a running request out; it is prefilled again from what is still cached."""
        self.memory.now = self.now
        if run.request in self.decoding:
            self._settle(run)
        else:
            self.prefilling.remove(run)
        result = self.result
        result.preemptions += 1
        total = self.trace.output_tokens[run.request]
        result.preempted_requests += run.request not in self.reached
        self.reached[run.request] = max(self.reached.get(run.request, 0), run.stored)
        self.generated[run.request] = total - run.left
        self.memory.leave(run, keep_outputs=False)
        if front:
            self.waiting.appendleft(run.request)
        else:
            self.waiting.append(run.request)

    # --- the course over time --------------------------------------------------------------------

    def _sample(self) -> None:
        self.skipped += 1
        if self.skipped < self.every:
            return
        self.skipped = 0
        pools = self.memory.pools
        self.result.samples.append(
            Sample(
                self.now,
                len(self.prefilling) + len(self.decoding),
                len(self.waiting),
                tuple(pool.used for pool in pools),
                tuple(pool.cached for pool in pools),
                self.memory.resident_contexts,
                self.result.preemptions,
            )
        )
        if len(self.result.samples) >= MAX_SAMPLES:
            del self.result.samples[::2]
            self.every *= 2

    def _finished(self) -> ReplayResult:
        result = self.result
        result.seconds = self.now
        result.mean_running = self.busy_requests / self.now if self.now else 0.0
        result.peak_used = tuple(pool.peak_used for pool in self.memory.pools)
        result.evicted = tuple(pool.evicted for pool in self.memory.pools)
        result.idle_lifetimes_s = self.memory.lifetimes
        return result


def _arrivals(trace: Trace, options: ReplayOptions) -> tuple[list[tuple[float, int]], dict[int, int]]:
    """Arrivals as a heap, and for a closed loop the request that follows another in its session."""
    times = [(moment / options.speed, row) for row, moment in enumerate(trace.arrival_s)]
    if not options.closed_loop:
        return times, {}
    after: dict[int, int] = {}
    first: list[tuple[float, int]] = []
    last: dict[int, int] = {}
    for moment, row in times:
        session = trace.session[row]
        if session < 0 or session not in last:
            first.append((moment, row))
        else:
            after[last[session]] = row
        if session >= 0:
            last[session] = row
    return first, after
