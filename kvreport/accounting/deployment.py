"""The trunk: weights, load overhead, reserve, pool, block plan, limits. Every answer is made here.

:func:`lay_out` takes a :class:`Case` — one model under one engine, with records for names — and returns a
:class:`Deployment`. A case is one device and one weight format, or many of each at once: accelerators that
the engine treats alike stand along the first axis, weight formats along the second. The arithmetic
is the same; numbers become arrays. One estimate, the published matrix, a ranking, a start-up log and the
files for the browser all come through here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from kvreport.accounting import capacity
from kvreport.accounting import numeric as xp
from kvreport.accounting.budget import Budget
from kvreport.accounting.engines.base import NOTHING, EngineRules, Reserve, Step
from kvreport.accounting.engines.registry import rules
from kvreport.accounting.extras import lora_bytes
from kvreport.accounting.numeric import Codes, Integers, Reals
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.accounting.profile import CacheProfile
from kvreport.accounting.stages import stages
from kvreport.accounting.support import Asked, spread_codes
from kvreport.accounting.support import codes as refusals
from kvreport.accounting.weights import ComponentBytes, weights_by_component
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.model import Component, Model
from kvreport.catalog.support import Support
from kvreport.errors import InputError
from kvreport.units import MAX_BYTES

T = TypeVar("T")
A = TypeVar("A", bound="xp.Numbers")

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
        lora_slots: LoRA adapters held on a device at once, and their largest rank.
        context_tokens: The longest request that the engine was told to take; None for the model's longest.
        many: True for arrays even where there is one device and one format.
        replica: The accelerators of one data rank, place by place, where they differ; else empty.
        dtype: The type to compute in; None is the checkpoint's own.
        support: What engines' releases run on; None not to judge it.
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
    lora_slots: tuple[int, int] = (0, 0)
    context_tokens: int | None = None
    many: bool = False
    replica: tuple[Accelerator, ...] = ()
    dtype: str | None = None
    support: Support | None = None

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
            context_tokens=self.context_tokens,
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
    uncertainty_bytes: int | Integers

    @property
    def budget(self) -> Budget:
        """The same as a record, for one device and one format."""
        return Budget(
            total_bytes=int(self.total_bytes),
            utilization=self.case.rules.share(self.case.utilization),
            weights=int(self.resident_bytes),
            activations=int(self.reserve.activations),
            non_framework=int(self.reserve.non_framework),
            graphs=int(self.reserve.graphs),
            kv_pool_bytes=max(int(self.pool_bytes), 0),
            uncertainty_bytes=int(self.uncertainty_bytes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment(Allocation):
    """An allocation with the plan by which requests are laid into its pool.

    Sizes are those of the fullest rank. Counts are of one data rank, whose every device must hold its part
    of each request: the least of all its ranks. Methods that take contexts append an axis for them.

    Attributes:
        plan: How requests are laid into the pool.
        max_requests: Requests at once whatever memory says, or None.
        state_slots_wanted: Blocks that must exist at start, or None.
        layers: Layers that this rank runs.
        places: Positions of the devices that this is, in the replica.
        others: Ranks that differ: other pipeline stages, other accelerators.
        refused: What the release refuses, whatever the memory: codes of
            :class:`kvreport.accounting.capacity.Verdict`, 0 where it does not; ``[device, format]`` for many.
    """

    plan: BlockPlan
    max_requests: int | None = None
    state_slots_wanted: int | None = None
    layers: range = range(0)
    places: tuple[int, ...] = (0,)
    others: tuple[Deployment, ...] = ()
    refused: int | Codes = 0

    @property
    def ranks(self) -> tuple[Deployment, ...]:
        """This rank and those that differ, in the order of their places."""
        return tuple(sorted((self, *self.others), key=lambda one: one.places))

    def own_requests(self, contexts: xp.ArrayLike) -> Integers:
        """Whole requests of each context that this rank's pool holds its part of."""
        return capacity.users(_spread(self.pool_bytes), self.plan, contexts)

    def requests(self, contexts: xp.ArrayLike) -> Integers:
        """Whole requests of each context that the pool holds."""
        own = self.own_requests(contexts)
        return _reduce(xp.minimum, own, (one.requests(contexts) for one in self.others))

    def concurrency(self, contexts: xp.ArrayLike) -> Reals:
        """The same as the engine prints it: a real number, infinite where a request holds nothing."""
        own = capacity.concurrency(_spread(self.pool_bytes), self.plan, contexts)
        return _reduce(xp.minimum, own, (one.concurrency(contexts) for one in self.others))

    def printed_tokens(self, contexts: xp.ArrayLike) -> Integers:
        """Tokens of the pool as the engine's log line counts them."""
        pool, line = _spread(self.pool_bytes), self.case.engine.token_line
        own = capacity.printed_tokens(pool, self.plan, contexts, line)
        return _reduce(xp.minimum, own, (one.printed_tokens(contexts) for one in self.others))

    def longest_context(self) -> Integers:
        """The longest single request that the pool holds, up to the model's limit."""
        own = capacity.longest_context(self.pool_bytes, self.plan, self.case.model.context_tokens)
        return _reduce(xp.minimum, own, (one.longest_context() for one in self.others))

    def verdicts(self, contexts: xp.ArrayLike) -> Codes:
        """Codes of :class:`kvreport.accounting.capacity.Verdict` for one request of each context."""
        # A pool given by hand replaces the budget, so the weights are no obstacle either.
        given = self.case.kv_pool_bytes is not None
        own = capacity.verdict(
            usable_bytes=MAX_BYTES if given else _spread(_column(self.total_bytes)),
            weight_bytes=_spread(self.resident_bytes),
            pool_bytes=_spread(self.pool_bytes),
            plan=self.plan,
            context_tokens=contexts,
            limit_tokens=self.case.model.context_tokens,
            uncertainty_bytes=_spread(_column(self.uncertainty_bytes)),
            state_slots_wanted=self.state_slots_wanted,
        )
        own = xp.maximum(own, self.refused if isinstance(self.refused, int) else self.refused[..., None])
        return _reduce(xp.maximum, xp.codes(own), (one.verdicts(contexts) for one in self.others))

    def shortfall(self, contexts: xp.ArrayLike) -> Integers:
        """Bytes per device that one request of each context lacks; 0 where it fits."""
        own = capacity.shortfall(_spread(self.pool_bytes), self.plan, contexts, self.state_slots_wanted)
        return _reduce(xp.maximum, own, (one.shortfall(contexts) for one in self.others))

    def running(self, held: Integers, codes: Codes) -> Integers:
        """Requests that the engine runs at once on one data rank; 0 where it does not start.

        Args:
            held: What :meth:`requests` says of the contexts.
            codes: What :meth:`verdicts` says of them.
        """
        if self.max_requests is not None:
            held = xp.minimum(held, self.max_requests)
        return xp.integers(xp.where(codes <= capacity.Verdict.TIGHT, held, 0))

    def limited_by(self, held: Integers, codes: Codes) -> Codes:
        """Codes of :class:`kvreport.accounting.capacity.Limit`; arguments as for :meth:`running`."""
        capped = xp.full_like(held, value=False) if self.max_requests is None else held >= self.max_requests
        slots = None if self.plan.pool is None else self.plan.pool.state_requests(_spread(self.pool_bytes))
        by_states = xp.full_like(held, value=False) if slots is None else held >= slots
        limits = xp.select(
            [
                codes == capacity.Verdict.CONTEXT_EXCEEDS_MODEL,
                codes == capacity.Verdict.MAX_SEQS_EXCEEDS_STATES,
                (codes <= capacity.Verdict.TIGHT) & by_states & xp.logical_not(capped),
                (codes <= capacity.Verdict.TIGHT) & capped,
            ],
            [
                capacity.Limit.CONTEXT,
                capacity.Limit.STATE_SLOTS,
                capacity.Limit.STATE_SLOTS,
                capacity.Limit.MAX_NUM_SEQS,
            ],
            capacity.Limit.KV_POOL,
        )
        return xp.codes(limits)


