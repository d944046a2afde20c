"""Many accelerators laid out at once: those that an engine treats alike share plans, reserves and load overhead."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

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
    for plans, members, serving in groups.values():
        ranks = []
        for part, known, plan in zip(parts, memos, plans, strict=True):
            of_part = replace(case, model=part.model)
            taken = known.get(
                ("fleet", layout, len(case.accelerators), case.accelerator and case.accelerator.id, alike),
                lambda of_part=of_part, known=known: _allocate_fleet(of_part, alike, known),  # type: ignore[misc]
            )
            rank = _of_fleet(taken, of_part, members, plan, part.layers, serving)
            ranks.append(rank if isinstance(out, int) else replace(rank, refused=out[members]))
        ranks.sort(key=lambda rank: int(xp.least(rank.pool_bytes)))
        yield members, replace(ranks[0], others=tuple(ranks[1:]))


def _allocate_fleet(case: Case, alike: Sequence[Alike], known: Memo) -> Allocation:
    """The allocation of many accelerators: arrays whose first axis is their position."""
    np = xp.numpy()
    engine, devices = case.rules, case.accelerators
    components = tuple(shared_weights(case, form, known) for form in case.weight_formats)
    tensors = xp.integers([sum(parts.values()) for parts in components])
    total = xp.integers([device.usable_bytes for device in devices])
    shares = shares_on(case)
    memory = xp.integers(
        [asked_memory(engine, size, share) for size, share in zip(total.tolist(), shares, strict=True)]
    )
    resident = np.broadcast_to(tensors, (len(devices), len(tensors))).copy()
    kept = np.zeros((4, len(devices)), dtype=np.int64)
    for group in alike:
        members = list(group.places)
        one = replace(case, accelerators=(devices[members[0]],), serving=group.serving)
        added = [sum(shared_overhead(one, form, known).values()) for form in case.weight_formats]
        resident[members] += xp.integers(added)
        found = shared_reserve(one, known)
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
        pool_bytes=pools(case, total[:, None], resident, reserve.total[:, None], shares),
        uncertainty_bytes=reserve.uncertainty,
    )


def _of_fleet(
    taken: Allocation, case: Case, positions: list[int], plan: BlockPlan, layers: range, serving: Serving
) -> Deployment:
    """Some accelerators of a fleet's allocation, which all KV formats share, with the plan that they share."""
    reserve = taken.reserve
    parts = (reserve.activations, reserve.non_framework, reserve.graphs, reserve.uncertainty)
    kept = Reserve(*(xp.integers(part)[positions] for part in parts))
    own = replace(case, accelerators=tuple(case.accelerators[place] for place in positions), serving=serving)
    return Deployment(
        case=own,
        start_shortage=shortages(own, scalar=False),
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
