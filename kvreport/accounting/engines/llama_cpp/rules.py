"""llama.cpp behind the engine protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from kvreport.accounting.engines.base import EngineRules
from kvreport.accounting.engines.llama_cpp.cells import cell_plan
from kvreport.accounting.engines.llama_cpp.inventory import LocalTensor
from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.model import Model


@dataclass(frozen=True, slots=True)
class LlamaCpp(EngineRules):
    """The rules of one llama.cpp build."""

    allocates_at_start: ClassVar[bool] = True

    fits_by_itself: ClassVar[bool] = False
    """True if ``--fit`` always runs, so that what does not fit stays in host memory."""

    def local_options(
        self,
        options: LocalOptions,
        model: Model,
        total_bytes: int,
        tensors: Sequence[LocalTensor] = (),
        architecture: str = "",
    ) -> LocalOptions:
        """Put the engine's defaults where nothing was asked.

        Args:
            options: What was asked.
            model: The model.
            total_bytes: Memory of all devices together.
            tensors: The file's tensors, with their types.
            architecture: The file's architecture.
        """
        del model, total_bytes, tensors, architecture
        return options

    def plan(
        self,
        model: Model,
        *,
        serving: Serving,
        kv_format: KvFormat | None,
        layout: Layout,
        accelerator: Accelerator | None,
    ) -> BlockPlan:
        """Every cell is allocated at start, rounded to 256."""
        del layout, accelerator
        return cell_plan(model, kv_format, serving)
