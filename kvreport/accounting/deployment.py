"""The trunk: weights, load overhead, reserve, pool, block plan, limits. Every answer is made here.

:func:`lay_out` takes a :class:`Case` — one model under one engine, with records for names — and returns a
:class:`Deployment`. A case is one device and one weight format, or many of each at once: accelerators that
the engine treats alike stand along the first axis, weight formats along the second. The arithmetic
is the same; numbers become arrays. One estimate, the published matrix, a ranking, a start-up log and the
files for the browser all come through here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from kvreport.accounting import capacity
from kvreport.accounting.budget import Budget
from kvreport.accounting.engines.base import NOTHING, EngineRules, Reserve, Step
from kvreport.accounting.engines.registry import rules
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.accounting.profile import Integers
from kvreport.accounting.weights import ComponentBytes, weights_by_component
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.model import Component, Model
from kvreport.units import MAX_BYTES

T = TypeVar("T")

TOWERS: Final[frozenset[Component]] = frozenset({"vision", "audio"})
"""Components that an engine told to serve text only does not load."""

SINGLE: Final = Layout()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One model under one engine, every name resolved to a record.

    Attributes:
        model: The model.
        engine: The engine.
        accelerators: The device, or several that the engine treats alike (:func:`device_class`); empty where
            a log does not name it.
        weight_formats: The format that the model is converted to, or several; None is as released.
        formats: Weight formats by name, for what released tensors carry.
        kv_format: How growing caches are stored; None for the type that the model is served in.
        layout: How the model is spread over devices.
        serving: Scheduler sizes and flags that change the block plan.
        utilization: Share of memory; None for the engine's default.
        kv_pool_bytes: A pool per device given by hand, which replaces the budget.
        eager: True if no graphs are captured.
        images: False if the engine was told to serve text only.
        sorts: True if sampling sorts all logits.
        many: True for arrays even where there is one device and one format.
    """

    model: Model
    engine: Engine
    accelerators: tuple[Accelerator, ...]
    weight_formats: tuple[WeightFormat | None, ...] = (None,)
    formats: Mapping[str, WeightFormat]
    kv_format: KvFormat | None = None
    layout: Layout = SINGLE
    serving: Serving
    utilization: float | None = None
    kv_pool_bytes: int | None = None
    eager: bool = False
    images: bool = True
    sorts: bool = False
    many: bool = False

    @property
    def accelerator(self) -> Accelerator | None:
        """The device whose kernels and defaults stand for all; None where it is not known."""
        return self.accelerators[0] if self.accelerators else None

    @property
    def rules(self) -> EngineRules:
        """What the engine does with memory."""
        return rules(self.engine)

    @property
    def step(self) -> Step:
        """What decides the engine's reserve beside model and device."""
        return Step(
            max_batched_tokens=self.serving.max_batched_tokens,
            max_seqs=self.serving.max_seqs,
            layout=self.layout,
            eager=self.eager,
            images=self.images,
            sorts=self.sorts,
        )

    @property
    def stored_format(self) -> KvFormat | None:
        """``kv_format`` in the layout that the engine gives it on this device."""
        return self.rules.stored_format(self.model, self.kv_format, self.accelerator)


