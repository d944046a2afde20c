"""Continuous batching, step by step: who runs, who waits, who is preempted, and what it wastes.

A small deterministic simulation of one replica. All requests are there from the start, so the
answer is the busy server's: the batch it sustains, not a queue's waiting time. Between two events
(a request ends, or memory runs out) nothing changes but lengths, so the simulation jumps from event
to event and sums what lies between in closed form; ten thousand requests take well under a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from kvreport.accounting import roofline
from kvreport.accounting.demand import Demand
from kvreport.accounting.numeric import Integers
from kvreport.accounting.paging import page_steps, pages
from kvreport.accounting.roofline import Peaks
from kvreport.errors import InputError

DecodeSeconds = Callable[[int, npt.NDArray[np.float64]], npt.NDArray[np.float64]]
"""Seconds of one decode step, from the batch and the mean context (an array of steps)."""

PrefillSeconds = Callable[[int], float]
"""Seconds to prefill so many tokens."""

_LONGEST_JUMP: Final = 4096


def at_best(demand: Demand, peaks: Peaks) -> tuple[DecodeSeconds, PrefillSeconds]:
    """Step times for :func:`simulate` from the roofline: its throughput is then an upper bound."""

    def decode(batch: int, mean_context: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return roofline.decode(demand, peaks, batch, mean_context.astype(np.int64)).seconds

    def prefill(tokens: int) -> float:
        return float(roofline.prefill(demand, peaks, tokens).seconds)

    return decode, prefill


@dataclass(frozen=True, slots=True)
class Allocator:
    """How a server hands out memory."""

    # ``static``: a batch with a stretch of the maximum for each, and no newcomer before all have ended.
    # ``contiguous``: the same stretches, refilled one by one. ``paged``: pages as requests grow.
    kind: Literal["static", "contiguous", "paged"]
    page_tokens: int = 16  # Tokens per page.
    watermark: float = 0.0  # Share of the pages that must stay free when a request is admitted.


@dataclass(slots=True)
class SimulatedRun:
    """What a simulation found, in sums over its decode steps."""

    output_tokens: int  # Tokens written for requests that ended.
    pool_tokens: int  # Tokens of the pool's whole pages.
    steps: int = 0  # Decode steps.
    seconds: float = 0.0  # Time of all steps and prefills; the number of steps if no step time was given.
    running: int = 0  # Requests in the batch.
    peak_running: int = 0  # The largest batch.
    preemptions: int = 0  # Requests preempted to make room, each recomputed later.
    recomputed_tokens: int = 0  # Tokens prefilled a second time because of that.
    stored: int = 0  # Tokens that the pool held.
    occupied: int = 0  # Tokens of the pool that were set aside.

    @property
    def mean_running(self) -> float:
        """Requests in the batch, averaged over steps."""
        return self.running / max(self.steps, 1)

    @property
    def stored_share(self) -> float:
        """Share of the pool that held tokens, averaged over steps."""
        return self.stored / (self.pool_tokens * max(self.steps, 1))

    @property
    def occupied_share(self) -> float:
        """Share of the pool that was set aside, averaged over steps."""
        return self.occupied / (self.pool_tokens * max(self.steps, 1))

    @property
    def waste_share(self) -> float:
        """Share of the set-aside memory that held nothing."""
        return 1 - self.stored_share / self.occupied_share if self.occupied_share else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Throughput; an upper bound when step times are lower bounds."""
        return self.output_tokens / self.seconds if self.seconds else 0.0


def simulate(
    prompt_tokens: npt.ArrayLike,
    output_tokens: npt.ArrayLike,
    allocator: Allocator,
    *,
    pool_tokens: int,
    maximum_tokens: int,
    max_seqs: int = 256,
    decode_seconds: DecodeSeconds | None = None,
    prefill_seconds: PrefillSeconds | None = None,
) -> SimulatedRun:
    """Serve all requests, first come first served, and report what happened.

    Prefill writes the first output token; every decode step writes one more for each running
    request and stores the token before. When pages run out, the request admitted last is thrown
    out and starts over, its written tokens now part of its prompt.

    Args:
        prompt_tokens: Prompt lengths, in order of arrival.
        output_tokens: Output lengths, each at least 1.
        allocator: How memory is handed out.
        pool_tokens: Tokens that the cache has room for.
        maximum_tokens: Longest request allowed; what a stretch reserves.
        max_seqs: Largest batch.
        decode_seconds: Time of a step; None counts steps.
        prefill_seconds: Time of a prefill; None counts nothing.

    Raises:
        InputError: If one request alone does not fit the pool or the maximum.
    """
    server = _Server(
        np.asarray(prompt_tokens, dtype=np.int64),
        np.asarray(output_tokens, dtype=np.int64),
        allocator,
        pool_tokens,
        maximum_tokens,
        max_seqs,
    )
    run = SimulatedRun(output_tokens=int(server.left.sum()), pool_tokens=server.cells * server.page)
    while server.waiting or server.running:
        lost = server.make_room()
        run.preemptions += len(lost)
        run.recomputed_tokens += sum(lost)
        # A request that was just preempted is not admitted again before something has changed.
        for tokens in server.admit() if not lost else ():
            run.seconds += prefill_seconds(tokens) if prefill_seconds else 0.0
        server.finish()
        if not server.running:
            continue
        steps, contexts = server.jump(), server.context[server.running]
        batch = len(contexts)
        run.steps += steps
        run.running += batch * steps
        run.peak_running = max(run.peak_running, batch)
        run.stored += int(contexts.sum()) * steps + batch * steps * (steps + 1) // 2
        run.occupied += server.occupied_over(contexts, steps)
        if decode_seconds is None:
            run.seconds += steps
        else:
            mean = contexts.mean() + np.arange(1, steps + 1, dtype=np.float64)
            run.seconds += float(decode_seconds(batch, mean).sum())
        server.grow(steps)
        server.finish()
    return run


