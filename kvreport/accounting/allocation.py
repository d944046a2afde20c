"""The halves of a deployment: what is taken of a device, and how requests are laid into the pool that is left."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kvreport.accounting import numeric as xp
from kvreport.accounting.all_to_all import buffer_bytes
from kvreport.accounting.budget import Budget
from kvreport.accounting.case import Case, Memo
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.protocol import EngineRules
from kvreport.accounting.engines.step import NOTHING, Loading, Reserve
from kvreport.accounting.extras import adapted_if_named, lora_bytes, vocabulary_modules, vocabulary_slots
from kvreport.accounting.numeric import Integers
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.accounting.shares import pool_bytes, share_on, start_shortage
from kvreport.accounting.weights import ComponentBytes, on_host, weights_by_component
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.caches import RecurrentState
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat, RecordFormat, WeightFormat
from kvreport.catalog.model import Component, Model
from kvreport.catalog.release import release_of, trait
from kvreport.catalog.remembered import remembered

TOWERS: Final[frozenset[Component]] = frozenset({"vision", "audio"})
"""Components that an engine told to serve text only does not load."""


@dataclass(frozen=True, slots=True)
class FollowedLengths:
    """How a reserve follows the longest request that a server is told to take: the longer, the more is kept.

    Beyond one length some begin again with less (``falls_beyond``).
    """

    # What is kept where requests of so many tokens are told, for each class of devices.
    reserves: tuple[Callable[[Any], Reserve], ...]
    # How much less that is than for ``base`` tokens, the different functions of these classes.
    less: tuple[Callable[[Any], Any], ...]
    less_of: tuple[int, ...]  # Which of them each class has; ``len(less)`` for none.
    base: int  # The length that the allocation's numbers are for.
    limit: int  # The model's longest; what is longer is asked of no server.
    falls_beyond: int  # The length beyond which less may be kept; 0 where there is none.
    # The class of each device of a fleet, ``len(reserves)`` for none; None where there is one class.
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
        known[0],
        reserves=reserves,
        less=less,
        less_of=tuple(less_of),
        falls_beyond=max(one.falls_beyond for one in known),
        classes=by_row(numbers),
        _made={},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What is taken of a device before requests come. Bytes are per device.

    A number is an ``int`` for one device and one format, else an array: ``[device]`` for ``total_bytes``,
    ``[format]`` for weights, ``[device, format]`` for the pool and its error.
    """

    case: Case  # What was laid out.
    components: tuple[ComponentBytes, ...]  # Weight bytes by component, one entry per weight format.
    overhead: tuple[dict[str, int], ...]  # What loading adds, by what it is for, one entry per weight format.
    weight_bytes: int | Integers  # Tensors of the checkpoint.
    resident_bytes: int | Integers  # Weights as loaded.
    reserve: Reserve  # What the engine keeps beside weights and cache.
    total_bytes: int | Integers  # Memory that a process can use.
    pool_bytes: int | Integers  # Left for the cache; negative where nothing is.
    uncertainty_bytes: int | Integers  # Half width of the pool's error band.
    # How the reserve follows the longest request that the server is told to take; None where it does not, or
    # where the pool is given.
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
    forms, devices, alike = case.weight_formats, case.accelerators, case.alike
    components = tuple(shared_weights(case, form, known) for form in forms)
    tensors = [sum(parts.values()) for parts in components]
    added: dict[Hashable, tuple[dict[str, int], ...]] = {}
    told: dict[Hashable, tuple[Accelerator, Serving]] = {}
    decides = _overhead_classes(case, known)
    for group, one in zip(case.groups, decides, strict=True):
        device = devices[group.places[0]]
        told.setdefault(group.reserves, (device, group.serving))
        if one not in added:
            added[one] = tuple(overhead_on(case, form, device, group.serving, one, known) for form in forms)
    reserves = [reserve_on(case, *one, known) for one in told.values()]
    by_format = [errors for device, _ in told.values() if (errors := _errors_of_formats(case, device))]
    lengths = lengths_on(case, tuple(told.values()), known) if told else None
    scalar = not case.many and len(forms) == 1 and len(devices) <= 1
    shares, total = _divided(case.engine, devices, case.utilization, scalar)
    overhead: tuple[dict[str, int], ...] = ()
    if alike is None:
        overhead = added[decides[0]] if decides else ({},) * len(forms)
        kept = reserves[0] if reserves else NOTHING
        uncertainty = kept.uncertainty
        if by_format:
            uncertainty = by_format[0][0] if scalar else xp.integers(by_format * len(devices))
        sizes = [size + sum(more.values()) for size, more in zip(tensors, overhead, strict=True)]
        resident = sizes[0] if scalar else xp.integers(sizes)
    else:
        # Accelerators of no group are asked for nothing; they are in no deployment.
        which = alike.numbers(len(devices))
        more = {one: [sum(parts.values()) for parts in each] for one, each in added.items()}
        order = {kind: number for number, kind in enumerate(told)}
        kinds = xp.integers([*(order[group.reserves] for group in alike), len(order)])[which]
        resident = xp.integers(tensors) + xp.integers([*map(more.get, decides), [0] * len(forms)])[which]
        kept = Reserve(*xp.integers([*map(_parts, reserves), _parts(NOTHING)]).T[:, kinds])
        uncertainty = column(kept.uncertainty)
        if by_format:
            uncertainty = xp.integers([*by_format, [0] * len(forms)])[kinds]
        lengths = None if lengths is None else replace(lengths, classes=kinds)
    given = case.kv_pool_bytes
    return Allocation(
        case=case,
        components=components,
        overhead=overhead,
        weight_bytes=tensors[0] if scalar else xp.integers(tensors),
        resident_bytes=resident,
        reserve=kept,
        total_bytes=total,
        pool_bytes=(
            _pools(case, column(total), resident, column(kept.total), shares) if given is None else given
        ),
        uncertainty_bytes=uncertainty if given is None else 0,
        lengths=lengths,
    )