class Memo:
    """Parts of one model's deployments that many of them share. One per model; forget it after.

    A plan depends on a device only through its kernels, a reserve only through its class: a table of a
    hundred accelerators computes each a few times.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._known: dict[Hashable, object] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """What is known under ``key``, made if it is not. Errors are not kept."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What is taken of a device before requests come. Bytes are per device.

    A number is an ``int`` for one device and one format, else an array: ``[device]`` for ``total_bytes``,
    ``[format]`` for weights, ``[device, format]`` for the pool.

    Attributes:
        case: What was laid out.
        components: Weight bytes by component, one entry per weight format.
        overhead: What loading adds, by what it is for, one entry per weight format.
        weight_bytes: Tensors of the checkpoint.
        resident_bytes: Weights as loaded.
        reserve: What the engine keeps beside weights and cache.
        total_bytes: Memory that a process finds.
        memory_bytes: What the engine may take of it.
        pool_bytes: Left for the cache; negative where nothing is.
        uncertainty_bytes: Half width of the pool's error band.
    """

    case: Case
    components: tuple[ComponentBytes, ...]
    overhead: tuple[dict[str, int], ...]
    weight_bytes: int | Integers
    resident_bytes: int | Integers
    reserve: Reserve
    total_bytes: int | Integers
    memory_bytes: int | Integers
    pool_bytes: int | Integers
    uncertainty_bytes: int

    @property
    def budget(self) -> Budget:
        """The same as a record, for one device and one format."""
        return Budget(
            total_bytes=int(self.total_bytes),
            utilization=self.case.rules.share(self.case.utilization),
            weights=int(self.resident_bytes),
            activations=self.reserve.activations,
            non_framework=self.reserve.non_framework,
            graphs=self.reserve.graphs,
            kv_pool_bytes=max(int(self.pool_bytes), 0),
            uncertainty_bytes=self.uncertainty_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment(Allocation):
    """An allocation with the plan by which requests are laid into its pool.

    Methods that take contexts append an axis for them.

    Attributes:
        plan: How requests are laid into the pool.
        max_requests: Requests at once whatever memory says, or None.
    """

    plan: BlockPlan
    max_requests: int | None = None

    def requests(self, contexts: npt.ArrayLike) -> Integers:
        """Whole requests of each context that the pool holds."""
        return capacity.users(_spread(self.pool_bytes), self.plan, contexts)

    def concurrency(self, contexts: npt.ArrayLike) -> capacity.Reals:
        """The same as the engine prints it: a real number, infinite where a request holds nothing."""
        return capacity.concurrency(_spread(self.pool_bytes), self.plan, contexts)

    def printed_tokens(self, contexts: npt.ArrayLike) -> Integers:
        """Tokens of the pool as the engine's log line counts them."""
        return capacity.printed_tokens(
            _spread(self.pool_bytes), self.plan, contexts, self.case.engine.token_line
        )

    def longest_context(self) -> Integers:
        """The longest single request that the pool holds, up to the model's limit."""
        return capacity.longest_context(self.pool_bytes, self.plan, self.case.model.context_tokens)

    def verdicts(self, contexts: npt.ArrayLike) -> capacity.Codes:
        """Codes of :class:`kvreport.accounting.capacity.Verdict` for one request of each context."""
        # A pool given by hand replaces the budget, so the weights are no obstacle either.
        given = self.case.kv_pool_bytes is not None
        return capacity.verdict(
            memory_bytes=MAX_BYTES if given else _spread(self.memory_bytes),
            weight_bytes=_spread(self.resident_bytes),
            pool_bytes=_spread(self.pool_bytes),
            plan=self.plan,
            context_tokens=contexts,
            limit_tokens=self.case.model.context_tokens,
            uncertainty_bytes=self.uncertainty_bytes,
        )


def lay_out(case: Case, memo: Memo | None = None) -> Deployment:
    """Lay a model out on a device: everything between a question and its answer.

    Args:
        case: What is laid out.
        memo: What other cases of the same model have worked out; None to work it out here.

    Raises:
        InputError: If the combination is impossible, saying why and what would work.
    """
    known = Memo() if memo is None else memo
    blocks = plan_blocks(case, known)
    taken = allocate(case, known)
    return Deployment(
        **{name: getattr(taken, name) for name in Allocation.__slots__},
        plan=blocks,
        max_requests=case.rules.max_requests(case.serving),
    )


def plan_blocks(case: Case, memo: Memo | None = None) -> BlockPlan:
    """The second half of :func:`lay_out`: how requests are laid into the pool, whatever its size.

    Args:
        case: What is laid out; its weight formats and share of memory do not matter here.
        memo: What other cases of the same model have worked out; None to work it out here.

    Raises:
        InputError: If the combination is impossible, saying why and what would work.
    """
    known = Memo() if memo is None else memo
    known.get(("checked", case.layout), lambda: case.layout.check(case.model))
    return known.get(
        _plan_key(case),
        lambda: case.rules.plan(
            case.model,
            serving=case.serving,
            kv_format=case.kv_format,
            layout=case.layout,
            accelerator=case.accelerator,
        ),
    )


