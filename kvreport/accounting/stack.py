"""Deployments of one model on many accelerators, in many layouts and KV formats, as one: a row for each device of each.

On a published grid the arrays of one deployment are short, and most of the time goes into calls. On top of each
other they are long, and the arithmetic of :class:`~kvreport.accounting.deployment.Deployment` runs over all of them
at once: what differs between plans becomes an array by row. Accelerators that an engine treats alike share plans,
reserves and load overhead.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import zip_longest
from operator import attrgetter
from typing import Any, Final, TypeVar, cast

from kvreport.accounting import numeric as xp
from kvreport.accounting.allocation import (
    Allocation,
    allocation_of,
    joined,
    plan_on,
    shortages,
    state_slots_wanted,
    stored_key,
)
from kvreport.accounting.case import Case, Groups, Memo
from kvreport.accounting.deployment import (
    Bound,
    Deployment,
    StageCase,
    agreed,
    bound_under,
    ceiling_plan,
    parts_of,
    plan_at_start,
    refused,
)
from kvreport.accounting.engines.step import Reserve
from kvreport.accounting.numeric import Codes, Integers, Reals
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.accounting.profile import CacheProfile, Slope, Terms, along, held, marginal, searched, slope_of
from kvreport.catalog.engine import Engine
from kvreport.errors import InputError

A = TypeVar("A", bound=xp.Numbers)

MOST_CELLS: Final = 1 << 15
"""Numbers of an array, beyond which a longer one is no faster: it leaves the processor's cache."""


class Profiles:
    """Many cache profiles where one is expected (:class:`~kvreport.accounting.profile.CacheProfile`): one for each row.

    Rows are the first axis of whatever comes out, contexts the last, and between them is one for weight formats.
    """

    def __init__(self, each: Sequence[CacheProfile], rows: Integers) -> None:
        """Give each row its profile."""
        self.each = each
        self.rows = rows
        self._constants = xp.integers([one.constant_bytes for one in each])
        # Rate, step and cap by profile, term after term; one with fewer terms has some of nothing.
        terms = zip_longest(*(one.growing for one in each), fillvalue=(0, 1, 0))
        self._terms = [
            (xp.integers(rates), xp.integers(steps), xp.integers(caps))
            for rates, steps, caps in (zip(*term, strict=True) for term in terms)
        ]

    def request_bytes(self, context_tokens: xp.ArrayLike) -> Integers:
        """Bytes that one request of each context holds."""
        tokens = xp.integers(context_tokens)
        return self._spread(held(tokens, self._constants[:, None], self._by(slice(None), None)), tokens)

    def marginal_bytes(self, context_tokens: xp.ArrayLike) -> Reals:
        """Bytes of one further token at each context."""
        tokens = xp.integers(context_tokens)
        return self._spread(marginal(tokens, self._by(slice(None), None)), tokens)

    @property
    def state_bytes(self) -> Integers:
        """Bytes of a request that do not depend on its tokens."""
        return xp.integers([one.state_bytes for one in self.each])[self.rows][:, None]

    @property
    def holds_nothing(self) -> Any:  # noqa: ANN401 - a truth, or an array by row
        """True if a request holds no bytes; by row where it does under some of them."""
        each = [one.holds_nothing for one in self.each]
        return each[0] if len(set(each)) == 1 else xp.numpy().asarray(each)[self.rows][:, None]

    def longest_context(self, pool_bytes: xp.ArrayLike, limit_tokens: int) -> Integers:
        """The longest context, up to ``limit_tokens``, whose request fits each pool."""
        pool = xp.integers(pool_bytes)
        slopes = [slope_of(one.constant_bytes, one.growing, limit_tokens) for one in self.each]
        # Where steps differ there is no slope, and everything is searched.
        searching = Slope(limit_tokens + 1, 0, 1, 1)
        parts = zip(*((slope or searching).parts for slope in slopes), strict=True)
        rows = self.rows[:, None, None]
        slope = Slope(*(xp.integers(part)[rows] for part in parts))
        found = along(pool, slope, limit_tokens)
        short = found < slope.start_tokens
        if short.any():
            least = held(xp.integers(1), self._constants, self._terms)
            found[short] = 0
            short &= pool >= least[rows]
            left = xp.numpy().broadcast_to(rows, pool.shape)[short]
            most = min(limit_tokens, int(xp.numpy().max(slope.start_tokens)))
            found[short] = searched(pool[short], self._constants[left], self._by(left), most)
        return found

    def _by(self, *places: Any) -> Terms:  # noqa: ANN401 - as numpy takes them
        return [(rate[places], step[places], cap[places]) for rate, step, cap in self._terms]

    def _spread(self, found: A, tokens: Integers) -> A:
        """What each profile has at each context, by row."""
        whole = xp.numpy().broadcast_to(found, (len(self.each), len(tokens)))
        return cast(A, whole[self.rows][:, None])


