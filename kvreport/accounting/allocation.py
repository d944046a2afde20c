"""The halves of a deployment: what is taken of a device, and how requests are laid into the pool that is left."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kvreport.accounting import numeric as xp
from kvreport.accounting.all_to_all import buffer_bytes
from kvreport.accounting.budget import Budget
from kvreport.accounting.case import Case, Memo
from kvreport.accounting.engines.base import EngineRules
from kvreport.accounting.engines.registry import rules
from kvreport.accounting.engines.step import NOTHING, Reserve
from kvreport.accounting.extras import adapted_if_named, lora_bytes, vocabulary_modules, vocabulary_slots
from kvreport.accounting.numeric import Integers
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.accounting.shares import asked_memory, pool_bytes, share_on, start_shortage, stated_share
from kvreport.accounting.weights import ComponentBytes, on_host, weights_by_component
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.caches import RecurrentState
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.model import Component, Model
from kvreport.catalog.release import release_of, trait
from kvreport.catalog.remembered import remembered

TOWERS: Final[frozenset[Component]] = frozenset({"vision", "audio"})
"""Components that an engine told to serve text only does not load."""


@dataclass(frozen=True, slots=True)
class FollowedLengths:
    """How a reserve follows the longest request that a server is told to take: the longer, the more is kept.

    Attributes:
        reserves: What is kept where requests of so many tokens are told, for each class of devices.
        less: How much less that is than for ``base`` tokens, the different functions of these classes.
        less_of: Which of them each class has; ``len(less)`` for none.
        base: The length that the allocation's numbers are for.
        limit: The model's longest; what is longer is asked of no server.
        classes: The class of each device of a fleet, ``len(reserves)`` for none; None where there is one class.
    """

    reserves: tuple[Callable[[Any], Reserve], ...]
    less: tuple[Callable[[Any], Any], ...]
    less_of: tuple[int, ...]
    base: int
    limit: int
    classes: Integers | None = None
    _made: dict[int, tuple[Any, Any]] = field(default_factory=dict, compare=False, repr=False)

    def freed(self, contexts: xp.ArrayLike) -> Any:  # noqa: ANN401
        """Bytes that are kept less than in the allocation, and by how much narrower the error is, at each context.

        Returns:
            Two numbers, or arrays ``[context]``, or ``[device, 1, context]`` of a fleet.
        """
        if self.classes is None:
            return self._less(self.reserves[0], contexts)
        known = self._made.get(id(contexts))
        if known is not None:
            return known[1]
        np = xp.numpy()
        asked = np.atleast_1d(contexts)
        each = [self._less(one, asked) for one in self.reserves] + [(0 * asked, 0 * asked)]
        found = tuple(np.stack(part)[self.classes][:, None] for part in zip(*each, strict=True))
        self._made[id(contexts)] = (
            contexts,
            found,
        )  # the array is kept, so that no other one gets its identity
        return found

    def freed_for(self, tokens: Any) -> Any:  # noqa: ANN401
        """The bytes that are kept less, for a length of each pool: ``[device, …]`` of a fleet."""
        if self.classes is None:
            return self.less[0](xp.minimum(tokens, self.limit))
        np = xp.numpy()
        found = np.zeros_like(tokens)
        which = xp.integers([*self.less_of, len(self.less)])[self.classes]
        for number, less in enumerate(self.less):
            own = which == number
            found[own] = less(np.minimum(tokens[own], self.limit))
        return found

    def of(self, places: Any) -> FollowedLengths:  # noqa: ANN401 - as numpy takes them
        """The same of some devices."""
        if self.classes is None:
            return self
        return replace(self, classes=self.classes[places], _made={})

    def _less(self, reserve: Callable[[Any], Reserve], contexts: xp.ArrayLike) -> tuple[Any, Any]:
        here, there = reserve(self.base), reserve(xp.minimum(contexts, self.limit))
        return here.total - there.total, here.uncertainty - there.uncertainty


def joined(
    parts: Sequence[FollowedLengths | None], classes: Sequence[int | Integers], by_row: Callable[[Any], Any]
) -> FollowedLengths | None:
    """How the reserves of several fleets together follow the longest request; None where none does.

    ``parts``: those of each fleet. ``classes``: an array of the shape of each fleet's devices, for a
    fleet whose reserve follows nothing. ``by_row``: how arrays of each fleet's devices become one.
    """
    # Fleets in several KV formats share one allocation.
    known = list({id(one): one for one in parts if one is not None}.values())
    if not known:
        return None
    reserves = tuple(one for part in known for one in part.reserves)
    less = tuple(one for part in known for one in part.less)
    less_of: list[int] = []
    starts: dict[int, int] = {}
    before = 0
    for fleet in known:
        starts[id(fleet)] = len(less_of)
        less_of += [one + before if one < len(fleet.less) else len(less) for one in fleet.less_of]
        before += len(fleet.less)
    numbers: list[Any] = []
    for part, shape in zip(parts, classes, strict=True):
        if part is None:
            numbers.append(xp.full_like(shape, len(reserves)))
            continue
        own = xp.integers(part.classes)
        numbers.append(xp.where(own < len(part.reserves), own + starts[id(part)], len(reserves)))
    return replace(
        known[0], reserves=reserves, less=less, less_of=tuple(less_of), classes=by_row(numbers), _made={}
    )


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
        total_bytes: Memory that a process can use.
        memory_bytes: What the engine may take of it.
        pool_bytes: Left for the cache; negative where nothing is.
        uncertainty_bytes: Half width of the pool's error band.
        lengths: How the reserve follows the longest request that the server is told to take; None where it does not, or
            where the pool is given.
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
    lengths: FollowedLengths | None = None

    @property
    def budget(self) -> Budget:
        """The same as a record, for one device and one format."""
        return Budget(
            total_bytes=int(self.total_bytes),
            utilization=share_on(self.case.engine, self.case.accelerator, self.case.utilization),
            weights=int(self.resident_bytes),
            activations=int(self.reserve.activations),
            non_framework=int(self.reserve.non_framework),
            graphs=int(self.reserve.graphs),
            kv_pool_bytes=max(int(self.pool_bytes), 0),
            uncertainty_bytes=int(self.uncertainty_bytes),
        )


def allocate(case: Case, memo: Memo | None = None) -> Allocation:
    """The first half of :func:`lay_out`: weights, load overhead, reserve and the pool that is left.

    ``case``: what is laid out; of its KV format only matters what the reserve follows.
    """
    known = Memo() if memo is None else memo
    components = tuple(shared_weights(case, form, known) for form in case.weight_formats)
    overhead = tuple(shared_overhead(case, form, known) for form in case.weight_formats)
    tensors = [sum(parts.values()) for parts in components]
    resident = [size + sum(added.values()) for size, added in zip(tensors, overhead, strict=True)]
    kept = shared_reserve(case, known)
    total = [one.usable_bytes for one in case.accelerators]
    shares = shares_on(case)
    memory = [asked_memory(case.engine, size, share) for size, share in zip(total, shares, strict=True)]
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
            pools(case, column(totals), weights, kept.total, by_share(shares)) if given is None else given
        ),
        uncertainty_bytes=kept.uncertainty if given is None else 0,
        lengths=None
        if case.accelerator is None
        else lengths_on(case, ((case.accelerator, case.serving),), known),
    )


def lengths_on(
    case: Case, classes: Sequence[tuple[Accelerator, Serving]], known: Memo
) -> FollowedLengths | None:
    """How the reserve follows the longest request; None where it does not, or where the pool is given.

    ``classes``: a device of each class, and the scheduler sizes that the engine takes there.
    """
    if case.kv_pool_bytes is not None:
        return None
    engine, model, limit = case.rules, _reserving(case), case.model.context_tokens
    untold = replace(case, context_tokens=None)
    share = stated_share(case.engine, case.utilization)
    peaks: dict[Hashable, tuple[int, Callable[[Any], Any]]] = {}
    kinds: list[Hashable] = []
    for device, serving in classes:
        found = engine.following_peak(model, device, untold.step_of(serving), share)
        kinds.append(None if found is None else found[0])
        if found is not None and found[0] not in peaks and found[1](1) != found[1](limit):
            peaks[found[0]] = len(peaks), found[1]
    if not peaks:
        return None

    def told(device: Accelerator, serving: Serving) -> Callable[[Any], Reserve]:
        kept: dict[int, Reserve] = {}

        def reserve(tokens: Any) -> Reserve:  # noqa: ANN401 - a number or an array
            if not xp.is_plain(tokens):
                return reserve_on(replace(case, context_tokens=tokens), device, serving, known)
            if tokens not in kept:
                kept[tokens] = reserve_on(replace(case, context_tokens=tokens), device, serving, known)
            return kept[tokens]

        return reserve

    base = case.context_tokens or limit

    def less(peak: Callable[[Any], Any]) -> Callable[[Any], Any]:
        whole = peak(base)
        return lambda tokens: whole - peak(tokens)

    return FollowedLengths(
        reserves=tuple(told(*one) for one in classes),
        less=tuple(less(peak) for _, peak in peaks.values()),
        less_of=tuple(peaks[kind][0] if kind in peaks else len(peaks) for kind in kinds),
        base=base,
        limit=limit,
    )


def shares_on(case: Case) -> list[float]:
    """The share of memory that the engine takes of each device."""
    return _shares_on(case.engine, case.accelerators, case.utilization)


@remembered
def _shares_on(engine: Engine, devices: Sequence[Accelerator], utilization: float | None) -> list[float]:
    return [share_on(engine, one, utilization) for one in devices]


def by_share(shares: Sequence[float]) -> list[tuple[float, Any]]:
    """The different shares, each with the places of the devices that it is taken of.

    ``shares``: share of memory taken on each device.
    """
    return [(share, [n for n, one in enumerate(shares) if one == share]) for share in dict.fromkeys(shares)]


def pools(
    case: Case,
    total: int | Integers,
    resident: int | Integers,
    reserve: int | Integers,
    shares: Sequence[tuple[float, Any]],
) -> int | Integers:
    """The pools of all devices, each at its own share; sizes as for the engine's ``pool_bytes``.

    ``total``: memory of each device, in bytes. ``resident``: weights as loaded on each device, by weight
    format. ``reserve``: what the engine keeps on each device. ``shares``: shares of memory with their
    devices (:func:`by_share`); none for the engine's default on all.
    """
    engine = case.engine
    if len(shares) <= 1:
        share = shares[0][0] if shares else case.utilization
        return pool_bytes(engine, total, resident, reserve, share)
    np = xp.numpy()
    devices = np.size(total)
    weights = np.broadcast_to(resident, (devices, np.shape(resident)[-1]))
    totals, kept = np.reshape(total, (-1, 1)), np.broadcast_to(np.reshape(reserve, (-1, 1)), (devices, 1))
    found = np.empty(weights.shape, dtype=np.int64)
    for share, rows in shares:
        found[rows] = pool_bytes(engine, totals[rows], weights[rows], kept[rows], share)
    return xp.integers(found)


def shortages(case: Case, *, scalar: bool) -> tuple[int | Integers, int | Integers] | None:
    """What the engine asks for at start beyond what is free on each device, and the error; None if it does not ask."""
    found = _shortages(case.engine, case.accelerators, case.utilization)
    asked = [one for one in found if one is not None]
    if not asked or len(asked) < len(found):
        return None
    if scalar:
        return asked[0]
    return xp.integers([short for short, _ in asked])[:, None], xp.integers([band for _, band in asked])[
        :, None
    ]


@remembered
def _shortages(
    engine: Engine, devices: Sequence[Accelerator], utilization: float | None
) -> list[tuple[int, int] | None]:
    return [start_shortage(engine, one, utilization) for one in devices]


def load_overheads(
    case: Case, forms: Sequence[WeightFormat | None], memo: Memo | None = None
) -> tuple[int, ...]:
    """Bytes that loading adds on one device, one number per weight format.

    ``case``: what is laid out; its own formats and its share of memory do not matter here. ``forms``: the
    weight formats; None is as released.
    """
    known = Memo() if memo is None else memo
    device = case.accelerator
    if device is None:
        return (0,) * len(forms)
    kernels = case.rules.overhead_class(case.model, device)
    return tuple(
        sum(overhead_on(case, form, device, kernels, case.serving, known).values()) for form in forms
    )


def plan_blocks(case: Case, memo: Memo | None = None) -> BlockPlan:
    """The second half of :func:`lay_out`: how requests are laid into the pool, whatever its size.

    ``case``: what is laid out; its weight formats and share of memory do not matter here.

    Raises:
        InputError: If the combination is impossible, saying why and what would work.
    """
    known = Memo() if memo is None else memo
    whole = case.model if case.stage_of is None else case.stage_of[0]
    known.get(("checked", case.layout), lambda: case.layout.check(whole))
    return plan_on(case, case.accelerator, case.serving, known)


def plan_on(case: Case, device: Accelerator | None, serving: Serving, known: Memo) -> BlockPlan:
    """The block plan on a device with scheduler sizes of its own, worked out once for all that it is the same for."""
    return known.get(_plan_key(case, device, serving), lambda: new_plan(case, device, serving))


def new_plan(case: Case, device: Accelerator | None, serving: Serving) -> BlockPlan:
    """The same, worked out."""
    if device is not case.accelerator or serving is not case.serving:
        case = replace(case, accelerators=() if device is None else (device,), serving=serving)
    return case.rules.plan(case)


def shared_reserve(case: Case, known: Memo) -> Reserve:
    """The reserve of a case, worked out once for each class of devices and step."""
    return NOTHING if case.accelerator is None else reserve_on(case, case.accelerator, case.serving, known)


def reserve_on(case: Case, device: Accelerator, serving: Serving, known: Memo) -> Reserve:
    """The same on one device of a fleet, with the scheduler sizes that the engine takes there."""
    step, model = case.step_of(serving), _reserving(case)
    share = stated_share(case.engine, case.utilization)

    def worked_out() -> Reserve:
        return case.rules.reserve(model, device, step, share)

    alike = step.context_tokens is None or xp.is_plain(step.context_tokens)
    key = ("reserve", case.engine.name, device_class(case.engine, device)[0], step, share)
    kept = known.get(key, worked_out) if alike else worked_out()
    if not case.held_bytes or trait(case.engine, "held_apart"):
        return kept
    return replace(kept, non_framework=kept.non_framework + case.held_bytes)


def _reserving(case: Case) -> Model:
    """The model whose reserve it is."""
    return _planned(case) if trait(case.engine, "stages_reserve_as_whole") else case.model


def _planned(case: Case) -> Model:
    """The model whose plan it is: a pipeline stage's is made of the whole model's."""
    return case.model if case.stage_of is None else case.stage_of[0]


def plan_class(
    engine: EngineRules, model: Model, form: KvFormat | None, device: Accelerator | None, serving: Serving
) -> tuple[Hashable, ...]:
    """What of a device and of its scheduler decides a model's block plan: equal ones have the same, laid out alike.

    ``model``: the model; of a pipeline stage the whole one.
    """
    return stored_key(form), engine.plan_class(model, form, device, serving)


def _plan_key(case: Case, device: Accelerator | None, serving: Serving) -> Hashable:
    """What decides a block plan; where nothing of a device or of the scheduler does, they are left out."""
    rest = (
        serving.block_tokens,
        serving.prefix_caching,
        serving.draft_tokens,
        serving.draft_in_model,
        serving.sequences,
        serving.window_share,
        serving.max_states,
    )
    return (
        "plan",
        case.engine.name,
        case.engine.version,
        *plan_class(case.rules, _planned(case), case.kv_format, device, serving),
        rest,
        case.layout,
    )


def stored_key(form: KvFormat | None) -> Hashable:
    """A KV format as a key: kernels may give one name different bytes on different devices."""
    return None if form is None else (form.name, form.scale_bytes, form.scale_every, form.wide_rope_bytes)


def encoders_left_out(engine: Engine, *, images: bool, clips: bool) -> frozenset[Component]:
    """Encoders that are not loaded where nothing is taken that they read; an audio encoder may have a mark of its own.

    ``images``: False for text only. ``clips``: False if no audio is taken.
    """
    left_out = frozenset[Component]() if images else TOWERS
    return left_out | {"audio"} if not clips and release_of(engine).has("encoders_marked") else left_out


def shared_weights(case: Case, form: WeightFormat | None, known: Memo) -> ComponentBytes:
    """Weight bytes on one rank by component, worked out once for each format and layout."""
    left_out = encoders_left_out(case.engine, images=case.images, clips=case.clips)
    without = left_out | frozenset(case.model.not_loaded) if left_out else None
    layout = case.layout
    ranks, apart = case.rules.component_ranks(case.model, layout), on_host(case.engine, case.model)
    spread = (layout.tensor, layout.expert_ranks, layout.expert, layout.redundant_experts)
    return known.get(
        ("weights", format_name(form), spread, left_out, tuple(ranks.items()), apart),
        lambda: weights_by_component(
            case.model,
            form,
            case.formats,
            layout.tensor,
            without=without,
            expert_ranks=layout.expert_ranks,
            whole_experts=layout.expert,
            redundant_experts=layout.redundant_experts,
            component_ranks=ranks,
            on_host=apart,
        ),
    )


def shared_overhead(case: Case, form: WeightFormat | None, known: Memo) -> dict[str, int]:
    """What loading adds on one rank, by what it is for, worked out once for each format and class of kernels."""
    if case.accelerator is None:
        return {}
    kernels = case.rules.overhead_class(case.model, case.accelerator)
    return overhead_on(case, form, case.accelerator, kernels, case.serving, known)


def overhead_class(case: Case, *, all_to_all: bool) -> Hashable:
    """What of its device and of its scheduler decides what loading adds: equal ones have the same, laid out alike.

    ``all_to_all``: whether ranks exchange tokens, whose buffers go by the scheduler.
    """
    device = case.accelerator
    kernels = None if device is None else case.rules.overhead_class(case.model, device)
    return kernels, case.serving.max_batched_tokens if all_to_all else None


def overhead_on(
    case: Case,
    form: WeightFormat | None,
    device: Accelerator,
    kernels: Hashable,
    serving: Serving,
    known: Memo,
) -> dict[str, int]:
    """The same on one device of a fleet, with the scheduler sizes that the engine takes there.

    ``form``: the weight format; None is as released. ``kernels``: what of it decides what loading adds.
    """
    engine, layout = case.rules, case.layout
    added = known.get(
        ("overhead", case.engine.name, format_name(form), kernels, layout),
        lambda: engine.load_overhead(case.model, form, case.formats, device, layout),
    )
    further: dict[str, int] = {}
    if any(case.lora_slots):
        slots, words = case.lora_slots, vocabulary_modules(case.engine, case.model)
        further["lora_adapters"] = lora_bytes(case.model, layout, *slots, adapted_if_named(case.engine))
        further["lora_adapters"] += vocabulary_slots(case.model, *slots, words)
    if layout.all_to_all:
        further["all_to_all_buffers"] = buffer_bytes(
            case.model, layout, case.engine, serving.max_batched_tokens
        )
    return added | {name: size for name, size in further.items() if size}


def state_slots_wanted(engine: Engine, model: Model, serving: Serving, *, eager: bool) -> int | None:
    """Blocks of the pool that must exist at start, one for each sequence; None without such a rule.

    A model with recurrent states needs them to capture its graphs, or captures fewer of them: "max_num_seqs (…) exceeds available
    Mamba cache blocks (…)". ``eager``: no graphs are captured.
    """
    if eager or not release_of(engine).has("state_for_every_graph"):
        return None
    states = any(isinstance(cache, RecurrentState) for cache in model.every_cache)
    return serving.max_seqs if states else None


def format_name(form: WeightFormat | None) -> str | None:
    """A weight format as a key; None is as released."""
    return None if form is None else form.name


def column(total: int | Integers) -> int | Integers:
    """A number per device with an axis for weight formats after it."""
    return total if isinstance(total, int) else total[:, None]


@remembered
def device_class(engine: Engine, accelerator: Accelerator) -> tuple[Hashable, Hashable]:
    """What of an accelerator decides a deployment, its reserve first: one case can hold all accelerators of a class."""
    return rules(engine).device_class(accelerator)