def lay_out(case: Case, memo: Memo | None = None) -> Deployment:
    """Lay a model out on a device: everything between a question and its answer.

    Args:
        case: What is laid out.
        memo: What other cases of the same model have worked out; None to work it out here.

    Raises:
        InputError: If the combination is impossible, saying why and what would work.
    """
    known = Memo() if memo is None else memo
    layout = case.layout
    known.get(("checked", layout), lambda: layout.check(case.model))
    groups = _replica(case)
    if layout.pipeline == 1 and len(groups[0]) == 1:
        return _rank(case, known, range(case.model.layer_count), next(iter(groups[0].values())))
    parts = known.get(("stages", layout.pipeline), lambda: stages(case.model, layout.pipeline))
    ranks = []
    for number, stage in enumerate(parts):
        memo_of_stage = known.get(("memo", layout.pipeline, stage.layers), Memo)
        first = number * layout.tensor
        for places in groups[number].values():
            devices = (case.replica[first + places[0]],) if case.replica else case.accelerators
            at_stage = replace(case, model=stage.model, accelerators=devices)
            where = tuple(place + first for place in places)
            ranks.append(_rank(at_stage, memo_of_stage, stage.layers, where))
    ranks.sort(key=lambda one: int(xp.least(one.pool_bytes)))
    return replace(ranks[0], others=tuple(ranks[1:]))


