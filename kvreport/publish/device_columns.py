"""The columns of a model's published file: what each layout, stage by stage, weighs, reserves and plans."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, TypeVar

from kvreport.accounting.allocation import (
    load_overheads,
    new_plan,
    overhead_class,
    plan_class,
    reserve_on,
    shared_weights,
)
from kvreport.accounting.case import SINGLE, Case, Launch, Memo
from kvreport.accounting.deployment import upper_bound
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.kernel import ReserveRates, follows_length
from kvreport.accounting.parallel import Layout, stage_layers
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.accounting.profile import CacheProfile
from kvreport.accounting.stages import partition_of, stages
from kvreport.accounting.support_lookup import judge, spread_codes
from kvreport.accounting.weights import is_hashed
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.model import Model
from kvreport.catalog.release import trait
from kvreport.dataset.matrix import left_out, planned
from kvreport.estimation.named import automatic_kv_format
from kvreport.publish.site_data import SiteData

T = TypeVar("T")
BF16: Final = "bf16"
NONE: Final = -1
"""Index of a plan that cannot be made."""


@dataclass(frozen=True, slots=True)
class ModelColumn:
    """A column of a model's file: a layout, and which of its pipeline stages."""

    layout: Layout  # How the model is spread over devices.
    stage: int = 0  # The stage, from 0.


def places(site: SiteData, *, further: bool) -> tuple[ModelColumn, ...]:
    """Return the columns of a model's lists: every tensor-parallel size, then further layouts stage by stage.

    Without ``further`` layouts, the list is that of the files with all models. Those of the search for a deployment come last.
    """
    grid = site.searched
    plain = tuple(ModelColumn(Layout(tensor=size)) for size in grid.tensor_parallel)
    if not further:
        return plain
    staged = (ModelColumn(layout, stage) for layout in grid.layouts for stage in range(layout.pipeline))
    return (*plain, *staged)


def published_columns(site: SiteData) -> int:
    """Return how many columns are of layouts that the matrix has, which come first."""
    return len(site.axes.tensor_parallel) + sum(layout.pipeline for layout in site.axes.layouts)


