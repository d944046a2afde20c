"""Deployments of one model in many layouts and KV formats as one: a row for each device of each of them.

On a published grid the arrays of one deployment are short, and most of the time goes into calls. On top of each
other they are long, and the arithmetic of :class:`~kvreport.accounting.deployment.Deployment` runs over all of them
at once: what differs between plans becomes an array by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Final, NamedTuple, TypeVar, cast

from kvreport.accounting import numeric as xp
from kvreport.accounting.allocation import Allocation, allocation_of, joined, shortages, state_slots_wanted
from kvreport.accounting.case import Case, Groups, Memo
from kvreport.accounting.deployment import (
    Bound,
    Deployment,
    bound_of,
    bound_under,
    ceiling_plan,
    parts_of,
    refused,
)
from kvreport.accounting.engines.step import Reserve
from kvreport.accounting.fleet import SharedPlan, lay_out_fleet, shared_plans
from kvreport.accounting.numeric import Codes, Integers, Reals
from kvreport.accounting.plan import BlockPlan
from kvreport.accounting.profile import CacheProfile, Slope, along, held, marginal, searched, slope_of
from kvreport.catalog.engine import Engine

A = TypeVar("A", bound=xp.Numbers)

MOST_CELLS: Final = 1 << 15
"""Numbers of an array, beyond which a longer one is no faster: it leaves the processor's cache."""


