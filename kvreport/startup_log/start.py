"""One start of an engine, pasted or published: its flags and printed figures as one record, and the one judge of it.

:mod:`kvreport.startup_log.laid_out` makes a :class:`Start` of a pasted log, :mod:`kvreport.startup_log.observed`
of a published observation and :mod:`kvreport.startup_log.local` of a log of llama.cpp. :func:`diagnose_start` turns
it into a case for the trunk and compares each printed figure with its prediction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from kvreport.accounting.deployment import SINGLE, Case, Deployment, allocate, lay_out, plan_blocks
from kvreport.accounting.engines.base import EngineRules
from kvreport.accounting.engines.registry import rules
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import Serving
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.caches import Latent
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.load import Catalogue
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.units import GIB, MIB

STATED_WITHIN: Final = 0.005
"""A stated utilization is doubted where the printed parts differ from it by more."""

LEAST_FREE: Final = 0.95
"""Below this share of what is free on an idle device, other processes decided what was free (SGLang)."""

SAME_RANK_WITHIN: Final = 0.05
"""A pool and a token line further apart than this are not of one rank."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One printed figure and its prediction.

    Attributes:
        quantity: What is compared.
        predicted: Prediction, in ``unit``.
        observed: As printed.
        unit: ``GiB``, ``MiB``, ``tokens`` or ``requests``.
    """

    quantity: str
    predicted: float
    observed: float
    unit: str

    @property
    def error(self) -> float:
        """Relative error, signed: positive where the prediction is too high."""
        return self.predicted / self.observed - 1 if self.observed else float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What the engine was told. None where the start does not say, which leaves it to the engine.

    Attributes:
        weight_format: The catalogue's name, or ``released``; None if the weights are not known well enough.
        kv_format: The catalogue's name.
        layout: How the model is spread.
        context_tokens: The longest request allowed.
        max_batched_tokens: Tokens of one step.
        max_seqs: Requests at once.
        offline: True for vLLM's offline class.
        block_tokens: Tokens per block.
        prefix_caching: Whether prefixes are cached.
        draft_tokens: Tokens drafted per step.
        draft_in_model: True if the model's own prediction layers draft.
        window_share: SGLang's ``--swa-full-tokens-ratio``.
        utilization: Share of memory that the engine ran with.
        stated_utilization: Share that the source states, where its printed parts tell another.
        share_of_free: True if the share is of the memory that was free (SGLang), so that other processes count.
        eager: True if no graphs are captured.
        sorts: True if sampling sorts all logits.
        images: False if text only is served.
        kv_pool_bytes: A pool given by hand.
        lora_slots: LoRA adapters at once, and their largest rank.
    """

    weight_format: str | None = "released"
    kv_format: str | None = None
    layout: Layout = SINGLE
    context_tokens: int | None = None
    max_batched_tokens: int | None = None
    max_seqs: int | None = None
    offline: bool = False
    block_tokens: int | None = None
    prefix_caching: bool | None = None
    draft_tokens: int = 0
    draft_in_model: bool = False
    window_share: float | None = None
    utilization: float | None = None
    stated_utilization: float | None = None
    share_of_free: bool = False
    eager: bool = False
    sorts: bool = False
    images: bool = True
    kv_pool_bytes: int | None = None
    lora_slots: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the engine printed, per device; None for what it did not. Sizes are bytes.

    Attributes:
        load: What loading the weights took.
        pool: The cache pool.
        halves: The pools of keys and of values together, where they are printed instead.
        tokens: Tokens of the pool.
        concurrency: Requests of the longest context.
        needed: Cache of one longest request.
        length: Context that concurrency and ``needed`` are for; None for the longest allowed.
        free: Memory free before loading.
        refused: True if the engine did not start.
        cells: Cells of the cache (llama.cpp).
        cache: Keys and values of all cells (llama.cpp).
        values: Values among them (llama.cpp).
        states: Recurrent states (llama.cpp).
    """

    load: float | None = None
    pool: float | None = None
    halves: float | None = None
    tokens: int | None = None
    concurrency: float | None = None
    needed: int | None = None
    length: int | None = None
    free: float | None = None
    refused: bool = False
    cells: int | None = None
    cache: float | None = None
    values: float | None = None
    states: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start: rules, model, device, flags and printed figures.

    Attributes:
        known: Where formats are looked up.
        engine: The rules of the release that started.
        model: The model as loaded.
        accelerator: The device; None if it is not known.
        kernels_of: A device whose kernels lay the weights out, where several of equal kernels are mixed.
        flags: What the engine was told.
        printed: What it printed.
        published: True for a record of somebody's log, whose figures may be of different ranks.
        weights_unclear: Why the weights cannot be compared; None if they can.
        plan_unclear: Why nothing can be laid out; None if it can.
        pool_unclear: What a prediction of the pool lacks; empty if it can be made.
    """

    known: Catalogue
    engine: Engine
    model: Model
    accelerator: Accelerator | None
    kernels_of: Accelerator | None = None
    flags: Flags
    printed: Figures
    published: bool = False
    weights_unclear: str | None = None
    plan_unclear: str | None = None
    pool_unclear: tuple[str, ...] = ()

    @property
    def rules(self) -> EngineRules:
        """What the engine does with memory."""
        return rules(self.engine)

    @property
    def context_tokens(self) -> int | None:
        """The length that the printed figures are for; the model's longest where the line does not depend on it."""
        stated = self.printed.length or self.flags.context_tokens
        return self.model.context_tokens if stated is None and self.rules.tokens_are_cells else stated

    def case(self) -> Case:
        """What the trunk is asked.

        Raises:
            InputError: If a format is unknown.
        """
        flags = self.flags
        tokens, rows = self.rules.scheduler(
            self.accelerator,
            max_batched_tokens=flags.max_batched_tokens,
            max_seqs=flags.max_seqs,
            offline=flags.offline,
            context_tokens=flags.context_tokens,
            images=any(row.component == "vision" for row in self.model.weights),
        )
        named = flags.weight_format
        form = None if named in (None, "released") else self.known.weight_format(named)
        return Case(
            model=self.model,
            engine=self.engine,
            accelerators=() if self.accelerator is None else (self.accelerator,),
            weight_formats=(form,),
            formats=self.known.weight_formats,
            kv_format=self.kv_format(),
            layout=flags.layout,
            serving=Serving(
                max_batched_tokens=tokens,
                max_seqs=rows,
                block_tokens=flags.block_tokens,
                prefix_caching=flags.prefix_caching,
                draft_tokens=flags.draft_tokens,
                draft_in_model=flags.draft_in_model,
                window_share=flags.window_share,
            ),
            utilization=flags.utilization,
            eager=flags.eager,
            images=flags.images,
            sorts=flags.sorts,
            kv_pool_bytes=flags.kv_pool_bytes,
            context_tokens=flags.context_tokens,
            lora_slots=flags.lora_slots,
        )

    def kv_format(self) -> KvFormat | None:
        """How the cache is stored; None for the type that the model is served in."""
        named = self.flags.kv_format
        if named in (None, "auto"):
            named = self.rules.default_kv_format(self.model, self.accelerator)
        return None if named is None else self.known.kv_format(named)

    def weights(self) -> int:
        """Bytes of one rank's weights as loaded."""
        case = self.case()
        if case.layout.pipeline > 1:
            return int(lay_out(case).resident_bytes)
        if self.accelerator is None and self.kernels_of is not None:
            case = replace(case, accelerators=(self.kernels_of,))
        return int(allocate(case).resident_bytes)

    def laid_out(self) -> Deployment | None:
        """The deployment under the flags; None where they say too little."""
        return None if self.plan_unclear is not None else lay_out(self.case())