class Columns:
    """A model's facts in each column, under the engine of a site."""

    def __init__(self, site: SiteData, model: Model, columns: tuple[ModelColumn, ...]) -> None:
        offered = set(site.searched.layouts_of(model))
        self.site, self.model, self.columns = site, model, columns
        self.parts = _parts(site, model, [place if place.layout in offered else None for place in columns])
        self.stage_of = [_stage_of(site, model, place) for place in columns]
        memo = Memo()
        by_part = {id(part): memo if part is model else Memo() for part in self.parts}
        self.memos = [by_part[id(part)] for part in self.parts]
        self.reserves = [memo] * len(columns) if trait(site.engine, "stages_reserve_as_whole") else self.memos
        self.caches = site.axes.caches(model)
        gone = left_out(model, site.axes)
        self.forms = {
            name: form for (name, form), out in zip(site.axes.weight_formats, gone, strict=True) if not out
        }
        self.examples = {number: gpu for gpu, number in by_number(site, site.device_kinds)}
        self.has_own_pools = False
        self.overhead_classes: dict[bool, list[list[int]]] = {}
        self.cut_in: dict[Layout, list[bool]] = {}
        self.reserving_in: dict[int, tuple[Case, Case | None]] = {}

    @property
    def divides_otherwise(self) -> bool:
        """Whether engines may divide layers, or components among data ranks, or keep tables on the host, in their own ways."""
        layouts = {place.layout for place, part in zip(self.columns, self.parts, strict=True) if part}
        hashed = any(is_hashed(self.model, row) for row in self.model.weights)
        return hashed or any(one.data > 1 or _sizes(self.site, self.model, one.pipeline) for one in layouts)

    def kept(self, gpu: Accelerator, number: int) -> list[int] | None:
        """The reserve of one device in a column, and its uncertainty.

        Where less is reserved for a short longest request, also how much less, and up to how many tokens.
        """
        if self.parts[number] is None:
            return None
        case, shortened = self.reserving(number)
        serving, memo = _servings(self.site, self.model)[gpu.id], self.reserves[number]
        found = reserve_on(case, gpu, serving, memo)
        kept = [found.total, found.uncertainty]
        if shortened is None:
            return kept
        less = found.total - reserve_on(shortened, gpu, serving, memo).total
        return [*kept, less, shortened.context_tokens] if less else kept

    def reserving(self, number: int) -> tuple[Case, Case | None]:
        """What is reserved for in a column on every device, and the same for a short longest request; None if all are."""
        if number not in self.reserving_in:
            case, short = (
                self.case(number, self.site.gpus[0], None),
                trait(self.site.engine, "short_context_tokens"),
            )
            long = short is not None and self.model.context_tokens > short
            self.reserving_in[number] = case, replace(case, context_tokens=short) if long else None
        return self.reserving_in[number]

    def case(self, number: int, gpu: Accelerator, cache: KvFormat | None) -> Case:
        """What is laid out on a device in a column that the model has."""
        part, place = self.parts[number], self.columns[number]
        return _case(self.site, part or self.model, gpu, place.layout, cache, self.stage_of[number])

    def own_kvs(self) -> list[str] | None:
        """The KV format that the engine takes by itself on each kind of device; None where it is the same."""
        site, model = self.site, self.model
        engine = rules(site.engine)
        found = [
            site.catalog.kv_format(engine.default_kv_format(model, gpu) or BF16).name
            for _, gpu in sorted(self.examples.items())
        ]
        return None if set(found) <= {own_kv(site, model)} else found

    def plans(self) -> tuple[list[Any], dict[str, list[list[int]]]]:
        """The block plans, and which of them each KV format has in each column on each kind of device."""
        site, model, grid = self.site, self.model, self.site.axes
        made: dict[str, int] = {}
        kind_at = [site.device_kinds[gpu.id] for gpu in grid.accelerators]
        placed = {}
        for cache in self.caches:
            rows = placed[cache.name] = [[NONE] * len(self.examples) for _ in self.columns]
            for first, (place, part) in enumerate(zip(self.columns, self.parts, strict=True)):
                if part is None or place.stage or not site.runs(model):
                    continue
                for members, stages_plans, refused in planned(
                    model, grid, place.layout, cache, self.memos[0]
                ):
                    # What a release refuses in every weight format is left out, like what cannot be stored.
                    kinds = {
                        kind_at[position]
                        for n, position in enumerate(members)
                        if isinstance(refused, int) or not refused[n].all()
                    }
                    for n, plan in enumerate(stages_plans):
                        if _is_divided(plan):
                            index = made.setdefault(
                                json.dumps(_plan(plan, site.engine.steps_in_flight)), len(made)
                            )
                            for kind in kinds:
                                rows[first + n][kind] = index
                        elif kinds and place.layout.is_tensor_only:  # pools that the browser cannot divide
                            self.has_own_pools = True
        return [json.loads(text) for text in made], placed

    @cached_property
    def refused(self) -> dict[str, list[bool]]:
        """For each weight format and kind of device, whether the release refuses the model so."""
        site, launch = self.site, self._launch()
        return {
            name: [
                judge(launch, gpu, self.model, form).verdict is not None
                for _, gpu in sorted(self.examples.items())
            ]
            for name, form in site.axes.weight_formats
        }

    def loaded(self) -> dict[str, list[Any]]:
        """What loading adds, by weight format and column: one number, or one per kind where they differ."""
        refused, forms = self.refused, self.forms
        found: list[list[tuple[int, ...]] | None] = []
        for place, part, memo in zip(self.columns, self.parts, self.memos, strict=True):
            if part is None:
                found.append(None)
                continue
            each: dict[int, tuple[int, ...]] = {}
            for alike in self.loaded_alike(place.layout):
                gpu = self.examples[alike[0]]
                case = _case(self.site, part, gpu, place.layout, None)
                added = load_overheads(case, list(forms.values()), memo)
                each |= dict.fromkeys(alike, added)
            found.append([added for _, added in sorted(each.items())])
        cut = [self.cut(place.layout) for place in self.columns]
        shown: dict[str, list[Any]] = {}
        for n, (name, _) in enumerate(self.site.axes.weight_formats):
            if name not in forms:
                shown[name] = [None] * len(found)
                continue
            which = list(forms).index(name)
            shown[name] = [
                each
                and _alike_added([one[which] for one in each], [out or cut[at][n] for out in refused[name]])
                for at, each in enumerate(found)
            ]
        return shown

    def loaded_alike(self, layout: Layout) -> list[list[int]]:
        """Kinds of devices in groups: loading adds the same on those of a group, in every column that exchanges tokens alike."""
        exchanges = bool(layout.all_to_all)
        if exchanges not in self.overhead_classes:
            groups: dict[Hashable, list[int]] = {}
            for kind, gpu in self.examples.items():
                case = _case(self.site, self.model, gpu, layout, None)
                groups.setdefault(overhead_class(case, gpu, case.serving), []).append(kind)
            self.overhead_classes[exchanges] = list(groups.values())
        return self.overhead_classes[exchanges]

    def cut(self, layout: Layout) -> list[bool]:
        """For each weight format, whether the release refuses a layout, because it cuts blocks or lacks stages."""
        if layout not in self.cut_in:
            self.cut_in[layout] = self._cut(layout)
        return self.cut_in[layout]

    def _cut(self, layout: Layout) -> list[bool]:
        site = self.site
        forms = [form for _, form in site.axes.weight_formats]
        if site.catalog.support is None:
            return [False] * len(forms)
        found = spread_codes(self._launch(layout), site.catalog.support, self.model, forms)
        return [bool(code) for code in found]

    def _launch(self, layout: Layout = SINGLE) -> Launch:
        """How the site's engine is started where nothing else is asked of it."""
        return Launch(
            engine=self.site.engine,
            formats=self.site.catalog.weight_formats,
            layout=layout,
            serving=Serving(max_batched_tokens=1),
            support=self.site.catalog.support,
        )

    def of_engine(self) -> dict[str, Any]:
        """What the engine decides: plans, what loading adds, the reserve."""
        plans, placed = self.plans()
        numbers = range(len(self.columns))
        classes = {number: gpu for gpu, number in by_number(self.site, self.site.reserve_classes)}
        return {
            "loaded": self.loaded(),
            "reserve": [[self.kept(gpu, number) for number in numbers] for _, gpu in sorted(classes.items())],
            "plans": plans,
            "plan": placed,
        }

    def weights(self) -> dict[str, list[int | None]]:
        """Weights per device by format and column."""
        some = next(iter(self.examples.values()))

        def size(number: int, form: WeightFormat | None) -> int | None:
            if self.parts[number] is None:
                return None
            return sum(shared_weights(self.case(number, some, None), form, self.memos[number]).values())

        return {
            name: [
                size(number, self.forms[name]) if name in self.forms else None
                for number in range(len(self.columns))
            ]
            for name, _ in self.site.axes.weight_formats
        }

    def held(self) -> dict[str, list[Any]]:
        """What the architecture itself needs, by KV format and column."""
        found, servings = {}, _servings(self.site, self.model)
        engine, ceiling = rules(self.site.engine), rules(self.site.axes.ceiling)
        for cache in self.caches:
            alike: dict[Hashable, list[int]] = {}
            for kind, gpu in sorted(self.examples.items()):
                stored, types = engine.stored(self.model, cache, gpu)
                same = plan_class(ceiling, self.model, stored, gpu, servings[gpu.id]), types
                alike.setdefault(same, []).append(kind)
            found[cache.name] = [
                None if part is None else self._held(number, cache, list(alike.values()))
                for number, part in enumerate(self.parts)
            ]
        return found

    def _held(
        self, number: int, cache: KvFormat, alike: Sequence[Sequence[int]]
    ) -> list[Any] | dict[str, list[Any]]:
        """What a request holds: a profile and which of its bytes are state, or one for each kind of device."""
        each: dict[int, list[Any]] = {}
        for kinds in alike:
            case = upper_bound(self.case(number, self.examples[kinds[0]], cache), self.site.axes.ceiling)
            profile = new_plan(case, case.accelerator, case.serving).profile
            each |= {kind: [*_profile(profile), profile.state_bytes] for kind in kinds}
        first = next(iter(each.values()))
        return (
            first
            if all(one == first for one in each.values())
            else {"kinds": [each[kind] for kind in sorted(each)]}
        )


