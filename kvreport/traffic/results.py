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
    """How a trace is replayed."""

    scheduler: Scheduler = "vllm"  # Whose rules admit and preempt.
    max_seqs: int = 256  # Most requests that run at once (``--max-num-seqs``, ``--max-running-requests``).
    # Tokens of one step (``--max-num-batched-tokens``, ``--chunked-prefill-size``).
    max_batched_tokens: int = 8192
    host: HostTier | None = None  # Cache in host memory, or None.
    # Seconds after its release at which a cached block expires; None: never.
    time_to_live_s: float | None = None
    speed: float = 1.0  # Arrival-rate multiplier over the trace.
    # True if a session's next request waits for the answer before and its think time.
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
    """The replica at one moment."""

    time_s: float  # Seconds since the trace began.
    running: int  # Requests that run.
    waiting: int  # Requests that wait.
    used: tuple[int, ...]  # Blocks of each pool that running requests hold.
    cached: tuple[int, ...]  # Blocks of each pool that are cached and held by nobody.
    resident_contexts: int  # Ended requests whose whole context is still cached.
    preemptions: int  # Preemptions so far.


@dataclass(slots=True)
class ReplayResult:
    """What a replay found. Times are seconds, tokens are of the whole trace."""

    requests: int = 0  # Requests served to their end.
    refused: int = 0  # Requests that no pool could hold.
    seconds: float = 0.0  # Time of the last end.
    steps: int = 0  # Scheduler steps.
    prompt_tokens: int = 0  # Prompt tokens of served requests.
    # Of these, tokens found in the cache at first admission; those from the host included.
    hit_tokens: int = 0
    host_tokens: int = 0  # Tokens that came from the host, at any admission.
    prefilled_tokens: int = 0  # Tokens prefilled, again after preemptions too.
    output_tokens: int = 0  # Tokens generated.
    preemptions: int = 0  # Requests taken out while they ran.
    preempted_requests: int = 0  # Requests taken out at least once.
    recomputed_tokens: int = 0  # Tokens prefilled again because of preemptions.
    peak_running: int = 0  # Most requests that ran at once.
    peak_running_s: float = 0.0  # When most ran.
    mean_running: float = 0.0  # Requests that ran, averaged over time.
    peak_waiting: int = 0  # Most requests that waited at once.
    peak_waiting_s: float = 0.0  # When most waited.
    # Seconds from arrival to first admission, one per request.
    wait_s: list[float] = field(default_factory=list)
    # Seconds from arrival to the first token, one per request.
    first_token_s: list[float] = field(default_factory=list)
    # Seconds from arrival to the end, one per request.
    end_to_end_s: list[float] = field(default_factory=list)
    peak_used: tuple[int, ...] = ()  # Most blocks of each pool ever held.
    evicted: tuple[int, ...] = ()  # Blocks of each pool evicted to make room.
    # Times that a pool kept the first waiting request out, by pool; ``max_seqs`` likewise.
    blocked_by: dict[str, int] = field(default_factory=dict)
    # Seconds from a request's end until the first block of its context was evicted.
    idle_lifetimes_s: list[float] = field(default_factory=list)
    peak_resident_contexts: int = 0  # Most ended requests whose whole context was cached at once.
    samples: list[Sample] = field(default_factory=list)  # The course over time.

    @property
    def hit_rate(self) -> float:
        """Hit tokens over prompt tokens."""
        return self.hit_tokens / max(self.prompt_tokens, 1)
