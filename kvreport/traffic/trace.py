"""The record of a trace: requests in order of arrival, and the prefix blocks that they share.

A trace names the leading blocks of each prompt by ids: equal ids after equal ids are equal text. Ids are
interned into the nodes of a prefix tree, so that a path of nodes is a prompt, and two prompts share exactly
their common path. A trace without ids shares nothing.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from kvreport.budgets import TRACE
from kvreport.errors import InputError, shorten
from kvreport.units import MAX_CONTEXT_TOKENS

MAX_NODES: Final = 1 << 24
"""Distinct prefix blocks that a trace may have: each takes about 150 bytes of memory."""

MAX_REQUESTS: Final = TRACE.rows
"""Requests that a trace may have."""

MAX_BLOCKS: Final = 1 << 20
"""Prefix blocks that one prompt may have: 16 million tokens in blocks of 16."""

MAX_PATHS: Final = 1 << 27
"""Prefix blocks of all prompts together: each takes 8 bytes. A line of ranges may name a million."""

Arrivals = Literal["recorded", "rate", "at_once", "sessions_at_once"]
"""Where the times of a trace come from: the file, a stated rate, or nowhere."""


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """One request of a trace."""

    arrival_s: float  # Seconds since the trace began.
    prompt_tokens: int  # Tokens of the prompt, the shared prefix included.
    output_tokens: int  # Tokens that the request generates.
    # Ids of the prompt's leading blocks, outermost first; empty where the trace has none.
    blocks: Sequence[int | str] = ()
    session: str | None = None  # Conversation that the request belongs to; None where the trace does not say.
    # Seconds between the answer before and this request, within a session; None where the trace does not say.
    think_s: float | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace in columns. Build it with :func:`build`."""

    name: str  # What the trace is called.
    block_tokens: int  # Tokens of one prefix block; 0 where the trace has no block ids.
    arrival_s: array[float] = field(repr=False)  # Seconds since the trace began, ascending.
    prompt_tokens: array[int] = field(repr=False)  # Prompt lengths.
    output_tokens: array[int] = field(repr=False)  # Output lengths.
    # Session number of each request; -1 where the trace has no sessions.
    session: array[int] = field(repr=False)
    # Think time before each request; NaN where the trace does not say.
    think_s: array[float] = field(repr=False)
    nodes: array[int] = field(repr=False)  # Nodes of all paths, one after the other.
    # Where the path of each request starts in ``nodes``; one more than there are requests.
    starts: array[int] = field(repr=False)
    num_nodes: int = 0  # Distinct prefix blocks.
    reordered: int = 0  # Requests that had to be moved because their times were not ascending.
    outputs_named: bool = False  # True if paths go on behind the prompts (:func:`with_outputs`).
    arrivals: Arrivals = "recorded"  # Where the times come from.

    def __len__(self) -> int:
        """The number of requests."""
        return len(self.prompt_tokens)

    @property
    def shares_prefixes(self) -> bool:
        """True if the trace names prefix blocks."""
        return self.block_tokens > 0

    @property
    def duration_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return self.arrival_s[-1] - self.arrival_s[0] if len(self) else 0.0

    def path(self, request: int) -> array[int]:
        """The prefix-tree nodes of one request's prompt."""
        return self.nodes[self.starts[request] : self.starts[request + 1]]


def build(
    requests: Iterable[TracedRequest],
    *,
    name: str,
    block_tokens: int = 0,
    limit: int | None = None,
    timed: bool = True,
    rate: float | None = None,
) -> Trace:
    """Build a trace from requests, interning prefix ids as they come.

    Only distinct blocks and one row per request are kept, whatever the size of what is read. Requests whose
    times are not ascending are sorted by time (stable), and counted.

    The trace is called ``name`` in messages. A ``rate`` in requests per second is for requests that are not ``timed``; without one
    all come at once. At most ``limit`` requests are read.

    Raises:
        InputError: If a request is impossible, the trace is empty or too large, or a rate is stated for a trace that
            has times.
    """
    if timed and rate is not None:
        raise InputError(
            f"rate: found {rate:g} for {name}, which states arrival times; allowed: a trace without times, or speed, "
            "which scales them"
        )
    rows = _Columns(name, block_tokens, None if timed else 1 / rate if rate else 0.0)
    for request in requests:
        rows.add(request)
        if limit is not None and len(rows.prompt) >= limit:
            break
    if not rows.prompt:
        raise InputError(f"{name}: found no request; allowed: at least 1")
    found = rows.trace()
    return found if timed else replace(found, arrivals="rate" if rate else "at_once")