def text_facts(site: SiteData, model: Model) -> dict[str, Any]:
    """Return what a server of text only takes of a model with encoders: weights by format and tensor size, and the reserve's rates."""
    gone = left_out(model, site.axes)
    forms = {name: form for (name, form), out in zip(site.axes.weight_formats, gone, strict=True) if not out}
    cases = [
        replace(_case(site, model, site.gpus[0], Layout(tensor=size), None), images=False)
        for size in site.axes.tensor_parallel
    ]
    memos = [Memo() for _ in cases]
    weights = {
        name: [
            sum(shared_weights(case, form, memo).values()) for case, memo in zip(cases, memos, strict=True)
        ]
        for name, form in forms.items()
    }
    return {"weights": weights} | reserve_rates(site, model, further=False, images=False)


def reserve_rates(
    site: SiteData, model: Model, *, further: bool = True, images: bool = True
) -> dict[str, Any]:
    """Return what other scheduler sizes need: the reserve's rates for every column, None without such rules.

    A list for each column, in the order of :class:`kvreport.accounting.kernel.ReserveRates`;
    ``other_rates`` are those of devices where another runner serves the model, None where none does.
    """
    offered = set(site.searched.layouts_of(model))
    engine = rules(site.engine)

    columns = [place if place.layout in offered else None for place in places(site, further=further)]
    parts = _parts(site, model, columns)

    def listed(*, amd: bool) -> list[list[float] | None] | None:
        found = [
            engine.reserve_rates(part, place.layout, amd=amd, receives=place.stage > 0, images=images)
            if place and part
            else None
            for place, part in zip(columns, parts, strict=True)
        ]
        return [None if one is None else list(one) for one in found] if any(found) else None

    usual, other = listed(amd=False), listed(amd=True)
    return {"rates": usual, "other_rates": None if other == usual else other}


