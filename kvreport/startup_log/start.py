"""One start of an engine, pasted or published: its flags and printed figures as one record.

:mod:`kvreport.startup_log.laid_out` makes a :class:`Start` of a pasted log, :mod:`kvreport.startup_log.observed`
of a published observation. :func:`kvreport.startup_log.judge.diagnose_start` turns it into a case for the trunk and
compares each printed figure with its prediction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from kvreport.accounting.allocation import Allocation, allocate
from kvreport.accounting.case import SINGLE, Case
from kvreport.accounting.deployment import Deployment, lay_out
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.protocol import EngineRules
from kvreport.accounting.engines.step import ServerSettings
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import UNTOLD, CacheSettings, Serving
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.load import Catalog
from kvreport.catalog.model import Model
from kvreport.catalog.release import trait

STATED_WITHIN: Final = 0.005
"""A stated utilization is doubted where the printed parts differ from it by more."""

LEAST_FREE: Final = 0.95
"""Below this share of what is free on an idle device, other processes decided what was free (SGLang)."""

SAME_RANK_WITHIN: Final = 0.05
"""A pool that holds more tokens than are printed by a larger share than this may be another rank's."""

OTHER_RANK_WITHIN: Final = 0.15
"""By more than this, no rank's: pools of published ranks differ by less (``data/observations``)."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One printed figure and its prediction."""

    quantity: str  # What is compared.
    predicted: float  # Prediction, in ``unit``.
    observed: float  # As printed.
    unit: str  # ``GiB``, ``MiB``, ``tokens`` or ``requests``.

    @property
    def error(self) -> float:
        """Relative error, signed: positive where the prediction is too high."""
        return self.predicted / self.observed - 1 if self.observed else float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags(ServerSettings):
    """What the engine was told. None where the start does not say, which leaves it to the engine."""

    # The catalog's name, or ``released``; None if the weights are not known well enough.
    weight_format: str | None = "released"
    kv_format: str | None = None  # The catalog's name.
    layout: Layout = SINGLE  # How the model is spread.
    context_tokens: int | None = None  # The longest request allowed.
    max_batched_tokens: int | None = None  # Tokens of one step.
    max_seqs: int | None = None  # Requests at once.
    offline: bool = False  # True for vLLM's offline class.
    caches: CacheSettings = UNTOLD
    # Share that the source states, where its printed parts tell another.
    stated_utilization: float | None = None
    # True if the share is of the memory that was free (SGLang), so that other processes count.
    share_of_free: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the engine printed, per device; None for what it did not. Sizes are bytes."""

    load: float | None = None  # What loading the weights took.
    pool: float | None = None  # The cache pool.
    halves: float | None = None  # The pools of keys and of values together, where they are printed instead.
    tokens: int | None = None  # Tokens of the pool.
    concurrency: float | None = None  # Requests of the longest context.
    needed: int | None = None  # Cache of one longest request.
    # Context that concurrency and ``needed`` are for; None for the longest allowed.
    length: int | None = None
    free: float | None = None  # Memory free before loading.
    refused: bool = False  # True if the engine did not start.
    cells: int | None = None  # Cells of the cache (llama.cpp).
    cache: float | None = None  # Keys and values of all cells (llama.cpp).
    values: float | None = None  # Values among them (llama.cpp).
    states: float | None = None  # Recurrent states (llama.cpp).
    streams: int = 1  # Rows of cells that slots have (llama.cpp): 1 where all share one.


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start: rules, model, device, flags and printed figures."""

    known: Catalog  # Where formats are looked up.
    engine: Engine
    model: Model  # The model as loaded.
    accelerator: Accelerator | None  # The device, the first of several; None if it is not known.
    replica: tuple[Accelerator, ...] = ()  # The devices rank by rank, where they differ; else empty.
    # A device whose kernels lay the weights out, where several of equal kernels are mixed.
    kernels_of: Accelerator | None = None
    flags: Flags  # What the engine was told.
    printed: Figures
    published: bool = False  # True for a record of somebody's log, whose figures may be of different ranks.
    weights_unclear: str | None = None  # Why the weights cannot be compared; None if they can.
    plan_unclear: str | None = None  # Why nothing can be laid out; None if it can.
    pool_unclear: tuple[str, ...] = ()  # What a prediction of the pool lacks; empty if it can be made.
    # True if the model is a copy whose mix is not known, judged as the range that its name gives.
    as_range: bool = False
    released: bool = False  # True for a release itself, which runs no other classes and devices; builds may.
    most_tokens: int | None = None  # The longest context that it starts with; None if not known.

    @property
    def rules(self) -> EngineRules:
        """What the engine does with memory."""
        return rules(self.engine)

    @property
    def load_line(self) -> str:
        """What the log's line about loading the model states."""
        return str(trait(self.engine, "load_line") or "weights")

    @property
    def context_tokens(self) -> int | None:
        """The length that the printed figures are for; the model's longest where the line does not depend on it."""
        stated = self.printed.length or self.flags.context_tokens
        return (
            self.model.context_tokens if stated is None and trait(self.engine, "tokens_are_cells") else stated
        )

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
            model=self.model if flags.told["images"] else None,
        )
        named = flags.weight_format
        form = None if named in (None, "released") else self.known.weight_format(named)
        return Case(
            **flags.told,
            model=self.model,
            engine=self.engine,
            accelerators=() if self.accelerator is None else (self._device(self.accelerator),),
            replica=self.replica,
            weight_formats=(form,),
            formats=self.known.weight_formats,
            kv_format=self.kv_format(),
            layout=flags.layout,
            serving=Serving(
                max_batched_tokens=tokens,
                max_seqs=rows,
                seqs_told=flags.max_seqs is not None,
                **flags.caches.told,
            ),
            context_tokens=flags.context_tokens or self.model.context_tokens,
            support=self.known.support,
        )

    def _device(self, accelerator: Accelerator) -> Accelerator:
        """The device with the memory that is its own: an engine whose share is of what was free has no more.

        SGLang 0.5.23, ``mem_cache/kv_cache_configurator.py::_profile_available_bytes``.
        """
        flags, free = self.flags, self.printed.free
        static = self.rules.static_memory(accelerator, flags.layout)
        if static is None or not flags.share_of_free or not free or free >= LEAST_FREE * static.free_bytes:
            return accelerator
        return accelerator.as_found(free + accelerator.usable_bytes - static.free_bytes)

    def kv_format(self) -> KvFormat | None:
        """How the cache is stored; None for the type that the model is served in."""
        named = self.flags.kv_format
        if named in (None, "auto"):
            named = self.rules.default_kv_format(self.model, self.accelerator)
        return None if named is None else self.known.kv_format(named)

    def weights(self) -> int:
        """Bytes of one rank's weights as loaded.

        Of the fullest rank; for a pasted log, of whose lines the most is read, of the rank with most.
        """
        case = self.case()
        if case.layout.pipeline > 1 or case.replica:
            laid = lay_out(case)
            return _loaded(laid) if self.published else max(map(_loaded, laid.ranks))
        beside = self.rules.buffers_with_weights(self.model, case.step)
        if self.accelerator is None and self.kernels_of is not None:
            case = replace(case, accelerators=(self.kernels_of,))
        return _loaded(allocate(case)) + beside

    def laid_out(self) -> Deployment | None:
        """The deployment under the flags; None where they say too little."""
        return None if self.plan_unclear is not None else lay_out(self.case())


def _loaded(taken: Allocation) -> int:
    """Weights as the engine's line has them: buffers that ranks exchange tokens through are made after it."""
    return int(taken.resident_bytes) - taken.overhead[0].get("all_to_all_buffers", 0)
