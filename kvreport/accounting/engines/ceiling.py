"""No engine: nothing is reserved or rounded. The upper bound that every engine is compared with."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from kvreport.accounting.engines.base import EngineRules
from kvreport.accounting.plan import Serving
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.model import Model


@dataclass(frozen=True, slots=True)
class Ceiling(EngineRules):
    """The rules of :class:`EngineRules` as they stand, the same on every device."""

    reserves: ClassVar[bool] = False

    def step_class(self, model: Model, serving: Serving) -> Hashable:
        """None: there are no steps."""
        return None

    def kernel_class(self, accelerator: Accelerator | None) -> Hashable:
        """None: all accelerators are alike."""
        return None