def following(rates: dict[str, Any]) -> dict[str, Any]:
    """Return the rates of a model whose reserve follows the longest request; nothing of others."""
    columns = [one for name in ("rates", "other_rates") for one in rates[name] or () if one is not None]
    return rates if any(follows_length(ReserveRates(*one)) for one in columns) else {}


def _parts(site: SiteData, model: Model, columns: Sequence[ModelColumn | None]) -> list[Model | None]:
    """The part of a model that each column's stage runs; None where a column is not offered."""
    numbers = {place.layout.pipeline for place in columns if place}
    divided = {number: stages(model, number, _sizes(site, model, number)) for number in numbers}
    return [divided[place.layout.pipeline][place.stage].model if place else None for place in columns]


def _sizes(site: SiteData, model: Model, number: int) -> tuple[int, ...]:
    """The layers of each of so many stages where the engine divides them in a way of its own."""
    return partition_of(site.engine, model, Layout(pipeline=number))


def _stage_of(site: SiteData, model: Model, place: ModelColumn) -> tuple[Model, range] | None:
    """The whole model and the layers of a column's pipeline stage; None without stages."""
    number = place.layout.pipeline
    if number == 1 or number > model.layer_count:
        return None
    return model, stage_layers(model.layer_count, number, _sizes(site, model, number))[place.stage]


def _case(
    site: SiteData,
    model: Model,
    gpu: Accelerator,
    layout: Layout,
    cache: KvFormat | None,
    stage_of: tuple[Model, range] | None = None,
) -> Case:
    return Case(
        model=model,
        engine=site.engine,
        accelerators=(gpu,),
        weight_formats=site.once(
            "weight formats", lambda: tuple(form for _, form in site.axes.weight_formats)
        ),
        formats=site.axes.formats,
        kv_format=cache,
        layout=layout,
        serving=_servings(site, model)[gpu.id],
        many=True,
        stage_of=stage_of,
    )


def _servings(site: SiteData, model: Model) -> dict[str, Serving]:
    """The scheduler sizes that the engine takes for a model on each accelerator."""

    def made() -> dict[str, Serving]:
        sizes = {gpu.id: rules(site.engine).scheduler(gpu, model=model) for gpu in site.gpus}
        return {
            name: Serving(max_batched_tokens=tokens, max_seqs=rows) for name, (tokens, rows) in sizes.items()
        }

    return site.once(f"servings {rules(site.engine).least_step(model, by_default=True)}", made)


def by_number(site: SiteData, numbers: dict[str, int]) -> Iterator[tuple[Accelerator, int]]:
    """Yield the accelerators with their numbers, the first of each number last."""
    for gpu in reversed(site.gpus):
        yield gpu, numbers[gpu.id]


def _alike_added(added: list[int], refused: list[bool]) -> int | list[int | None] | None:
    """Return what loading adds: one number, or one per kind of device where they differ.

    None where the release refuses the weights.
    """
    return one_or_each([None if out else one for one, out in zip(added, refused, strict=True)])


def one_or_each(values: list[T]) -> T | list[T]:
    """Return the value that all kinds of devices have, or the list where they differ."""
    return values[0] if len(set(values)) == 1 else values


def _is_divided(plan: BlockPlan) -> bool:
    """Whether the browser's formulas divide a budget as a plan does."""
    pool = plan.pool
    return pool is None or pool.is_division or pool.divided is not None


def _plan(blocks: BlockPlan, usual_steps: int) -> list[Any]:
    pool = blocks.pool
    divided = None if pool is None or pool.is_division else pool.divided
    constant, terms = _profile(blocks.profile)
    windows = any(cap for _, _, cap in terms)
    further = [
        None if divided is None else list(divided),
        blocks.steps_in_flight if windows and blocks.steps_in_flight != usual_steps else None,
    ]
    while further and further[-1] is None:
        further.pop()
    return [blocks.block_bytes, blocks.kept_blocks, constant, terms, *further]


def _profile(profile: CacheProfile) -> list[Any]:
    constant, terms = profile.flat
    return [constant, [list(term) for term in terms]]


def own_kv(site: SiteData, model: Model) -> str:
    """Return the KV format that ``auto`` means for a model."""
    return site.catalog.kv_format(automatic_kv_format(model)).name
