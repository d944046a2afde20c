"""What is found in a log: numbers beside ours, what to change, and the whole with its conclusion."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

from kvreport import words
from kvreport.catalog.refusals import refusal_of
from kvreport.catalog.server_flags import with_flags
from kvreport.startup_log.endings import Ended
from kvreport.startup_log.patterns import FACTS
from kvreport.startup_log.reading import Reading, runs_shorter, show, started, tokens_of
from kvreport.units import GIB
from kvreport.words import CHANGES, SENTENCES, notebook_table


@dataclass(frozen=True, slots=True)
class ComparedNumber:
    """One number of the log beside ours."""

    fact: str  # Name of the fact.
    stated: float  # What the log states.
    predicted: float  # What we compute.
    # True if it is computed from the log's own pool, so that the pool itself is not tested.
    from_pool: bool = False
    band: int | None = None  # Bytes by which a predicted pool may be off; None for other figures.

    @property
    def difference(self) -> float:
        """How far the prediction is from the log, as a share of the log's number."""
        return (self.predicted - self.stated) / abs(self.stated) if self.stated else float("inf")

    @property
    def judged(self) -> str:
        """What a difference means, in words; empty where there is nothing to say."""
        told, outside = [], abs(self.difference) > FAR
        if self.band is not None:
            outside = abs(self.predicted - self.stated) > self.band
            name = "log_outside_band" if outside else "log_inside_band"
            told.append(SENTENCES[name].format(band=f"{self.band / GIB:.2f}"))
        if outside and abs(self.difference) > FAR:
            told.append(SENTENCES["log_far_apart"])
        return "; ".join(told)

    def line(self) -> str:
        """Print it."""
        apart = f"{self.difference:+.1%}"
        if FACTS[self.fact].unit == "bytes":
            apart = f"{(self.predicted - self.stated) / GIB:+.2f} GiB, {apart}"
        source = f" {SENTENCES['log_from_pool']}" if self.from_pool else ""
        judged = f": {self.judged}" if self.judged else ""
        return (
            f"{FACTS[self.fact].label}: log {_shown(self.fact, self.stated)}, we compute "
            f"{_shown(self.fact, self.predicted)}{source} ({apart}){judged}"
        )


FAR: Final = 0.05
"""Relative difference from which on a figure is not that of the model and flags that were taken."""


NO_ROOM: Final = frozenset(words.ALL["no_room"])
"""Patterns of the engines' own words that nothing is left for the cache."""