@dataclass(frozen=True, slots=True)
class Buffers:
    """Bytes that a context of so many cells takes (llama.cpp).

    Attributes:
        cache: Keys and values.
        states: Recurrent states of all requests.
    """

    cache: int
    states: int


@dataclass(frozen=True, slots=True)
class Judgment:
    """What our rules say of a start.

    Attributes:
        comparisons: Each printed figure with its prediction.
        deployment: What the trunk makes of the flags; None where they say too little.
        predicted: True if the pool was predicted from model, device and flags.
        starts: Whether one longest request was predicted to fit; None if not predicted.
        buffers: The cache of llama.cpp's cells; None for other engines.
        excluded: What could not be compared, and why.
        error: Why nothing could be laid out; None if something could.
    """

    comparisons: tuple[Comparison, ...] = ()
    deployment: Deployment | None = None
    predicted: bool = False
    starts: bool | None = None
    buffers: Buffers | None = None
    excluded: tuple[str, ...] = ()
    error: str | None = None

    @property
    def within_band(self) -> bool | None:
        """Whether the observed pool lies in the error band of the predicted one; None if it was not predicted.

        A log that prints no pool tells it by its tokens or its concurrency, which grow with it.
        """
        found = {one.quantity: one for one in self.comparisons}
        one = next((found[name] for name in ("pool", "tokens", "concurrency") if name in found), None)
        if one is None or self.deployment is None or not self.predicted or one.predicted <= 0:
            return None
        pool = float(self.deployment.pool_bytes)
        missing = pool * abs(1 - one.observed / one.predicted)
        return missing <= float(self.deployment.uncertainty_bytes)


