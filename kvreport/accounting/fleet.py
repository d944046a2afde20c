"""Many accelerators laid out at once: those that an engine treats alike share plans, reserves and load overhead."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from kvreport.accounting import numeric as xp
from kvreport.accounting.allocation import (
    Allocation,
    by_share,
    lengths_on,
    overhead_on,
    plan_on,
    pools,
    reserve_on,
    shared_weights,
    shares_on,
    shortages,
    state_slots_wanted,
    stored_key,
)
from kvreport.accounting.case import Case, Memo
from kvreport.accounting.deployment import Deployment, agreed, refused
from kvreport.accounting.engines.step import Reserve
from kvreport.accounting.numeric import Integers
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.accounting.shares import asked_memory
from kvreport.accounting.stages import Stage, partition_of, stages
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.release import release_of
from kvreport.catalog.remembered import remembered
from kvreport.errors import InputError

_Shortage = tuple[int | Integers, int | Integers]
"""What an engine asks for at start beyond what is free, and the error."""


@dataclass(frozen=True, slots=True)
class Alike:
    """Accelerators of a fleet that an engine treats alike (:func:`device_class`).

    Attributes:
        places: Their positions.
        serving: The scheduler sizes that the engine takes on them.
        reserves: What of them decides the engine's reserve.
    """

    places: tuple[int, ...]
    serving: Serving
    reserves: Hashable


class Groups(tuple[Alike, ...]):
    """All groups of a fleet: a key of many lookups, so its hash is worked out once."""

    _numbers: Integers | None = None

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        """The hash of the groups."""
        return self._hash

    def numbers(self, devices: int) -> Integers:
        """The group of each of so many accelerators; one more than the last of them where it has none."""
        if self._numbers is None or len(self._numbers) != devices:
            found = [len(self)] * devices
            for number, group in enumerate(self):
                for place in group.places:
                    found[place] = number
            self._numbers = xp.integers(found)
        return self._numbers


@dataclass(frozen=True, slots=True)
class SharedPlan:
    """Accelerators of a fleet with equal block plans.

    Attributes:
        plans: The plan of each stage.
        serving: The scheduler sizes that the engine takes on them.
        groups: Which groups of the fleet they are.
    """

    plans: tuple[BlockPlan, ...]
    serving: Serving
    groups: list[int]


def shared_plans(
    case: Case, alike: Groups, stages: Sequence[tuple[Case, Memo]], memo: Memo
) -> list[SharedPlan]:
    """The different plans of one layout and KV format on a fleet; groups on which it is impossible are in none.

    ``alike``: accelerators that the engine treats alike. ``stages``: what each pipeline stage lays out,
    and what other cases of it have worked out; one without stages.
    """
    engine = case.rules
    form = None if case.kv_format is None else (case.kv_format.native, stored_key(case.kv_format))
    kinds = memo.get(("kinds", case.engine.name, form, alike), lambda: _kinds(case, alike))
    found: dict[Hashable, SharedPlan] = {}
    for groups in kinds:
        first = alike[groups[0]]
        device = case.accelerators[first.places[0]]
        try:
            plans = tuple(plan_on(part, device, first.serving, known) for part, known in stages)
        except InputError:
            continue
        wanted = engine.max_requests(first.serving, case.model, case.layout)
        same = (wanted, *((plan.block_bytes, plan.kept_blocks, plan.profile) for plan in plans))
        if same in found:
            found[same].groups.extend(groups)
        else:
            found[same] = SharedPlan(plans, first.serving, [*groups])
    return list(found.values())


def _kinds(case: Case, alike: Groups) -> list[list[int]]:
    """Groups whose plans are the same in every layout, because nothing that decides them differs."""
    engine = case.rules
    found: dict[Hashable, list[int]] = {}
    for number, group in enumerate(alike):
        kind = engine.plan_class(
            case.model, case.kv_format, case.accelerators[group.places[0]], group.serving
        )
        wanted = engine.max_requests(group.serving, case.model, case.layout)
        found.setdefault((kind, wanted), []).append(number)
    return list(found.values())


def lay_out_fleet(case: Case, alike: Groups, memo: Memo) -> Iterator[tuple[list[int], Deployment]]:
    """Lay one model out on many accelerators at once, whatever differs between them.

    ``case``: what is laid out, on all ``accelerators``; its ``serving`` is not asked. ``alike``:
    accelerators that the engine treats alike. Positions that no group has are left out.

    Yields:
        Positions with their deployment, whose first axis they are. Accelerators with equal block plans are
        together; those on which the combination is impossible are with none.
    """
    parts, of_parts = _stages_of(case, memo)
    out = refused(case, memo)
    lacking = lacking_on(case, memo)
    for shared in shared_plans(case, alike, of_parts, memo):
        members = [place for number in shared.groups for place in alike[number].places]
        ranks = []
        for part, (of_part, known), plan in zip(parts, of_parts, shared.plans, strict=True):
            taken = allocation_on(of_part, alike, known, memo)
            rank = _of_fleet(taken, of_part, members, plan, part.layers, shared.serving, lacking)
            ranks.append(rank if isinstance(out, int) else replace(rank, refused=out[places_of(members)]))
        if len(ranks) == 1:
            yield members, ranks[0]
            continue
        # Which stage is the fullest may differ between devices; it must not depend on which are laid out together.
        # Nor on converted formats beside the checkpoint's own, of which alone further layouts are published.
        own = [n for n, form in enumerate(case.weight_formats) if form is None] or slice(None)
        pools = [xp.numpy().asarray(rank.pool_bytes)[:, own] for rank in ranks]
        least = xp.numpy().min(pools, axis=2)
        orders: dict[tuple[int, ...], list[int]] = {}
        kept = agreed(case, ranks)
        asked = _asked_at_start(case, case.accelerators[members[0]], shared.serving, memo)
        for place, order in enumerate(xp.numpy().argsort(least, axis=0, kind="stable").T.tolist()):
            orders.setdefault(tuple(order), []).append(place)
        for order, places in orders.items():
            chosen = [kept[n] if len(places) == len(members) else _only(kept[n], places) for n in order]
            laid = replace(chosen[0], others=tuple(chosen[1:]), start_plan=asked)
            yield [members[place] for place in places], laid


def _asked_at_start(case: Case, device: Accelerator, serving: Serving, memo: Memo) -> BlockPlan | None:
    """The plan of the whole model, where a release checks at start that one request of it fits on every stage."""
    if not release_of(case.engine).has("stages_checked_as_whole"):
        return None
    return plan_on(
        replace(case, layout=replace(case.layout, pipeline=1, partition=())), device, serving, memo
    )


def plans_on_fleet(
    case: Case, alike: Groups, memo: Memo
) -> Iterator[tuple[list[int], tuple[BlockPlan, ...], int | Integers]]:
    """Plan one model on many accelerators at once, without laying anything out.

    ``case``: what is planned, on all ``accelerators``; its ``serving`` is not asked. ``alike``:
    accelerators that the engine treats alike. Positions that no group has are left out.

    Yields:
        Positions of accelerators with equal plans, the plan of each stage in the order of layers, and the codes of
        what the release refuses there, for each position and weight format; 0 without rules.
    """
    _, of_parts = _stages_of(case, memo)
    out = refused(case, memo)
    for shared in shared_plans(case, alike, of_parts, memo):
        members = [place for number in shared.groups for place in alike[number].places]
        yield members, shared.plans, out if isinstance(out, int) else out[places_of(members)]


def _stages_of(case: Case, memo: Memo) -> tuple[Sequence[Stage], list[tuple[Case, Memo]]]:
    """The stages of a case's layout; and what each lays out, with what other cases of it have worked out."""
    layout = case.layout
    partition = partition_of(case.engine, case.model, layout)
    parts = memo.get(
        ("stages", layout.pipeline, partition),
        lambda: stages(case.model, layout.pipeline, partition),
    )
    if len(parts) == 1:
        return parts, [(case, memo)]
    return parts, [
        (
            replace(case, model=part.model, stage_of=(case.model, part.layers)),
            memo.get(("memo", layout.pipeline, part.layers), Memo),
        )
        for part in parts
    ]


