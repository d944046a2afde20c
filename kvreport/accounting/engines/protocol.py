"""What every engine answers about memory, and the answers of an engine that reserves nothing.

An engine's *record* (:class:`kvreport.catalog.engine.Engine`) is data: a release, its defaults, its
constants. Its *rules* are code: one class per family, bound to a record. The trunk
(:mod:`kvreport.accounting.deployment`) asks only what stands here.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from kvreport.accounting.engines.command import Command, Served
from kvreport.accounting.engines.step import (
    NOTHING,
    EngineStep,
    Following,
    Loading,
    Reserve,
    StaticMemory,
)
from kvreport.accounting.kv_cache import held
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import BlockPlan, HostMemory, Serving
from kvreport.accounting.state_types import Precisions
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.model import Component, Model
from kvreport.errors import InputError

if TYPE_CHECKING:
    from kvreport.accounting.case import Case


@dataclass(frozen=True, slots=True)
class EngineRules:
    """The rules of one engine record; as they stand, those of an engine that reserves and rounds nothing."""

    engine: Engine  # The record whose release and constants apply.

    needs_one_request: ClassVar[bool] = False
    """Whether a server refuses to start with a pool of less than one request of the longest context."""

    # --- formats ----------------------------------------------------------------------------------------

    def default_kv_format(self, model: Model, accelerator: Accelerator | None) -> str | None:
        """The KV format taken when told ``auto``, by name; None for the model's own 16-bit type."""
        return model.kv_format

    def stored(
        self, model: Model, kv_format: KvFormat | None, accelerator: Accelerator | None
    ) -> tuple[KvFormat | None, Precisions]:
        """What is really stored when asked for a format, and types of states and index keys that are not the checkpoint's.

        A device's kernels may decide the layout of a format, which keeps its name. What one token of it takes is
        :func:`kvreport.accounting.kv_cache.held`.
        """
        return kv_format, ()

    # --- what decides whether two devices are alike ---------------------------------------------------------

    def device_class(self, accelerator: Accelerator) -> tuple[Hashable, Hashable]:
        """What of an accelerator decides the reserve, and what of it decides plans and loaded weights; equal ones get equal ones."""
        return self.scheduler(accelerator), (accelerator.vendor, accelerator.compute_capability)

    def plan_class(
        self, model: Model, kv_format: KvFormat | None, accelerator: Accelerator | None, serving: Serving
    ) -> Hashable:
        """What of an accelerator and of its scheduler decides the plan of a model in a KV format; equal classes get the same."""
        kernels = None if accelerator is None else self.device_class(accelerator)[1]
        return kernels, serving.max_batched_tokens, serving.max_seqs

    def overhead_class(self, model: Model, accelerator: Accelerator) -> Hashable:
        """What of an accelerator decides what loading a model adds; equal classes get the same."""
        return self.device_class(accelerator)[1]

    # --- the block plan -----------------------------------------------------------------------------------

    def plan(self, case: Case) -> BlockPlan:
        """How requests are laid into the pool of one device, or of one pipeline stage, as if that were a model of its own.

        Raises:
            InputError: If the combination is impossible, saying why and what would work.
        """
        layout = case.layout
        need = held(
            case.model, case.kv_format, tensor_parallel=layout.tensor, context_parallel=layout.decode_context
        )
        return BlockPlan(block_bytes=1, profile=need)

    def refuses(self, model: Model, layout: Layout, devices: Sequence[Accelerator] = ()) -> str | None:
        """Why a model is not divided as asked, with what works instead; None if it is.

        ``devices``: those of a data rank, place by place, where they differ.
        """
        if layout.whole_encoders:
            return f"mm encoder tp mode: found data, which {self.engine.label} has no rules for; allowed: weights"
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

    # --- what loading and running take ----------------------------------------------------------------------

    def load_overhead(self, loading: Loading) -> dict[str, int]:
        """Bytes per rank that loading adds to the checkpoint's tensors, by what they are for."""
        return {}

    def reserve(self, model: Model, accelerator: Accelerator, step: EngineStep) -> Reserve:
        """What is kept beside weights and cache.

        Raises:
            InputError: If the engine's data lacks a coefficient.
        """
        return NOTHING

    def following_peak(self, model: Model, accelerator: Accelerator, step: EngineStep) -> Following | None:
        """The part of the reserve that follows the longest request that is stated; None where all is the same.

        :meth:`reserve` then takes an array of lengths in a step, too.

        ``step``: what decides the reserve beside model and device, but for the length.

        Returns:
            What decides it, its bytes for a length, or for each of an array, and the length beyond which they may be less.
        """
        return None

    def error_of_format(
        self, model: Model, accelerator: Accelerator, layout: Layout, weight_format: str | None
    ) -> int | None:
        """Half width of the error band with weights in a format; None where it is that of the reserve.

        ``weight_format``: what the model is converted to; None as released.
        """
        return None

    def reserve_follows_cache(self, model: Model) -> bool:
        """True if the reserve may be another where the cache has fewer than 16 bits (``EngineStep.narrow_cache``)."""
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
        self, model: Model, layout: Layout, *, amd: bool = False, receives: bool = False, images: bool = True
    ) -> tuple[float, ...] | None:
        """The reserve before scheduler sizes are known, as rates; None without such rules.

        ``amd``: True for AMD's devices. ``receives``: True for a pipeline stage after the first. ``images``: False for
        a server of text only.
        """
        return None

    def scheduler(
        self,
        accelerator: Accelerator | None,
        *,
        max_batched_tokens: int | None = None,
        max_seqs: int | None = None,
        offline: bool = False,
        context_tokens: int | None = None,
        model: Model | None = None,
    ) -> tuple[int, int]:
        """Tokens of one step and requests at once: as given, or as the engine defaults them.

        ``accelerator``: the device, which decides the defaults; None for those of the smallest class.
        ``max_batched_tokens``: tokens of one scheduler step, where given. ``max_seqs``: requests that run
        at once, where given. ``offline``: True for the defaults of the engine's offline class.
        ``context_tokens``: the longest request, where a default depends on it and it is stated. ``model``: the
        model, where a default may depend on it (:meth:`least_step`).

        Raises:
            InputError: If a given number is below 1.
        """
        check_sizes(max_batched_tokens, max_seqs)
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
        tokens = max_batched_tokens or max(
            usual, 0 if model is None else self.least_step(model, by_default=True)
        )
        return tokens, min(max_seqs or default.max_seqs, tokens)

    def least_step(self, model: Model, *, by_default: bool = False) -> int:
        """Tokens that a step must have for the engine to start: as many as what it cannot divide; 0 without such.

        ``by_default``: True for those that it has at least if nobody states them, whatever the device.
        """
        return 0

    def at_release(self, version: str) -> Engine:
        """The record as it is for one release of its range; most engines behave alike in all of it."""
        return self.engine

    # --- the division of memory -------------------------------------------------------------------------------

    def static_memory(self, accelerator: Accelerator, layout: Layout) -> StaticMemory | None:
        """What a share given by hand is taken of, where that is what is free before loading; else None."""
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

    def host_memory(self, case: Case, plan: BlockPlan, pool_bytes: int) -> HostMemory:
        """How host memory keeps the blocks that the pool of a rank gives up."""
        copies = case.layout.tensor * case.layout.pipeline

        def tokens(size: int, context: int) -> int:
            return size // copies * context // max(int(plan.request_bytes(context)), 1)

        return HostMemory(copies, tokens)

    # --- limits -------------------------------------------------------------------------------------------------

    def max_requests(self, serving: Serving, model: Model, layout: Layout) -> int | None:
        """Requests of one data rank that run at once whatever memory says; None for an engine without such a limit.

        ``layout``: how the model is spread; a default may be shared by data ranks.
        """
        return serving.max_seqs if self.engine.device_classes else None

    # --- how it is started ----------------------------------------------------------------------------------------

    @staticmethod
    def command(served: Served) -> Command | None:
        """The command that starts a server with what was laid out; None for an engine without a server."""
        return None


def check_sizes(max_batched_tokens: int | None, max_seqs: int | None) -> None:
    """Refuse scheduler sizes below 1.

    Raises:
        InputError: Naming the flag.
    """
    for name, number in (("max-batched-tokens", max_batched_tokens), ("max-seqs", max_seqs)):
        if number is not None and number < 1:
            raise InputError(f"{name}: found {number}; allowed: a whole number of at least 1")