class _Columns:
    """Columns under construction; ``gap_s`` seconds lie between requests that state no times."""

    def __init__(self, name: str, block_tokens: int, gap_s: float | None = None) -> None:
        if block_tokens < 0:
            raise InputError(f"{name}: block size: found {block_tokens}; allowed: 0 or more tokens")
        self.name, self.block_tokens, self.gap_s = name, block_tokens, gap_s
        self.arrival, self.prompt, self.output = array("d"), array("q"), array("q")
        self.session, self.nodes, self.starts = array("q"), array("q"), array("q", [0])
        self.think = array("d")
        self.tree: dict[tuple[int, int | str], int] = {}
        self.sessions: dict[str, int] = {}
        self.unordered = False

    def add(self, request: TracedRequest) -> None:
        row = len(self.prompt) + 1
        where = f"{self.name}: request {row:,}"
        _check_request(request, where)
        self._check_blocks(request, where)
        if row > MAX_REQUESTS:
            raise InputError(
                f"{self.name}: found more than {MAX_REQUESTS:,} requests; read fewer with a limit"
            )
        arrival = request.arrival_s if self.gap_s is None else (row - 1) * self.gap_s
        if self.arrival and arrival < self.arrival[-1]:
            self.unordered = True
        self.arrival.append(arrival)
        self.prompt.append(request.prompt_tokens)
        self.output.append(request.output_tokens)
        name = request.session
        self.session.append(-1 if name is None else self.sessions.setdefault(name, len(self.sessions)))
        self.think.append(math.nan if request.think_s is None else request.think_s)
        self._intern(request.blocks)
        self.starts.append(len(self.nodes))

    def _check_blocks(self, request: TracedRequest, where: str) -> None:
        count, tokens = len(request.blocks), self.block_tokens
        if not count:
            return
        if len(self.nodes) + count > MAX_PATHS:
            raise InputError(
                f"{self.name}: found more than {MAX_PATHS:,} block ids; read fewer requests with a limit"
            )
        if not tokens:
            raise InputError(f"{where}: found block ids; say how many tokens a block has (block size)")
        low, high = request.prompt_tokens // tokens, -(-request.prompt_tokens // tokens)
        if not low <= count <= high:
            raise InputError(
                f"{where}: found {count:,} block ids for a prompt of {request.prompt_tokens:,} tokens; "
                f"allowed: {low:,} to {high:,} blocks of {tokens} tokens"
            )

    def _intern(self, blocks: Sequence[int | str]) -> None:
        tree, append, parent = self.tree, self.nodes.append, -1
        for block in blocks:
            key = (parent, block)
            parent = tree.setdefault(key, len(tree))
            append(parent)
        if len(tree) > MAX_NODES:
            raise InputError(
                f"{self.name}: found more than {MAX_NODES:,} distinct blocks; read fewer requests with a limit"
            )

    def trace(self) -> Trace:
        made = Trace(
            name=self.name,
            block_tokens=self.block_tokens if len(self.nodes) else 0,
            arrival_s=self.arrival,
            prompt_tokens=self.prompt,
            output_tokens=self.output,
            session=self.session,
            think_s=self.think,
            nodes=self.nodes,
            starts=self.starts,
            num_nodes=len(self.tree),
        )
        return _sorted(made) if self.unordered else made


def _check_request(request: TracedRequest, where: str) -> None:
    if not math.isfinite(request.arrival_s) or request.arrival_s < 0:
        raise InputError(f"{where}: time: found {request.arrival_s}; allowed: seconds from 0")
    if request.think_s is not None and not 0 <= request.think_s < math.inf:
        raise InputError(f"{where}: think time: found {request.think_s}; allowed: seconds from 0")
    for label, tokens, low in (
        ("prompt tokens", request.prompt_tokens, 1),
        ("output tokens", request.output_tokens, 0),
    ):
        if not low <= tokens <= MAX_CONTEXT_TOKENS:
            raise InputError(
                f"{where}: {label}: found {shorten(tokens)}; "
                f"allowed: a whole number from {low} to {MAX_CONTEXT_TOKENS:,}"
            )


def _sorted(trace: Trace) -> Trace:
    """The same trace by time; equal times keep their order."""
    order = sorted(range(len(trace)), key=trace.arrival_s.__getitem__)
    moved = sum(1 for new, old in enumerate(order) if new != old)
    return replace(select(trace, order), reordered=moved)