def allocation_on(case: Case, alike: Groups, known: Memo, memo: Memo) -> Allocation:
    """The allocation of all accelerators of a fleet, which KV formats share that reserve alike: arrays by their position.

    ``alike``: accelerators that the engine treats alike.
    """
    return known.get(
        ("fleet", case.layout, _fleet_key(case), alike, case.context_tokens, case.narrow_cache),
        lambda: _allocate_fleet(case, alike, known, memo),
    )


def lacking_on(case: Case, memo: Memo) -> _Shortage | None:
    """What the engine asks for at start beyond what is free, and the error; None if it does not ask."""
    return memo.get(("lacking", _fleet_key(case)), lambda: shortages(case, scalar=False))


def places_of(positions: Sequence[int]) -> Any:  # noqa: ANN401 - a slice or an array
    """Positions as numpy takes them fastest: a slice where they follow each other."""
    first, last = positions[0], positions[-1]
    if last - first + 1 == len(positions) and list(positions) == list(range(first, last + 1)):
        return slice(first, last + 1)
    return xp.integers(positions)


def _only(rank: Deployment, places: list[int]) -> Deployment:
    """The same of some of its accelerators."""
    case = replace(rank.case, accelerators=tuple(rank.case.accelerators[place] for place in places))
    return replace(
        rank,
        **_at(rank, places),
        case=case,
        refused=rank.refused if isinstance(rank.refused, int) else rank.refused[places],
        start_shortage=_short_at(rank.start_shortage, places),
    )