class Profiles:
    """Many cache profiles where one is expected (:class:`~kvreport.accounting.profile.CacheProfile`): one for each row.

    Rows are the first axis of whatever comes out, contexts the last, and between them is one for weight formats.
    """

    def __init__(self, each: Sequence[CacheProfile], rows: Integers) -> None:
        """Give each row its profile.

        ``each``: the profiles. ``rows``: which of them each row has.
        """
        self.each = each
        self.rows = rows
        self._constants = xp.integers([one.constant_bytes for one in each])
        # Rate, step and cap by profile, term after term; one with fewer terms has some of nothing.
        self._terms = [
            _Term(*map(xp.integers, zip(*term, strict=True)))
            for term in zip_longest(*(one.growing for one in each), fillvalue=(0, 1, 0))
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
    def holds_nothing(self) -> bool:
        """True if a request holds no bytes under any of them."""
        return all(one.holds_nothing for one in self.each)

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

    def _by(self, *places: Any) -> list[_Term]:  # noqa: ANN401 - as numpy takes them
        return [_Term(*(part[places] for part in term)) for term in self._terms]

    def _spread(self, found: A, tokens: Integers) -> A:
        """What each profile has at each context, by row."""
        whole = xp.numpy().broadcast_to(found, (len(self.each), len(tokens)))
        return cast(A, whole[self.rows][:, None])


class _Term(NamedTuple):
    rate: Integers
    step: Integers
    cap: Integers


@dataclass(frozen=True, slots=True)
class Rows:
    """Devices under some plans, as one deployment.

    Attributes:
        places: Which they are: ``place * devices + device``, by the place of their case.
        laid: The deployment; its ``case`` is the first one.
        bound: What it would hold without an engine.
        copies: Data ranks of each row.
        at: The place of the one context that the deployment is told; None where it answers for all.
    """

    places: Any
    laid: Deployment
    bound: Bound
    copies: int | Integers
    at: int | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    """One case on a fleet, before it is a part of a stack."""

    place: int
    case: Case
    taken: Allocation
    shared: list[SharedPlan]
    ceilings: list[BlockPlan]
    refused: int | Codes

    @property
    def plans(self) -> list[BlockPlan]:
        return [one.plans[0] for one in self.shared]


def lay_out_rows(
    cases: Iterable[tuple[int, Case]], ceiling: Engine, contexts: Integers, memo: Memo
) -> Iterator[Rows]:
    """Lay one model out on a fleet in many layouts and KV formats, as few deployments with many rows.

    ``cases``: the place of each case, and the case on all ``accelerators``. ``contexts``: contexts in tokens.
    """
    waiting: list[_Entry] = []
    cells = 0
    for place, case in cases:
        devices = len(case.accelerators)
        entry = _entry(place, case, ceiling, memo)
        if entry is None:
            staged = False
            for members, laid in lay_out_fleet(case, memo):
                bound = bound_of(laid, ceiling, contexts, memo)
                staged |= not _in_order(laid, contexts)
                yield Rows(xp.integers(members) + place * devices, laid, bound, case.layout.data)
            if staged:
                yield from _by_context(place, case, ceiling, contexts, memo)
            continue
        if not entry.shared:
            continue
        more = devices * len(case.weight_formats) * len(contexts)
        if waiting and cells + more > MOST_CELLS:
            yield _stacked(waiting, ceiling, contexts)
            waiting, cells = [], 0
        waiting.append(entry)
        cells += more
    if waiting:
        yield _stacked(waiting, ceiling, contexts)


def _in_order(laid: Deployment, contexts: Integers) -> bool:
    """Whether the ranks stand in the order of their pools for a server that is told any of the contexts."""
    ranks = (laid, *laid.others)
    if not laid.others or all(one.lengths is None for one in ranks):
        return True
    np = xp.numpy()
    own = [n for n, form in enumerate(laid.case.weight_formats) if form is None] or slice(None)
    places = sorted(range(len(ranks)), key=lambda number: ranks[number].layers.start)
    pools = np.stack(
        np.broadcast_arrays(*(ranks[place].pools_for(contexts)[:, own].min(axis=1) for place in places))
    )
    return bool((np.argsort(pools, axis=0, kind="stable") == np.argsort(places)[:, None, None]).all())


def _by_context(place: int, case: Case, ceiling: Engine, contexts: Integers, memo: Memo) -> Iterator[Rows]:
    """The rows of pipeline stages again, a context at a time: which stage is the fullest may differ between lengths."""
    for number, tokens in enumerate(contexts.tolist()):
        told = replace(case, context_tokens=min(tokens, case.model.context_tokens))
        for members, laid in lay_out_fleet(told, memo):
            here = contexts[number : number + 1]
            bound = bound_of(laid, ceiling, here, memo)
            yield Rows(
                xp.integers(members) + place * len(case.accelerators), laid, bound, case.layout.data, number
            )


def _entry(place: int, case: Case, ceiling: Engine, memo: Memo) -> _Entry | None:
    """A case for a stack; None for one with stages or pools of its own, or whose requests hold nothing."""
    if case.layout.pipeline > 1:
        return None
    shared = shared_plans(case, parts_of(case, memo), memo)
    plans = [one.plans[0] for one in shared]
    if any(plan.pool is not None or not plan.block_bytes or plan.profile.holds_nothing for plan in plans):
        return None
    first = [case.accelerators[case.groups[one.groups[0]].places[0]] for one in shared]
    layers = range(case.model.layer_count)
    return _Entry(
        place=place,
        case=case,
        taken=allocation_of(case, memo),
        shared=shared,
        ceilings=[ceiling_plan(case, device, ceiling, layers, memo) for device in first],
        refused=refused(case, memo),
    )


def _stacked(entries: Sequence[_Entry], ceiling: Engine, contexts: Integers) -> Rows:
    """Put cases on top of each other."""
    np = xp.numpy()
    case = entries[0].case
    devices, engine = len(case.accelerators), case.rules
    # The plan of every device under every case; -1 where the combination is impossible.
    number, which = 0, []
    for entry in entries:
        alike = cast(Groups, entry.case.alike)
        by_group = np.full(len(alike) + 1, -1)
        for one in entry.shared:
            by_group[one.groups] = number
            number += 1
        which.append(by_group[alike.numbers(devices)])
    plan_of = np.concatenate(which)
    kept = np.flatnonzero(plan_of >= 0)
    everything = len(kept) == len(plan_of)
    rows = plan_of if everything else plan_of[kept]

    def by_row(arrays: Sequence[Any]) -> Any:  # noqa: ANN401 - one array for each case, devices first
        together = np.concatenate(arrays)
        return together if everything else together[kept]

    shared = [one for entry in entries for one in entry.shared]
    serving = [one.serving for one in shared]
    plans = [plan for entry in entries for plan in entry.plans]

    def of_plan(numbers: Iterable[int | None]) -> Any:  # noqa: ANN401
        return xp.integers([one or 0 for one in numbers])[rows][:, None, None]

    limits = [
        engine.max_requests(one.serving, case.model, entry.case.layout)
        for entry in entries
        for one in entry.shared
    ]
    slots = [state_slots_wanted(case.engine, case.model, one, eager=case.eager) for one in serving]
    taken = [entry.taken for entry in entries]
    parts = ("activations", "non_framework", "graphs", "uncertainty")
    reserve = Reserve(*(by_row([getattr(one.reserve, part) for one in taken]) for part in parts))
    lacking = shortages(case, scalar=False)
    codes = [np.broadcast_to(entry.refused, np.shape(entry.taken.resident_bytes)) for entry in entries]
    laid = Deployment(
        case=case,
        components=(),
        overhead=(),
        weight_bytes=by_row(
            [np.broadcast_to(one.weight_bytes, np.shape(one.resident_bytes)) for one in taken]
        ),
        resident_bytes=by_row([one.resident_bytes for one in taken]),
        reserve=reserve,
        total_bytes=by_row([one.total_bytes for one in taken]),
        memory_bytes=by_row([one.memory_bytes for one in taken]),
        pool_bytes=by_row([one.pool_bytes for one in taken]),
        uncertainty_bytes=reserve.uncertainty,
        lengths=joined([one.lengths for one in taken], [one.total_bytes for one in taken], by_row),
        start_shortage=None if lacking is None else tuple(by_row([one] * len(entries)) for one in lacking),
        plan=BlockPlan(
            block_bytes=of_plan(plan.block_bytes for plan in plans),
            profile=cast(CacheProfile, Profiles([plan.profile for plan in plans], rows)),
            kept_blocks=of_plan(plan.kept_blocks for plan in plans),
        ),
        max_requests=None if None in limits else of_plan(limits),
        state_slots_wanted=None if set(slots) == {None} else of_plan(slots),
        refused=0 if all(isinstance(entry.refused, int) for entry in entries) else by_row(codes),
    )
    ceilings = [plan for entry in entries for plan in entry.ceilings]
    bound = BlockPlan(
        block_bytes=1, profile=cast(CacheProfile, Profiles([plan.profile for plan in ceilings], rows))
    )
    ranks = [entry.case.layout.data for entry in entries for _ in entry.shared]
    first, last = entries[0].place, entries[-1].place
    places: Any = slice(first * devices, (last + 1) * devices)
    if not everything or last - first + 1 > len(entries):
        begin = xp.integers([entry.place * devices for entry in entries])
        places = (begin[:, None] + np.arange(devices)).ravel()[kept]
    return Rows(
        places,
        laid,
        bound_under(bound, laid, ceiling, contexts),
        of_plan(ranks) if max(ranks) > 1 else 1,
    )
