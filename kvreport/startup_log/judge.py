"""The one judge of a start: every printed figure beside what its flags predict.

Starts are :class:`kvreport.startup_log.start.Start`, pasted or published. Engines that allocate everything at start
are laid out buffer by buffer and judged by :mod:`kvreport.startup_log.local_start`, here and for a pasted log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from kvreport.accounting.capacity import Verdict
from kvreport.accounting.deployment import Deployment
from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.catalog.caches import Latent
from kvreport.catalog.local_logs import Part
from kvreport.catalog.release import trait
from kvreport.errors import InputError, UndividedError
from kvreport.estimation.named_copies import narrowed
from kvreport.startup_log.local_start import diagnose_local_start, local_start
from kvreport.startup_log.start import OTHER_RANK_WITHIN, SAME_RANK_WITHIN, STATED_WITHIN, Comparison, Start
from kvreport.units import GIB, MIB

_HALVINGS: Final = 24
_EXACT: Final = 1e-8


@dataclass(slots=True)
class Judgment:
    """What our rules say of a start."""

    comparisons: tuple[Comparison, ...] = ()
    deployment: Deployment | None = None  # What the trunk makes of the flags; None where they say too little.
    predicted: bool = False  # True if the pool was predicted from model, device and flags.
    # Whether the longest request was predicted to fit, or any where the engine shortens requests to its pool;
    # None if not predicted.
    starts: bool | None = None
    # What could not be compared, and why.
    excluded: list[str] = field(default_factory=list)
    error: str | None = None  # Why nothing could be laid out; None if something could.
    # What the trunk makes of a copy that is known by its name alone with every layer in its format; None for
    # others.
    narrow: Deployment | None = None
    # Figures of such a copy's wide end, which are no point to compare: the band alone is judged by them.
    open_figures: tuple[Comparison, ...] = ()

    @property
    def within_band(self) -> bool | None:
        """Whether the observed pool lies in the error band of the predicted one; None if it was not predicted.

        A log that prints no pool tells it by its tokens or its concurrency, which grow with it. The pool of a copy that is
        known by its name alone is a range, whose other end has a band of its own.
        """
        found = {one.quantity: one for one in (*self.comparisons, *self.open_figures)}
        one = next((found[name] for name in ("pool", "tokens", "concurrency") if name in found), None)
        if one is None or self.deployment is None or not self.predicted or one.predicted <= 0:
            return None
        pool = float(self.deployment.pool_bytes)
        observed = pool * one.observed / one.predicted
        most = self.narrow or self.deployment
        least = pool - float(self.deployment.uncertainty_bytes)
        return least <= observed <= float(most.pool_bytes) + float(most.uncertainty_bytes)


def diagnose_start(start: Start) -> Judgment:
    """Compare everything that a start printed with what its flags predict.

    Four questions are asked, as far as the start says enough: what loading took; the engine's lines from the pool
    that it printed (``given pool``); the same from model, device and flags alone; and whether it starts.
    """
    found = Judgment()
    try:
        found.comparisons = tuple(_Judging(start, found).comparisons())
    except InputError as error:
        starts = False if isinstance(error, UndividedError) else None
        return Judgment(excluded=[f"all: {error}", *found.excluded], starts=starts, error=str(error))
    found.excluded += _of_range(found)
    return found


def _of_range(found: Judgment) -> Iterator[str]:
    """Say where the pool of a copy that is known by its name alone lies, which no row compares."""
    wide, narrow, held = found.deployment, found.narrow, found.within_band
    if wide is None or narrow is None or held is None:
        return
    least, most = (max(int(one.pool_bytes), 0) / GIB for one in (wide, narrow))
    where = "inside it or its band" if held else "outside it and its band"
    yield f"from flags: by the name of the copy, the pool is {least:.2f} to {most:.2f} GiB, and the log's is {where}"


def with_pool(laid: Deployment, pool_bytes: int) -> Deployment:
    """The same with this pool on every device."""
    others = tuple(replace(one, pool_bytes=pool_bytes) for one in laid.others)
    return replace(laid, pool_bytes=pool_bytes, others=others)


def _rounding(size: float) -> float:
    """Half of the last digit of a size that was printed in GiB, by two places or by four; 0 for one that was not."""
    gib = size / GIB
    return next((GIB / 2 / 10**places for places in (2, 4) if abs(gib - round(gib, places)) < _EXACT), 0.0)


@dataclass(frozen=True, slots=True)
class _Judging:
    """How a judgment is made."""

    start: Start
    found: Judgment

    def comparisons(self) -> Iterator[Comparison]:
        start, printed = self.start, self.start.printed
        if not start.engine.device_classes:
            yield from self._buffers()
            return
        known = start.weights_unclear is None
        if not known:
            self.found.excluded.append(f"weights: {start.weights_unclear}")
        elif start.as_range:
            self.found.narrow = replace(start, model=narrowed(start.model)).laid_out()
            self.found.excluded.append("weights: the name of the copy allows a range of sizes")
        elif printed.load:
            yield Comparison(start.load_line, start.weights() / GIB, printed.load / GIB, "GiB")
        laid = self.found.deployment = start.laid_out()
        if laid is None:
            self.found.excluded.append(f"tokens: {start.plan_unclear}")
            return
        context = start.context_tokens
        staged = start.published and start.flags.layout.pipeline > 1
        apart = staged and not self._same_rank(laid)
        if printed.pool is not None and printed.pool > 0 and not printed.refused and not apart:
            yield from self._lines(self._as_printed(laid, printed.pool), " given pool")
        if printed.needed and context:
            needed = int((laid.start_plan or laid.plan).profile.request_bytes(context))
            yield Comparison("needed", needed / GIB, printed.needed / GIB, "GiB")
        if start.pool_unclear:
            return
        if self.found.narrow is None:
            yield from self._end_to_end(laid, known=known)
        else:
            self.found.open_figures = tuple(self._end_to_end(laid, known=known))

    def _lines(self, laid: Deployment, suffix: str) -> Iterator[Comparison]:
        printed, context = self.start.printed, self.start.context_tokens
        if context is None:
            return
        if printed.tokens:
            tokens = float(laid.printed_tokens(context))
            yield Comparison(f"tokens{suffix}", tokens, float(printed.tokens), "tokens")
        if printed.concurrency:
            fitting = float(laid.concurrency(context))
            yield Comparison(f"concurrency{suffix}", fitting, printed.concurrency, "requests")

    def _as_printed(self, laid: Deployment, pool: float) -> Deployment:
        """With a pool that is printed as this one, of those the one that holds the printed tokens if any does.

        A line rounds the pool to its last digit, and to a small one that is more than a block.
        """
        printed, context = self.start.printed.tokens, self.start.context_tokens
        half = _rounding(pool)
        if not printed or context is None or not half:
            return with_pool(laid, int(pool))

        def missing(size: float) -> float:
            return float(with_pool(laid, int(size)).printed_tokens(context)) - printed

        low, high, middle = pool - half, pool + half, pool
        for _ in range(_HALVINGS):
            beyond = missing(middle)
            if not beyond:
                return with_pool(laid, int(middle))
            low, high = (low, middle) if beyond > 0 else (middle, high)
            middle = (low + high) / 2
        return with_pool(laid, int(pool))

    def _end_to_end(self, laid: Deployment, *, known: bool) -> Iterator[Comparison]:
        start, flags, printed = self.start, self.start.flags, self.start.printed
        if not known or start.accelerator is None:
            self.found.excluded.append("from flags: the weight format or the device is not stated")
            return
        stated, taken = flags.stated_utilization, flags.utilization
        if stated is not None and taken is not None and abs(stated - taken) > STATED_WITHIN:
            self.found.excluded.append(
                f"utilization: stated {stated:g}, but the printed parts add up to {taken:g}, which is used"
            )
        self.found.predicted = True
        pool = int(laid.pool_bytes)
        if flags.context_tokens is not None:
            self.found.starts = self._holds(laid, flags.context_tokens)
            if (
                self.found.narrow is not None
                and self._holds(self.found.narrow, flags.context_tokens) != self.found.starts
            ):
                self.found.starts = None
                self.found.excluded.append(
                    "start: the answer depends on which layers the copy keeps in more bits"
                )
            short, band = map(int, laid.start_shortage or (0, 0))
            if 0 < short <= band:
                self.found.starts = None
                self.found.excluded.append("start: the answer depends on the memory that other processes use")
        elif printed.refused:
            self.found.excluded.append("start: the maximum context is not stated")
        available = printed.pool if self._same_rank(laid) else None
        if available is None:
            available = printed.halves
        if available is not None and available > 0:
            yield Comparison("pool", max(pool, 0) / GIB, available / GIB, "GiB")
        elif available is not None and not start.published:
            yield Comparison("pool", pool / GIB, available / GIB, "GiB")
        if not printed.refused:
            yield from self._lines(with_pool(laid, max(pool, 0)), "")

    def _holds(self, laid: Deployment, context: int) -> bool:
        """Whether one request of this length fits, or of the longest where the engine shortens requests to its pool."""
        longest = int(laid.longest_context()) if trait(self.start.engine, "shortens_requests") else context
        served = min(context, longest)
        refused = int(laid.refused)
        if refused == Verdict.FORMAT_NOT_SUPPORTED or (refused and self.start.released):
            return False
        if served <= 0 or context > (self.start.most_tokens or context):
            return False
        return int(laid.requests(served)) >= 1 and not int(laid.shortfall(served))

    def _same_rank(self, laid: Deployment) -> bool:
        """False if the printed pool and tokens cannot belong together: each rank prints its own pool.

        The smallest rank decides the tokens; a source may quote the pool of another, which holds somewhat more of them.
        More tokens than a pool holds, or far fewer, are an error to count. A pasted log has all ranks, and its reader
        took the smallest of both.
        """
        printed, context = self.start.printed, self.start.flags.context_tokens
        layout = self.start.flags.layout
        alone = layout.tensor * layout.pipeline == 1 or not self.start.published
        if alone or printed.pool is None or not printed.tokens or context is None:
            return True
        tokens = int(with_pool(laid, int(printed.pool)).printed_tokens(context))
        together = not SAME_RANK_WITHIN < tokens / printed.tokens - 1 <= OTHER_RANK_WITHIN
        if not together:
            self.found.excluded.append("pool: the quoted pool and tokens belong to different ranks")
        return together

    def _buffers(self) -> Iterator[Comparison]:
        """llama.cpp prints the buffers of keys, values and states."""
        start, printed = self.start, self.start.printed
        if printed.cells is None:
            self.found.excluded.append("buffers: the context is not stated")
            return
        stated: dict[Part, float] = {}
        if printed.cache is not None:
            latent = any(isinstance(c, Latent) for group in start.model.layers for c in group.caches)
            if latent and printed.values:
                self.found.excluded.append(
                    "buffers: the server ran without MLA and stored keys and values of every head"
                )
            elif start.plan_unclear is not None:
                self.found.excluded.append(f"buffers: {start.plan_unclear}")
            else:
                stated["host_kv"] = printed.cache / MIB
        if printed.states is not None:
            stated["host_state"] = printed.states / MIB
        local = local_start(
            start.model,
            None,
            LocalOptions(
                context=printed.cells,
                parallel=start.flags.max_seqs or 1,
                unified=printed.streams == 1,
                swa_full=start.flags.caches.window_share == 1,
                type_k=_cache_type(start.flags.kv_format),
                type_v=_cache_type(start.flags.kv_format),
                draft=start.flags.caches.draft_tokens,
                mtp=start.flags.caches.draft_in_model,
            ),
            printed=stated,
        )
        for one in diagnose_local_start(local).comparisons:
            yield replace(one, quantity=BUFFERS[one.quantity])


BUFFERS: Final = {"host_kv": "buffers", "host_state": "states"}
"""What the evidence calls the parts of llama.cpp's cache; without devices all of it is laid out on the host."""


def _cache_type(kv_format: str | None) -> str:
    """llama.cpp's name of a KV format; 16 bits where none is stated."""
    return "f16" if kv_format in (None, "auto", "bf16") else kv_format