def _at(taken: Allocation, where: Any) -> dict[str, Any]:  # noqa: ANN401 - as numpy takes them
    """What an allocation has of some accelerators of a fleet."""
    sizes = ("resident_bytes", "total_bytes", "memory_bytes", "pool_bytes")
    reserve = taken.reserve.each(lambda part: xp.integers(part)[where])
    return {name: xp.integers(getattr(taken, name))[where] for name in sizes} | {
        "reserve": reserve,
        "uncertainty_bytes": reserve.uncertainty,
        "lengths": None if taken.lengths is None else taken.lengths.of(where),
    }


def _short_at(short: _Shortage | None, where: Any) -> _Shortage | None:  # noqa: ANN401
    return None if short is None else (xp.integers(short[0])[where], xp.integers(short[1])[where])


def _fleet_key(case: Case) -> Hashable:
    """Which accelerators a case has, and whose shares of their memory it takes."""
    return case.engine.name, len(case.accelerators), case.accelerator and case.accelerator.id


def _shares(case: Case) -> tuple[list[tuple[float, Any]], Integers, Integers]:
    """Which devices the engine takes which share of, what a process can use of each, and what the engine may take."""
    return _shares_of(case.engine, case.accelerators, shares_on(case))


@remembered
def _shares_of(
    engine: Engine, devices: Sequence[Accelerator], shares: Sequence[float]
) -> tuple[list[tuple[float, Any]], Integers, Integers]:
    total = [device.usable_bytes for device in devices]
    memory = [asked_memory(engine, size, share) for size, share in zip(total, shares, strict=True)]
    return by_share(shares), xp.fixed(xp.integers(total)), xp.fixed(xp.integers(memory))


def _allocate_fleet(case: Case, alike: Groups, known: Memo, memo: Memo) -> Allocation:
    """The allocation of many accelerators: arrays whose first axis is their position."""
    devices = case.accelerators
    components = tuple(shared_weights(case, form, known) for form in case.weight_formats)
    tensors = xp.integers([sum(parts.values()) for parts in components])
    shares, total, memory = memo.get(("shares", _fleet_key(case)), lambda: _shares(case))
    # Groups differ by kernels, too: few of them differ by what is asked here.
    kernels = memo.get(
        ("overheads", case.engine.name, alike),
        lambda: [case.rules.overhead_class(case.model, devices[group.places[0]]) for group in alike],
    )
    added: dict[Hashable, list[int]] = {}
    found: dict[Hashable, tuple[int, ...]] = {}
    overheads, reserves = [], []
    classes: dict[Hashable, tuple[Accelerator, Serving]] = {}
    for group, kernel in zip(alike, kernels, strict=True):
        device, serving = devices[group.places[0]], group.serving
        # Buffers of an exchange between experts are as large as a step.
        decides = (kernel, serving.max_batched_tokens if case.layout.all_to_all else 0)
        if decides not in added:
            added[decides] = [
                sum(overhead_on(case, form, device, kernel, serving, known).values())
                for form in case.weight_formats
            ]
        overheads.append(added[decides])
        if group.reserves not in found:
            kept = reserve_on(case, device, serving, known)
            found[group.reserves] = kept.activations, kept.non_framework, kept.graphs, kept.uncertainty
            classes[group.reserves] = device, serving
        reserves.append(found[group.reserves])
    # Accelerators of no group are asked for nothing; they are in no deployment.
    which = alike.numbers(len(devices))
    resident = tensors + xp.integers([*overheads, [0] * len(tensors)])[which]
    reserve = Reserve(*xp.integers([*reserves, (0, 0, 0, 0)]).T[:, which])
    lengths = lengths_on(case, tuple(classes.values()), known)
    order = {kind: number for number, kind in enumerate(classes)}
    numbers = [order[group.reserves] for group in alike]
    return Allocation(
        case=case,
        components=components,
        overhead=(),
        weight_bytes=tensors,
        resident_bytes=resident,
        reserve=reserve,
        total_bytes=total,
        memory_bytes=memory[:, None],
        pool_bytes=pools(case, total[:, None], resident, reserve.total[:, None], shares),
        uncertainty_bytes=reserve.uncertainty,
        lengths=None
        if lengths is None
        else replace(lengths, classes=xp.integers([*numbers, len(classes)])[which]),
    )


def _of_fleet(
    taken: Allocation,
    case: Case,
    positions: list[int],
    plan: BlockPlan,
    layers: range,
    serving: Serving,
    lacking: _Shortage | None,
) -> Deployment:
    """Some accelerators of a fleet's allocation, which all KV formats share, with the plan that they share."""
    where = places_of(positions)
    own = replace(case, accelerators=tuple(case.accelerators[place] for place in positions), serving=serving)
    return Deployment(
        **_at(taken, where),
        case=own,
        start_shortage=_short_at(lacking, where),
        components=taken.components,
        overhead=(),
        weight_bytes=taken.weight_bytes,
        plan=plan,
        max_requests=case.rules.max_requests(serving, case.model, case.layout),
        state_slots_wanted=state_slots_wanted(case.engine, case.model, serving, eager=case.eager),
        layers=layers,
    )