@dataclass(frozen=True, slots=True)
class AdvisedChange:
    """One thing to change, and what it would bring."""

    # ``max_model_len``, ``kv_dtype``, ``utilization``, ``mem_fraction``, ``fewer_requests`` or
    # ``tensor_parallel``.
    name: str
    value: float | str  # What to set it to.
    concurrency: float | None = None  # Requests of the longest length that would fit then, or None.
    words: str | None = None  # The remedy in the engine's words, where an ending names it.

    def line(self) -> str:
        """Print it."""
        gain = "" if self.concurrency is None else f": {self.concurrency:.2f}x"
        value = f"{self.value:,}" if isinstance(self.value, int) else f"{self.value}"
        if self.words is not None:
            return f"{self.words}: {value}" if value else self.words
        return with_flags(CHANGES[self.name]).format(value=value) + gain


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis:
    """A log, understood."""

    reading: Reading
    concurrency: float | None  # Requests of the longest length that fit, stated or derived; None if unknown.
    comparisons: tuple[ComparedNumber, ...] = ()  # Numbers of the log beside ours.
    changes: tuple[AdvisedChange, ...] = ()
    # (context, requests): what fits if requests are shorter than the longest allowed.
    shorter: tuple[tuple[int, int], ...] = ()
    linear: bool = True  # True if shorter requests were taken to cost in proportion, for want of the model.
    notes: tuple[str, ...] = field(default=())  # What is missing for more.
    ended: Ended | None = None  # How the start ended, where a line of it tells.

    def __repr__(self) -> str:
        """A line: the engine and the conclusion."""
        return f"<Diagnosis of {self.reading.engine or 'an unknown engine'}: {self.headline}>"

    def _repr_html_(self) -> str:
        """The conclusion and what to change, for notebooks."""
        return notebook_table(repr(self), ("what to change",), ((change.line(),) for change in self.changes))

    @property
    def headline(self) -> str:
        """The conclusion in one sentence."""
        longest = self.reading.whole("concurrency_len") or self.reading.whole("max_model_len")
        pool = self.reading.number("kv_pool")
        if pool is not None and pool <= 0:
            options = "; or ".join(change.line() for change in self.changes)
            return (
                f"The server does not start: the weights and the engine's reserve leave {pool / GIB:.2f} GiB for the cache. "
                + (
                    f"{options[0].upper()}{options[1:]}."
                    if options
                    else "Use more devices or smaller weights."
                )
            )
        refused = self._refused()
        if refused is not None:
            return refused
        untold = self.concurrency is None or longest is None
        if self.ended is not None and (untold or self.ended.stops):
            return self.ended.sentence
        tokens = tokens_of(self.reading)
        if self.concurrency is None and longest is not None and tokens is not None and started(self.reading):
            return SENTENCES["log_passed"].format(longest=f"{longest:,}")
        if (self.concurrency is None or longest is None) and tokens:
            short, middle, long = (f"{tokens // length:,}" for length in (8_192, 32_768, 131_072))
            return SENTENCES["log_tokens"].format(tokens=f"{tokens:,}", short=short, middle=middle, long=long)
        if self.concurrency is None or longest is None:
            return "The log does not show how many requests fit."
        if runs_shorter(self.reading, self.concurrency):
            return SENTENCES["log_runs_shorter"].format(tokens=f"{tokens or 0:,}", longest=f"{longest:,}")
        if self.concurrency < 1:
            options = "; or ".join(change.line() for change in self.changes)
            return f"{self.concurrency:.2f}x: one request of {longest:,} tokens does not fit. " + (
                f"{options[0].upper()}{options[1:]}." if options else "Shorten it, or add memory."
            )
        whole = int(self.concurrency)
        fit = "one request" if whole == 1 else f"{whole:,} requests"
        verb = "fits" if whole == 1 else "fit at once"
        ranks = self.reading.whole("data_parallel") or 1
        each = f" on each of {ranks} data-parallel ranks" if ranks > 1 else ""
        return f"{self.concurrency:.2f}x: {fit} of {longest:,} tokens {verb}{each}."

    @property
    def address(self) -> str | None:
        """The page about the sentence with which the engine refused, within the site; None without one."""
        found = refusal_of(frozenset(line.pattern for line in self.reading.recognised))
        return None if found is None else found.address

    def _refused(self) -> str | None:
        """What a refusal for want of states or of free memory says; None without one."""
        if models := self.reading.two_models:
            return SENTENCES["log_mixed"].format(first=models[0], second=models[1])
        states, seqs = self.reading.whole("state_blocks"), self.reading.whole("max_seqs")
        if states is not None:
            name = "log_states" if seqs and seqs > states else "log_no_states"
            return SENTENCES[name].format(seqs=f"{seqs or 0:,}", states=f"{states:,}")
        if self.concurrency is None and any(line.pattern in NO_ROOM for line in self.reading.recognised):
            return SENTENCES["log_no_room"]
        free, total = self.reading.number("free_memory"), self.reading.number("total_memory")
        wanted = self.reading.number("requested")
        if self.concurrency is not None or not free or not total or not wanted or free >= wanted:
            return None
        share = math.floor(free / total * 100) / 100
        return with_flags(SENTENCES["log_not_free"]).format(
            wanted=f"{wanted / GIB:.2f}", free=f"{free / GIB:.2f}", share=f"{share:.2f}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``kvreport log --format json`` prints."""
        return {
            "engine": self.reading.engine,
            "headline": self.headline,
            "address": self.address,
            "facts": dict(sorted(self.reading.facts.items())),
            "recognised": [
                {"line": found.number, "pattern": found.pattern, "says": found.says, "text": found.text}
                for found in self.reading.recognised
            ],
            "not_understood": [{"line": number, "text": text} for number, text in self.reading.unknown],
            "concurrency": self.concurrency,
            "comparisons": [
                {
                    "fact": one.fact,
                    "stated": one.stated,
                    "predicted": one.predicted,
                    "from_log_pool": one.from_pool,
                    "band_bytes": one.band,
                    "judged": one.judged or None,
                }
                for one in self.comparisons
            ],
            "changes": [
                {"change": one.name, "value": one.value, "concurrency": one.concurrency}
                for one in self.changes
            ],
            "shorter_requests": [{"context_tokens": tokens, "requests": fit} for tokens, fit in self.shorter],
            "shorter_requests_linear": self.linear,
            "notes": list(self.notes),
            "ended": self.ended
            and {
                "pattern": self.ended.pattern,
                "short": self.ended.short,
                "asked_bytes": self.ended.asked,
                "left_bytes": self.ended.left,
                "missing_bytes": self.ended.missing,
                "remedies": list(self.ended.remedies.values()),
            },
        }


def _shown(fact: str, value: float) -> str:
    whole = FACTS[fact].unit in ("bytes", "tokens", "number")
    return show(fact, int(value) if whole else round(value, 2))
