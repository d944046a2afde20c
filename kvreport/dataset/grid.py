"""Which combinations a matrix has: the axes, chosen from a catalog, and how they are shared out."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import groupby
from typing import Final, TypeVar

from kvreport.accounting.allocation import device_class
from kvreport.accounting.case import Alike, Groups, Memo
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.kv_cache import held
from kvreport.accounting.parallel import Layout, check_tensor_parallel, suits
from kvreport.accounting.plan import Serving
from kvreport.accounting.roofline import Peaks
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.load import RELEASED, Catalog
from kvreport.catalog.model import Model
from kvreport.catalog.release import trait
from kvreport.catalog.support import Support
from kvreport.errors import InputError, shorten
from kvreport.estimation.named import (
    AUTO,
    as_declared,
    automatic_kv_format,
    engine_named,
    refuse_unsupported,
    storable_on,
)
from kvreport.resources import read_table

MAX_CONTEXTS = 20_000

PIECE_ROWS = 1 << 19
"""Rows computed at a time, so that memory does not grow with the matrix."""

R = TypeVar("R")
Run = tuple[int, int, int]
"""Positions of accelerators that follow each other: from the first up to the last, and where they begin elsewhere."""


@dataclass(frozen=True)
class Fleet:
    """The accelerators of a matrix under its engine, and which of them it treats alike.

    Groups are lists of positions; they are found once, however many models are computed.
    """

    accelerators: tuple[Accelerator, ...]
    engine: Engine

    @cached_property
    def peaks(self) -> Peaks:
        """Peak rates of all accelerators, with axes for weight formats and contexts after them."""
        return Peaks.stacked(self.accelerators, axes=2)

    @cached_property
    def alike(self) -> tuple[tuple[int, ...], ...]:
        """Accelerators, by position, that the engine treats alike: each group is laid out together."""
        found: dict[Hashable, list[int]] = {}
        for position, device in enumerate(self.accelerators):
            found.setdefault(device_class(self.engine, device), []).append(position)
        return tuple(map(tuple, found.values()))

    def alike_storing(self, cache: KvFormat, layout: Layout) -> Groups:
        """The same groups, of those that can store a KV format and stand in servers for a layout.

        With each group goes what the engine's scheduler takes on it.
        """
        key = ("storing", cache.name, cache.native, layout.wants_link)
        return self._known.get(key, lambda: Groups(self._groups(cache, layout)))

    @cached_property
    def _known(self) -> Memo:
        return Memo()

    def _groups(self, cache: KvFormat, layout: Layout) -> Iterator[Alike]:
        for positions in self.alike:
            members = tuple(
                place
                for place in positions
                if storable_on(cache, self.accelerators[place])
                and not (layout.wants_link and self.accelerators[place].interconnect_bytes_per_s is None)
            )
            if members:
                device, engine = self.accelerators[members[0]], rules(self.engine)
                tokens, rows = engine.scheduler(device)
                serving = Serving(max_batched_tokens=tokens, max_seqs=rows)
                yield Alike(members, serving, engine.device_class(device)[0])

    def by_engine(self, local: Mapping[str, Engine]) -> tuple[tuple[bool, Fleet, list[Run]], ...]:
        """The accelerators of each engine, with their runs of positions (:meth:`Axes.by_engine`).

        Args:
            local: Engines of some makers' machines; the other accelerators keep the fleet's own.
        """
        key = ("engines", *sorted((maker, engine.name) for maker, engine in local.items()))
        return self._known.get(key, lambda: tuple(self._by_engine(local)))

    def _by_engine(self, local: Mapping[str, Engine]) -> Iterator[tuple[bool, Fleet, list[Run]]]:
        devices: dict[str, list[Accelerator]] = {}
        runs: dict[str, list[Run]] = {}
        position = 0
        for name, run in groupby(
            self.accelerators, key=lambda device: device.vendor if device.vendor in local else ""
        ):
            members, there = tuple(run), devices.setdefault(name, [])
            runs.setdefault(name, []).append((position, position + len(members), len(there)))
            there.extend(members)
            position += len(members)
        if list(devices) == [""]:
            yield False, self, runs[""]
            return
        for name, many in devices.items():
            yield name != "", Fleet(tuple(many), local.get(name, self.engine)), runs[name]

    def part(self, first: int, last: int) -> Fleet:
        """The accelerators from ``first`` up to ``last``."""
        whole = first == 0 and last == len(self.accelerators)
        return self if whole else Fleet(self.accelerators[first:last], self.engine)


@dataclass(frozen=True, slots=True)
class Axes:
    """The axes of a matrix, each sorted as the rows are."""

    models: tuple[Model, ...]
    fleet: Fleet
    tensor_parallel: tuple[int, ...]  # Device counts; each model has those that its shapes allow.
    layouts: tuple[Layout, ...]  # Further layouts, for the models that are deployed so (:meth:`layouts_of`).
    # Names with formats; None for the checkpoint as released.
    weight_formats: tuple[tuple[str, WeightFormat | None], ...]
    # KV formats that every model is asked for, None for the one that ``auto`` means; those that its caches
    # cannot be kept in are left out.
    kv_formats: tuple[KvFormat | None, ...]
    contexts: tuple[int, ...]  # Contexts in tokens.
    ceiling: Engine
    formats: Mapping[str, WeightFormat]  # All weight formats, for what released tensors carry.
    all_kv_formats: Mapping[str, KvFormat]  # All KV formats, for what checkpoints declare.
    support: Support | None = None  # What engines' releases run on; None not to judge it.
    # Engines of machines that the main one has no platform for, by their maker.
    local_engines: Mapping[str, Engine] = field(default_factory=dict)

    def by_engine(self) -> Iterator[tuple[Axes, list[Run]]]:
        """Yield the axes of each engine, with the runs of positions that its accelerators have among all.

        A local engine serves on one device. Runs are ``(first, last, start)``: positions from ``first`` up to
        ``last`` here are those from ``start`` on there.
        """
        serving = {
            maker: engine
            for maker, engine in self.local_engines.items()
            if all(_allowed(refuse_unsupported, model, engine) for model in self.models)
        }
        for local, fleet, runs in self.fleet.by_engine(serving):
            if local:
                yield replace(self, fleet=fleet, tensor_parallel=(1,), layouts=()), runs
            else:
                yield (self if fleet is self.fleet else replace(self, fleet=fleet)), runs

    @property
    def rows_per_pair(self) -> int:
        """Most rows that one model on one accelerator can have."""
        return (
            (len(self.tensor_parallel) + len(self.layouts))
            * len(self.weight_formats)
            * len(self.kv_formats)
            * len(self.contexts)
        )

    @property
    def accelerators(self) -> tuple[Accelerator, ...]:
        """The accelerators, by slug."""
        return self.fleet.accelerators

    @property
    def engine(self) -> Engine:
        """The engine whose answer the rows carry."""
        return self.fleet.engine

    def parallel_sizes(self, model: Model) -> tuple[int, ...]:
        """The tensor-parallel sizes that the model's shapes allow."""
        return tuple(size for size in self.tensor_parallel if _allowed(check_tensor_parallel, model, size))

    def layouts_of(self, model: Model) -> tuple[Layout, ...]:
        """The layouts that a model is deployed in: tensor parallel, and further ones that suit it, by key."""
        plain = [Layout(tensor=size) for size in self.parallel_sizes(model)]
        further = [
            layout for layout in self.layouts if suits(layout, model) and _allowed(layout.check, model)
        ]
        return tuple(sorted((*plain, *further), key=layout_key))

    @property
    def converted(self) -> list[int]:
        """Positions of weight formats that a checkpoint is converted to; further layouts leave them out."""
        return [place for place, (_, form) in enumerate(self.weight_formats) if form is not None]

    def caches(self, model: Model) -> tuple[KvFormat, ...]:
        """The KV formats asked for that can store the model's caches, by name."""
        own = self.all_kv_formats[automatic_kv_format(model)]
        meant = [as_declared(form or own, model, self.all_kv_formats) for form in self.kv_formats]
        asked = {form.name: form for form in meant}
        return tuple(asked[name] for name in sorted(asked) if _allowed(held, model, asked[name]))

    def shard(self, number: int, of: int) -> Iterator[Axes]:
        """Yield one shard's part of the axes in pieces of one model and at most ``PIECE_ROWS`` rows.

        Work is dealt out as contiguous runs of (model, accelerator) pairs, so shards differ by at
        most one pair, and joined in order they are the whole in order. A piece has at least one
        accelerator, however many contexts that is.

        Args:
            number: Shard, from 1.
            of: Number of shards.
        """
        per_model = len(self.accelerators)
        pairs = len(self.models) * per_model
        first, last = pairs * (number - 1) // of, pairs * number // of
        step = max(1, PIECE_ROWS // self.rows_per_pair)
        fleets: dict[tuple[int, int], Fleet] = {}
        for position, model in enumerate(self.models):
            low = max(first - position * per_model, 0)
            high = min(last - position * per_model, per_model)
            for start in range(low, high, step):
                stop = min(start + step, high)
                if (start, stop) not in fleets:
                    fleets[start, stop] = self.fleet.part(start, stop)
                yield replace(self, models=(model,), fleet=fleets[start, stop])


def axes(
    catalog: Catalog,
    *,
    models: str = "*",
    gpus: str = "*",
    contexts: Sequence[int] | None = None,
    tensor_parallel: Sequence[int] | None = None,
    layouts: Sequence[Layout] | None = None,
    weights: Sequence[str] | None = None,
    kv: Sequence[str] | None = None,
    engine: str | None = None,
) -> Axes:
    """Choose the axes of a matrix: the catalog's published grid, or what is asked for instead.

    Args:
        catalog: The facts.
        models: Shell pattern over model ids, in any case; several with commas between.
        gpus: The same over accelerator slugs.
        contexts: Contexts in tokens.
        tensor_parallel: Device counts.
        layouts: Further layouts, for the models that they suit; None for the grid's, or for none beside given
            device counts.
        weights: Weight formats, ``released`` among them if wanted.
        kv: KV formats.
        engine: Engine whose answer the rows carry.

    Raises:
        InputError: If a name is unknown, a number out of range, or nothing is left.
    """
    grid = catalog.grid
    policy = engine_named(catalog, grid.engine if engine is None else engine)
    if trait(policy, "allocates_at_start"):
        raise InputError(
            f"engine: found {policy.name}, whose weights are GGUF mixes and which allocates for a stated context; allowed: "
            f"engines that serve the formats of a matrix, such as vllm (`kvreport estimate --engine {policy.name}` answers)"
        )
    chosen = _matching("models", models, catalog.models, catalog.model)
    forms: dict[str, WeightFormat | None] = {}
    for name in (RELEASED, *grid.weight_formats) if weights is None else weights:
        form = None if name.lower() == RELEASED else catalog.weight_format(name)
        forms[RELEASED if form is None else form.name] = form
    caches = {
        name.lower(): None if name.lower() == AUTO else catalog.kv_format(name)
        for name in (grid.kv_formats if kv is None else kv)
    }
    lengths = sorted(set(grid.contexts if contexts is None else contexts))
    if not 0 < len(lengths) <= MAX_CONTEXTS:
        raise InputError(f"contexts: found {len(lengths)}; allowed: 1 to {MAX_CONTEXTS:,} different ones")
    sizes = sorted(set(grid.tensor_parallel if tensor_parallel is None else tensor_parallel))
    for size in sizes:
        if size < 1:
            raise InputError(f"tensor-parallel: found {size}; allowed: whole numbers of at least 1")
    usual = [Layout(**one.model_dump()) for one in grid.layouts] if tensor_parallel is None else []
    further = usual if layouts is None else layouts
    result = Axes(
        models=tuple(model for model in chosen if _allowed(refuse_unsupported, model, policy)),
        fleet=Fleet(tuple(_matching("gpus", gpus, catalog.accelerators, catalog.accelerator)), policy),
        tensor_parallel=tuple(sizes),
        layouts=tuple(further),
        weight_formats=tuple(sorted(forms.items(), key=lambda item: item[0])),
        kv_formats=tuple(caches.values()),
        contexts=tuple(lengths),
        ceiling=catalog.engine("ceiling"),
        formats=dict(catalog.weight_formats),
        all_kv_formats=dict(catalog.kv_formats),
        support=catalog.support,
        local_engines={maker: catalog.engine(name) for maker, name in grid.local_engines.items()}
        if engine is None
        else {},
    )
    if not result.models:
        raise InputError(f"models: {policy.label} runs none of those that match {shorten(models)}")
    return result


_NAMING: Final[frozenset[str]] = frozenset(read_table("naming fields"))
"""Fields of a model that no row depends on, beyond whether its checkpoint is known and a copy."""


def twins(models: Sequence[Model], positions: Sequence[int]) -> list[tuple[int, ...]]:
    """Group models by what decides their rows: those of a group have the same, but for the id.

    ``positions``: which of them; groups come in the order of their first one.
    """
    groups: dict[Hashable, list[int]] = {}
    for position in positions:
        model = models[position]
        facts = model.model_dump_json(exclude=set(_NAMING))
        key = facts, model.release_known, model.quantized_from is None
        groups.setdefault(key, []).append(position)
    return [tuple(group) for group in groups.values()]


def layout_key(layout: Layout) -> tuple[str | int, ...]:
    """A layout's place in the order of rows: that of its key columns."""
    return (
        layout.label,
        layout.tensor,
        layout.data,
        layout.pipeline,
        layout.expert,
        layout.decode_context,
    )


def parse_shard(text: str) -> tuple[int, int]:
    """Read ``i/n``: the i-th of n shards, from 1.

    Raises:
        InputError: If it is not that.
    """
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text, re.ASCII)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise InputError(f"shard: found {shorten(text)}; allowed: i/n, with i from 1 to n")
    return int(match[1]), int(match[2])


def _matching(what: str, patterns: str, records: Mapping[str, R], find: Callable[[str], R]) -> list[R]:
    """Records whose id matches one of the patterns, by id; where none does, those that are called so."""
    wanted = [pattern.strip().lower() for pattern in patterns.split(",")]
    if what == "gpus" and "+" in patterns:
        raise InputError(
            f"gpus: found {shorten(patterns)}; allowed: names and patterns, because a row of the matrix has one "
            f"accelerator; kvreport size MODEL --gpu {shorten(patterns)} lays a model out on unequal GPUs"
        )
    found = [
        records[name]
        for name in sorted(records)
        if any(fnmatchcase(name.lower(), pattern) for pattern in wanted)
    ]
    if not found and not set(patterns) & set("*?["):
        found = [find(pattern.strip()) for pattern in patterns.split(",")]
    if not found:
        raise InputError(f"{what}: found none that matches {shorten(patterns)}; allowed: a pattern such as *")
    return found


def _allowed(check: Callable[..., object], *arguments: object) -> bool:
    try:
        check(*arguments)
    except InputError:
        return False
    return True
