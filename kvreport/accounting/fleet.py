"""Many accelerators laid out at once: those that an engine treats alike share plans, reserves and load overhead."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvreport.accounting import numeric as xp
from kvreport.accounting.allocation import (
    Allocation,
    allocation_of,
    plan_on,
    shortages,
    state_slots_wanted,
    stored_key,
)
from kvreport.accounting.case import Case, Memo
from kvreport.accounting.deployment import Deployment, Part, agreed, parts_of, plan_at_start, refused
from kvreport.accounting.numeric import Integers
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.errors import InputError

_Shortage = tuple[int | Integers, int | Integers]
"""What an engine asks for at start beyond what is free, and the error."""


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


def shared_plans(case: Case, parts: Sequence[Part], memo: Memo) -> list[SharedPlan]:
    """The different plans of one layout and KV format on a fleet; groups on which it is impossible are in none.

    ``parts``: what each pipeline stage lays out (:func:`parts_of`).
    """
    engine, alike = case.rules, case.groups
    form = None if case.kv_format is None else (case.kv_format.native, stored_key(case.kv_format))
    kinds = memo.get(("kinds", case.engine.name, form, alike), lambda: _kinds(case))
    found: dict[Hashable, SharedPlan] = {}
    for groups in kinds:
        first = alike[groups[0]]
        device = case.accelerators[first.places[0]]
        try:
            plans = tuple(plan_on(part.case, device, first.serving, part.known) for part in parts)
        except InputError:
            continue
        wanted = engine.max_requests(first.serving, case.model, case.layout)
        same = (wanted, *((plan.block_bytes, plan.kept_blocks, plan.profile) for plan in plans))
        if same in found:
            found[same].groups.extend(groups)
        else:
            found[same] = SharedPlan(plans, first.serving, [*groups])
    return list(found.values())


def _kinds(case: Case) -> list[list[int]]:
    """Groups whose plans are the same in every layout, because nothing that decides them differs."""
    engine = case.rules
    found: dict[Hashable, list[int]] = {}
    for number, group in enumerate(case.groups):
        kind = engine.plan_class(
            case.model, case.kv_format, case.accelerators[group.places[0]], group.serving
        )
        wanted = engine.max_requests(group.serving, case.model, case.layout)
        found.setdefault((kind, wanted), []).append(number)
    return list(found.values())


def lay_out_fleet(case: Case, memo: Memo) -> Iterator[tuple[list[int], Deployment]]:
    """Lay one model out on many accelerators at once, whatever differs between them.

    ``case``: what is laid out, on all ``accelerators``; its ``serving`` is not asked. Positions that no group has are
    left out.

    Yields:
        Positions with their deployment, whose first axis they are. Accelerators with equal block plans are
        together; those on which the combination is impossible are with none.
    """
    parts = parts_of(case, memo)
    out = refused(case, memo)
    for shared in shared_plans(case, parts, memo):
        members = [place for number in shared.groups for place in case.groups[number].places]
        ranks = []
        for part, plan in zip(parts, shared.plans, strict=True):
            rank = _of_fleet(part, members, plan, shared.serving)
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
        asked = plan_at_start(case, case.accelerators[members[0]], shared.serving, memo)
        for place, order in enumerate(xp.numpy().argsort(least, axis=0, kind="stable").T.tolist()):
            orders.setdefault(tuple(order), []).append(place)
        for order, places in orders.items():
            chosen = [kept[n] if len(places) == len(members) else _only(kept[n], places) for n in order]
            laid = replace(chosen[0], others=tuple(chosen[1:]), start_plan=asked)
            yield [members[place] for place in places], laid


def plans_on_fleet(
    case: Case, memo: Memo
) -> Iterator[tuple[list[int], tuple[BlockPlan, ...], int | Integers]]:
    """Plan one model on many accelerators at once, without laying anything out.

    ``case``: what is planned, on all ``accelerators``; its ``serving`` is not asked. Positions that no group has are
    left out.

    Yields:
        Positions of accelerators with equal plans, the plan of each stage in the order of layers, and the codes of
        what the release refuses there, for each position and weight format; 0 without rules.
    """
    out = refused(case, memo)
    for shared in shared_plans(case, parts_of(case, memo), memo):
        members = [place for number in shared.groups for place in case.groups[number].places]
        yield members, shared.plans, out if isinstance(out, int) else out[places_of(members)]


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


def _of_fleet(part: Part, positions: list[int], plan: BlockPlan, serving: Serving) -> Deployment:
    """Some accelerators of a fleet's allocation, which all KV formats share, with the plan that they share."""
    case, where = part.case, places_of(positions)
    taken = allocation_of(case, part.known)
    own = replace(
        case, accelerators=tuple(case.accelerators[place] for place in positions), alike=None, serving=serving
    )
    return Deployment(
        **_at(taken, where),
        case=own,
        start_shortage=_short_at(shortages(case, scalar=False), where),
        components=taken.components,
        overhead=(),
        weight_bytes=taken.weight_bytes,
        plan=plan,
        max_requests=case.rules.max_requests(serving, case.model, case.layout),
        state_slots_wanted=state_slots_wanted(case.engine, case.model, serving, eager=case.eager),
        layers=part.layers,
    )
