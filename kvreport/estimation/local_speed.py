"""The least time of one token when part of what it reads lies in host memory."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from kvreport.accounting.engines.llama_cpp.layout import LocalLayout
from kvreport.accounting.engines.llama_cpp.placement import place, weight_bytes
from kvreport.accounting.roofline import Peaks
from kvreport.estimation.local_case import LocalCase, size_of

HOST_BANDWIDTH: Final = 89_600_000_000
"""Bytes per second of two channels of DDR5-5600 (2 x 64 bits x 5,600 MT/s), where nobody states another."""


def host_bandwidth(case: LocalCase) -> int:
    """Bytes per second at which the processor reads its memory: as stated, or that of a usual desktop.

    A device that shares its memory with the processor has one bandwidth for both.
    """
    if case.query.host_bandwidth is not None:
        return size_of("host-bandwidth", case.query.host_bandwidth)
    if case.request.accelerator.is_unified:
        found = Peaks.of(case.request.accelerator).bytes_per_s
        return HOST_BANDWIDTH if math.isnan(found) else int(found)
    return HOST_BANDWIDTH


def read_bytes(case: LocalCase, layout: LocalLayout) -> list[int]:
    """What one token of one full slot reads on each device, the host last: active weights, cache, state."""
    network, experts = case.local.network, case.local.model.experts
    placement = place(network, case.options, case.devices)
    share = experts.per_token / experts.routed if experts else 1.0
    tables = ("token_embd", "per_layer_token_embd", "position_embd")
    # One row of an embedding is read, but a tied one is the output matrix, too.
    read = [t for t in case.local.tensors if t.role not in tables]
    read += [replace(t, role="output") for t in case.local.tensors if t.role == "token_embd" and network.tied]
    routed = weight_bytes([t for t in read if "_exps" in t.role], placement, case.options, tied=False)
    plain = weight_bytes([t for t in read if "_exps" not in t.role], placement, case.options, tied=False)
    slots = case.options.slots if not case.options.is_unified else 1
    caches = [(device.kv + device.state) // slots for device in layout.devices]
    caches.append((layout.host.kv + layout.host.state) // slots)
    return [
        int(always + share * some) + cache for always, some, cache in zip(plain, routed, caches, strict=True)
    ]


def decode_ms(case: LocalCase, layout: LocalLayout) -> float | None:
    """Least milliseconds of one token: each part read at the bandwidth of the memory that holds it.

    Layers run one after the other, so the times of devices add up. None where a device's rate is unknown or
    where the layout does not fit.
    """
    if not layout.fits:
        return None
    *on_devices, on_host = read_bytes(case, layout)
    accelerators = case.request.accelerators
    total = on_host / host_bandwidth(case)
    for index, size in enumerate(on_devices):
        rate = float(Peaks.of(accelerators[index if len(accelerators) > 1 else 0]).bytes_per_s)
        if math.isnan(rate):
            return None
        total += size / rate
    return 1000 * total