def _replica(case: Case) -> list[dict[Hashable, tuple[int, ...]]]:
    """For each stage: positions inside it, by what kind of accelerator stands there."""
    layout = case.layout
    found: list[dict[Hashable, tuple[int, ...]]] = []
    for stage in range(layout.pipeline):
        kinds: dict[Hashable, tuple[int, ...]] = {}
        for place in range(layout.tensor):
            kind = case.replica[stage * layout.tensor + place].id if case.replica else None
            kinds[kind] = (*kinds.get(kind, ()), place)
        found.append(kinds)
    return found


def _rank(case: Case, known: Memo, layers: range, places: tuple[int, ...]) -> Deployment:
    """Lay out one rank: a stage's model on one kind of device."""
    taken = allocate(case, known)
    return Deployment(
        **{name: getattr(taken, name) for name in Allocation.__slots__},
        plan=_blocks(case, known),
        max_requests=case.rules.max_requests(case.serving),
        state_slots_wanted=case.rules.state_slots_wanted(case.model, case.serving, eager=case.eager),
        layers=layers,
        places=places,
        refused=_refused(case, known, scalar=isinstance(taken.total_bytes, int)),
    )


def _refused(case: Case, known: Memo, *, scalar: bool = False) -> int | Codes:
    """Codes of what the release refuses; 0 without rules."""
    support = case.support
    if support is None or not case.accelerators:
        return 0
    devices, name = case.accelerators, None if case.kv_format is None else case.kv_format.name
    engine, forms = case.engine, tuple(map(_name, case.weight_formats))
    found = known.get(
        ("refused", engine.name, tuple(device.id for device in devices), forms, name, case.dtype),
        lambda: refusals(
            support, engine, devices, case.model, case.weight_formats, case.kv_format, case.dtype
        ),
    )
    asked = Asked(
        layout=case.layout,
        lora_rank=case.lora_slots[1] if case.lora_slots[0] else 0,
        formats=case.formats,
    )
    spread = known.get(
        ("refused", engine.name, forms, case.layout, asked.lora_rank),
        lambda: spread_codes(support, engine, case.model, case.weight_formats, asked),
    )
    if any(spread):
        found = [[max(pair) for pair in zip(row, spread, strict=True)] for row in found]
    return found[0][0] if scalar else xp.codes(found)


