"""No engine: nothing is reserved or rounded. The upper bound that every engine is compared with."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from kvreport.accounting.engines.protocol import EngineRules
from kvreport.accounting.plan import Serving
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.model import Model


@dataclass(frozen=True, slots=True)
class Ceiling(EngineRules):
    """The rules of :class:`EngineRules` as they stand, the same on every device."""

    def device_class(self, accelerator: Accelerator) -> tuple[Hashable, Hashable]:
        """All accelerators are alike."""
        return self.scheduler(accelerator), None

    def plan_class(
        self, model: Model, kv_format: KvFormat | None, accelerator: Accelerator | None, serving: Serving
    ) -> Hashable:
        """None: there are no steps."""
        return None
