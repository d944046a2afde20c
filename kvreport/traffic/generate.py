"""Make a trace from distributions: sessions that share system prompts, take turns and think.

The same seed gives the same trace. A session's next prompt is its last prompt, the answer to it and new text, as
a chat client sends them, so its blocks go on from those before.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from random import Random

from kvreport.errors import InputError
from kvreport.traffic.trace import Trace, TracedRequest, build


@dataclass(frozen=True, slots=True)
class Workload:
    """Distributions of a generated trace. Lengths and waits are exponential around their means."""

    sessions: int = 1000  # Conversations.
    sessions_per_s: float = 1.0  # Rate at which they begin (Poisson).
    turns: float = 4.0  # Mean requests per session (geometric).
    system_prompts: int = 1  # Different system prompts; sessions choose evenly.
    system_prompt_tokens: int = 1024
    new_tokens: float = 400.0  # Mean tokens that a turn adds to the prompt.
    output_tokens: float = 250.0  # Mean tokens of an answer.
    think_s: float = 30.0  # Mean seconds between an answer and the next turn.
    answer_tokens_per_s: float = 40.0  # Speed of answers, which sets when the next turn can come.
    longest_tokens: int = 131_072  # A session ends before a prompt and its answer exceed so many tokens.
    block_tokens: int = 16  # Tokens of one prefix block of the trace.
    seed: int = 1  # Seed of the random numbers.

    def __post_init__(self) -> None:
        """Refuse values that make no trace."""
        lowest = {
            "system_prompt_tokens": 0,
            "think_s": 0,
            "seed": 0,
            "turns": 1,
            "new_tokens": 1,
            "output_tokens": 1,
        }
        for one in fields(self):
            value, low = getattr(self, one.name), lowest.get(one.name)
            wrong = value <= 0 if low is None else value < low
            if not math.isfinite(value) or wrong:
                allowed = "a number above 0" if low is None else f"a number from {low}"
                raise InputError(f"{one.name}: found {value}; allowed: {allowed}")
        if self.sessions * self.turns > 4_000_000:
            raise InputError(
                "sessions: found over 4,000,000 requests in all; allowed: fewer sessions or turns"
            )


def generate(workload: Workload, name: str = "generated") -> Trace:
    """Generate a trace; see :class:`Workload`."""
    return build(_in_order(workload), name=name, block_tokens=workload.block_tokens)


def _in_order(workload: Workload) -> Iterator[TracedRequest]:
    """Requests of all sessions, merged by time."""
    random = Random(workload.seed)  # noqa: S311 - a simulation
    sessions: list[tuple[float, int, Iterator[TracedRequest], TracedRequest]] = []
    start, begun = 0.0, 0
    while begun < workload.sessions or sessions:
        if begun < workload.sessions and (not sessions or start <= sessions[0][0]):
            turns = _session(workload, begun, start, Random(random.getrandbits(48)))  # noqa: S311
            first = next(turns, None)
            if first is not None:
                heapq.heappush(sessions, (first.arrival_s, begun, turns, first))
            begun += 1
            start += random.expovariate(workload.sessions_per_s)
            continue
        _, number, turns, request = heapq.heappop(sessions)
        yield request
        following = next(turns, None)
        if following is not None:
            heapq.heappush(sessions, (following.arrival_s, number, turns, following))


def _session(workload: Workload, number: int, start: float, random: Random) -> Iterator[TracedRequest]:
    size = workload.block_tokens
    system = random.randrange(workload.system_prompts)
    shared = workload.system_prompt_tokens // size
    moment, held, think = start, workload.system_prompt_tokens, None
    while True:
        prompt = held + _length(random, workload.new_tokens)
        output = _length(random, workload.output_tokens)
        if prompt + output > workload.longest_tokens:
            return
        blocks = [
            f"p{system}.{index}" if index < shared else f"s{number}.{index}"
            for index in range(prompt // size)
        ]
        yield TracedRequest(moment, prompt, output, blocks, f"s{number}", think)
        if random.random() >= 1 - 1 / workload.turns:
            return
        think = random.expovariate(1 / workload.think_s) if workload.think_s else 0.0
        moment += output / workload.answer_tokens_per_s + think
        held = prompt + output


def _length(random: Random, mean: float) -> int:
    return max(1, round(random.expovariate(1 / mean)))