class _Server:
    """The state of the replica; ``context`` is what a request stores, ``left`` what it will write."""

    def __init__(
        self,
        prompt: Integers,
        output: Integers,
        allocator: Allocator,
        pool_tokens: int,
        maximum_tokens: int,
        max_seqs: int,
    ) -> None:
        if prompt.shape != output.shape or prompt.ndim != 1 or not prompt.size:
            raise InputError("requests: found no or unequal lists of prompts and outputs")
        if (output < 1).any() or (prompt < 1).any():
            raise InputError("requests: every prompt and output needs at least 1 token")
        longest = int((prompt + output).max())
        if longest > maximum_tokens:
            raise InputError(
                f"requests: the longest has {longest:,} tokens, over the maximum of {maximum_tokens:,}; "
                "raise the maximum or shorten the lengths"
            )
        paged = allocator.kind == "paged"
        self.page = allocator.page_tokens if paged else 1
        self.cells = pool_tokens // self.page
        needed = int(pages(longest, self.page)) if paged else maximum_tokens
        if needed > self.cells:
            raise InputError(
                f"pool: {pool_tokens:,} tokens do not hold one request of "
                f"{longest if paged else maximum_tokens:,}; enlarge the pool or shorten the requests"
            )
        self.left, self.context = output.copy(), prompt.copy()
        self.allocator, self.stretch, self.max_seqs = allocator, maximum_tokens, max_seqs
        self.waiting, self.running = deque(range(len(prompt))), list[int]()

    def occupied(self, contexts: Integers) -> int:
        """Cells (pages, or tokens of stretches) that these requests hold."""
        if self.allocator.kind == "paged":
            return int(pages(contexts, self.allocator.page_tokens).sum())
        return self.stretch * len(contexts)

    def occupied_over(self, contexts: Integers, steps: int) -> int:
        """Tokens that these requests hold in cells, summed over so many steps."""
        if self.allocator.kind != "paged":
            return self.stretch * len(contexts) * steps
        grown = page_steps(contexts + steps, self.page) - page_steps(contexts, self.page)
        return int(grown.sum()) * self.page

    def admit(self) -> list[int]:
        """Let waiting requests in while there is room; return the tokens each must prefill."""
        if self.allocator.kind == "static" and self.running:
            return []
        admitted: list[int] = []
        free = self.cells - self.occupied(self.context[self.running] + 1)
        reserve = int(self.cells * self.allocator.watermark)
        while self.waiting and len(self.running) < self.max_seqs:
            first = self.waiting[0]
            need = self.occupied(self.context[[first]] + 1)
            if need > free - (reserve if self.running else 0):
                break
            free -= need
            self.running.append(self.waiting.popleft())
            # The prefill's own step writes the next token.
            self.left[first] -= 1
            admitted.append(int(self.context[first]))
        return admitted

    def finish(self) -> None:
        """Let requests go that have nothing left to write."""
        self.running = [i for i in self.running if self.left[i] > 0]

    def make_room(self) -> list[int]:
        """Throw out the youngest until all others can store one more token."""
        lost: list[int] = []
        while self.occupied(self.context[self.running] + 1) > self.cells:
            last = self.running.pop()
            lost.append(int(self.context[last]) + 1)
            # The token it had just written is recomputed with the rest.
            self.context[last] += 1
            self.waiting.appendleft(last)
        return lost

    def jump(self) -> int:
        """The most steps that pass without an event."""
        high = min(int(self.left[self.running].min()), _LONGEST_JUMP)
        if self.allocator.kind != "paged":
            return high
        contexts = self.context[self.running]
        low = 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.occupied(contexts + middle) <= self.cells:
                low = middle
            else:
                high = middle - 1
        return low

    def grow(self, steps: int) -> None:
        """Let ``steps`` steps pass."""
        self.context[self.running] += steps
        self.left[self.running] -= steps
