"""The trunk: weights, load overhead, reserve, pool, block plan, limits. Every answer is made here.

:func:`lay_out` takes a :class:`Case` — one model under one engine, with records for names — and returns a
:class:`Deployment`. A case is one device and one weight format, or many of each at once: accelerators that
the engine treats alike stand along the first axis, weight formats along the second. The arithmetic
is the same; numbers become arrays. One estimate, the published matrix, a ranking, a start-up log and the
files for the browser all come through here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, TypeVar

from kvreport.accounting import capacity
from kvreport.accounting import numeric as xp
from kvreport.accounting.allocation import (
    Allocation,
    FollowedLengths,
    allocate,
    column,
    format_name,
    new_plan,
    plan_on,
    shortages,
    state_slots_wanted,
    stored_key,
)
from kvreport.accounting.case import Case, Memo
from kvreport.accounting.numeric import Codes, Integers, Reals
from kvreport.accounting.plan import BlockPlan, HostMemory, Serving
from kvreport.accounting.profile import CacheProfile
from kvreport.accounting.shares import pool_bytes
from kvreport.accounting.stages import partition_of, stages
from kvreport.accounting.state_types import with_precisions
from kvreport.accounting.support_lookup import alone_codes, spread_codes
from kvreport.accounting.support_lookup import codes as refusals
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.release import release_of, trait
from kvreport.catalog.remembered import remembered
from kvreport.errors import InputError
from kvreport.units import MAX_BYTES

A = TypeVar("A", bound="xp.Numbers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment(Allocation):
    """An allocation with the plan by which requests are laid into its pool.

    Sizes are those of the fullest rank. Counts are of one data rank, whose every device must hold its part
    of each request: the least of all its ranks. Methods that take contexts append an axis for them.
    """

    plan: BlockPlan  # How requests are laid into the pool.
    max_requests: int | None = None  # Requests at once whatever memory says, or None.
    state_slots_wanted: int | None = None  # Blocks that must exist at start, or None.
    layers: range = range(0)  # Layers that this rank runs.
    places: tuple[int, ...] = (0,)  # Positions of the devices that this is, in the replica.
    others: tuple[Deployment, ...] = ()  # Ranks that differ: other pipeline stages, other accelerators.
    # What the release refuses, whatever the memory: codes of :class:`kvreport.accounting.capacity.Verdict`, 0
    # where it does not; ``[device, format]`` for many.
    refused: int | Codes = 0
    # What the engine asks for at start beyond what is free, and the error of that; None if it does not ask.
    start_shortage: tuple[int | Integers, int | Integers] | None = None
    # How the engine lays out the request that it checks for at start, where that is not ``plan``.
    start_plan: BlockPlan | None = None

    @property
    def ranks(self) -> tuple[Deployment, ...]:
        """This rank and those that differ, in the order of their places."""
        return tuple(sorted((self, *self.others), key=lambda one: one.places))

    @property
    def room_bytes(self) -> int | Integers:
        """What decides whether one request runs: see :func:`kvreport.accounting.kernel.room_left`."""
        nothing = (self.start_plan or self.plan).profile.holds_nothing
        if self.case.kv_pool_bytes is not None or not self.case.accelerators or not xp.any_of(nothing):
            return self.pool_bytes
        left = column(self.total_bytes) - self.resident_bytes - column(self.reserve.total)
        return xp.integers(xp.where(nothing, left, self.pool_bytes))

    @property
    def following(self) -> FollowedLengths | None:
        """How the reserve follows the contexts of answers; None where it is that of a stated length."""
        return self.lengths if self.case.context_tokens is None else None

    def at_any_length(self) -> Deployment:
        """The same, with answers for a server that is told just the length that is asked for."""
        if all(one.lengths is None for one in (self, *self.others)):
            return self
        case = replace(self.case, context_tokens=None)
        return replace(self, case=case, others=tuple(one.at_any_length() for one in self.others))

    def of_one(self, device: int, form: int) -> Deployment:
        """The same of one device and one weight format, by their places; other ranks are left out."""

        def picked(numbers: Any, *places: int) -> int:  # noqa: ANN401 - a number, or an array of them
            return int(numbers if xp.is_plain(numbers) else numbers[places])

        case, shortage = self.case, self.start_shortage
        return replace(
            self,
            case=replace(
                case,
                accelerators=case.accelerators[device : device + 1],
                weight_formats=case.weight_formats[form : form + 1],
                many=False,
            ),
            components=self.components[form : form + 1],
            overhead=self.overhead[form : form + 1],
            weight_bytes=picked(self.weight_bytes, form),
            resident_bytes=picked(self.resident_bytes, form),
            total_bytes=picked(self.total_bytes, device),
            pool_bytes=picked(self.pool_bytes, device, form),
            uncertainty_bytes=picked(self.uncertainty_bytes, device, form),
            refused=picked(self.refused, device, form),
            start_shortage=shortage and (picked(shortage[0], device, 0), picked(shortage[1], device, 0)),
            others=(),
        )

    def told(self, requests: int) -> Deployment:
        """The same of a server that is told to run so many requests at once on a data rank, as its command does.

        Pools of states and rings are laid out for the number that is told.
        """
        case = self.case
        of_rank = replace(case.serving, max_seqs=requests, seqs_told=True)
        slots = state_slots_wanted(case.engine, case.model, of_rank, eager=case.eager)
        if self.plan.pool is None:
            return replace(self, state_slots_wanted=slots)
        serving = told_serving(case, requests)
        case = replace(case, serving=serving)
        plan = plan_on(case, case.accelerator, serving, Memo())
        return replace(self, case=case, plan=plan, state_slots_wanted=slots)

    def room_for(self, contexts: xp.ArrayLike) -> Any:  # noqa: ANN401
        """What decides whether one request of each context runs: :attr:`room_bytes`, with an axis for contexts."""
        return self._with_freed(self.room_bytes, contexts)

    def pools_for(self, contexts: xp.ArrayLike) -> Any:  # noqa: ANN401
        """The pool of a server that is told each context, with an axis for contexts; negative where nothing is left."""
        return self._with_freed(self.pool_bytes, contexts)

    def _with_freed(self, size: int | Integers, contexts: xp.ArrayLike) -> Any:  # noqa: ANN401
        found = self.following
        return _spread(size) if found is None else _spread(size) + found.freed(contexts)[0]

    def _errors_for(self, contexts: xp.ArrayLike) -> Any:  # noqa: ANN401
        found, error = self.following, _spread(self.uncertainty_bytes)
        return error if found is None else error - found.freed(contexts)[1]

    def own_requests(self, contexts: xp.ArrayLike) -> Integers:
        """Whole requests of each context that this rank's pool holds its part of."""
        return capacity.users(self.room_for(contexts), self.plan, contexts)

    def requests(self, contexts: xp.ArrayLike) -> Integers:
        """Whole requests of each context that the pool holds."""
        own = self.own_requests(contexts)
        return _reduce(xp.minimum, own, (one.requests(contexts) for one in self.others))

    def concurrency(self, contexts: xp.ArrayLike) -> Reals:
        """The same as the engine prints it: a real number, infinite where a request holds nothing."""
        own = capacity.concurrency(self.room_for(contexts), self.plan, contexts)
        return _reduce(xp.minimum, own, (one.concurrency(contexts) for one in self.others))

    def printed_tokens(self, contexts: xp.ArrayLike) -> Integers:
        """Tokens of the pool as the engine's log line counts them."""
        pool, line = self.room_for(contexts), self.case.engine.token_line
        own = capacity.printed_tokens(pool, self.plan, contexts, line)
        return _reduce(_fewer_tokens, own, (one.printed_tokens(contexts) for one in self.others))

    @property
    def host_memory(self) -> HostMemory:
        """How host memory keeps the blocks that the pool of this rank gives up."""
        return self.case.rules.host_memory(self.case, self.plan, int(self.pool_bytes))

    def host_tokens(self, host_bytes: int, context_tokens: int) -> int:
        """Tokens of requests of one length that host memory for evicted blocks of one data rank keeps: the least of all ranks."""
        return min(one.host_memory.tokens(host_bytes, context_tokens) for one in self.ranks)

    def longest_context(self) -> Integers:
        """The longest single request that the pool holds, up to the model's limit."""
        found = longest_of([(one, one.start_plan or one.plan) for one in (self, *self.others)], 1)
        return found if xp.is_plain(found) else found[..., 0]

    def boundary(self, users_wanted: int) -> int:
        """The longest context that each of so many requests can have, of one device and one format."""
        return int(longest_of([(one, one.plan) for one in (self, *self.others)], users_wanted))

    def verdicts(self, contexts: xp.ArrayLike) -> Codes:
        """Codes of :class:`kvreport.accounting.capacity.Verdict` for one request of each context."""
        # A pool given by hand replaces the budget, so the weights are no obstacle either.
        given = self.case.kv_pool_bytes is not None
        own = capacity.verdict(
            usable_bytes=MAX_BYTES if given else _spread(column(self.total_bytes)),
            weight_bytes=_spread(self.resident_bytes),
            pool_bytes=self.room_for(contexts),
            plan=self.start_plan or self.plan,
            context_tokens=contexts,
            limit_tokens=self.case.model.context_tokens,
            uncertainty_bytes=self._errors_for(contexts),
            state_slots_wanted=self.state_slots_wanted,
        )
        if self.start_shortage is not None:
            own = xp.maximum(own, capacity.start_verdict(*map(_spread, self.start_shortage)))
        own = xp.maximum(own, self.refused if isinstance(self.refused, int) else self.refused[..., None])
        return _reduce(xp.maximum, xp.codes(own), (one.verdicts(contexts) for one in self.others))

    def shortfall(self, contexts: xp.ArrayLike) -> Integers:
        """Bytes per device that one request of each context lacks; 0 where it fits."""
        asked = self.start_plan or self.plan
        own = capacity.shortfall(self.room_for(contexts), asked, contexts, self.state_slots_wanted)
        if self.start_shortage is not None:
            own = xp.integers(xp.maximum(own, _spread(self.start_shortage[0])))
        return _reduce(xp.maximum, own, (one.shortfall(contexts) for one in self.others))

    def at_start(self, contexts: xp.ArrayLike) -> Integers | None:
        """Whole requests beside what the engine reserves for as many as it is told; None where all that is held run."""
        if self.plan.pool is None:
            return None
        own = capacity.started(self.room_for(contexts), self.plan, contexts)
        others = (one.at_start(contexts) for one in self.others)
        return _reduce(xp.minimum, own, (one for one in others if one is not None))

    def running(self, held: Integers, codes: Codes, at_start: Integers | None) -> Integers:
        """Requests that the engine runs at once on one data rank; 0 where it does not start.

        ``held``: what :meth:`requests` says of the contexts. ``codes``: what :meth:`verdicts` says of
        them. ``at_start``: what :meth:`at_start` says of them.
        """
        held = held if at_start is None else xp.integers(xp.minimum(held, at_start))
        if self.max_requests is not None:
            held = xp.minimum(held, self.max_requests)
        return xp.integers(xp.where(codes <= capacity.Verdict.TIGHT, held, 0))

    def limited_by(
        self, contexts: xp.ArrayLike, held: Integers, codes: Codes, at_start: Integers | None
    ) -> Codes:
        """Codes of :class:`kvreport.accounting.capacity.Limit` at the contexts; other arguments as for :meth:`running`."""
        starts = codes <= capacity.Verdict.TIGHT
        capped = xp.full_like(held, value=False) if self.max_requests is None else held >= self.max_requests
        # Fewer run beside the states of all that the engine is told than if it were told fewer.
        capped = capped if at_start is None else capped | (at_start < held)
        slots = None if self.plan.pool is None else self.plan.pool.state_requests(self.pools_for(contexts))
        by_states = False if slots is None else held >= slots
        return xp.select(
            [
                codes == capacity.Verdict.CONTEXT_EXCEEDS_MODEL,
                codes == capacity.Verdict.MAX_SEQS_EXCEEDS_STATES,
                starts & by_states & xp.logical_not(capped),
                starts & capped,
            ],
            [
                capacity.Limit.CONTEXT,
                capacity.Limit.STATE_SLOTS,
                capacity.Limit.STATE_SLOTS,
                capacity.Limit.MAX_NUM_SEQS,
            ],
            capacity.Limit.KV_POOL,
        )


