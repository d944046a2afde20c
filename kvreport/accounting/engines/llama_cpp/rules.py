"""llama.cpp behind the engine protocol."""

from __future__ import annotations

from dataclasses import dataclass

from kvreport.accounting.engines.base import EngineRules
from kvreport.accounting.engines.llama_cpp.cells import cell_plan
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.model import Model


@dataclass(frozen=True, slots=True)
class LlamaCpp(EngineRules):
    """The rules of one llama.cpp build."""

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