def _errors_of_formats(case: Case, device: Accelerator) -> list[int]:
    """Half width of the error band with weights in each format; none where it is that of the reserve."""
    model, engine = _reserving(case), case.rules
    names = map(format_name, case.weight_formats)
    each = [engine.error_of_format(model, device, case.layout, name) for name in names]
    return [one for one in each if one is not None]


def allocation_of(case: Case, known: Memo) -> Allocation:
    """The same of all accelerators of a fleet: arrays by their position, which KV formats share that reserve alike."""
    fleet = case.engine.name, len(case.accelerators), case.accelerator and case.accelerator.id, case.alike
    key = ("fleet", case.layout, fleet, case.context_tokens, case.narrow_cache)
    return known.get(key, lambda: allocate(case, known))


def _parts(reserve: Reserve) -> tuple[int, int, int, int]:
    return reserve.activations, reserve.non_framework, reserve.graphs, reserve.uncertainty


def _overhead_classes(case: Case, known: Memo) -> list[Hashable]:
    """What decides what loading adds on each group of a case's devices."""

    def made() -> list[Hashable]:
        return [overhead_class(case, case.accelerators[one.places[0]], one.serving) for one in case.groups]

    if case.alike is None:
        return made()
    # Groups differ by other kernels, too: few of them differ by what is asked here.
    return known.get(("overheads", case.engine.name, bool(case.layout.all_to_all), case.alike), made)


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
    peaks: dict[Hashable, tuple[int, Callable[[Any], Any]]] = {}
    kinds: list[Hashable] = []
    falls = 0
    for device, serving in classes:
        found = engine.following_peak(model, device, untold.step_of(serving))
        kinds.append(None if found is None else found[0])
        if found is None or found[0] in peaks:
            continue
        decides, peak, falls_beyond = found
        if peak(1) != max(peak(falls_beyond or limit), peak(limit)):
            peaks[decides] = len(peaks), peak
            falls = max(falls, falls_beyond)
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
        falls_beyond=falls,
    )


@remembered
def _divided(
    engine: Engine,
    devices: Sequence[Accelerator],
    utilization: float | None,
    scalar: bool,  # noqa: FBT001 - remembered by position
) -> tuple[list[tuple[float, Any]], Any]:
    """Shares of memory with the devices that they are taken of, and what a process can use of each."""
    taken = [share_on(engine, one, utilization) for one in devices]
    total = [one.usable_bytes for one in devices]
    shares = [(share, [n for n, one in enumerate(taken) if one == share]) for share in dict.fromkeys(taken)]
    if scalar:
        return shares, (total or [0])[0]
    return shares, xp.fixed(xp.integers(total))