def allocate(case: Case, memo: Memo | None = None) -> Allocation:
    """The first half of :func:`lay_out`: weights, load overhead, reserve and the pool that is left.

    Args:
        case: What is laid out; its KV format does not matter here.
        memo: What other cases of the same model have worked out; None to work it out here.
    """
    known = Memo() if memo is None else memo
    engine = case.rules
    components = tuple(_weights(case, form, known) for form in case.weight_formats)
    overhead = tuple(_overhead(case, form, known) for form in case.weight_formats)
    tensors = [sum(parts.values()) for parts in components]
    resident = [size + sum(added.values()) for size, added in zip(tensors, overhead, strict=True)]
    kept = _reserve(case, known)
    total = [one.usable_bytes for one in case.accelerators]
    memory = [engine.memory_bytes(size, case.utilization) for size in total]
    scalar = not case.many and len(resident) == 1 and len(total) <= 1
    totals = (total or [0])[0] if scalar else np.asarray(total, dtype=np.int64)
    weights = resident[0] if scalar else np.asarray(resident, dtype=np.int64)
    given = case.kv_pool_bytes
    return Allocation(
        case=case,
        components=components,
        overhead=overhead,
        weight_bytes=tensors[0] if scalar else np.asarray(tensors, dtype=np.int64),
        resident_bytes=weights,
        reserve=kept,
        total_bytes=totals,
        memory_bytes=(memory or [0])[0] if scalar else np.asarray(memory, dtype=np.int64)[:, None],
        pool_bytes=(
            engine.pool_bytes(_column(totals), weights, kept.total, case.utilization)
            if given is None
            else given
        ),
        uncertainty_bytes=kept.uncertainty if given is None else 0,
    )


def upper_bound(case: Case, ceiling: Engine) -> Case:
    """The same case without an engine: nothing reserved, nothing rounded, in the layout that is stored."""
    return replace(case, engine=ceiling, kv_format=case.stored_format, utilization=None, kv_pool_bytes=None)


def device_class(engine: Engine, accelerator: Accelerator) -> Hashable:
    """What of an accelerator decides a deployment: one case can hold all accelerators of a class."""
    asked = rules(engine)
    return asked.reserve_class(accelerator), asked.kernel_class(accelerator)


def _reserve(case: Case, known: Memo) -> Reserve:
    device, engine = case.accelerator, case.rules
    if device is None:
        return NOTHING
    step = case.step
    kept = known.get(
        ("reserve", case.engine.name, engine.reserve_class(device), step),
        lambda: engine.reserve(case.model, device, step),
    )
    return engine.given_share_reserve(kept, engine.share(case.utilization), case.layout)


def _plan_key(case: Case) -> Hashable:
    """What decides a block plan; where nothing of a device or of the scheduler does, they are left out."""
    engine, serving = case.rules, case.serving
    kind: Hashable = (
        None if engine.same_on_every_device(case.model) else engine.kernel_class(case.accelerator)
    )
    step = (serving.max_batched_tokens, serving.max_seqs) if engine.reserves_for_steps(case.model) else None
    rest = (
        serving.block_tokens,
        serving.prefix_caching,
        serving.draft_tokens,
        serving.hybrid_manager,
        serving.sequences,
    )
    form = case.kv_format
    # Kernels may give one name different bytes on different devices.
    stored = None if form is None else (form.name, form.scale_bytes, form.scale_every, form.wide_rope_bytes)
    return "plan", case.engine.name, stored, kind, step, rest, case.layout


def _weights(case: Case, form: WeightFormat | None, known: Memo) -> ComponentBytes:
    without = None if case.images else TOWERS | frozenset(case.model.not_loaded)
    return known.get(
        ("weights", _name(form), case.layout, case.images),
        lambda: weights_by_component(case.model, form, case.formats, case.layout.tensor, without=without),
    )


def _overhead(case: Case, form: WeightFormat | None, known: Memo) -> dict[str, int]:
    device, engine = case.accelerator, case.rules
    if device is None:
        return {}
    return known.get(
        ("overhead", case.engine.name, _name(form), engine.kernel_class(device), case.layout),
        lambda: engine.load_overhead(case.model, form, case.formats, device, case.layout),
    )


def _name(form: WeightFormat | None) -> str | None:
    return None if form is None else form.name


def _column(total: int | Integers) -> int | Integers:
    return total if isinstance(total, int) else total[:, None]


def _spread(number: int | Integers) -> int | Integers:
    """A number for one case, or an array with an axis for contexts after its own."""
    return number if isinstance(number, int) else number[..., None]