def with_outputs(trace: Trace) -> Trace:
    """Name the blocks of outputs by the next prompt of the same session, where it goes on from them.

    A conversation's next prompt holds the answer before. Where the next prompt of a session begins with all of
    a request's full blocks and is longer, its further blocks, up to the end of the request's output, are the
    output's.
    """
    if not trace.shares_prefixes or max(trace.session, default=-1) < 0:
        return trace
    following = _next_in_session(trace)
    nodes, starts = array("q"), array("q", [0])
    size = trace.block_tokens
    for row in range(len(trace)):
        path = trace.path(row)
        after = following[row]
        if after >= 0:
            longer = trace.path(after)
            full = trace.prompt_tokens[row] // size
            known = (trace.prompt_tokens[row] + trace.output_tokens[row]) // size
            if known > full and longer[:full] == path[:full] and len(path) == full <= len(longer):
                path = longer[: min(known, len(longer))]
        nodes.extend(path)
        starts.append(len(nodes))
    return replace(trace, nodes=nodes, starts=starts, outputs_named=True)


def _next_in_session(trace: Trace) -> list[int]:
    """The next request of the same session, or -1."""
    following = [-1] * len(trace)
    last: dict[int, int] = {}
    for row, session in enumerate(trace.session):
        if session >= 0:
            if session in last:
                following[last[session]] = row
            last[session] = row
    return following


MAX_LEFT_OUT: Final = 0.1
"""Share of a trace's requests that may be left out because their prompts are too long; above it is another trace."""


def within_context(trace: Trace, limit_tokens: int) -> tuple[Trace, int]:
    """Leave out requests whose prompt fills a model's context, and cut outputs at its end, as engines do.

    Returns:
        The trace, and how many requests were left out.

    Raises:
        InputError: If no request is left.
    """
    keep = [row for row in range(len(trace)) if trace.prompt_tokens[row] < limit_tokens]
    output = array(
        "q",
        (min(trace.output_tokens[row], limit_tokens - trace.prompt_tokens[row]) for row in keep),
    )
    if len(keep) == len(trace):
        return (trace if output == trace.output_tokens else replace(trace, output_tokens=output)), 0
    if not keep:
        raise InputError(
            f"{trace.name}: every prompt has {limit_tokens:,} tokens or more, the most that the model supports"
        )
    return replace(select(trace, keep), output_tokens=output), len(trace) - len(keep)


def arrival_note(trace: Trace) -> str:
    """Say that a trace's times are not recorded ones; empty where they are, or a rate was stated."""
    requests = f"{len(trace):,} request{'' if len(trace) == 1 else 's'}"
    if trace.arrivals == "at_once":
        return f"no arrival times found: all {requests} at once; --rate R spreads them, R a second"
    if trace.arrivals == "sessions_at_once":
        sessions = len(set(trace.session))
        return f"no times between sessions found: all {sessions:,} sessions begin at once; --rate R begins R a second"
    return ""


def left_out_note(trace: Trace, limit_tokens: int) -> str:
    """Say how many requests of a trace are left out for their length, and what they hold; empty where none is."""
    long = [tokens for tokens in trace.prompt_tokens if tokens >= limit_tokens]
    if not long:
        return ""
    return (
        f"{len(long):,} of {len(trace):,} requests ({len(long) / len(trace):.1%}) left out, "
        f"{sum(long) / sum(trace.prompt_tokens):.1%} of the prompt tokens: prompts of {limit_tokens:,} tokens or more"
    )


def select(trace: Trace, rows: Sequence[int]) -> Trace:
    """The trace of some requests; node numbers stay those of the whole trace."""
    nodes, starts = array("q"), array("q", [0])
    for row in rows:
        nodes.extend(trace.path(row))
        starts.append(len(nodes))

    def column(values: array[Any]) -> array[Any]:
        return array(values.typecode, [values[row] for row in rows])

    return replace(
        trace,
        arrival_s=column(trace.arrival_s),
        prompt_tokens=column(trace.prompt_tokens),
        output_tokens=column(trace.output_tokens),
        session=column(trace.session),
        think_s=column(trace.think_s),
        nodes=nodes,
        starts=starts,
    )


def split(trace: Trace, replicas: int) -> list[Trace]:
    """Divide a trace over replicas: whole sessions where the trace has them, else in turn."""
    if replicas == 1:
        return [trace]
    rows: list[list[int]] = [[] for _ in range(replicas)]
    for row in range(len(trace)):
        session = trace.session[row]
        rows[(row if session < 0 else session) % replicas].append(row)
    return [select(trace, some) for some in rows if some]