@dataclass(frozen=True, slots=True)
class Alike:
    """Accelerators of a fleet that an engine treats alike (:func:`device_class`).

    Attributes:
        places: Their positions.
        serving: The scheduler sizes that the engine takes on them.
        kernels: Their kernel class.
    """

    places: tuple[int, ...]
    serving: Serving
    kernels: Hashable


def lay_out_fleet(case: Case, alike: Sequence[Alike], memo: Memo) -> Iterator[tuple[list[int], Deployment]]:
    """Lay one model out on many accelerators at once, whatever differs between them.

    Args:
        case: What is laid out, on all ``accelerators``; its ``serving`` is not asked.
        alike: Accelerators that the engine treats alike. Positions that no group has are left out.
        memo: What other cases of the same model have worked out.

    Yields:
        Positions with their deployment, whose first axis they are. Accelerators with equal block plans are
        together; those on which the combination is impossible are with none.
    """
    layout = case.layout
    parts = memo.get(("stages", layout.pipeline), lambda: stages(case.model, layout.pipeline))
    memos = [memo if len(parts) == 1 else memo.get(("memo", layout.pipeline, p.layers), Memo) for p in parts]
    engine = case.rules
    everywhere, by_step = _decides(case, memo)
    groups: dict[Hashable, tuple[list[BlockPlan], list[int], Serving]] = {}
    asked: dict[Hashable, Hashable | None] = {}
    for group in alike:
        kind = None if everywhere else group.kernels
        step = (group.serving.max_batched_tokens, group.serving.max_seqs) if by_step else None
        wanted = engine.max_requests(group.serving)
        short = (kind, step, wanted)
        if short not in asked:
            one = replace(case, accelerators=(case.accelerators[group.places[0]],), serving=group.serving)
            try:
                plans = [
                    _blocks(one if len(parts) == 1 else replace(one, model=part.model), known)
                    for part, known in zip(parts, memos, strict=True)
                ]
            except InputError:
                asked[short] = None
                continue
            asked[short] = (wanted, *((plan.block_bytes, plan.kept_blocks, plan.profile) for plan in plans))
            groups.setdefault(asked[short], (plans, [], group.serving))
        key = asked[short]
        if key is not None:
            groups[key][1].extend(group.places)
    refused = _refused(case, memo)
    for plans, members, serving in groups.values():
        ranks = []
        for part, known, plan in zip(parts, memos, plans, strict=True):
            of_part = replace(case, model=part.model)
            taken = known.get(
                ("fleet", layout, len(case.accelerators), case.accelerator and case.accelerator.id, alike),
                lambda of_part=of_part, known=known: _allocate_fleet(of_part, alike, known),  # type: ignore[misc]
            )
            rank = _of_fleet(taken, of_part, members, plan, part.layers, serving)
            ranks.append(rank if isinstance(refused, int) else replace(rank, refused=refused[members]))
        ranks.sort(key=lambda rank: int(xp.least(rank.pool_bytes)))
        yield members, replace(ranks[0], others=tuple(ranks[1:]))


def _allocate_fleet(case: Case, alike: Sequence[Alike], known: Memo) -> Allocation:
    """The allocation of many accelerators: arrays whose first axis is their position."""
    np = xp.numpy()
    engine, devices = case.rules, case.accelerators
    components = tuple(_weights(case, form, known) for form in case.weight_formats)
    tensors = xp.integers([sum(parts.values()) for parts in components])
    total = xp.integers([device.usable_bytes for device in devices])
    memory = xp.integers([engine.memory_bytes(size, case.utilization) for size in total.tolist()])
    resident = np.broadcast_to(tensors, (len(devices), len(tensors))).copy()
    kept = np.zeros((4, len(devices)), dtype=np.int64)
    for group in alike:
        members = list(group.places)
        one = replace(case, accelerators=(devices[members[0]],), serving=group.serving)
        added = [sum(_overhead(one, form, known).values()) for form in case.weight_formats]
        resident[members] += xp.integers(added)
        found = _reserve(one, known)
        kept[:, members] = np.asarray(
            [[found.activations], [found.non_framework], [found.graphs], [found.uncertainty]]
        )
    reserve = Reserve(*kept)
    return Allocation(
        case=case,
        components=components,
        overhead=(),
        weight_bytes=tensors,
        resident_bytes=resident,
        reserve=reserve,
        total_bytes=total,
        memory_bytes=memory[:, None],
        pool_bytes=engine.pool_bytes(total[:, None], resident, reserve.total[:, None], case.utilization),
        uncertainty_bytes=reserve.uncertainty,
    )


