"""llama.cpp behind the engine protocol."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

from kvreport.accounting.engines.command import Command, Served
from kvreport.accounting.engines.llama_cpp.cells_and_states import cell_plan
from kvreport.accounting.engines.llama_cpp.inventory import LocalTensor
from kvreport.accounting.engines.llama_cpp.layout import slot_buffers
from kvreport.accounting.engines.llama_cpp.network_reader import read_local
from kvreport.accounting.engines.llama_cpp.options import FAMILY, LocalOptions, for_build, server_command
from kvreport.accounting.engines.llama_cpp.placement import LocalDevice, local_device
from kvreport.accounting.engines.protocol import EngineRules
from kvreport.accounting.engines.step import EngineStep, Reserve
from kvreport.accounting.plan import BlockPlan
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.llama_check import CheckedArchitecture, LlamaCheck
from kvreport.catalog.local_architectures import LocalArchitecture, LocalArchitectures
from kvreport.catalog.model import Model
from kvreport.catalog.release import build_number, first_with, release_at
from kvreport.errors import InputError, shorten
from kvreport.units import human_bytes, human_tokens

if TYPE_CHECKING:
    from kvreport.accounting.case import Case


@dataclass(frozen=True, slots=True)
class LlamaCpp(EngineRules):
    """The rules of one llama.cpp build."""

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

        ``total_bytes``: memory of all devices together.
        """
        return for_build(options, self.engine.version or "")

    def at_release(self, version: str) -> Engine:
        """The record for one build such as ``b9849``; a name without a number means the current rules.

        Raises:
            InputError: For builds that are older than the rules.
        """
        number = build_number(version)
        if not number:
            return self.engine
        if not release_at(FAMILY, number).has("caches_as_now"):
            oldest = first_with(FAMILY, "caches_as_now")
            raise InputError(
                f"engine: found {self.engine.name}@{shorten(version)}; allowed: a build from {oldest}, such as "
                f"b9849, or {self.engine.version}"
            )
        return self.engine.model_copy(update={"version": f"b{number[0]}"})

    def usual_mix(self, model: Model) -> str | None:
        """The quantization mix that is run where nobody names one; None for the checkpoint's own types."""
        return None

    def reason_of_mix(self, model: Model) -> str:
        """Why the weights have the types they have where nobody names a mix."""
        return "converted without quantizing"

    def reserve(self, model: Model, accelerator: Accelerator, step: EngineStep) -> Reserve:
        """The compute buffer of one slot with the whole context, and what the backend takes for itself.

        Where single layers lie is known only to an estimate: here every layer is on the device.
        """
        own = local_device(accelerator, self.engine.coefficients).context
        compute = _compute_bytes(model, step.context_tokens or model.context_tokens)
        architecture = LocalArchitectures.need().by_class.get(model.architecture)
        larger = 0.0 if architecture is None else times_larger(architecture) - 1
        return Reserve(
            activations=compute,
            non_framework=own,
            graphs=0,
            uncertainty=int(own + (0.02 + larger) * compute),
        )

    def device_class(self, accelerator: Accelerator) -> tuple[Hashable, Hashable]:
        """Metal's backend takes another amount than others do."""
        kernels = (accelerator.vendor, accelerator.compute_capability)
        return accelerator.vendor.lower() == "apple", kernels

    def plan(self, case: Case) -> BlockPlan:
        """Every cell is allocated at start, rounded to 256."""
        return cell_plan(case.model, case.kv_format, case.serving)

    @staticmethod
    def command(served: Served) -> Command | None:
        """``llama-server`` and its flags."""
        return None if served.local is None else server_command(served.local)


_COMPUTE: dict[tuple[int, int], tuple[Model, int]] = {}
"""Compute buffers by the model's identity and the context; the model is kept with them."""

_PLAIN: Final = LocalArchitecture(name="plain", classes=("plain",), windows=True)
_DEVICE: Final = LocalDevice("device", 1 << 60, offloads=False)


def _compute_bytes(model: Model, context: int) -> int:
    """The compute buffer with traits that tensors and shapes show; an estimate also knows the architecture's own."""
    key = (id(model), context)
    if key not in _COMPUTE:
        _COMPUTE[key] = (model, slot_buffers(read_local(model, _PLAIN), _DEVICE, context)[0])
    return _COMPUTE[key][1]


@lru_cache(maxsize=512)
def check_of(name: str) -> CheckedArchitecture | None:
    """What the check of an architecture found (``data/llama_cpp/check.yaml``); None where it was not checked.

    ``name``: name in a GGUF file.
    """
    check = LlamaCheck.read()
    found = [] if check is None else [one for one in check.architectures if one.architecture == name]
    return found[0] if found and found[0].compared else None


def times_larger(architecture: LocalArchitecture) -> float:
    """How many times ours a compute buffer may be: 1 where the check agrees, or nobody checked."""
    checked = check_of(architecture.name)
    if checked is None or checked.within_2_percent == checked.compared:
        return 1.0
    # The difference is relative to the real buffer: 0.5 may mean twice ours. From 1 on ours is the larger one, and the
    # band is as wide upwards as it was downwards.
    off = checked.largest_difference
    return 1 / (1 - off) if off < 1 else 1 + off


def confirmation(architecture: LocalArchitecture, times: float) -> str:
    """What an answer says of its compute buffers where the check does not agree; empty where it does."""
    checked = check_of(architecture.name)
    if checked is None:
        return "compute buffer: no check against llama.cpp covers this architecture"
    if checked.within_2_percent == checked.compared:
        return ""
    agreed = f"{checked.within_2_percent} of {checked.compared} checked settings agree within 2%"
    reported = architecture.compute_reported
    if reported is not None and times > times_larger(architecture):
        size, tokens = human_bytes(reported.bytes), human_tokens(reported.context_tokens)
        agreed += f", and {size} at {tokens} were reported"
    return f"compute buffer not confirmed for this architecture, may be up to {times:.1f} times larger ({agreed})"
