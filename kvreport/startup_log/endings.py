"""How a start ended: what was short, by how much, and what to change, each remedy calculated before it is offered.

The lines with which engines end a start are data (``ends`` in ``data/log_lines``). Where the model and the device are
known, a remedy is laid out by our rules, and is offered with its value if it suffices. The others are named as not
calculated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from kvreport.accounting.case import Case
from kvreport.accounting.deployment import lay_out
from kvreport.accounting.kernel import RAISED_UTILIZATION
from kvreport.accounting.shares import share_on
from kvreport.catalog.log_lines import Ending, log_lines
from kvreport.catalog.server_flags import with_flags
from kvreport.errors import InputError
from kvreport.startup_log.laid_out import LaidOut
from kvreport.startup_log.patterns import patterns
from kvreport.startup_log.reading import Reading, longest_of
from kvreport.units import GIB
from kvreport.words import ALL, SENTENCES

_FEWER_TOKENS: Final = 2048
"""Tokens of a step that are tried, where a larger one ran out of memory."""
_POOL: Final = ("kv_tokens", "concurrency", "gpu_blocks")
"""Facts of lines that an engine prints once its cache is allocated."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a start."""

    pattern: str  # The kind of line that ended it.
    short: str | None  # What was short; None where nothing was, or the line does not say it.
    says: str  # What the line means.
    asked: int | None  # Bytes asked for at once, where the line says so.
    left: int | None  # Bytes that were left.
    allocated: bool  # True if the cache had been allocated before.
    remedies: dict[str, str]  # What to change, by name, in the words of the engine.

    @property
    def missing(self) -> int | None:
        """Bytes that were short, where the line says both numbers."""
        if self.asked is None or self.left is None or self.asked <= self.left:
            return None
        return self.asked - self.left

    @property
    def stops(self) -> bool:
        """True if memory outside of a cache ran out that had been allocated: it held requests, and the server ended."""
        return self.allocated and "less_share" in self.remedies

    @property
    def sentence(self) -> str:
        """The end in one sentence."""
        if self.short is None:
            return self.says
        by = ""
        if self.missing is not None:
            asked, left, missing = map(_size, (self.asked or 0, self.left or 0, self.missing))
            by = SENTENCES["log_ended_by"].format(asked=asked, left=left, missing=missing)
        elif self.asked is not None:
            by = SENTENCES["log_ended_asked"].format(asked=_size(self.asked))
        return SENTENCES["log_stopped" if self.stops else "log_ended"].format(short=self.short, by=by)


def _size(size: int) -> str:
    return f"{size / GIB:,.2f} GiB" if size >= GIB // 10 else f"{size / 2**20:,.2f} MiB"


@cache
def ending_lines(folder: Path | None = None) -> dict[str, tuple[Ending, bool]]:
    """What lines that a start ends with say, by name, and whether one engine alone prints each.

    Args:
        folder: A catalog of one's own that has further lines.
    """
    return {
        one.name: (one.line.ends, one.engine is not None)
        for one in patterns(folder)
        if one.line.ends is not None
    }


def ended(reading: Reading, folder: Path | None = None) -> Ended | None:
    """How a start ended, by the last line that says what was short, an engine's own first; None if none says it.

    A cache that is allocated after such a line is of another try.
    """
    known = ending_lines(folder)
    places = [index for index, line in enumerate(reading.recognised) if line.pattern in known]
    pool = [index for index, line in enumerate(reading.recognised) if not line.facts.keys().isdisjoint(_POOL)]
    if not places or (pool and pool[-1] > places[-1]):
        return None

    def rank(index: int) -> tuple[bool, bool, int]:
        ends, own = known[reading.recognised[index].pattern]
        return ends.short is not None, own, index

    chosen = reading.recognised[max(places, key=rank)]
    ends, _ = known[chosen.pattern]
    return Ended(
        pattern=chosen.pattern,
        short=ends.short,
        says=chosen.says,
        asked=reading.whole("asked"),
        left=reading.whole("left"),
        allocated=bool(pool),
        remedies=remedy_words(ends.remedies, reading.engine, folder),
    )


def remedy_words(names: tuple[str, ...], engine: str | None, folder: Path | None = None) -> dict[str, str]:
    """Remedies in the words of an engine, or in those of any."""
    known = {name: said for one in log_lines(folder) for name, said in one.remedies.items()}
    return {name: with_flags(known[name].get(engine or "any", known[name]["any"])) for name in names}


def calculated(end: Ended, laid: LaidOut, reading: Reading) -> Iterator[tuple[str, float | str | None]]:
    """Yield the remedies of an end that were calculated, with the value that suffices, or None where none does."""
    case, longest = laid.whole, _longest(laid, reading)
    base = int(laid.deployment.pool_bytes)
    of_pool = "more_share" in end.remedies

    def suffices(other: Case) -> bool:
        try:
            made = lay_out(other)
        except InputError:
            return False
        pool = int(made.pool_bytes)
        freed = of_pool or pool - base >= (end.missing or 1)
        return freed and pool >= int(made.plan.profile.request_bytes(longest))

    device = case.accelerators[0]
    share = share_on(case.engine, device, None) if case.utilization is None else case.utilization
    fewer = max(_FEWER_TOKENS, case.rules.least_step(case.model))
    for name in end.remedies:
        tried: list[tuple[float | str, Case]] = []
        if name == "more_share" and share < RAISED_UTILIZATION:
            tried = [(RAISED_UTILIZATION, replace(case, utilization=RAISED_UTILIZATION))]
        elif name == "fewer_requests":
            rows = [one for one in ALL["fewer_requests"] if one < case.serving.max_seqs]
            tried = [(one, replace(case, serving=replace(case.serving, max_seqs=one))) for one in rows]
        elif name == "smaller_steps" and case.serving.max_batched_tokens > fewer:
            steps = replace(case.serving, max_batched_tokens=fewer)
            tried = [(fewer, replace(case, serving=steps))]
        elif name == "no_graphs" and not case.eager:
            tried = [("", replace(case, eager=True))]
        elif name == "more_devices" and not case.replica:
            wider = [case.layout.tensor * factor for factor in (2, 4, 8)]
            tried = [(one, replace(case, layout=replace(case.layout, tensor=one))) for one in wider]
        elif name == "less_share" and end.missing is not None:
            lower = math.floor((share - end.missing / device.usable_bytes) * 100) / 100
            # What the share gives up is free: only the cache has to hold one request still.
            fits = lower > 0 and _holds(replace(case, utilization=lower), longest)
            yield name, lower if fits else None
            continue
        else:
            continue
        yield name, next((value for value, other in tried if suffices(other)), None)


def _holds(case: Case, longest: int) -> bool:
    """Whether one request of a length fits."""
    try:
        made = lay_out(case)
    except InputError:
        return False
    return int(made.pool_bytes) >= int(made.plan.profile.request_bytes(longest))


def holds(laid: LaidOut, reading: Reading) -> bool:
    """Whether one longest request fits by our rules, at the log's settings."""
    return _holds(laid.whole, _longest(laid, reading))


def _longest(laid: LaidOut, reading: Reading) -> int:
    """Tokens of the longest request: as the log says, else what the model was made for, which engines take."""
    return longest_of(reading) or laid.whole.model.context_tokens
