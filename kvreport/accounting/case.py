"""A case: one model under one engine, with records for names, and the memo that many cases share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, TypeVar

from kvreport.accounting import numeric as xp
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.protocol import EngineRules
from kvreport.accounting.engines.step import EngineStep, ServerSettings
from kvreport.accounting.numeric import Integers
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import Serving
from kvreport.accounting.shares import stated_share
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.model import Model
from kvreport.catalog.support import Support
from kvreport.words import TWO_BYTE_KV

SINGLE: Final = Layout()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch(ServerSettings):
    """How a model is started by an engine: what a question and the arithmetic have in common."""

    engine: Engine
    formats: Mapping[str, WeightFormat]  # Weight formats by name, for what released tensors carry.
    # How growing caches are stored; None for the type that the model is served in.
    kv_format: KvFormat | None = None
    layout: Layout = SINGLE  # How the model is spread over devices.
    serving: Serving  # Scheduler sizes and flags that change the block plan.
    dtype: str | None = None  # The type to compute in; None is the checkpoint's own.
    support: Support | None = None  # What engines' releases run on; None not to judge it.

    @property
    def lora_rank(self) -> int:
        """The largest rank of the LoRA adapters that are held; 0 without them."""
        held, rank = self.lora_slots
        return rank if held else 0

    @property
    def told(self) -> dict[str, Any]:
        """Each of them by its name, settings of the server included."""
        return dict(zip(_LAUNCH_NAMES, _LAUNCHED(self), strict=True))


_LAUNCH_NAMES: Final = (*ServerSettings.__slots__, *Launch.__slots__)
_LAUNCHED: Final = attrgetter(*_LAUNCH_NAMES)


@dataclass(frozen=True, slots=True)
class Alike:
    """Accelerators of a fleet that an engine treats alike (:func:`device_class`)."""

    places: tuple[int, ...]  # Their positions.
    serving: Serving  # The scheduler sizes that the engine takes on them.
    reserves: Hashable  # What of them decides the engine's reserve.


class Groups(tuple[Alike, ...]):
    """All groups of a fleet: a key of many lookups, so its hash is worked out once."""

    _numbers: Integers | None = None

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        """The hash of the groups."""
        return self._hash

    def holding(self, tokens: int) -> Groups:
        """The same with steps of at least so many tokens, as a model makes an engine take."""
        if all(one.serving.max_batched_tokens >= tokens for one in self):
            return self
        return Groups(
            replace(
                one,
                serving=replace(one.serving, max_batched_tokens=max(one.serving.max_batched_tokens, tokens)),
            )
            for one in self
        )

    def numbers(self, devices: int) -> Integers:
        """The group of each of so many accelerators; one more than the last of them where it has none."""
        if self._numbers is None or len(self._numbers) != devices:
            found = [len(self)] * devices
            for number, group in enumerate(self):
                for place in group.places:
                    found[place] = number
            self._numbers = xp.integers(found)
        return self._numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(Launch):
    """One model under one engine, every name resolved to a record."""

    model: Model
    accelerators: tuple[Accelerator, ...]  # The device, or several; empty where a log does not name it.
    # Which of them the engine treats alike (:func:`device_class`), with the scheduler sizes that it takes
    # there; None where it treats all alike, with those of ``serving``.
    alike: Groups | None = None
    # The format that the model is converted to, or several; None is as released.
    weight_formats: tuple[WeightFormat | None, ...] = (None,)
    # The longest request that the engine was told to take. None for that of each answer: a server that is
    # told just that length.
    context_tokens: Any = None
    many: bool = False  # True for arrays even where there is one device and one format.
    # The whole model and the layers that ``model`` is of it, where it is a pipeline stage; else None.
    stage_of: tuple[Model, range] | None = None
    # The accelerators of one data rank, place by place, where they differ; else empty.
    replica: tuple[Accelerator, ...] = ()

    @property
    def accelerator(self) -> Accelerator | None:
        """The device whose kernels and defaults stand for all; None where it is not known."""
        return self.accelerators[0] if self.accelerators else None

    @property
    def groups(self) -> Sequence[Alike]:
        """The accelerators that the engine treats alike; none where no device is known."""
        if self.alike is not None:
            return self.alike.holding(
                self.rules.least_step(self.model, by_default=True) if self.images else 0
            )
        return (Alike(tuple(range(len(self.accelerators))), self.serving, None),) if self.accelerators else ()

    @property
    def rules(self) -> EngineRules:
        """What the engine does with memory."""
        return rules(self.engine)

    @property
    def step(self) -> EngineStep:
        """What decides the engine's reserve beside model and device."""
        return self.step_of(self.serving)

    def step_of(self, serving: Serving) -> EngineStep:
        """The same with the scheduler sizes of another device."""
        return EngineStep(
            max_batched_tokens=serving.max_batched_tokens,
            max_seqs=serving.max_seqs,
            layout=self.layout,
            eager=self.eager,
            images=self.images and self.encodes_at_start,
            images_through=self.images_through,
            videos=self.videos,
            sorts=self.sorts,
            # Where images are served, embeddings are looked up before the compiled graph, encoded or not.
            compiled=self.compiled or (self.images and not self.encodes_at_start),
            adapted=any(self.lora_slots),
            context_tokens=self.context_tokens,
            receives=self.stage_of is not None and self.stage_of[1].start > 0,
            held_bytes=self.held_bytes,
            narrow_cache=self.narrow_cache,
            seqs_told=serving.seqs_told,
            share=stated_share(self.engine, self.utilization),
        )

    @property
    def narrow_cache(self) -> bool:
        """True for a cache of fewer than 16 bits, where the engine's reserve follows it."""
        narrow = self.kv_format is not None and self.kv_format.name not in TWO_BYTE_KV
        return narrow and self.rules.reserve_follows_cache(self.model)


T = TypeVar("T")
_UNKNOWN: Final = object()


class Memo:
    """Parts of one model's deployments that many of them share. One per model; forget it after.

    A plan depends on a device only through its kernels, a reserve only through its class: a table of a
    hundred accelerators computes each a few times.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._known: dict[Hashable, object] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """What is known under ``key``, made if it is not. Errors are not kept."""
        # A key of layouts and groups takes longer to hash than what is found under it to read.
        found = self._known.get(key, _UNKNOWN)
        if found is _UNKNOWN:
            found = self._known[key] = make()
        return found  # type: ignore[return-value]