def lay_out(case: Case, memo: Memo | None = None) -> Deployment:
    """Lay a model out on a device: everything between a question and its answer.

    Raises:
        InputError: If the combination is impossible, saying why and what would work.
    """
    known = Memo() if memo is None else memo
    layout = case.layout
    known.get(("checked", layout), lambda: layout.check(case.model))
    if reason := case.rules.refuses(case.model, layout, case.replica):
        raise InputError(reason)
    groups = _replica(case)
    if layout.pipeline == 1 and len(groups[0]) == 1:
        return _rank(parts_of(case, known)[0], next(iter(groups[0].values())))
    ranks = []
    for number, part in enumerate(parts_of(case, known)):
        first = number * layout.tensor
        for places in groups[number].values():
            devices = (case.replica[first + places[0]],) if case.replica else case.accelerators
            there = replace(part, case=replace(part.case, accelerators=devices))
            ranks.append(_rank(there, tuple(place + first for place in places)))
    ranks.sort(key=lambda one: int(xp.least(one.pool_bytes)))
    # What a release refuses of one rank, it refuses of the deployment.
    out = reduce(xp.maximum, (one.refused for one in ranks))
    ranks = [replace(one, refused=out) for one in agreed(case, ranks)]
    asked = plan_at_start(case, case.accelerator, case.serving, known) if layout.pipeline > 1 else None
    return replace(ranks[0], others=tuple(ranks[1:]), start_plan=asked)


