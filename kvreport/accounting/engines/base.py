"""What every engine answers about memory, and the answers of an engine that reserves nothing.

An engine's *record* (:class:`kvreport.catalog.engine.Engine`) is data: a release, its defaults, its
constants. Its *rules* are code: one class per family, bound to a record. The trunk
(:mod:`kvreport.accounting.deployment`) asks only what stands here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kvreport.accounting import kernel
from kvreport.accounting import numeric as xp
from kvreport.accounting.all_to_all import Exchange
from kvreport.accounting.engines.command import Command, LocalServed, Served
from kvreport.accounting.engines.step import (
    NOTHING,
    DraftKind,
    EngineStep,
    Reserve,
    StaticMemory,
    check_utilization,
)
from kvreport.accounting.kv_cache import held
from kvreport.accounting.numeric import Integers
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import BlockPlan, CacheSetup, Serving
from kvreport.accounting.profile import Term
from kvreport.accounting.state_types import Precisions
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.model import Component, Model
from kvreport.errors import InputError

TOWERS: Final[frozenset[Component]] = frozenset({"vision", "audio"})
"""Components that an engine told to serve text only does not load."""

_OF_LOCAL_ENGINES: Final = {"mlx": "MLX", "gguf": "llama.cpp", "exl2": "ExLlamaV2", "exl3": "ExLlamaV3"}
"""Beginnings of the names of formats that servers have no loader for, and what reads them (vLLM 0.33,
``model_executor/layers/quantization/__init__.py``; SGLang 0.5.23, ``srt/layers/quantization``; GGUF is read by
plug-ins only)."""


@dataclass(frozen=True, slots=True)
class EngineRules:
    """The rules of one engine record; as they stand, those of an engine that reserves and rounds nothing.

    Attributes:
        engine: The record whose release and constants apply.
    """

    engine: Engine

    reserves: ClassVar[bool] = True
    """False for the ceiling, which is no engine and has no flags to change."""

    reserve_follows_requests: ClassVar[bool] = False
    """True if the engine reserves less where it is told to run fewer requests at once, by formulas that are known."""

    tokens_are_cells: ClassVar[bool] = False
    """True if the log's line of tokens counts cells of the pool, whatever the longest request."""

    shortens_requests: ClassVar[bool] = False
    """True if the engine starts with a pool below the longest request, and takes shorter requests."""

    allocates_at_start: ClassVar[bool] = False
    """True if caches of all requests are allocated at start, on devices and host (llama.cpp)."""

    short_context_tokens: ClassVar[int | None] = None
    """Tokens of the longest request up to which less is reserved on some devices; None where its length changes nothing."""

    ranks_agree_on_pool: ClassVar[bool] = False
    """True if every rank takes the pool of the rank that has the least memory left."""

    stages_reserve_as_whole: ClassVar[bool] = False
    """True if what is kept free is worked out from the whole model, the same for every pipeline stage."""

    held_in_reserve: ClassVar[bool] = True
    """True if what other processes hold is memory that the engine goes without, one byte for each of theirs."""

    serves_only: ClassVar[bool] = False
    """True for a server that has no loader for formats of local engines."""

    exchange: ClassVar[Exchange] = Exchange()
    """How it uses the kernels that exchange tokens between expert ranks, where it is told to."""

    load_line: ClassVar[str] = "weights"
    """What the log's line about loading the model states."""

    # --- formats ----------------------------------------------------------------------------------------

    def default_kv_format(self, model: Model, accelerator: Accelerator | None) -> str | None:
        """The KV format taken when told ``auto``, by name; None for the model's own 16-bit type."""
        return model.kv_format

    def stored_format(
        self, model: Model, kv_format: KvFormat | None, accelerator: Accelerator | None
    ) -> KvFormat | None:
        """What is really stored when asked for a format, where a device's kernels decide the layout.

        The format keeps its name. What one token of it takes is :func:`kvreport.accounting.kv_cache.held`.
        """
        return kv_format

    def stored_precisions(
        self, model: Model, kv_format: KvFormat | None, accelerator: Accelerator | None
    ) -> Precisions:
        """Element types in which the engine keeps states and index keys, where they are not the checkpoint's."""
        return ()

    def kept_term(self, term: Term) -> Term:
        """What the engine keeps between steps of what the architecture needs: the upper bound counts no more."""
        return term

    def other_reader(self, weight_format: str) -> str | None:
        """The engine that alone reads a checkpoint in this format, by its own name; None if this one reads it."""
        if not self.serves_only:
            return None
        return next(
            (who for start, who in _OF_LOCAL_ENGINES.items() if weight_format.startswith(start)), None
        )

    # --- the block plan -----------------------------------------------------------------------------------

    def plan(self, model: Model, setup: CacheSetup) -> BlockPlan:
        """How requests are laid into the pool of one device.

        Raises:
            InputError: If the combination is impossible, saying why and what would work.
        """
        layout = setup.layout
        need = held(
            model, setup.kv_format, tensor_parallel=layout.tensor, context_parallel=layout.decode_context
        )
        return BlockPlan(block_bytes=1, profile=need)

    def stage_sizes(self, layers: int, stages: int) -> tuple[int, ...]:
        """Layers of each pipeline stage where the engine divides them otherwise than vLLM; empty where it does not."""
        return ()

    @property
    def stages_checked_as_whole(self) -> bool:
        """True if a start wants room on the fullest stage for one request of all layers."""
        return False

    def unequal_refusal(self, devices: Sequence[Accelerator], layout: Layout) -> str | None:
        """Why devices that differ are refused, with what works instead; None if they are not."""
        return None

    def encoder_refusal(self, model: Model) -> str | None:
        """Why encoders cannot be whole on each tensor-parallel rank, with what works instead; None if they can."""
        return f"mm encoder tp mode: found data, which {self.engine.label} has no rules for; allowed: weights"

    def scaled_context(self, longest: int, scheme: str, factor: float, original: int | None) -> float:
        """The longest context in tokens by a rotary scheme that a command states: vLLM's rule (``config/model.py::_get_and_verify_max_len``).

        ``longest``: the stated length in tokens. ``scheme``: name of the scheme, ``yarn``. ``factor``:
        what positions are divided by. ``original``: the length in tokens that the model was trained for;
        None where it is not stated.
        """
        if self.engine.lists("rotary_schemes_stated", scheme):
            return longest
        return (original if scheme == "yarn" and original is not None else longest) * factor

    def dense_refusal(self, model: Model, layout: Layout) -> str | None:
        """Why dense MLPs or the output head cannot be divided as asked, with what works instead; None if they can."""
        if not (layout.whole_dense or layout.head_by_data_rank):
            return None
        name = "moe dense tp size" if layout.whole_dense else "enable dp lm head"
        return (
            f"{name}: an option of SGLang, and the rules of {self.engine.label} apply; allowed: leave it out"
        )

    def component_ranks(self, model: Model, layout: Layout) -> Mapping[Component, int]:
        """Ranks that a component is divided over where that is not the tensor-parallel group; experts are not asked."""
        return {}

    def buffers_with_weights(self, model: Model, step: EngineStep) -> int:
        """Bytes of the reserve that the engine's line of loaded weights has among them."""
        return 0

    def encoders_left_out(self, *, images: bool, clips: bool) -> frozenset[Component]:
        """Encoders that are not loaded where nothing is taken that they read.

        ``images``: False for text only. ``clips``: False if no audio is taken.
        """
        return frozenset() if images else TOWERS

    adapted_if_named: ClassVar[frozenset[str]] = frozenset()
    """Components of the weights that have slots for adapters only where an adapter, or a flag, names them."""

    def vocabulary_adapters(self, model: Model) -> int:
        """Of how many modules with a row for every word adapters have slots."""
        return 0

    def on_host(self, model: Model, accelerator: Accelerator | None = None) -> frozenset[str]:
        """Names of weight rows that lie in host memory by default, on a device or on most."""
        return frozenset()

    def plan_stage(self, whole: Model, layers: range, stage: Model, setup: CacheSetup) -> BlockPlan:
        """How requests are laid into the pool of one pipeline stage: as if the stage were a model of its own.

        ``layers``: layers of it that the stage runs.
        """
        return self.plan(stage, setup)

    def step_class(self, model: Model, serving: Serving) -> Hashable:
        """What of the scheduler decides the plan of a model; equal classes get the same."""
        return serving.max_batched_tokens, serving.max_seqs

    def kernel_class(self, accelerator: Accelerator | None) -> Hashable:
        """What of an accelerator decides plans and loaded weights; equal classes get equal ones."""
        return None if accelerator is None else (accelerator.vendor, accelerator.compute_capability)

    def plan_class(
        self, model: Model, kv_format: KvFormat | None, accelerator: Accelerator | None
    ) -> Hashable:
        """What of an accelerator decides the plan of a model in a KV format; equal classes get the same."""
        return self.kernel_class(accelerator)

    def overhead_class(self, model: Model, accelerator: Accelerator) -> Hashable:
        """What of an accelerator decides what loading a model adds; equal classes get the same."""
        return self.kernel_class(accelerator)

    # --- what loading and running take ----------------------------------------------------------------------

    def load_overhead(
        self,
        model: Model,
        weight_format: WeightFormat | None,
        formats: Mapping[str, WeightFormat],
        accelerator: Accelerator,
        layout: Layout,
    ) -> dict[str, int]:
        """Bytes per rank that loading adds to the checkpoint's tensors, by what they are for.

        Args:
            model: The model.
            weight_format: The format that the model is converted to; None for as released.
            formats: Weight formats by name, for what released tensors carry.
            accelerator: The device.
            layout: How the model is spread over devices.
        """
        return {}

    def reserve(self, model: Model, accelerator: Accelerator, step: EngineStep) -> Reserve:
        """What is kept beside weights and cache.

        Raises:
            InputError: If the engine's data lacks a coefficient.
        """
        return NOTHING

    def given_share_reserve(
        self, reserve: Reserve, share: float, model: Model, accelerator: Accelerator, step: EngineStep
    ) -> Reserve:
        """The reserve where a share of memory was given by hand; most engines reserve the same.

        ``reserve``: the reserve without a share given. ``share``: the share given.
        """
        return reserve

    def following_peak(
        self, model: Model, accelerator: Accelerator, step: EngineStep, share: float = 1.0
    ) -> tuple[Hashable, Callable[[Any], Any]] | None:
        """The part of the reserve that grows with the longest request that is stated; None where all is the same.

        :meth:`reserve` then takes an array of lengths in a step, too.

        ``step``: what decides the reserve beside model and device, but for the length. ``share``: the
        share of memory, for engines whose reserve follows it.

        Returns:
            What decides it, and its bytes for a length, or for each of an array.
        """
        return None

    def reserve_follows_cache(self, model: Model) -> bool:
        """True if the reserve may be another where the cache has fewer than 16 bits (``EngineStep.narrow_cache``)."""
        return False

    def expert_kernel_of(self, named: str) -> str | None:
        """The kernels of experts that a user names, as an engine's record calls them; None where they are not followed."""
        return None

    def release_has(self, option: str) -> bool | None:
        """Whether the release has an option that few engines have, by its name; None for an engine without such an option."""
        return None

    def leaves_draft_to_first_runner(self, drafts: DraftKind) -> bool:
        """True if the release's second model runner lacks drafts of this kind."""
        return False

    def browser_traits(self, accelerator: Accelerator) -> dict[str, Any]:
        """What of a device the formulas of the reserve ask for in a browser, as ``gpus[]`` of ``site.json`` names it."""
        band = [0.0, 0.0]
        outside = [False, 0, False]
        return {
            "own": False,
            "splits": False,
            "partial": False,
            "outside": outside,
            "band": band,
            "runner": 0,
        }

    def reserve_rates(
        self, model: Model, layout: Layout, *, amd: bool = False, receives: bool = False
    ) -> tuple[float, ...] | None:
        """The reserve before scheduler sizes are known, as rates; None without such rules.

        ``amd``: True for AMD's devices. ``receives``: True for a pipeline stage after the first.
        """
        return None

    def reserve_class(self, accelerator: Accelerator) -> Hashable:
        """What of an accelerator decides the reserve; equal classes have equal reserves."""
        return self.scheduler(accelerator)

    def scheduler(
        self,
        accelerator: Accelerator | None,
        *,
        max_batched_tokens: int | None = None,
        max_seqs: int | None = None,
        offline: bool = False,
        context_tokens: int | None = None,
    ) -> tuple[int, int]:
        """Tokens of one step and requests at once: as given, or as the engine defaults them.

        ``accelerator``: the device, which decides the defaults; None for those of the smallest class.
        ``max_batched_tokens``: tokens of one scheduler step, where given. ``max_seqs``: requests that run
        at once, where given. ``offline``: True for the defaults of the engine's offline class.
        ``context_tokens``: the longest request, where a default depends on it and it is stated.

        Raises:
            InputError: If a given number is below 1.
        """
        self.check_sizes(max_batched_tokens, max_seqs)
        classes = self.engine.device_classes
        if not classes:
            return max_batched_tokens or 1, max_seqs or 1
        default = (
            classes[-1]
            if accelerator is None
            else self.engine.device_class(accelerator.name, accelerator.usable_bytes)
        )
        usual = default.max_batched_tokens
        if offline:
            usual = default.offline_batched_tokens or usual
        tokens = max_batched_tokens or usual
        return tokens, min(max_seqs or default.max_seqs, tokens)

    @staticmethod
    def check_sizes(max_batched_tokens: int | None, max_seqs: int | None) -> None:
        """Refuse scheduler sizes below 1.

        Raises:
            InputError: Naming the flag.
        """
        for name, number in (("max-batched-tokens", max_batched_tokens), ("max-seqs", max_seqs)):
            if number is not None and number < 1:
                raise InputError(f"{name}: found {number}; allowed: a whole number of at least 1")

    def at_release(self, version: str) -> Engine:
        """The record as it is for one release of its range; most engines behave alike in all of it."""
        return self.engine

    # --- the division of memory -------------------------------------------------------------------------------

    def share(self, utilization: float | None) -> float:
        """The share of memory that is taken: as given, or the engine's default.

        Raises:
            InputError: If it is no share.
        """
        return check_utilization(self.engine.utilization if utilization is None else utilization)

    def share_on(self, accelerator: Accelerator | None, utilization: float | None) -> float:
        """The share that is taken of a device: as given, or the engine's default there."""
        return self.share(utilization)

    def free_before_loading(self, accelerator: Accelerator, layout: Layout) -> int:
        """Bytes of a device that are free right before weights are loaded, if nothing else runs on it."""
        return accelerator.usable_bytes

    def static_memory(
        self,
        model: Model,
        accelerator: Accelerator,
        layout: Layout,
        *,
        images: bool = True,
        context_tokens: int | None = None,
        max_requests: int | None = None,
    ) -> StaticMemory | None:
        """What a share given by hand is taken of, where that is what is free before loading; else None.

        ``images``: whether images are served. ``context_tokens``: the longest request that the server is
        told to take; None for the model's longest. ``max_requests``: requests at once that the server is
        told to run, as its flag counts them; None for its default.
        """
        return None

    def share_for(self, pool: int, weights: int, reserve: int, total: int) -> float | None:
        """The smallest share of a device's memory, in steps of 0.001, that leaves a pool; None if even 1 does not.

        Args:
            pool: The pool that is wanted, in bytes.
            weights: Weights as loaded.
            reserve: What the engine keeps beside them.
            total: Memory that a process can use.
        """
        if self.engine.utilization_of == "memory_less_weights":
            return None
        needed = kernel.utilization_for(pool, weights, reserve, total)
        return needed if needed <= 1 else None

    def start_shortage(self, accelerator: Accelerator, utilization: float | None) -> tuple[int, int] | None:
        """What the engine asks for at start beyond what is free, and the error of that; None if it does not ask.

        Negative where enough is free.
        """
        return None

    def memory_bytes(self, total_bytes: int, utilization: float | None = None) -> int:
        """What weights, reserve and pool may take together, before anything is subtracted."""
        share = self.share(utilization)
        if self.engine.utilization_of == "memory_less_weights":
            return total_bytes
        return math.ceil(total_bytes * share)

    def pool_bytes(
        self,
        total_bytes: int | Integers,
        weight_bytes: int | Integers,
        reserve_bytes: int | Integers = 0,
        utilization: float | None = None,
    ) -> int | Integers:
        """The cache pool; negative where nothing is left. Arrays broadcast.

        ``total_bytes``: memory that a process can use. ``weight_bytes``: weights on the device, as
        loaded. ``reserve_bytes``: activations, non-framework memory and graphs together. ``utilization``:
        share; None for the engine's default.
        """
        share = self.share(utilization)
        if self.engine.utilization_of == "memory_less_weights":
            return _floor((total_bytes - weight_bytes - reserve_bytes) * share)
        return _ceil(total_bytes * share) - weight_bytes - reserve_bytes

    def state_slots_wanted(self, model: Model, serving: Serving, *, eager: bool) -> int | None:
        """Blocks of the pool that must exist at start, one for each sequence; None without such a rule."""
        return None

    def open_choices(
        self, model: Model, accelerator: Accelerator, step: EngineStep, formats: Mapping[str, WeightFormat]
    ) -> tuple[str, ...]:
        """What an installation decides and no flag tells, with what the other choice takes; none by default.

        Args:
            model: The model.
            accelerator: The device.
            step: The scheduler's sizes.
            formats: All weight formats, by name.
        """
        return ()

    # --- limits -------------------------------------------------------------------------------------------------

    def max_requests(self, serving: Serving, model: Model, layout: Layout) -> int | None:
        """Requests of one data rank that run at once whatever memory says; None for an engine without such a limit.

        ``layout``: how the model is spread; a default may be shared by data ranks.
        """
        return serving.max_seqs if self.engine.device_classes else None

    # --- how it is started ----------------------------------------------------------------------------------------

    drafting_requests: ClassVar[int | None] = None
    """Requests at once of a server that drafts and is not told another number; None where drafts do not limit them."""

    pool_cap: ClassVar[str] = ""
    """What limits a pool that is given by hand; empty where that replaces the engine's own pool."""
    requests_flag: ClassVar[str] = "--max-num-seqs"
    """What limits the requests at once where memory does not, as the engine calls it."""

    @staticmethod
    def command(served: Served) -> Command | None:
        """The command that starts a server with what was laid out; None for an engine without a server."""
        return None

    @staticmethod
    def local_command(served: LocalServed) -> Command | None:
        """The command that starts an engine of one's own machine; None for others."""
        return None

    @staticmethod
    def modelfile(served: LocalServed) -> str | None:
        """A file of parameters that starts the same; None for engines that have no such file."""
        return None


def _ceil(number: float | xp.Numbers) -> int | Integers:
    if isinstance(number, int | float):
        return math.ceil(number)
    return xp.integers(xp.ceil(number))


def _floor(number: float | xp.Numbers) -> int | Integers:
    if isinstance(number, int | float):
        return math.floor(number)
    return xp.integers(xp.floor(number))
