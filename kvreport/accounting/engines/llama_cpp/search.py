"""Inverse answers for llama.cpp: the longest context, the most slots, the fewest experts on the CPU."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from kvreport.accounting.engines.llama_cpp.layout import LocalLayout, lay_out_local
from kvreport.accounting.engines.llama_cpp.network import Mixture
from kvreport.accounting.engines.llama_cpp.options import CELL_MULTIPLE, LocalOptions
from kvreport.accounting.engines.llama_cpp.placement import LocalDevice
from kvreport.accounting.engines.llama_cpp.reading import LocalModel

MOST_SLOTS: Final = 256
"""Sequences that llama.cpp keeps apart at most (``LLAMA_MAX_SEQ``)."""


def fits(layout: LocalLayout, margin: int = 0) -> bool:
    """True if every device keeps ``margin`` bytes free, and nothing is missing on the host."""
    return _on_devices(layout, margin) and not layout.host.shortfall


def longest_context(
    local: LocalModel,
    options: LocalOptions,
    devices: Sequence[LocalDevice],
    *,
    margin: int = 0,
    host_memory: int | None = None,
) -> int:
    """The largest ``--ctx-size`` that fits, up to the model's own context; 0 if none does.

    ``options``: options; their context does not matter. ``margin``: bytes to leave free on each device.
    ``host_memory``: bytes that the host has, where that is known.
    """
    step = CELL_MULTIPLE * (1 if options.is_unified else options.slots)
    most = max(local.model.context_tokens // step, 1)

    def slack(steps: int) -> int:
        layout = lay_out_local(local, replace(options, context=steps * step), devices, host_memory)
        on_host = [] if host_memory is None else [host_memory - layout.host.total]
        return min([*(one.free - margin for one in layout.devices), *on_host], default=0)

    return min(_largest(slack, most) * step, local.model.context_tokens)


def longest_of_slots(
    local: LocalModel,
    options: LocalOptions,
    devices: Sequence[LocalDevice],
    slots: int,
    *,
    host_memory: int | None = None,
) -> int:
    """The longest context that each of so many slots can have, up to the model's own; 0 if none.

    ``options``: options; their context and slots do not matter. ``slots``: slots, each with cells of its
    own (:func:`most_slots`). ``host_memory``: bytes that the host has, where that is known.
    """
    if slots > MOST_SLOTS:
        return 0
    limit = local.model.context_tokens

    def slack(steps: int) -> int:
        each = min(steps * CELL_MULTIPLE, limit)
        asked = replace(options, context=each * slots, parallel=slots, unified=False)
        layout = lay_out_local(local, asked, devices, host_memory)
        return min([*(one.free for one in layout.devices), -layout.host.shortfall], default=0)

    return min(_largest(slack, -(-limit // CELL_MULTIPLE)) * CELL_MULTIPLE, limit)


def _largest(slack: Callable[[int], int], most: int) -> int:
    """The largest number up to ``most`` whose slack is not negative; 0 if there is none.

    Slack falls almost evenly, so the next guess is where a straight line between the bounds crosses zero.
    """
    low, high = 1, most
    at_low, at_high = slack(low), slack(high)
    if at_high >= 0:
        return high
    if at_low < 0:
        return 0
    while high - low > 1:
        guess = low + int((high - low) * at_low / max(at_low - at_high, 1))
        guess = min(max(guess, low + 1), high - 1)
        found = slack(guess)
        if found >= 0:
            low, at_low = guess, found
            above = slack(low + 1)
            if above < 0:
                return low
            low, at_low = low + 1, above
        else:
            high, at_high = guess, found
    return low


def most_slots(
    local: LocalModel,
    options: LocalOptions,
    devices: Sequence[LocalDevice],
    context: int,
    *,
    host_memory: int | None = None,
    guess: int = MOST_SLOTS // 2,
) -> int:
    """How many slots of ``context`` tokens each fit (``-c context*N -np N``), at most 256.

    ``context``: tokens of one slot. ``host_memory``: bytes that the host has, where that is known.
    ``guess``: where to look first.
    """

    def holds(slots: int) -> bool:
        asked = replace(options, context=context * slots, parallel=slots, unified=False)
        return fits(lay_out_local(local, asked, devices, host_memory))

    low, high, step = 0, MOST_SLOTS + 1, 1
    middle = min(max(guess, 1), MOST_SLOTS)
    # Steps double away from the guess until both bounds are known, then halve between them.
    while high - low > 1:
        if holds(middle):
            low = middle
            middle = low + step if high > MOST_SLOTS else (low + high) // 2
        else:
            high = middle
            middle = high - step if low == 0 else (low + high) // 2
        middle, step = min(max(middle, low + 1), high - 1), 2 * step
    return low


def fewest_cpu_experts(
    local: LocalModel,
    options: LocalOptions,
    devices: Sequence[LocalDevice],
    *,
    margin: int = 0,
    host_memory: int | None = None,
) -> int | None:
    """The smallest ``--n-cpu-moe`` that fits; None if no number of them helps.

    ``margin``: bytes to leave free on every device. ``host_memory``: bytes that the host has, where that
    is known.
    """

    def laid(layers: int) -> LocalLayout:
        return lay_out_local(local, replace(options, cpu_moe=layers), devices, host_memory)

    mixture = any(isinstance(block.feed, Mixture) for block in local.network.blocks)
    if not mixture or _nothing_to_gain(devices):
        return 0 if fits(laid(options.cpu_moe), margin) else None
    fewest = bisect_left(
        range(len(local.network.blocks)), 1, key=lambda layers: _on_devices(laid(layers), margin)
    )
    # The fewest that devices need are the fewest that the host has to hold.
    return fewest if fits(laid(fewest), margin) else None


def most_gpu_layers(
    local: LocalModel,
    options: LocalOptions,
    devices: Sequence[LocalDevice],
    *,
    margin: int = 0,
    host_memory: int | None = None,
) -> int:
    """The largest ``--n-gpu-layers`` that fits; 0 if none does.

    ``margin``: bytes to leave free on every device. ``host_memory``: bytes that the host has, where that
    is known.
    """

    def laid(layers: int) -> LocalLayout:
        return lay_out_local(local, replace(options, gpu_layers=layers), devices, host_memory)

    every = len(local.network.blocks) + 1
    if _nothing_to_gain(devices):
        return every if fits(laid(every), margin) else 0
    most = bisect_left(range(1, every + 1), 1, key=lambda layers: not _on_devices(laid(layers), margin))
    # The most that devices hold are those that leave the host the least.
    return most if fits(laid(most), margin) else 0


def _on_devices(layout: LocalLayout, margin: int) -> bool:
    return all(device.free >= margin for device in layout.devices)


def _nothing_to_gain(devices: Sequence[LocalDevice]) -> bool:
    """True where the host's memory is a device's already: what leaves the device stays in the same memory."""
    return bool(devices) and all(device.has_all for device in devices)