def _pools(
    case: Case,
    total: int | Integers,
    resident: int | Integers,
    reserve: int | Integers,
    shares: Sequence[tuple[float, Any]],
) -> int | Integers:
    """The pools of all devices, each at its own share; sizes as for the engine's ``pool_bytes``.

    ``shares``: shares of memory with their devices; none for the engine's default on all.
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
    return _shortages(case.engine, case.accelerators, case.utilization, scalar)


@remembered
def _shortages(
    engine: Engine,
    devices: Sequence[Accelerator],
    utilization: float | None,
    scalar: bool,  # noqa: FBT001 - remembered by position
) -> tuple[int | Integers, int | Integers] | None:
    asked = [start_shortage(engine, one, utilization) for one in devices]
    found = [one for one in asked if one is not None]
    if not found or len(found) < len(asked):
        return None
    if scalar:
        return found[0]
    short, error = (xp.integers(part)[:, None] for part in zip(*found, strict=True))
    return short, error


def load_overheads(
    case: Case, forms: Sequence[WeightFormat | None], memo: Memo | None = None
) -> tuple[int, ...]:
    """Bytes that loading adds on one device, one number per weight format.

    ``case``: what is laid out; its own formats and its share of memory do not matter here.
    """
    known = Memo() if memo is None else memo
    if case.accelerator is None:
        return (0,) * len(forms)
    told = case.accelerator, case.serving
    decides = overhead_class(case, *told)
    return tuple(sum(overhead_on(case, form, *told, decides, known).values()) for form in forms)


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


def reserve_on(case: Case, device: Accelerator, serving: Serving, known: Memo) -> Reserve:
    """The reserve on a device with the scheduler sizes that the engine takes there, worked out once for each class and step."""
    step, model = case.step_of(serving), _reserving(case)

    def worked_out() -> Reserve:
        return case.rules.reserve(model, device, step)

    alike = step.context_tokens is None or xp.is_plain(step.context_tokens)
    key = ("reserve", case.engine.name, device_class(case.engine, device)[0], step)
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
        case.images,
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
    return (
        None
        if form is None
        else (
            form.name,
            form.scale_bytes,
            form.scale_every,
            form.wide_rope_bytes,
            form.record_bytes if isinstance(form, RecordFormat) else 0,
        )
    )


def encoders_left_out(engine: Engine, *, images: bool, clips: bool) -> frozenset[Component]:
    """Encoders that are not loaded where nothing is taken that they read; an audio encoder may have a mark of its own."""
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


def overhead_class(case: Case, device: Accelerator, serving: Serving) -> Hashable:
    """What of a device and of its scheduler decides what loading adds: equal ones have the same, laid out alike."""
    kernels = case.rules.overhead_class(case.model, device)
    # Buffers of an exchange between experts are as large as a step.
    return kernels, serving.max_batched_tokens if case.layout.all_to_all else None


def overhead_on(
    case: Case,
    form: WeightFormat | None,
    device: Accelerator,
    serving: Serving,
    decides: Hashable,
    known: Memo,
) -> dict[str, int]:
    """What loading adds on one rank, by what it is for, worked out once for each format and class of kernels.

    ``decides``: what of both decides what loading adds (:func:`overhead_class`).
    """
    engine, layout, slots = case.engine, case.layout, case.lora_slots

    def made() -> dict[str, int]:
        added = case.rules.load_overhead(Loading(case.model, engine, form, case.formats, device, layout))
        further: dict[str, int] = {}
        if any(slots):
            further["lora_adapters"] = lora_bytes(case.model, layout, *slots, adapted_if_named(engine))
            further["lora_adapters"] += vocabulary_slots(
                case.model, *slots, vocabulary_modules(engine, case.model)
            )
        if layout.all_to_all:
            further["all_to_all_buffers"] = buffer_bytes(
                case.model, layout, engine, serving.max_batched_tokens
            )
        return added | {name: size for name, size in further.items() if size}

    return known.get(("overhead", engine.name, format_name(form), decides, layout, slots), made)


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