@dataclass(frozen=True, slots=True)
class StageCase:
    """What one pipeline stage lays out; the whole case without stages."""

    layers: range  # Its layers of the whole model.
    case: Case  # The case, whose model are these layers.
    known: Memo  # What other cases have worked out of it.


def told_serving(case: Case, requests: int) -> Serving:
    """The scheduler of a server that is told to run so many requests at once on a data rank.

    Some engines count the requests of all data ranks together.
    """
    of_all = replace(case.serving, max_seqs=requests * case.layout.data, seqs_told=True)
    counted = case.rules.max_requests(of_all, case.model, case.layout) or requests
    return replace(of_all, max_seqs=of_all.max_seqs // max(counted // requests, 1))


def parts_of(case: Case, known: Memo) -> list[StageCase]:
    """What each pipeline stage of a case lays out, first layers first."""
    model, number = case.model, case.layout.pipeline
    if number == 1:
        return [StageCase(range(model.layer_count), case, known)]
    partition = partition_of(case.engine, model, case.layout)
    divided = known.get(("stages", number, partition), lambda: stages(model, number, partition))
    return [
        StageCase(
            stage.layers,
            replace(case, model=stage.model, stage_of=(model, stage.layers)),
            known.get(("memo", number, stage.layers), Memo),
        )
        for stage in divided
    ]


def plan_at_start(case: Case, device: Accelerator | None, serving: Serving, known: Memo) -> BlockPlan | None:
    """The plan of the whole model, where a release checks at start that one request of it fits on every stage; else None."""
    if not release_of(case.engine).has("stages_checked_as_whole"):
        return None
    whole = replace(case, layout=replace(case.layout, pipeline=1, partition=()))
    return plan_on(whole, device, serving, known)


def agreed(case: Case, ranks: list[Deployment]) -> list[Deployment]:
    """The ranks with the pools that they end up with: each its own, or all that of the one with least."""
    if not trait(case.engine, "ranks_agree_on_pool"):
        return ranks
    least = reduce(xp.minimum, (one.pool_bytes for one in ranks))
    return [replace(one, pool_bytes=least) for one in ranks]


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


def _rank(part: StageCase, places: tuple[int, ...]) -> Deployment:
    """Lay out one rank: a stage's model on one kind of device."""
    case, known = part.case, part.known
    taken = allocate(case, known)
    scalar = isinstance(taken.total_bytes, int)
    return Deployment(
        **{name: getattr(taken, name) for name in Allocation.__slots__},
        plan=plan_on(case, case.accelerator, case.serving, known),
        max_requests=case.rules.max_requests(case.serving, case.model, case.layout),
        state_slots_wanted=state_slots_wanted(case.engine, case.model, case.serving, eager=case.eager),
        layers=part.layers,
        places=places,
        refused=refused(case, known, scalar=scalar),
        start_shortage=shortages(case, scalar=scalar),
    )


def refused(case: Case, known: Memo, *, scalar: bool = False) -> int | Codes:
    """Codes of what the release refuses; 0 without rules."""
    support = case.support
    if support is None or not case.accelerators:
        return 0
    devices, name = case.accelerators, None if case.kv_format is None else case.kv_format.name
    engine, forms = case.engine, tuple(map(format_name, case.weight_formats))
    names = _names(devices)
    found = known.get(
        ("refused", engine.name, names, forms, name, case.dtype),
        lambda: refusals(case, support, devices, case.model, case.weight_formats),
    )
    spread = known.get(
        ("refused", engine.name, forms, case.layout, case.lora_rank, case.serving.draft_tokens),
        lambda: spread_codes(case, support, case.model, case.weight_formats),
    )
    alone = known.get(
        ("alone", engine.name, names, case.layout), lambda: alone_codes(case, support, devices, case.model)
    )
    if scalar:
        return max(found[0][0], spread[0], alone[0])
    judged = known.get(
        ("refused codes", engine.name, names, forms, name, case.dtype), lambda: xp.codes(found)
    )
    if any(spread):
        judged = xp.codes(xp.maximum(judged, xp.codes(spread)))
    if any(alone):
        judged = xp.codes(xp.maximum(judged, xp.codes(alone)[:, None]))
    return judged


@remembered
def _names(devices: Sequence[Accelerator]) -> tuple[str, ...]:
    return tuple(device.id for device in devices)


def upper_bound(case: Case, ceiling: Engine) -> Case:
    """The same case without an engine: nothing reserved, nothing rounded, in the layout that is stored."""
    form, types = case.rules.stored(case.model, case.kv_format, case.accelerator)
    return replace(
        case,
        model=with_precisions(case.model, types),
        engine=ceiling,
        kv_format=form,
        utilization=None,
        kv_pool_bytes=None,
    )


@dataclass(frozen=True, slots=True)
class Bound:
    """What a deployment would hold if nothing were reserved or rounded."""

    profile: CacheProfile  # What one request holds on the fullest rank, as the architecture needs it.
    requests: Integers  # Whole requests of each context, on one data rank.


def bound_of(laid: Deployment, ceiling: Engine, contexts: xp.ArrayLike, memo: Memo | None = None) -> Bound:
    """The upper bound of a deployment; arguments as for :func:`lay_out` and :meth:`Deployment.requests`."""
    known = Memo() if memo is None else memo
    found = [
        bound_under(
            ceiling_plan(rank.case, rank.case.accelerator, ceiling, rank.layers, known),
            rank,
            ceiling,
            contexts,
        )
        for rank in (laid, *laid.others)
    ]
    requests = _reduce(xp.minimum, found[0].requests, (one.requests for one in found[1:]))
    return Bound(found[0].profile, requests)


def bound_under(plan: BlockPlan, rank: Deployment, ceiling: Engine, contexts: xp.ArrayLike) -> Bound:
    """The upper bound of one rank at some ``contexts``.

    ``plan``: what :func:`ceiling_plan` says of it. ``rank``: the rank; others are not asked.
    """
    room = pool_bytes(ceiling, column(rank.total_bytes) - rank.case.held_bytes, rank.weight_bytes)
    return Bound(plan.profile, capacity.users(_spread(room), plan, contexts))


def ceiling_plan(
    case: Case, device: Accelerator | None, ceiling: Engine, layers: range, known: Memo
) -> BlockPlan:
    """What a rank's requests hold if nothing is rounded, in the layout that the engine stores.

    ``device``: the device, whose kernels may lay a format out in their own way. ``layers``: layers of the
    rank.
    """
    form, types = case.rules.stored(case.model, case.kv_format, device)
    devices = () if device is None else (device,)

    def made() -> BlockPlan:
        plan = new_plan(upper_bound(replace(case, accelerators=devices), ceiling), device, case.serving)
        terms = plan.profile.terms
        if trait(
            case.engine, "window_without_asking_token"
        ):  # the upper bound counts no more than the engine
            terms = tuple(term.without_asking_token for term in terms)
        return replace(plan, profile=CacheProfile.of(terms))

    return known.get(("bound", case.engine.family, layers, stored_key(form), types, case.layout), made)


def longest_of(ranks: Sequence[tuple[Deployment, BlockPlan]], users_wanted: int) -> Integers:
    """The longest context of which every rank holds so many requests under its plan.

    Ranks are searched together: a length that one of them holds is not always one that the others do, though they hold longer ones.
    """
    limit = ranks[0][0].case.model.context_tokens

    def held(rank: Deployment, plan: BlockPlan, tokens: Any) -> Integers:  # noqa: ANN401 - a number or an array
        room = _spread(rank.room_bytes)
        if rank.following is not None:
            room = room + rank.following.freed_for(xp.spread_over(tokens, room))
        return capacity.boundary(room, plan, users_wanted, limit)

    follow = [one for one in ranks if one[0].following is not None]
    others = [held(*one, limit) for one in ranks if one[0].following is None]
    if not follow:
        return reduce(xp.minimum, others)
    falls = max(rank.following.falls_beyond for rank, _ in follow if rank.following is not None)
    return capacity.followed(
        lambda tokens: reduce(xp.minimum, [held(*one, tokens) for one in follow] + others), limit, falls
    )


def _reduce(pick: Callable[[A, A], A], own: A, others: Iterator[A]) -> A:
    for other in others:
        own = pick(own, other)
    return own


def _fewer_tokens(first: Integers, second: Integers) -> Integers:
    """The fewer tokens of two ranks' pools; -1, of a stage that caches nothing, limits none."""
    fewer = xp.where(second < 0, first, xp.minimum(first, second))
    return xp.integers(xp.where(first < 0, second, fewer))


def _spread(number: int | Integers) -> int | Integers:
    """A number for one case, or an array with an axis for contexts after its own."""
    return number if isinstance(number, int) else number[..., None]
