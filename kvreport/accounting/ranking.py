"""Which deployments serve a workload, best first.

Every offered accelerator is tried at every tensor-parallel size, further layout that suits the model, weight
format and KV format; what
holds the workload is ranked: what surely fits before what fits within the error of the estimate, then
by price where prices are given, otherwise by the memory that it takes in all (the least hardware that
does it), then by the number of devices. Layouts of the same hardware: first those whose decode step under this load is
about as short as the shortest (:data:`kvreport.accounting.kernel.CLOSE_STEPS`), of them the plainest, then the one
that holds the most requests. Where nobody has said which accelerators there are, those
that more than one cloud rents out come first: the least memory is no help on a machine that few can
get. Of two that are otherwise equal the one that more clouds rent out is first. Accelerators that an engine
treats alike share a block plan and are evaluated together.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import numpy as np

from kvreport.accounting import capacity, kernel
from kvreport.accounting.allocation import FollowedLengths, device_class, lengths_on, reserve_on
from kvreport.accounting.case import Case, Memo
from kvreport.accounting.demand import Demand, demand
from kvreport.accounting.deployment import Deployment, lay_out, told_serving
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.step import Reserve, check_step
from kvreport.accounting.numeric import Integers, Reals
from kvreport.accounting.offers import Choices, Offer, Solution
from kvreport.accounting.parallel import SERVER_DEVICES, Layout, allowed_tensor_parallel, suits
from kvreport.accounting.partition import best_partition
from kvreport.accounting.plan import SHORTEST_SERVER_TOKENS, Serving
from kvreport.accounting.roofline import Peaks, decode, prefill
from kvreport.accounting.sizing import (
    MAX_REQUESTS,
    Load,
    fast_enough,
    replica_users,
    shared_bytes,
    what_binds,
)
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.model import Model
from kvreport.catalog.release import trait
from kvreport.errors import InputError


@dataclass(frozen=True, slots=True)
class Ranking:
    """The deployments that serve a workload, best first, and why others do not."""

    deployments: tuple[Solution, ...]  # Best first, all combinations.
    # How many combinations failed for each reason: ``support`` (the release refuses), ``share`` (it asks for
    # more than is free at start), ``weights``, ``context`` (one longest request does not fit), ``time`` or ``available``.
    refused: dict[str, int]
    # The lowest bound of a decode step for one user among those that memory allows; NaN if none is known.
    fastest_tpot_s: float
    fastest_ttft_s: float  # The same for the prefill.

    def best_of_each(self) -> tuple[Solution, ...]:
        """The best deployment of each model and accelerator, best first."""
        seen: dict[tuple[str, str], Solution] = {}
        for found in self.deployments:
            seen.setdefault((found.model.id, found.offer.accelerator.id), found)
        return tuple(seen.values())


REASONS: Final = ("support", "share", "weights", "context", "time", "available")


def rank(models: Sequence[Model], workload: Load, offers: Sequence[Offer], choices: Choices) -> Ranking:
    """Try every combination and rank those that serve the workload.

    Raises:
        InputError: If the longest request is longer than every model's limit.
    """
    able = [model for model in models if model.context_tokens >= workload.longest_tokens]
    if not able:
        longest = max(models, key=lambda model: model.context_tokens)
        raise InputError(
            f"context: found {workload.longest_tokens:,} tokens, but {longest.id} supports "
            f"{longest.context_tokens:,}; shorten the longest request or take another model"
        )
    found: list[Solution] = []
    refused: dict[str, int] = dict.fromkeys(REASONS, 0)
    fastest: list[tuple[float, float]] = [(np.nan, np.nan)]
    for model in able:
        for group in _groups(model, workload, offers, choices):
            found.extend(group.deployments(refused, fastest))
    priced = all(offer.price_per_hour is not None for offer in offers)

    def hardware(one: Solution) -> tuple[float, ...]:
        return (
            not one.sure,
            *_as_rented(one, choices),
            (one.price_per_hour or 0.0) if priced else 0.0,
            one.memory_bytes,
            one.devices,
        )

    shortest: dict[tuple[float, ...], float] = {}
    for one in found:
        at = hardware(one)
        shortest[at] = float(np.fmin(shortest.get(at, np.nan), one.tpot_bound_s))
    found.sort(
        key=lambda one: (
            *hardware(one),
            not kernel.is_quick(one.tpot_bound_s, shortest[hardware(one)]),
            one.layout.order,
            -one.users_at_peak,
            -len(one.offer.accelerator.rented_as),
            one.model.id,
            one.offer.accelerator.id,
            one.tensor_parallel,
            one.layout.label,
        )
    )
    times = np.asarray(fastest)
    return Ranking(
        tuple(found),
        {reason: count for reason, count in refused.items() if count},
        float(np.fmin.reduce(times[:, 0])),
        float(np.fmin.reduce(times[:, 1])),
    )


def _as_rented(one: Solution, choices: Choices) -> tuple[int, int]:
    """What comes first where nobody has named an accelerator: current ones that clouds rent out, then few devices."""
    if choices.current_since is None:
        return 0, 0
    device = one.offer.accelerator
    return -device.rental_class(choices.current_since), device.billed(one.devices)


@dataclass(frozen=True, slots=True)
class _Group:
    """Offers that the engine treats alike, for one model, size and pair of formats.

    ``laid`` holds all offers along its first axis and all weight formats along its second; ``place`` is
    this group's format.
    """

    model: Model
    workload: Load
    offers: Sequence[Offer]
    choices: Choices
    laid: Deployment
    place: int
    demand: Demand
    peaks: Peaks

    @property
    def max_seqs(self) -> int:
        """Requests that a data rank may run at once; an engine without a scheduler has no limit of its own."""
        return self.laid.max_requests or self.choices.max_seqs or MAX_REQUESTS

    def deployments(self, refused: dict[str, int], fastest: list[tuple[float, float]]) -> Iterator[Solution]:
        work, layout = self.workload, self.laid.case.layout
        stages = self.laid.ranks
        total = np.asarray(self.laid.total_bytes)
        limit, memo = self.max_seqs, Memo()
        told = self._told(limit, memo)
        flags = np.where(told > 0, np.maximum(np.minimum(told, self._fast(told)), 1), limit)
        kept = [[self._kept(stage, int(flag), memo) for flag in flags] for stage in stages]
        pools = np.stack([self._rooms(stage, row) for stage, row in zip(stages, kept, strict=True)])
        # Requests that hold nothing may use memory beyond the share that the engine asks for; it is no pool.
        beside = [np.asarray(one.room_bytes - one.pool_bytes)[:, self.place] for one in stages]
        errors = np.stack([self._errors(stage, row) for stage, row in zip(stages, kept, strict=True)])
        holding = np.stack([self._holding(stage, pool) for stage, pool in zip(stages, pools, strict=True)])
        binding = np.argmin(holding, axis=0)
        held = np.minimum(holding.min(axis=0), told)
        if (
            self.laid.start_plan is not None
        ):  # older releases ask every stage for a request of the whole model
            asked = [capacity.users(pool, self.laid.start_plan, work.longest_tokens) for pool in pools]
            held = np.where(np.min(asked, axis=0) > 0, held, 0)
        surely = np.min(
            [
                self._holding(stage, pool - error)
                for stage, pool, error in zip(stages, pools, errors, strict=True)
            ],
            axis=0,
        )
        fast = self._fast(held)
        each = np.minimum(fast, limit)
        first = prefill(
            self.demand, self.peaks, work.prompt_tokens, cached_tokens=work.shared_prefix_tokens
        ).seconds
        alone = decode(self.demand, self.peaks, np.ones(total.shape), work.mean_tokens).seconds
        # One replica runs its share of the peak: of as few replicas as hold it, or of as many as surely do.
        steps = [self._step(each), self._step(np.minimum(surely, limit))]
        first = np.broadcast_to(first, total.shape) / layout.pipeline
        out = stages[0].refused
        short = [
            np.broadcast_to(np.ravel(stage.start_shortage[0]), total.shape[:1])
            for stage in stages
            if stage.start_shortage is not None
        ]
        for index, offer in enumerate(self.offers):
            fullest = int(binding[index])
            plan = stages[fullest].plan
            if not isinstance(out, int) and out[index, self.place]:
                refused["support"] += 1
            elif any(lacking[index] > 0 for lacking in short):
                refused["share"] += 1
            elif pools[:, index].min() <= 0:
                refused["weights"] += 1
            elif not held[index]:
                refused["context"] += 1
            elif not each[index]:
                refused["time"] += 1
                fastest.append((float(alone[index]), float(first[index])))
            else:
                users = int(each[index]) * layout.data
                order = sorted(range(len(stages)), key=lambda number: number != fullest)
                ranks = tuple(
                    replace(
                        stages[number].of_one(index, self.place),
                        reserve=kept[number][index],
                        pool_bytes=max(int(pools[number, index] - beside[number][index]), 0),
                        lengths=self._lengths(stages[number], int(flags[index]), memo),
                        start_plan=self.laid.start_plan,
                    )
                    for number in order
                )
                sure = min(int(surely[index]), limit) * layout.data
                for step, peak in zip(steps, _peaks(work.peak, users, sure), strict=False):
                    average = kernel.replicas_for(_whole(work.concurrent), users)
                    replicas = (average, peak, peak + work.spare_replicas)
                    if offer.available is not None and replicas[-1] * layout.devices > offer.available:
                        refused["available"] += 1
                        continue
                    yield Solution(
                        model=self.model,
                        offer=offer,
                        layout=layout,
                        weight_format=list(self.choices.weight_formats)[self.place],
                        kv_format=cast(KvFormat, self.laid.case.kv_format).name,
                        ranks=ranks,
                        request_bytes=int(plan.request_bytes(work.mean_tokens)),
                        shared_bytes=shared_bytes(plan.profile, work.shared_prefix_tokens),
                        users_held=int(held[index]) * layout.data,
                        users_each=users,
                        sure_each=sure,
                        sure=sure * peak >= work.peak,
                        replicas=replicas,
                        binds=what_binds(
                            plan,
                            work.mean_tokens,
                            held=int(held[index]),
                            fast=int(fast[index]),
                            limit=limit,
                        ),
                        tpot_bound_s=float(step[index]),
                        ttft_bound_s=float(first[index]),
                    )

    def _step(self, each: Integers) -> Reals:
        """Bounds of a decode step of every offer where replicas that hold so many requests on a data rank share the peak."""
        work, layout = self.workload, self.laid.case.layout
        shares = [
            kernel.replicas_for(work.peak, kernel.replicas_for(work.peak, max(one, 1) * layout.data))
            for one in each.tolist()
        ]
        batch = np.asarray([kernel.micro_batch(one, layout.data, layout.pipeline) for one in shares])
        return decode(self.demand, self.peaks, batch, work.mean_tokens).seconds

    @property
    def _follows(self) -> bool:
        """True if a server that is told to run fewer requests reserves less."""
        return bool(trait(self.laid.case.engine, "reserve_follows_requests"))

    def _told(self, limit: int, memo: Memo) -> Integers:
        """The most requests that a data rank of each offer may be told to run at once, and holds.

        The command says so many (``--max-num-seqs``), and the engine reserves for them, not for its default. None where it
        would not start by default, so that nothing hangs on one flag.
        """
        stages, offers = self.laid.ranks, range(len(self.offers))
        if not self._follows:
            held = np.full(len(offers), np.iinfo(np.int64).max)
            kept = [[stage.reserve] * len(offers) for stage in stages]
            while True:
                rooms = [self._rooms(stage, row) for stage, row in zip(stages, kept, strict=True)]
                holding = [self._holding(stage, room) for stage, room in zip(stages, rooms, strict=True)]
                fewer = np.minimum(held, np.min(holding, axis=0))
                if (fewer == held).all():
                    return np.asarray(held, dtype=np.int64)
                held = fewer
                kept = [[self._kept(stage, max(int(one), 1), memo) for one in held] for stage in stages]

        def most(index: int) -> int:
            def reach(asked: Any) -> Any:  # noqa: ANN401 - one number, as of a length that is followed
                kept = (self._kept(one, max(int(asked), 1), memo) for one in stages)
                rooms = (self._rooms(one, [told], index) for one, told in zip(stages, kept, strict=True))
                return min(int(self._holding(one, room)[0]) for one, room in zip(stages, rooms, strict=True))

            return int(capacity.followed(reach, limit)) if reach(limit) else 0

        return np.asarray([most(index) for index in offers], dtype=np.int64)

    def _kept(self, stage: Deployment, requests: int, memo: Memo) -> Reserve:
        """What one rank reserves if it is told to run so many requests at once.

        SGLang keeps less for few that it is told, and for the images of many more. Other engines that do not follow the number
        keep what they do by default.
        """
        case, places = stage.case, stage.places
        if self._follows:
            serving = replace(case.serving, max_seqs=min(requests, case.serving.max_seqs))
        elif case.rules.static_memory(case.accelerators[0], case.layout) is not None:
            serving = told_serving(case, min(requests, self.max_seqs))
        else:
            return stage.reserve
        return memo.get(
            (places, stage.layers, serving), lambda: reserve_on(case, case.accelerators[0], serving, Memo())
        )

    def _errors(self, stage: Deployment, kept: Sequence[Reserve]) -> Integers:
        """Half width of the pool's error band on one rank of every offer."""
        if self._follows:
            return np.asarray([one.uncertainty for one in kept])
        return np.broadcast_to(np.asarray(stage.uncertainty_bytes), np.shape(stage.pool_bytes))[:, self.place]

    def _rooms(self, stage: Deployment, kept: Sequence[Reserve], index: int | None = None) -> Integers:
        """What is left for the cache on one rank of every offer, or of one, with such reserves."""
        rooms = np.asarray(stage.room_bytes)[:, self.place]
        rooms = rooms if index is None else rooms[index : index + 1]
        more = [stage.reserve.total - one.total for one in kept]
        return np.asarray(rooms + np.asarray(more), dtype=np.int64)

    def _lengths(self, stage: Deployment, requests: int, memo: Memo) -> FollowedLengths | None:
        """How the reserve of one rank follows the longest request, if it is told to run so many at once."""
        if not self._follows:
            return stage.lengths
        # A default of many requests may fill what latents are expanded in at any length; fewer do not.
        case = stage.case
        serving = replace(case.serving, max_seqs=min(requests, case.serving.max_seqs))
        return memo.get(
            ("lengths", stage.places, stage.layers, serving),
            lambda: lengths_on(case, ((case.accelerators[0], serving),), Memo()),
        )

    def _holding(self, stage: Deployment, pool: Integers) -> Integers:
        """Average requests of which one data rank's pool holds this stage's part."""
        work = self.workload
        return replica_users(
            pool, stage.plan, work.mean_tokens, work.longest_tokens, work.shared_prefix_tokens
        )

    def _fast(self, held: Integers) -> Integers:
        """Requests of one data rank that meet the time targets.

        Pipeline stages work on as many micro-batches at once, and a prompt may pass through them in chunks.
        """
        work, stages = self.workload, self.laid.case.layout.pipeline
        if stages == 1:
            return fast_enough(self.demand, self.peaks, work, held)
        later = None if work.ttft_s is None else work.ttft_s * stages
        batches = fast_enough(self.demand, self.peaks, replace(work, ttft_s=later), -(-held // stages))
        return np.minimum(batches * stages, held)


def _groups(model: Model, workload: Load, offers: Sequence[Offer], choices: Choices) -> Iterator[_Group]:
    """Every combination of one model, offers that an engine treats alike together."""
    demands: dict[tuple[Layout, str, str], Demand] = {}
    memo = Memo()
    for members in _kinds(model, workload, offers, choices):
        machine = members[0].machine
        peaks: dict[tuple[str, ...], Peaks] = {}
        for layout in _over_machine(model, machine) if machine else _layouts(model, choices):
            able = [offer for offer in members if machine or _stands(layout, offer.accelerator)]
            for kv in _caches(model, choices, able[0].devices[0]) if able else ():
                storing = [offer for offer in able if all(_stores(one, kv) for one in offer.devices)]
                if not storing:
                    continue
                devices = tuple(offer.devices[0] for offer in storing)
                try:
                    case = _case(model, workload, choices, devices, kv, layout)
                    laid = lay_out(_over_stages(replace(case, replica=machine), workload), memo)
                except InputError:
                    continue
                ids = tuple(device.id for device in devices)
                if ids not in peaks:
                    slowest = min(machine, key=lambda one: float(Peaks.of(one).bytes_per_s), default=None)
                    peaks[ids] = Peaks.stacked(devices) if slowest is None else Peaks.of(slowest)
                for place, (name, form) in enumerate(choices.weight_formats.items()):
                    asked = (layout, name, kv.name)
                    if asked not in demands:
                        whole = demand(model, form, choices.formats, kv, tensor_parallel=layout.tensor)
                        demands[asked] = whole.shared_by(layout.data).interleaved(layout.decode_context)
                    yield _Group(
                        model=model,
                        workload=workload,
                        offers=storing,
                        choices=choices,
                        laid=laid,
                        place=place,
                        demand=demands[asked],
                        peaks=peaks[ids],
                    )


def _over_stages(case: Case, workload: Load) -> Case:
    """A case whose stages stand on unequal devices with the partition that holds the most; others as they are."""
    if not case.replica or case.layout.pipeline == 1:
        return case
    partition = best_partition(case, workload.longest_tokens)
    return replace(case, layout=replace(case.layout, partition=partition))


def _over_machine(model: Model, machine: Sequence[Accelerator]) -> list[Layout]:
    """The ways to spread one copy over all devices of a machine: tensor parallel, or in stages."""
    devices = len(machine)
    sizes = allowed_tensor_parallel(model, devices)
    return [Layout(tensor=size, pipeline=devices // size) for size in sizes if devices % size == 0]


def _layouts(model: Model, choices: Choices) -> list[Layout]:
    """What to try for a model: tensor parallelism, and the further layouts that suit it."""
    sizes = set(allowed_tensor_parallel(model, max(choices.tensor_parallel)))
    plain = [Layout(tensor=ranks) for ranks in sorted(sizes.intersection(choices.tensor_parallel))]
    further = [layout for layout in choices.layouts if layout not in plain]
    return plain + [layout for layout in further if not choices.suiting or suits(layout, model)]


def _stands(layout: Layout, device: Accelerator) -> bool:
    """True if each of the layout's nodes has devices enough, and a scale-up link where more than tensors are split.

    The published matrix keeps to the same rule (:mod:`kvreport.dataset.grid`). A row of stages is of cards, which
    machines have in any number; boards of four or eight are divided by tensors.
    """
    if device.slice_of is not None:
        # Slices have no link to each other; `estimate` refuses to join them.
        return layout.devices == 1
    if layout.wants_link and device.interconnect_bytes_per_s is None:
        return False
    if layout.is_row_of_cards:
        return device.is_card and layout.devices <= device.most_per_machine
    return layout.devices <= layout.nodes * (device.devices_per_node or SERVER_DEVICES)


def _scheduler(model: Model, workload: Load, choices: Choices, device: Accelerator) -> tuple[int, int]:
    return rules(choices.engine).scheduler(
        device,
        max_batched_tokens=choices.max_batched_tokens,
        max_seqs=choices.max_seqs,
        context_tokens=max(min(workload.longest_tokens, model.context_tokens), SHORTEST_SERVER_TOKENS),
        model=model,
    )


def _kinds(model: Model, workload: Load, offers: Sequence[Offer], choices: Choices) -> Iterable[list[Offer]]:
    """Offers that the engine treats alike: equal scheduler sizes, equal reserves, equal kernels; each unequal machine by itself."""
    kinds: dict[Hashable, list[Offer]] = {}
    for number, offer in enumerate(offers):
        alike: Hashable = number
        if not offer.machine:
            device = offer.accelerator
            alike = (_scheduler(model, workload, choices, device), device_class(choices.engine, device))
        kinds.setdefault(alike, []).append(offer)
    return kinds.values()


def _caches(model: Model, choices: Choices, device: Accelerator) -> list[KvFormat]:
    """The KV formats to try, each once; None is what the engine takes for the model on this device."""
    own = choices.all_kv_formats[rules(choices.engine).default_kv_format(model, device) or "bf16"]
    return list({form.name: form for form in (form or own for form in choices.kv_formats.values())}.values())


def _stores(device: Accelerator, kv: KvFormat) -> bool:
    return kv.stored_by(device.compute_capability, device.vendor)


def _case(
    model: Model,
    workload: Load,
    choices: Choices,
    devices: tuple[Accelerator, ...],
    kv: KvFormat,
    layout: Layout,
) -> Case:
    tokens, rows = _scheduler(model, workload, choices, devices[0])
    check_step(choices.engine, model, tokens, rules(choices.engine).least_step(model))
    return Case(
        model=model,
        engine=choices.engine,
        accelerators=devices,
        weight_formats=tuple(choices.weight_formats.values()),
        formats=choices.formats,
        kv_format=kv,
        layout=layout,
        serving=Serving(max_batched_tokens=tokens, max_seqs=rows),
        utilization=choices.utilization,
        context_tokens=min(workload.longest_tokens, model.context_tokens),
        many=True,
        support=choices.support,
    )


def _peaks(requests: int, users: int, sure: int) -> list[int]:
    """Replicas at the peak: as many as hold it, and as many as surely do where that is one of several more.

    ``sure``: requests that it serves when its pool is smaller by the error of the estimate.
    """
    found = kernel.replicas_for(requests, users)
    if found == 1 or not sure or sure * found >= requests:
        return [found]
    return [found, kernel.replicas_for(requests, sure)]


def _whole(requests: float) -> int:
    return max(1, -int(-requests // 1))