def _of_fleet(
    taken: Allocation, case: Case, positions: list[int], plan: BlockPlan, layers: range, serving: Serving
) -> Deployment:
    """Some accelerators of a fleet's allocation, which all KV formats share, with the plan that they share."""
    reserve = taken.reserve
    parts = (reserve.activations, reserve.non_framework, reserve.graphs, reserve.uncertainty)
    kept = Reserve(*(xp.integers(part)[positions] for part in parts))
    return Deployment(
        case=replace(
            case, accelerators=tuple(case.accelerators[place] for place in positions), serving=serving
        ),
        components=taken.components,
        overhead=(),
        weight_bytes=taken.weight_bytes,
        resident_bytes=xp.integers(taken.resident_bytes)[positions],
        reserve=kept,
        total_bytes=xp.integers(taken.total_bytes)[positions],
        memory_bytes=xp.integers(taken.memory_bytes)[positions],
        pool_bytes=xp.integers(taken.pool_bytes)[positions],
        uncertainty_bytes=kept.uncertainty,
        plan=plan,
        max_requests=case.rules.max_requests(serving),
        state_slots_wanted=case.rules.state_slots_wanted(case.model, serving, eager=case.eager),
        layers=layers,
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
    return _blocks(case, known)


def _blocks(case: Case, known: Memo) -> BlockPlan:
    return known.get(_plan_key(case, known), lambda: _plan(case))


def _plan(case: Case) -> BlockPlan:
    return case.rules.plan(
        case.model,
        serving=case.serving,
        kv_format=case.kv_format,
        layout=case.layout,
        accelerator=case.accelerator,
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
    totals = (total or [0])[0] if scalar else xp.integers(total)
    weights = resident[0] if scalar else xp.integers(resident)
    given = case.kv_pool_bytes
    return Allocation(
        case=case,
        components=components,
        overhead=overhead,
        weight_bytes=tensors[0] if scalar else xp.integers(tensors),
        resident_bytes=weights,
        reserve=kept,
        total_bytes=totals,
        memory_bytes=(memory or [0])[0] if scalar else xp.integers(memory)[:, None],
        pool_bytes=(
            engine.pool_bytes(_column(totals), weights, kept.total, case.utilization)
            if given is None
            else given
        ),
        uncertainty_bytes=kept.uncertainty if given is None else 0,
    )


def load_overheads(case: Case, memo: Memo | None = None) -> tuple[int, ...]:
    """Bytes that loading adds on one device, one number per weight format.

    Args:
        case: What is laid out; its KV format and share of memory do not matter here.
        memo: What other cases of the same model have worked out; None to work it out here.
    """
    known = Memo() if memo is None else memo
    return tuple(sum(_overhead(case, form, known).values()) for form in case.weight_formats)


def upper_bound(case: Case, ceiling: Engine) -> Case:
    """The same case without an engine: nothing reserved, nothing rounded, in the layout that is stored."""
    return replace(case, engine=ceiling, kv_format=case.stored_format, utilization=None, kv_pool_bytes=None)


@dataclass(frozen=True, slots=True)
class Bound:
    """What a deployment would hold if nothing were reserved or rounded.

    Attributes:
        profile: What one request holds on the fullest rank, as the architecture needs it.
        requests: Whole requests of each context, on one data rank.
    """

    profile: CacheProfile
    requests: Integers


def bound_of(laid: Deployment, ceiling: Engine, contexts: xp.ArrayLike, memo: Memo | None = None) -> Bound:
    """The upper bound of a deployment; arguments as for :func:`lay_out` and :meth:`Deployment.requests`."""
    known = Memo() if memo is None else memo
    profiles, counts = [], []
    for rank in (laid, *laid.others):
        case = upper_bound(rank.case, ceiling)
        plan = _bound_plan(case, rank.layers, known)
        room = case.rules.pool_bytes(_column(rank.total_bytes), rank.weight_bytes)
        profiles.append(plan.profile)
        counts.append(capacity.users(_spread(room), plan, contexts))
    return Bound(profiles[0], _reduce(xp.minimum, counts[0], iter(counts[1:])))


def _bound_plan(case: Case, layers: range, known: Memo) -> BlockPlan:
    return known.get(("bound", layers, _stored(case.kv_format), case.layout), lambda: _plan(case))


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
    return engine.given_share_reserve(kept, engine.share(case.utilization), case.model, device, step)


def _decides(case: Case, known: Memo) -> tuple[bool, bool]:
    """Whether a plan is the same on every device, and whether scheduler sizes change it."""
    engine = case.rules
    return known.get(
        ("decides", case.engine.name),
        lambda: (engine.same_on_every_device(case.model), engine.reserves_for_steps(case.model)),
    )


def _plan_key(case: Case, known: Memo) -> Hashable:
    """What decides a block plan; where nothing of a device or of the scheduler does, they are left out."""
    engine, serving, name = case.rules, case.serving, case.engine.name
    alike, steps = _decides(case, known)
    kind: Hashable = None if alike else engine.kernel_class(case.accelerator)
    step = (serving.max_batched_tokens, serving.max_seqs) if steps else None
    rest = (
        serving.block_tokens,
        serving.prefix_caching,
        serving.draft_tokens,
        serving.draft_in_model,
        serving.hybrid_manager,
        serving.sequences,
    )
    return "plan", name, _stored(case.kv_format), kind, step, rest, case.layout


def _stored(form: KvFormat | None) -> Hashable:
    """A KV format as a key: kernels may give one name different bytes on different devices."""
    return None if form is None else (form.name, form.scale_bytes, form.scale_every, form.wide_rope_bytes)


def _weights(case: Case, form: WeightFormat | None, known: Memo) -> ComponentBytes:
    without = None if case.images else TOWERS | frozenset(case.model.not_loaded)
    return known.get(
        ("weights", _name(form), case.layout, case.images),
        lambda: weights_by_component(
            case.model,
            form,
            case.formats,
            case.layout.tensor,
            without=without,
            expert_ranks=case.layout.expert_ranks,
            whole_experts=case.layout.expert,
        ),
    )


def _overhead(case: Case, form: WeightFormat | None, known: Memo) -> dict[str, int]:
    device, engine = case.accelerator, case.rules
    adapters = lora_bytes(case.model, case.layout, *case.lora_slots)
    if device is None:
        return {}
    added = known.get(
        ("overhead", case.engine.name, _name(form), engine.kernel_class(device), case.layout),
        lambda: engine.load_overhead(case.model, form, case.formats, device, case.layout),
    )
    return added | {"lora_adapters": adapters} if adapters else added


def _name(form: WeightFormat | None) -> str | None:
    return None if form is None else form.name


def _column(total: int | Integers) -> int | Integers:
    return total if isinstance(total, int) else total[:, None]


def _reduce(pick: Callable[[A, A], A], own: A, others: Iterator[A]) -> A:
    for other in others:
        own = pick(own, other)
    return own


def _spread(number: int | Integers) -> int | Integers:
    """A number for one case, or an array with an axis for contexts after its own."""
    return number if isinstance(number, int) else number[..., None]
