"""What a replay is told, and what it finds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, Literal

from kvreport.errors import InputError
from kvreport.traffic.memory import HostTier

Scheduler = Literal["vllm", "sglang"]

MAX_SAMPLES: Final = 2048
"""Points kept of the course over time; when there are more, every second one is dropped."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How a trace is replayed.

    Attributes:
        scheduler: Whose rules admit and preempt.
        max_seqs: Most requests that run at once (``--max-num-seqs``, ``--max-running-requests``).
        max_batched_tokens: Tokens of one step (``--max-num-batched-tokens``, ``--chunked-prefill-size``).
        host: Cache in host memory, or None.
        time_to_live_s: Seconds after its release at which a cached block expires; None: never.
        speed: Arrival-rate multiplier over the trace.
        closed_loop: True if a session's next request waits for the answer before and its think time.
    """

    scheduler: Scheduler = "vllm"
    max_seqs: int = 256
    max_batched_tokens: int = 8192
    host: HostTier | None = None
    time_to_live_s: float | None = None
    speed: float = 1.0
    closed_loop: bool = False

    def __post_init__(self) -> None:
        """Refuse what no engine accepts."""
        for name, value, low in (
            ("max-seqs", self.max_seqs, 1),
            ("max-batched-tokens", self.max_batched_tokens, 1),
        ):
            if value < low:
                raise InputError(f"{name}: found {value}; allowed: a whole number from {low}")
        if not 0 < self.speed < math.inf:
            raise InputError(f"speed: found {self.speed}; allowed: a factor above 0")
        if self.time_to_live_s is not None and not self.time_to_live_s > 0:
            raise InputError(f"time to live: found {self.time_to_live_s}; allowed: seconds above 0")


@dataclass(frozen=True, slots=True)
class Sample:
    """The replica at one moment.

    Attributes:
        time_s: Seconds since the trace began.
        running: Requests that run.
        waiting: Requests that wait.
        used: Blocks of each pool that running requests hold.
        cached: Blocks of each pool that are cached and held by nobody.
        resident_contexts: Ended requests whose whole context is still cached.
        preemptions: Preemptions so far.
    """

    time_s: float
    running: int
    waiting: int
    used: tuple[int, ...]
    cached: tuple[int, ...]
    resident_contexts: int
    preemptions: int


@dataclass(slots=True)
class ReplayResult:
    """What a replay found. Times are seconds, tokens are of the whole trace.

    Attributes:
        requests: Requests served to their end.
        refused: Requests that no pool could hold.
        seconds: Time of the last end.
        steps: Scheduler steps.
        prompt_tokens: Prompt tokens of served requests.
        hit_tokens: Of these, tokens found in the cache at first admission; those from the host included.
        host_tokens: Tokens that came from the host, at any admission.
        prefilled_tokens: Tokens prefilled, again after preemptions too.
        output_tokens: Tokens generated.
        preemptions: Requests taken out while they ran.
        preempted_requests: Requests taken out at least once.
        recomputed_tokens: Tokens prefilled again because of preemptions.
        peak_running: Most requests that ran at once.
        mean_running: Requests that ran, averaged over time.
        peak_waiting: Most requests that waited at once.
        wait_s: Seconds from arrival to first admission, one per request.
        first_token_s: Seconds from arrival to the first token, one per request.
        end_to_end_s: Seconds from arrival to the end, one per request.
        peak_used: Most blocks of each pool ever held.
        evicted: Blocks of each pool evicted to make room.
        blocked_by: Times that a pool kept the first waiting request out, by pool; ``max_seqs`` likewise.
        idle_lifetimes_s: Seconds from a request's end until the first block of its context was evicted.
        peak_resident_contexts: Most ended requests whose whole context was cached at once.
        samples: The course over time.
    """

    requests: int = 0
    refused: int = 0
    seconds: float = 0.0
    steps: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    host_tokens: int = 0
    prefilled_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    preempted_requests: int = 0
    recomputed_tokens: int = 0
    peak_running: int = 0
    mean_running: float = 0.0
    peak_waiting: int = 0
    wait_s: list[float] = field(default_factory=list)
    first_token_s: list[float] = field(default_factory=list)
    end_to_end_s: list[float] = field(default_factory=list)
    peak_used: tuple[int, ...] = ()
    evicted: tuple[int, ...] = ()
    blocked_by: dict[str, int] = field(default_factory=dict)
    idle_lifetimes_s: list[float] = field(default_factory=list)
    peak_resident_contexts: int = 0
    samples: list[Sample] = field(default_factory=list)

    @property
    def hit_rate(self) -> float:
        """Hit tokens over prompt tokens."""
        return self.hit_tokens / max(self.prompt_tokens, 1)