@dataclass(frozen=True, slots=True)
class Rows:
    """Devices under some plans, as one deployment."""

    places: Any  # Which they are: ``place * devices + device``, by the place of their case.
    laid: Deployment  # The deployment; its ``case`` is the first one.
    bound: Bound  # What it would hold without an engine.
    copies: int | Integers  # Data ranks of each row.
    # The place of the one context that the deployment is told; None where it answers for all.
    at: int | None = None


@dataclass(frozen=True, slots=True)
class SharedPlan:
    """Accelerators of a fleet with equal block plans."""

    plans: tuple[BlockPlan, ...]  # The plan of each stage.
    serving: Serving  # The scheduler sizes that the engine takes on them.
    groups: list[int]  # Which groups of the fleet they are.
    # What the requests of each stage hold without an engine, once that was worked out.
    ceilings: tuple[BlockPlan, ...] = ()
    # The plan of the request that is checked for at start, where that is another.
    start: BlockPlan | None = None


def shared_plans(case: Case, parts: Sequence[StageCase], memo: Memo) -> list[SharedPlan]:
    """The different plans of one layout and KV format on a fleet; groups on which it is impossible are in none."""
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
        # Pools that are equal may store in other layouts: scales that a rank's share rounds away count without an engine.
        stored, types = engine.stored(case.model, case.kv_format, device)
        same = (
            wanted,
            stored_key(stored),
            types,
            *((plan.block_bytes, plan.kept_blocks, plan.profile) for plan in plans),
        )
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


@dataclass(frozen=True, slots=True)
class _Entry:
    """One case on a fleet, before it is a part of a stack; lists of stages have one where there are none."""

    place: int  # The place of the case.
    case: Case
    parts: list[StageCase]  # What each stage lays out.
    taken: list[Allocation]  # The allocation of each stage.
    shared: list[SharedPlan]  # The different plans.
    refused: int | Codes  # What the release refuses.

    @property
    def pooled(self) -> bool:
        """True if the engine has pools of its own, whose plans are no array."""
        return self.shared[0].plans[0].pool is not None


def lay_out_rows(
    cases: Iterable[tuple[int, Case]], ceiling: Engine, contexts: Integers, memo: Memo
) -> Iterator[Rows]:
    """Lay one model out on a fleet in many layouts and KV formats, as few deployments with many rows.

    ``cases``: the place of each case, and the case on all ``accelerators``; its ``serving`` is not asked. Accelerators
    that no group has are left out. ``contexts``: contexts in tokens.
    """
    waiting: list[_Entry] = []
    cells = 0
    for entry in (one for place, case in cases for one in _entries(place, case, ceiling, memo)):
        more = len(entry.case.accelerators) * len(entry.case.weight_formats) * len(contexts)
        alike = waiting and len(entry.parts) == len(waiting[0].parts) and not entry.pooled
        if waiting and (cells + more > MOST_CELLS or not alike):
            yield from _stacked(waiting, ceiling, contexts, memo)
            waiting, cells = [], 0
        waiting.append(entry)
        cells += more
    if waiting:
        yield from _stacked(waiting, ceiling, contexts, memo)


def _entries(place: int, case: Case, ceiling: Engine, memo: Memo) -> list[_Entry]:
    """A case for a stack: one entry, or one for each plan where they divide pools in their own ways; none if it is impossible."""
    parts = parts_of(case, memo)
    shared = []
    for one in shared_plans(case, parts, memo):
        device = case.accelerators[case.groups[one.groups[0]].places[0]]
        ceilings = tuple(ceiling_plan(part.case, device, ceiling, part.layers, memo) for part in parts)
        start = plan_at_start(case, device, one.serving, memo) if len(parts) > 1 else None
        shared.append(replace(one, ceilings=ceilings, start=start))
    if not shared:
        return []
    taken = [allocation_of(part.case, part.known) for part in parts]
    entry = _Entry(place, case, parts, taken, shared, refused(case, memo))
    return [replace(entry, shared=[one]) for one in shared] if entry.pooled else [entry]