def diagnose_start(start: Start) -> Judgment:
    """Compare everything that a start printed with what its flags predict.

    Four questions are asked, as far as the start says enough: what loading took; the engine's lines from the pool
    that it printed (``given pool``); the same from model, device and flags alone; and whether it starts.
    """
    judging = _Judging(start)
    try:
        comparisons = tuple(judging.comparisons())
    except InputError as error:
        return Judgment(excluded=(f"all: {error}", *judging.excluded), error=str(error))
    return Judgment(
        comparisons,
        judging.deployment,
        predicted=judging.predicted,
        starts=judging.starts,
        buffers=judging.buffers,
        excluded=tuple(judging.excluded),
    )


def with_pool(laid: Deployment, pool_bytes: int) -> Deployment:
    """The same with this pool on every device."""
    others = tuple(replace(one, pool_bytes=pool_bytes) for one in laid.others)
    return replace(laid, pool_bytes=pool_bytes, others=others)


def printed_concurrency(laid: Deployment, context_tokens: int) -> float:
    """Requests of a context as this release prints them: some divide the tokens of the pool by the length."""
    if laid.case.rules.concurrency_is_tokens:
        return float(laid.printed_tokens(context_tokens)) / context_tokens
    return float(laid.concurrency(context_tokens))


@dataclass(slots=True)
class _Judging:
    """A judgment while it is made."""

    start: Start
    deployment: Deployment | None = None
    predicted: bool = False
    starts: bool | None = None
    buffers: Buffers | None = None
    excluded: list[str] = field(default_factory=list)

    def comparisons(self) -> Iterator[Comparison]:
        start, printed = self.start, self.start.printed
        if not start.engine.device_classes:
            yield from self._buffers()
            return
        known = start.weights_unclear is None
        if not known:
            self.excluded.append(f"weights: {start.weights_unclear}")
        elif printed.load:
            yield Comparison(start.rules.load_line, start.weights() / GIB, printed.load / GIB, "GiB")
        laid = self.deployment = start.laid_out()
        if laid is None:
            self.excluded.append(f"tokens: {start.plan_unclear}")
            return
        context = start.context_tokens
        if printed.pool is not None and printed.pool > 0 and not printed.refused:
            yield from self._lines(with_pool(laid, int(printed.pool)), " given pool")
        if printed.needed and context:
            needed = int(laid.plan.profile.request_bytes(context))
            yield Comparison("needed", needed / GIB, printed.needed / GIB, "GiB")
        if not start.pool_unclear:
            yield from self._end_to_end(laid, known=known)

    def _lines(self, laid: Deployment, suffix: str) -> Iterator[Comparison]:
        printed, context = self.start.printed, self.start.context_tokens
        if context is None:
            return
        if printed.tokens:
            tokens = float(laid.printed_tokens(context))
            yield Comparison(f"tokens{suffix}", tokens, float(printed.tokens), "tokens")
        if printed.concurrency:
            fitting = printed_concurrency(laid, context)
            yield Comparison(f"concurrency{suffix}", fitting, printed.concurrency, "requests")

    def _end_to_end(self, laid: Deployment, *, known: bool) -> Iterator[Comparison]:
        start, flags, printed = self.start, self.start.flags, self.start.printed
        if not known or start.accelerator is None:
            self.excluded.append("end to end: model format or device is not stated")
            return
        free = printed.free
        expected = start.rules.free_before_loading(start.accelerator, flags.layout)
        if flags.share_of_free and free and free < LEAST_FREE * expected:
            self.excluded.append(f"end to end: other processes held memory, {free / GIB:g} GiB was free")
            return
        stated, taken = flags.stated_utilization, flags.utilization
        if stated is not None and taken is not None and abs(stated - taken) > STATED_WITHIN:
            self.excluded.append(
                f"utilization: stated {stated:g}, but the printed parts add up to {taken:g}, which is used"
            )
        self.predicted = True
        pool = int(laid.pool_bytes)
        if flags.context_tokens is not None:
            held = int(laid.requests(flags.context_tokens)) >= 1
            self.starts = held and not int(laid.shortfall(flags.context_tokens))
            short, band = map(int, laid.start_shortage or (0, 0))
            if 0 < short <= band:
                self.starts = None
                self.excluded.append("start: what other processes leave free on this machine decides")
        available = printed.pool if self._same_rank(laid) else None
        if available is None:
            available = printed.halves
        if available is not None and available > 0:
            yield Comparison("pool", max(pool, 0) / GIB, available / GIB, "GiB")
        elif available is not None and not start.published:
            yield Comparison("pool", pool / GIB, available / GIB, "GiB")
        if not printed.refused:
            yield from self._lines(with_pool(laid, max(pool, 0)), "")

    def _same_rank(self, laid: Deployment) -> bool:
        """False if the printed pool and tokens cannot belong together: each rank prints its own pool.

        The smallest rank decides the tokens; a source may quote the pool of another. A pasted log has all ranks,
        and its reader took the smallest of both.
        """
        printed, context = self.start.printed, self.start.flags.context_tokens
        alone = self.start.flags.layout.tensor == 1 or not self.start.published
        if alone or printed.pool is None or not printed.tokens or context is None:
            return True
        tokens = int(with_pool(laid, int(printed.pool)).printed_tokens(context))
        together = abs(tokens / printed.tokens - 1) <= SAME_RANK_WITHIN
        if not together:
            self.excluded.append("pool: the quoted pool and tokens are of different ranks")
        return together

    def _buffers(self) -> Iterator[Comparison]:
        """llama.cpp prints the buffers of keys, values and states."""
        start, printed = self.start, self.start.printed
        cells = printed.cells
        if cells is None:
            self.excluded.append("buffers: the context is not stated")
            return
        comparable = False
        if printed.cache is not None:
            latent = any(isinstance(c, Latent) for group in start.model.layers for c in group.caches)
            if latent and printed.values:
                self.excluded.append("buffers: run without MLA, with keys and values of every head")
            elif start.plan_unclear is not None:
                self.excluded.append(f"buffers: {start.plan_unclear}")
            else:
                comparable = True
        self.buffers = _cell_buffers(start, cells)
        if comparable and printed.cache is not None:
            yield Comparison("buffers", self.buffers.cache / MIB, printed.cache / MIB, "MiB")
        if printed.states is not None:
            yield Comparison("states", self.buffers.states / MIB, printed.states / MIB, "MiB")


def _cell_buffers(start: Start, cells: int) -> Buffers:
    """Bytes of keys and values for ``cells`` cells, and of the states of all requests at once."""
    sequences = start.flags.max_seqs or 1
    named = start.flags.kv_format
    form = None if named in (None, "auto", "bf16") else start.known.kv_format(named)
    serving = Serving(1, sequences=sequences)
    case = Case(
        model=start.model,
        engine=start.engine,
        accelerators=(),
        formats=start.known.weight_formats,
        kv_format=form,
        serving=serving,
    )
    cache = sum(
        term.rate_bytes * -(-min(cells, term.cap_tokens) // term.step_tokens) + term.constant_bytes
        for term in plan_blocks(case).profile.terms
        if term.kind != "state"
    )
    one = plan_blocks(replace(case, kv_format=None, serving=Serving(1, sequences=1))).profile
    states = sum(term.constant_bytes for term in one.terms if term.kind == "state")
    return Buffers(int(cache), int(states) * sequences)
