"""What an engine keeps of a device's memory, and what it was told about its steps, which decide that."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Literal

from kvreport.accounting.parallel import Layout
from kvreport.accounting.weights import format_of, row_bytes
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import WeightFormat
from kvreport.catalog.model import Model, WeightGroup
from kvreport.errors import InputError


@dataclass(frozen=True, slots=True)
class Reserve:
    """What an engine keeps per device, in bytes; arrays for several devices."""

    activations: Any  # Peak of a forward pass, of sampling or of image encoding: the largest.
    non_framework: Any  # Driver context, communication buffers and workspaces.
    graphs: Any  # Captured graphs, where the engine takes them off the pool.
    uncertainty: Any  # Half width of the sum's error band, from the fit's residuals.

    @property
    def total(self) -> Any:  # noqa: ANN401 - a number, or an array of them
        """Everything but the uncertainty."""
        return self.activations + self.non_framework + self.graphs

    def each(self, change: Callable[[Any], Any]) -> Reserve:
        """The same with every part changed."""
        return Reserve(*map(change, (self.activations, self.non_framework, self.graphs, self.uncertainty)))


NOTHING: Final = Reserve(activations=0, non_framework=0, graphs=0, uncertainty=0)


Following = tuple[Hashable, Callable[[Any], Any], int]
"""The part of a reserve that follows the longest request: what decides it, its bytes for each length, which grow with the
length, and the length beyond which they begin again with less; 0 where they do not."""


@dataclass(frozen=True, slots=True)
class StaticMemory:
    """What a share given by hand is taken of, where it is of the memory that is free before weights are loaded."""

    free_bytes: int  # What is free right before weights are loaded, if nothing else runs on the device.
    # What attention leaves of a share, for a model and the longest request that is told; None for the model's longest.
    left: Callable[[Model, int | None], float]
    # Bytes of the share that hold neither weights nor pools, for a model and the requests at once that are told, as the
    # server's flag counts them; None for its default.
    kept_bytes: Callable[[Model, int | None], int]


DraftKind = Literal["head", "model", "ngram", "suffix"]
"""What drafts: a head on the target's hidden states (EAGLE, MTP), a model of its own, n-grams of the request's own text,
or a tree of suffixes of all texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What a server is told that changes what it keeps of a device, whatever the model."""

    utilization: float | None = None  # Share of memory; None for the engine's default.
    kv_pool_bytes: int | None = None  # A pool per device given by hand, which replaces the budget.
    eager: bool = False  # True if no graphs are captured.
    images: bool = True  # False if it serves text only.
    # What images reach the model through (SGLang's ``--mm-feature-transport``); "" for its choice.
    images_through: str = ""
    # False if no image is encoded while memory is measured (vLLM's ``--skip-mm-profiling``).
    encodes_at_start: bool = True
    videos: bool = True  # False if it takes no videos.
    clips: bool = True  # False if it takes no audio.
    # True if sampling sorts all logits, False if FlashInfer's sampler is stated; None where neither is.
    sorts: bool | None = None
    compiled: bool = False  # True if compiled graphs are in the cache.
    lora_slots: tuple[int, int] = (0, 0)  # LoRA adapters held on a device at once, and their largest rank.
    held_bytes: int = 0  # Memory of each device that other processes hold when the engine starts.

    @property
    def told(self) -> dict[str, Any]:
        """Each of them by its name, for a record that has them, too."""
        return dict(zip(ServerSettings.__slots__, _TOLD(self), strict=True))


_TOLD: Final = attrgetter(*ServerSettings.__slots__)


@dataclass(frozen=True, slots=True)
class EngineStep(ServerSettings):
    """What decides an engine's reserve beside model and device.

    ``images``: False if no image is encoded while memory is measured. ``compiled``: True if compiled graphs are in the
    cache, or embeddings are looked up before them.
    """

    max_batched_tokens: int  # Tokens of one scheduler step.
    max_seqs: int  # Requests that run at once.
    layout: Layout  # How the model is spread over devices.
    adapted: bool = False  # True if LoRA adapters are served.
    # The longest request that the engine was told to take, or an array of them where the engine's rules
    # follow it; None for the model's longest.
    context_tokens: Any = None
    # True for a pipeline stage after the first, which keeps a buffer for what it receives.
    receives: bool = False
    narrow_cache: bool = False  # True for a cache of fewer than 16 bits, where the engine's rules follow it.
    seqs_told: bool = False  # True if the engine was told ``max_seqs``, though it may be its default.
    share: float = 1.0  # The share of memory, which decides the reserve of few engines.


@dataclass(frozen=True, slots=True)
class Loading:
    """What decides what loading a model adds to its checkpoint, on one rank."""

    model: Model
    engine: Engine  # Whose release decides the kernels.
    weight_format: WeightFormat | None  # What the model is converted to; None for the released format.
    formats: Mapping[str, WeightFormat]  # Weight formats by name, for what released tensors carry.
    accelerator: Accelerator
    layout: Layout

    def format_of(self, row: WeightGroup) -> WeightFormat | None:
        """The format of some tensors; None for the model's own 16- or 32-bit type."""
        return format_of(self.model, row, self.weight_format, self.formats)

    def row_bytes(self, row: WeightGroup) -> int:
        """Bytes of some tensors on one tensor rank."""
        return row_bytes(self.model, row, self.weight_format, self.formats, self.layout.tensor)


def check_utilization(utilization: float) -> float:
    """Return ``utilization`` if it is a share above 0 and at most 1.

    Raises:
        InputError: If it is not.
    """
    if not 0 < utilization <= 1:
        raise InputError(
            f"utilization: found {utilization:g}; allowed: a share of memory above 0 and at most 1, "
            "such as 0.9"
        )
    return utilization


def check_step(engine: Engine, model: Model, tokens: int, least: int) -> None:
    """Refuse a step of fewer tokens than an engine starts with.

    Raises:
        InputError: If ``tokens`` are fewer than the ``least``.
    """
    if tokens < least:
        raise InputError(
            f"max-batched-tokens: found {tokens:,} for {model.id}; allowed: at least {least:,}, because one step "
            f"of {engine.label} must hold the model's longest video"
        )


def constant(engine: Engine, name: str) -> float:
    """One fitted constant.

    Raises:
        InputError: If the engine's data lacks it.
    """
    if name not in engine.coefficients:
        raise InputError(f"engine {engine.name!r}: coefficients: {name} is missing")
    return engine.coefficients[name]