def _stacked(
    entries: Sequence[_Entry], ceiling: Engine, contexts: Integers, memo: Memo, at: int | None = None
) -> Iterator[Rows]:
    """Lay out cases with as many stages on top of each other; ``at``: the place of the only context that they are told."""
    whole = _Stack.of(entries)
    if len(whole.stages) == 1:
        yield whole.laid_out([0], ceiling, contexts, at)
        return
    np = xp.numpy()
    # Which stage is the fullest may differ between devices; it must not depend on converted formats beside the
    # checkpoint's own, of which alone further layouts are published.
    own = [n for n, form in enumerate(entries[0].case.weight_formats) if form is None] or slice(None)
    pools = np.stack([whole.by_row(lambda one: one.pool_bytes, stage)[:, own] for stage in whole.stages])
    order = pools.min(axis=2).argsort(axis=0, kind="stable")
    some: list[Any] = [slice(None)]
    if entries[0].pooled:
        some = [(one == order.T).all(axis=1) for one in np.unique(order.T, axis=0)]
    moved: set[int] = set()
    for where in some:
        stack, here = whole.part(where), order[:, where]
        rows = stack.laid_out(here, ceiling, contexts, at)
        yield rows
        ranks = (rows.laid, *rows.laid.others)
        if at is None and any(rank.lengths is not None for rank in ranks):
            sizes = np.broadcast_arrays(*(rank.pools_for(contexts)[:, own].min(axis=1) for rank in ranks))
            by_stage = np.take_along_axis(np.stack(sizes), here.argsort(axis=0)[..., None], axis=0)
            changed = (by_stage.argsort(axis=0, kind="stable") != here[..., None]).any(axis=(0, 2))
            moved.update((stack.kept[changed] // len(entries[0].case.accelerators)).tolist())
    # Nor may it be that of another length: the rows of such a case again, a context at a time.
    for entry in (entries[number] for number in sorted(moved)):
        for number, tokens in enumerate(contexts.tolist()):
            told = replace(entry.case, context_tokens=min(tokens, entry.case.model.context_tokens))
            for again in _entries(entry.place, told, ceiling, memo):
                yield from _stacked([again], ceiling, contexts[number : number + 1], memo, number)


@dataclass(frozen=True, slots=True)
class _Stack:
    """Cases on top of each other: a row for each device of each case on which the combination is possible."""

    entries: Sequence[_Entry]  # The cases, each with as many stages.
    devices: int  # Accelerators of all cases together.
    kept: Integers  # Which of them the rows are.
    rows: Integers  # Which of the plans of all cases each row has.

    @classmethod
    def of(cls, entries: Sequence[_Entry]) -> _Stack:
        """All rows of some cases."""
        np = xp.numpy()
        number, which = 0, []
        for entry in entries:
            alike = cast(Groups, entry.case.alike)
            by_group = np.full(len(alike) + 1, -1)
            for one in entry.shared:
                by_group[one.groups] = number
                number += 1
            which.append(by_group[alike.numbers(len(entry.case.accelerators))])
        plan_of = np.concatenate(which)
        kept = np.flatnonzero(plan_of >= 0)
        return cls(entries, len(plan_of), kept, plan_of[kept])

    def part(self, where: Any) -> _Stack:  # noqa: ANN401 - as numpy takes them
        """Some of the rows."""
        return replace(self, kept=self.kept[where], rows=self.rows[where])

    @property
    def stages(self) -> range:
        """The stages of each case."""
        return range(len(self.entries[0].parts))

    @property
    def shared(self) -> list[tuple[_Entry, SharedPlan]]:
        """The plans of all cases."""
        return [(entry, one) for entry in self.entries for one in entry.shared]

    def joined(self, arrays: Sequence[Any], stage: Any = 0) -> Any:  # noqa: ANN401 - as numpy has and takes them
        """An array for each case, or for each case of each stage, as one by row; ``stage``: which stage each row has."""
        together = xp.numpy().concatenate(arrays)
        if len(self.kept) == len(together):
            return together
        return together[self.kept + stage * self.devices]

    def by_row(self, read: Callable[[Allocation], Any], stage: Any) -> Any:  # noqa: ANN401 - as numpy has and takes them
        """What the allocations have, by row."""
        return self.joined([read(one.taken[number]) for number in self.stages for one in self.entries], stage)

    def plan_of(self, stage: Any, plans: Callable[[SharedPlan], Sequence[BlockPlan]]) -> BlockPlan:  # noqa: ANN401
        """The plans of all rows as one; ``plans``: those of each stage."""
        each = [plans(one)[number] for number in self.stages for _, one in self.shared]
        numbers = self.rows + stage * len(self.shared)
        if (numbers == numbers[0]).all():
            return each[int(numbers[0])]
        return BlockPlan(
            block_bytes=_spread(numbers, (plan.block_bytes for plan in each)),
            profile=cast(CacheProfile, Profiles([plan.profile for plan in each], numbers)),
            kept_blocks=_spread(numbers, (plan.kept_blocks for plan in each)),
        )

    def laid(self, stage: Any) -> Deployment:  # noqa: ANN401 - a stage, or that of each row
        """One rank of each row."""
        case, numbers, out = (
            self.entries[0].case,
            self.rows + stage * len(self.shared),
            self.entries[0].refused,
        )
        served = [(entry.parts[part].case, one.serving) for part in self.stages for entry, one in self.shared]
        limits = [part.rules.max_requests(told, part.model, part.layout) for part, told in served]
        slots = [state_slots_wanted(case.engine, part.model, told, eager=case.eager) for part, told in served]
        parts = ("activations", "non_framework", "graphs", "uncertainty")
        reserve = Reserve(*(self.by_row(attrgetter("reserve." + part), stage) for part in parts))
        sizes = ("resident_bytes", "total_bytes", "pool_bytes", "uncertainty_bytes")
        lacking = shortages(case, scalar=False)
        taken = [entry.taken[part] for part in self.stages for entry in self.entries]
        return Deployment(
            **{name: self.by_row(attrgetter(name), stage) for name in sizes},
            case=case,
            components=(),
            overhead=(),
            weight_bytes=self.by_row(lambda one: one.weight_bytes + 0 * one.resident_bytes, stage),
            reserve=reserve,
            lengths=joined(
                [one.lengths for one in taken],
                [one.total_bytes for one in taken],
                lambda arrays: self.joined(arrays, stage),
            ),
            start_shortage=lacking and tuple(self.joined([one] * len(self.entries)) for one in lacking),
            plan=self.plan_of(stage, attrgetter("plans")),
            max_requests=None if None in limits else _spread(numbers, limits),
            state_slots_wanted=None if set(slots) == {None} else _spread(numbers, slots),
            refused=out if isinstance(out, int) else self.joined([one.refused for one in self.entries]),
        )

    def laid_out(self, order: Any, ceiling: Engine, contexts: Integers, at: int | None) -> Rows:  # noqa: ANN401
        """All ranks of the rows, and what they would hold without an engine.

        ``order``: which stage each rank of a row is, the fullest first. ``at``: the place of the only context.
        """
        ranks = agreed(self.entries[0].case, [self.laid(stage) for stage in order])
        bounds = [
            bound_under(self.plan_of(stage, attrgetter("ceilings")), rank, ceiling, contexts)
            for stage, rank in zip(order, ranks, strict=True)
        ]
        least = reduce(xp.minimum, (bound.requests for bound in bounds))
        asked = self.shared[0][1].start and self.plan_of(
            0, lambda one: [cast(BlockPlan, one.start)] * len(self.stages)
        )
        copies = [entry.case.layout.data for entry, _ in self.shared]
        each = len(self.entries[0].case.accelerators)
        begin = xp.integers([entry.place * each for entry in self.entries])
        places = (begin[:, None] + xp.numpy().arange(each)).ravel()[self.kept]
        follow = places[-1] - places[0] + 1 == len(places)
        return Rows(
            slice(places[0], places[-1] + 1) if follow else places,
            replace(ranks[0], others=tuple(ranks[1:]), start_plan=asked),
            Bound(bounds[0].profile, least),
            _spread(self.rows, copies) if max(copies) > 1 else 1,
            at,
        )


def _spread(rows: Integers, numbers: Iterable[int | None]) -> Any:  # noqa: ANN401 - an array by row
    """The number of each row, with axes for weight formats and contexts; 0 for none."""
    return xp.integers([one or 0 for one in numbers])[rows][:, None, None]
