"""What a machine at home would hold at most, and what would make a model fit there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kvreport.accounting.engines.llama_cpp.search import (
    Fitted,
    fewest_cpu_experts,
    in_part,
    most_gpu_layers,
    most_slots,
)
from kvreport.estimation.home_case import LocalCase
from kvreport.units import GIB

MIXES_BY_SIZE: Final = (
    "bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "iq4_xs", "q3_k_m", "iq3_xxs", "q2_k", "iq2_xs",
)  # fmt: skip
"""Mixes to try, from the largest: those that most files on the Hub come in."""


@dataclass(frozen=True, slots=True)
class HomeAnswers:
    """What fits on this machine."""

    # The longest context of a request that fits with the flags that were given; 0 if none does.
    longest_context: int
    slots: int  # Slots of the asked context that fit (``-c context*N -np N``).
    # The smallest ``--n-cpu-moe`` that fits; 0 if it fits without, None if it does not help.
    n_cpu_moe: int | None
    n_gpu_layers: int  # The largest ``--n-gpu-layers`` that fits; counts the output layer.
    layers: int  # Layers, the output layer included.
    # The largest of the usual mixes that fits at this context; None if none does or for a file.
    best_weights: str | None
    fit: Fitted  # What llama.cpp's ``--fit`` would choose.

    def to_dict(self) -> dict[str, Any]:
        """Return the object ``inverse`` of the JSON answer."""
        return {
            "longest_context_tokens": self.longest_context,
            "max_parallel": self.slots,
            "min_n_cpu_moe": self.n_cpu_moe,
            "max_n_gpu_layers": self.n_gpu_layers,
            "layers": self.layers,
            "best_weights": self.best_weights,
            "fit": {
                "changed": list(self.fit.changed),
                "refused": self.fit.refused,
                "context_tokens": self.fit.options.context,
                "n_gpu_layers": self.fit.layout.layers_on_device,
                "device_bytes": [device.total for device in self.fit.layout.devices],
                "host_bytes": self.fit.layout.host.total,
            },
        }


def home_answers(case: LocalCase) -> HomeAnswers:
    """Answer every inverse question about one machine."""
    # What --fit took off the device was nobody's wish: what to put where is answered for the flags as given.
    asked = case if case.asked is None else replace(case, options=case.asked)
    layout, options = asked.lay_out(), asked.options
    experts: int | None = 0
    if not layout.fits or options.cpu_moe:
        without = replace(asked, options=replace(options, cpu_moe=0))
        experts = fewest_cpu_experts(without) if case.local.has_experts else None
    return HomeAnswers(
        longest_context=case.longest(),
        slots=most_slots(case, case.request.context_tokens),
        n_cpu_moe=experts,
        n_gpu_layers=layout.layers if layout.fits and options.gpu_layers is None else most_gpu_layers(asked),
        layers=layout.layers,
        best_weights=_best_weights(asked),
        fit=asked.fitted(),
    )


def _best_weights(case: LocalCase) -> str | None:
    """The largest usual mix that fits with these flags; None for a file, whose types are fixed."""
    if case.mix == "file":
        return None
    return next((mix for mix in MIXES_BY_SIZE if case.as_mix(mix).lay_out().fits), None)


def advice(case: LocalCase, longest: int) -> tuple[str, ...]:
    """Changes that make it fit, each alone, by the engine's own flags; the nearest of each.

    ``longest``: the case's longest context.
    """
    found = []
    if longest >= 4 * 256:
        found.append(f"--context {longest}")
    found += _flags(in_part(case))
    mix = _best_weights(case)
    if mix is not None:
        found.append(f"--weights {mix}")
    return (*found, *_with_more_memory(case))


def _flags(changed: Mapping[str, int]) -> list[str]:
    names = {"cpu_moe": "--n-cpu-moe", "gpu_layers": "--n-gpu-layers"}
    return [f"{names[name]} {number}" for name, number in changed.items()]


def _with_more_memory(case: LocalCase) -> list[str]:
    """The main memory that would do, with the flags that it serves; empty where it was stated, or is no way."""
    if not case.host_memory_assumed:
        return []
    layout, changed = case.lay_out(), {}
    if not layout.fits_devices:
        changed = in_part(replace(case, host_memory=None))
        if not changed:
            return []
        layout = case.lay_out(**changed)
    if not layout.host.shortfall:
        return []
    return [" ".join((*_flags(changed), f"--host-memory {-(-layout.host.total // GIB)}GiB"))]
