"""Inverse answers for an engine that allocates everything at start: what to change so that it fits, and how far."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from kvreport.accounting.engines.llama_cpp.fit import FIT_TARGET, Fitted, fit, would_change
from kvreport.accounting.engines.llama_cpp.layout import LocalLayout
from kvreport.accounting.engines.llama_cpp.network import Mixture
from kvreport.accounting.engines.llama_cpp.rules import LlamaCpp
from kvreport.accounting.engines.llama_cpp.search import (
    fewest_cpu_experts,
    most_gpu_layers,
    most_slots,
)
from kvreport.estimation.local_case import LocalCase, open_local, size_of
from kvreport.units import GIB

MIXES_BY_SIZE: Final = (
    "bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "iq4_xs", "q3_k_m", "iq3_xxs", "q2_k", "iq2_xs",
)  # fmt: skip
"""Mixes to try, from the largest: those that most files on the Hub come in."""


@dataclass(frozen=True, slots=True)
class HomeAnswers:
    """What fits on this machine.

    Attributes:
        longest_context: The longest context of a request that fits with the flags that were given; 0 if none does.
        slots: Slots of the asked context that fit (``-c context*N -np N``).
        n_cpu_moe: The smallest ``--n-cpu-moe`` that fits; 0 if it fits without, None if it does not help.
        n_gpu_layers: The largest ``--n-gpu-layers`` that fits; counts the output layer.
        layers: Layers, the output layer included.
        best_weights: The largest of the usual mixes that fits at this context; None if none does or for a file.
        fit: What llama.cpp's ``--fit`` would choose.
    """

    longest_context: int
    slots: int
    n_cpu_moe: int | None
    n_gpu_layers: int
    layers: int
    best_weights: str | None
    fit: Fitted

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
    local, devices, host = case.local, case.devices, case.host_memory
    # What --fit took off the device was nobody's wish: what to put where is answered for the flags as given.
    asked = case if case.asked is None else replace(case, options=case.asked)
    layout = asked.lay_out()
    mixture = any(isinstance(block.feed, Mixture) for block in local.network.blocks)
    whole = replace(asked.options, gpu_layers=None)
    return HomeAnswers(
        longest_context=case.longest(),
        slots=most_slots(local, case.options, devices, case.request.context_tokens, host_memory=host),
        n_cpu_moe=0 if layout.fits and not asked.options.cpu_moe else _experts(asked, mixture),
        n_gpu_layers=layout.layers
        if layout.fits and asked.options.gpu_layers is None
        else most_gpu_layers(local, whole, devices, host_memory=host),
        layers=layout.layers,
        best_weights=best_weights(asked),
        fit=fitted(asked),
    )


def _experts(case: LocalCase, mixture: bool) -> int | None:  # noqa: FBT001 - a fact about the model
    if not mixture:
        return None
    options = replace(case.options, cpu_moe=0)
    return fewest_cpu_experts(case.local, options, case.devices, host_memory=case.host_memory)


def fit_target(case: LocalCase) -> int:
    """Bytes that ``--fit`` leaves free on each device."""
    return FIT_TARGET if case.query.fit_target is None else size_of("fit-target", case.query.fit_target)


def fitted(case: LocalCase) -> Fitted:
    """What ``--fit`` would choose for a question."""
    stated = case.query.context_tokens is not None or case.query.ctx_size is not None
    given = stated or case.engine_sets_context
    return fit(case.local, case.options, case.devices, target=fit_target(case), context_given=given)


def keeps_layers(case: LocalCase, layout: LocalLayout) -> bool:
    """True if llama.cpp starts a case as it was laid out, though ``--fit`` changes what was not stated."""
    ran = (
        case.asked is not None
        or not isinstance(case.request.case.rules, LlamaCpp)
        or case.engine_sets_context
    )
    return ran or not would_change(case.options, layout, case.devices, fit_target(case))


def best_weights(case: LocalCase) -> str | None:
    """The largest usual mix that fits with these flags; None for a file, whose types are fixed."""
    if case.mix == "file":
        return None
    return next((mix for mix in MIXES_BY_SIZE if _fits_as(case, mix)), None)


def _fits_as(case: LocalCase, mix: str) -> bool:
    local, _ = open_local(case.request.model, mix, None)
    local = replace(local, network=case.local.network, companions=case.local.companions)
    return case.lay_out(local=local).fits


def advice(case: LocalCase) -> tuple[str, ...]:
    """Changes that make it fit, each alone, by the engine's own flags; the nearest of each."""
    found = []
    host, context = case.host_memory, case.longest()
    if context >= 4 * 256:
        found.append(f"--context {context}")
    experts = fewest_cpu_experts(case.local, case.options, case.devices, host_memory=host)
    if experts:
        found.append(f"--n-cpu-moe {experts}")
    elif layers := most_gpu_layers(case.local, case.options, case.devices, host_memory=host):
        found.append(f"--n-gpu-layers {layers}")
    mix = best_weights(case)
    if mix is not None:
        found.append(f"--weights {mix}")
    found += with_more_memory(case)
    return tuple(found)


def with_more_memory(case: LocalCase) -> list[str]:
    """The main memory that would do, with the flags that it serves; empty where it was stated, or is no way."""
    if case.is_unified or case.query.host_memory is not None:
        return []
    layout, options, flags = case.lay_out(), case.options, ""
    if any(device.shortfall for device in layout.devices):
        experts = fewest_cpu_experts(case.local, options, case.devices)
        layers = 0 if experts else most_gpu_layers(case.local, options, case.devices)
        if not experts and not layers:
            return []
        flags = f"--n-cpu-moe {experts} " if experts else f"--n-gpu-layers {layers} "
        changed = {"cpu_moe": experts} if experts else {"gpu_layers": layers}
        layout = case.lay_out(replace(options, **changed))  # type: ignore[arg-type]
    if not layout.host.shortfall:
        return []
    return [f"{flags}--host-memory {-(-layout.host.total // GIB)}GiB"]
