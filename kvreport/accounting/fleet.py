"""Many accelerators laid out at once: those that an engine treats alike share plans, reserves and load overhead."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from kvreport.accounting import numeric as xp
from kvreport.accounting.allocation import (
    Allocation,
    asked_memory,
    plan_depends,
    pools,
    shared_overhead,
    shared_plan,
    shared_reserve,
    shared_weights,
    shares_on,
    shortages,
)
from kvreport.accounting.case import Case, Memo
from kvreport.accounting.deployment import Deployment, refused
from kvreport.accounting.engines.base import Reserve
from kvreport.accounting.numeric import Integers
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.accounting.stages import stages
from kvreport.errors import InputError


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


def lay_out_fleet(case: Case, alike: Groups, memo: Memo) -> Iterator[tuple[list[int], Deployment]]:
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
    partition = layout.partition or case.rules.stage_sizes(case.model.layer_count, layout.pipeline)
    parts = memo.get(
        ("stages", layout.pipeline, partition),
        lambda: stages(case.model, layout.pipeline, partition),
    )
    memos = [memo if len(parts) == 1 else memo.get(("memo", layout.pipeline, p.layers), Memo) for p in parts]
    engine = case.rules
    everywhere, by_step = plan_depends(case, memo)
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
                    shared_plan(
                        one
                        if len(parts) == 1
                        else replace(one, model=part.model, stage_of=(case.model, part.layers)),
                        known,
                    )
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
    out = refused(case, memo)
    lacking = memo.get(("lacking", _fleet_key(case)), lambda: shortages(case, scalar=False))
    for plans, members, serving in groups.values():
        ranks = []
        for part, known, plan in zip(parts, memos, plans, strict=True):
            of_part = (
                case
                if len(parts) == 1
                else replace(case, model=part.model, stage_of=(case.model, part.layers))
            )
            taken = known.get(
                ("fleet", layout, _fleet_key(case), alike),
                lambda of_part=of_part, known=known: _allocate_fleet(of_part, alike, known, memo),  # type: ignore[misc]
            )
            rank = _of_fleet(taken, of_part, members, plan, part.layers, serving, lacking)
            ranks.append(rank if isinstance(out, int) else replace(rank, refused=out[places_of(members)]))
        if len(ranks) == 1:
            yield members, ranks[0]
            continue
        # Which stage is the fullest may differ between devices; it must not depend on which are laid out together.
        least = xp.numpy().min([rank.pool_bytes for rank in ranks], axis=2)
        orders: dict[tuple[int, ...], list[int]] = {}
        for place, order in enumerate(xp.numpy().argsort(least, axis=0, kind="stable").T.tolist()):
            orders.setdefault(tuple(order), []).append(place)
        for order, places in orders.items():
            chosen = [ranks[n] if len(places) == len(members) else _only(ranks[n], places) for n in order]
            yield [members[place] for place in places], replace(chosen[0], others=tuple(chosen[1:]))


def places_of(positions: Sequence[int]) -> Any:  # noqa: ANN401 - a slice or an array
    """Positions as numpy takes them fastest: a slice where they follow each other."""
    first, last = positions[0], positions[-1]
    if last - first + 1 == len(positions) and list(positions) == list(range(first, last + 1)):
        return slice(first, last + 1)
    return xp.integers(positions)


def _only(rank: Deployment, places: list[int]) -> Deployment:
    """The same of some of its accelerators."""
    reserve, short = rank.reserve, rank.start_shortage
    parts = (reserve.activations, reserve.non_framework, reserve.graphs, reserve.uncertainty)
    kept = Reserve(*(xp.integers(part)[places] for part in parts))
    return replace(
        rank,
        case=replace(rank.case, accelerators=tuple(rank.case.accelerators[place] for place in places)),
        resident_bytes=xp.integers(rank.resident_bytes)[places],
        reserve=kept,
        total_bytes=xp.integers(rank.total_bytes)[places],
        memory_bytes=xp.integers(rank.memory_bytes)[places],
        pool_bytes=xp.integers(rank.pool_bytes)[places],
        uncertainty_bytes=kept.uncertainty,
        refused=rank.refused if isinstance(rank.refused, int) else rank.refused[places],
        start_shortage=None
        if short is None
        else (xp.integers(short[0])[places], xp.integers(short[1])[places]),
    )


def _fleet_key(case: Case) -> Hashable:
    """Which accelerators a case has, and whose shares of their memory it takes."""
    return case.engine.name, len(case.accelerators), case.accelerator and case.accelerator.id


def _shares(case: Case) -> tuple[list[float], Integers, Integers]:
    """The share that the engine takes of each device, what a process can use of it, and what the engine may take."""
    shares = shares_on(case)
    total = [device.usable_bytes for device in case.accelerators]
    memory = [asked_memory(case.rules, size, share) for size, share in zip(total, shares, strict=True)]
    return shares, xp.integers(total), xp.integers(memory)


def _allocate_fleet(case: Case, alike: Groups, known: Memo, memo: Memo) -> Allocation:
    """The allocation of many accelerators: arrays whose first axis is their position."""
    devices = case.accelerators
    components = tuple(shared_weights(case, form, known) for form in case.weight_formats)
    tensors = xp.integers([sum(parts.values()) for parts in components])
    shares, total, memory = memo.get(("shares", _fleet_key(case)), lambda: _shares(case))
    added: dict[Hashable, list[int]] = {}
    overheads, reserves = [], []
    for group in alike:
        device = devices[group.places[0]]
        one = replace(case, accelerators=(device,), serving=group.serving)
        decides = (case.rules.overhead_class(case.model, device), group.serving.max_batched_tokens)
        if decides not in added:
            added[decides] = [sum(shared_overhead(one, form, known).values()) for form in case.weight_formats]
        overheads.append(added[decides])
        found = shared_reserve(one, known)
        reserves.append((found.activations, found.non_framework, found.graphs, found.uncertainty))
    # Accelerators of no group are asked for nothing; they are in no deployment.
    which = alike.numbers(len(devices))
    resident = tensors + xp.integers([*overheads, [0] * len(tensors)])[which]
    reserve = Reserve(*xp.integers([*reserves, (0, 0, 0, 0)]).T[:, which])
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
    )


def _of_fleet(
    taken: Allocation,
    case: Case,
    positions: list[int],
    plan: BlockPlan,
    layers: range,
    serving: Serving,
    lacking: tuple[int | Integers, int | Integers] | None,
) -> Deployment:
    """Some accelerators of a fleet's allocation, which all KV formats share, with the plan that they share."""
    reserve = taken.reserve
    parts = (reserve.activations, reserve.non_framework, reserve.graphs, reserve.uncertainty)
    where = places_of(positions)
    kept = Reserve(*(xp.integers(part)[where] for part in parts))
    own = replace(case, accelerators=tuple(case.accelerators[place] for place in positions), serving=serving)
    return Deployment(
        case=own,
        start_shortage=None
        if lacking is None
        else (xp.integers(lacking[0])[where], xp.integers(lacking[1])[where]),
        components=taken.components,
        overhead=(),
        weight_bytes=taken.weight_bytes,
        resident_bytes=xp.integers(taken.resident_bytes)[where],
        reserve=kept,
        total_bytes=xp.integers(taken.total_bytes)[where],
        memory_bytes=xp.integers(taken.memory_bytes)[where],
        pool_bytes=xp.integers(taken.pool_bytes)[where],
        uncertainty_bytes=kept.uncertainty,
        plan=plan,
        max_requests=case.rules.max_requests(serving),
        state_slots_wanted=case.rules.state_slots_wanted(case.model, serving, eager=case.eager),
        layers=layers,
    )
