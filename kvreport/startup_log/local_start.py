"""One start of an engine that allocates everything at start, pasted or published, and the judge of it.

Weights, caches, states and compute buffers of every device and of the host are laid out as for an estimate
(:func:`kvreport.accounting.engines.llama_cpp.layout.Setup`), and each printed buffer is compared with its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from kvreport.accounting.engines.llama_cpp.inventory import prediction_tensors
from kvreport.accounting.engines.llama_cpp.layout import LocalLayout, Setup
from kvreport.accounting.engines.llama_cpp.local_model import Companions, prediction_model
from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.accounting.engines.llama_cpp.placement import LocalDevice
from kvreport.accounting.engines.llama_cpp.quantize import quantized
from kvreport.catalog.local_logs import Part
from kvreport.catalog.model import Model
from kvreport.estimation.home_case import open_local
from kvreport.startup_log.start import Comparison
from kvreport.units import MIB

STAND_IN: Final = "q4_k_m"
"""Types of a file whose own are not known; its printed weights replace what they come to."""


@dataclass(frozen=True, kw_only=True)
class LocalStart(Setup):
    """One start as a log says it, and its printed buffers; without devices where the log does not say."""

    printed: Mapping[Part, float]  # MiB by part, as far as the log has them.
    # Printed weights on devices of a file whose types are not known, where they are stated.
    weights_mib: float | None = None
    typed: bool = True  # False if the file's types are not known, so that its weights are no prediction.


@dataclass(frozen=True, slots=True)
class Buffers:
    """Bytes that llama.cpp allocates at start beside weights."""

    cache: int
    states: int
    compute: int


@dataclass(frozen=True, slots=True)
class LocalJudgment:
    """What our rules say of a start."""

    layout: LocalLayout  # Where the bytes lie.
    comparisons: tuple[Comparison, ...]  # Each printed part with ours, in the order of the log.
    fits: bool | None  # Whether everything is predicted to fit; None without devices.

    @property
    def buffers(self) -> Buffers:
        """What the lines of a log add up to, wherever it lies."""
        devices, host = self.layout.devices, self.layout.host
        return Buffers(
            cache=host.kv + sum(one.kv for one in devices),
            states=host.state + sum(one.state for one in devices),
            compute=sum(one.compute + one.offload_copies for one in devices),
        )


def local_start(
    model: Model,
    mix: str | None,
    options: LocalOptions,
    *,
    printed: Mapping[Part, float],
    devices: tuple[LocalDevice, ...] = (),
    weights_mib: float | None = None,
) -> LocalStart:
    """Open the model of a start.

    Args:
        model: The catalog's record.
        mix: Quantization mix; None for a file whose types are not known.
        options: How it was started.
        printed: MiB by part.
        devices: Devices with what was free.
        weights_mib: Printed weights of a file whose types are not known.

    Raises:
        InputError: If llama.cpp does not convert the model's class.
    """
    local, name = open_local(model, mix or STAND_IN, None)
    if options.mtp:
        blocks = quantized(prediction_tensors(model), name, layers=model.layer_count)
        prediction = prediction_model(local, blocks)
        count = len(prediction.network.blocks) if prediction is not None else 0
        network = replace(local.network, prediction_layers=count)
        local = replace(local, network=network, companions=Companions(prediction=prediction))
    return LocalStart(
        local=local,
        options=options,
        devices=devices,
        printed=printed,
        weights_mib=weights_mib,
        typed=mix is not None,
    )


def diagnose_local_start(start: LocalStart) -> LocalJudgment:
    """Compare every printed buffer with ours.

    Raises:
        InputError: What llama.cpp refuses, in one sentence.
    """
    layout = start.lay_out()
    parts = _parts(layout)
    comparisons = tuple(
        Comparison(part, parts[part] / MIB, observed, "MiB") for part, observed in start.printed.items()
    )
    return LocalJudgment(layout, comparisons, _fits(start, layout) if start.devices else None)


def _parts(layout: LocalLayout) -> dict[Part, int]:
    devices, host = layout.devices, layout.host
    return {
        "weights": sum(one.weights for one in devices),
        "kv": sum(one.kv for one in devices),
        "state": sum(one.state for one in devices),
        "compute": sum(one.compute + one.offload_copies for one in devices),
        "companions": sum(one.companions for one in devices),
        "host_weights": host.weights,
        "host_kv": host.kv,
        "host_state": host.state,
        "host_compute": host.compute,
        "output": host.output,
    }


def _fits(start: LocalStart, layout: LocalLayout) -> bool:
    if start.typed or start.weights_mib is None:
        return layout.fits
    # The file's own weights in place of the mix that stood in for them.
    used = sum(one.total - one.weights for one in layout.devices) / MIB + start.weights_mib
    return used <= sum(device.usable for device in start.devices) / MIB
