"""SGLang behind the engine protocol."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from kvreport.accounting.engines.base import NOTHING, EngineRules, Reserve, Step, constant
from kvreport.accounting.engines.sglang.overhead import (
    float_position_table,
    loaded_scales,
    repacks_block_floats,
)
from kvreport.accounting.engines.sglang.pools import token_pool
from kvreport.accounting.engines.vllm import kernels
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.model import Model
from kvreport.units import GIB, MIB

UNCERTAINTY_BYTES: Final = GIB
LARGE_DEVICE_BYTES: Final = 60 * GIB
LEAST_ON_LARGE_BYTES: Final = 10 * GIB
"""At least this is kept free on devices with more memory than that (``srt/arg_groups/memory_hook.py``)."""


@dataclass(frozen=True, slots=True)
class Sglang(EngineRules):
    """The rules of one SGLang release."""

    tokens_are_cells: ClassVar[bool] = True

    load_line: ClassVar[str] = "free memory taken by loading"
    """SGLang prints how much less memory is free, which counts the device's context too."""

    def stored_format(
        self, model: Model, kv_format: KvFormat | None, accelerator: Accelerator | None
    ) -> KvFormat | None:
        """The layout that the device's kernels give a format; they are those that vLLM runs."""
        return kernels.stored_format(model, kv_format, accelerator)

    def plan(
        self,
        model: Model,
        *,
        serving: Serving,
        kv_format: KvFormat | None,
        layout: Layout,
        accelerator: Accelerator | None,
    ) -> BlockPlan:
        """One cell per token; windows and states in pools of fixed proportion."""
        del serving
        return token_pool(model, self.stored_format(model, kv_format, accelerator), layout.tensor)

    def load_overhead(
        self,
        model: Model,
        weight_format: WeightFormat | None,
        formats: Mapping[str, WeightFormat],
        accelerator: Accelerator,
        layout: Layout,
    ) -> dict[str, int]:
        """Position tables, and scales that a release keeps beside those its kernels read."""
        parts = {"position_table": float_position_table(model)}
        if self.engine.loaded_scales_kept and repacks_block_floats(accelerator):
            parts["loaded_scales"] = loaded_scales(model, weight_format, formats, layout.tensor)
        return {name: size for name, size in parts.items() if size}

    def reserve(self, model: Model, accelerator: Accelerator, step: Step) -> Reserve:
        """What is left free when ``mem_fraction_static`` is not set, and what a process held before."""
        del model
        kept = left_free(step.max_batched_tokens, step.max_seqs, step.layout.tensor)
        if accelerator.usable_bytes > LARGE_DEVICE_BYTES:
            missing = max(LEAST_ON_LARGE_BYTES - kept.total, 0)
            kept = replace(kept, activations=kept.activations + missing)
        share = max(1 - kept.total / accelerator.usable_bytes, 0.0)
        taken = round(share * self.taken_before_loading(step.layout))
        return replace(kept, non_framework=kept.non_framework + taken)

    def given_share_reserve(self, reserve: Reserve, share: float, layout: Layout) -> Reserve:
        """A share given by hand is ``mem_fraction_static``: it replaces what SGLang would work out.

        It is a share of what is free once the device and the ranks' links are set up.
        """
        if share >= 1:
            return reserve
        taken = round(share * self.taken_before_loading(layout))
        return replace(NOTHING, non_framework=taken, uncertainty=reserve.uncertainty)

    def reserve_class(self, accelerator: Accelerator) -> Hashable:
        """Scheduler defaults and the device's memory."""
        return (*self.scheduler(accelerator), accelerator.usable_bytes)

    def taken_before_loading(self, layout: Layout) -> int:
        """What a process holds before weights are loaded: a context, and buffers for other ranks."""
        taken = constant(self.engine, "taken_before_bytes")
        if layout.tensor > 1:
            taken += constant(self.engine, "taken_before_parallel_bytes")
        return round(taken)


def left_free(max_batched_tokens: int, max_seqs: int, tensor_parallel: int = 1) -> Reserve:
    """What SGLang 0.5.23 leaves free when it is told nothing (``mem_fraction_static`` unset).

    512 MiB, 1.5 MiB per token of a prefill chunk, 1 GiB per eight ranks, 2 MiB per request of the
    largest decode graph (``srt/arg_groups/memory_hook.py``). Its share of memory is derived from it.
    """
    return Reserve(
        activations=int(1.5 * max(max_batched_tokens, 2048)) * MIB,
        non_framework=(512 + 1024 * tensor_parallel // 8) * MIB,
        graphs=2 * max_seqs * MIB,
        uncertainty=UNCERTAINTY_BYTES,
    )
