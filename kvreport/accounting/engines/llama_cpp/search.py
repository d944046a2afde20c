"""Inverse answers for llama.cpp: the longest context, the most slots, the fewest experts on the CPU."""

from __future__ import annotations

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
    """True if every device keeps ``margin`` bytes free."""
    return all(device.total + margin <= device.usable for device in layout.devices)


def longest_context(
    local: LocalModel, options: LocalOptions, devices: Sequence[LocalDevice], *, margin: int = 0
) -> int:
    """The largest ``--ctx-size`` that fits, up to the model's own context; 0 if none does.

    Args:
        local: The model.
        options: Options; their context does not matter.
        devices: Devices.
        margin: Bytes to leave free on each device.
    """
    step = CELL_MULTIPLE * (1 if options.is_unified else options.slots)
    most = max(local.model.context_tokens // step, 1)

    def slack(steps: int) -> int:
        layout = lay_out_local(local, replace(options, context=steps * step), devices)
        return min((one.usable - one.total - margin for one in layout.devices), default=0)

    return min(_largest(slack, most) * step, local.model.context_tokens)


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


def most_slots(local: LocalModel, options: LocalOptions, devices: Sequence[LocalDevice], context: int) -> int:
    """How many slots of ``context`` tokens each fit (``-c context*N -np N``), at most 256.

    Args:
        local: The model, its tensors with types.
        options: Options of the server.
        devices: Devices in order.
        context: Tokens of one slot.
    """
    low, high = 0, MOST_SLOTS
    while low < high:
        middle = (low + high + 1) // 2
        asked = replace(options, context=context * middle, parallel=middle, unified=False)
        low, high = (middle, high) if fits(lay_out_local(local, asked, devices)) else (low, middle - 1)
    return low


def fewest_cpu_experts(
    local: LocalModel, options: LocalOptions, devices: Sequence[LocalDevice], *, margin: int = 0
) -> int | None:
    """The smallest ``--n-cpu-moe`` that fits; None if even all experts on the CPU do not help.

    Args:
        local: The model, its tensors with types.
        options: Options of the server.
        devices: Devices in order.
        margin: Bytes to leave free on every device.
    """
    layers = len(local.network.blocks)
    if not any(isinstance(block.feed, Mixture) for block in local.network.blocks):
        return 0 if fits(lay_out_local(local, options, devices), margin) else None
    low, high = 0, layers
    if not fits(lay_out_local(local, replace(options, cpu_moe=layers), devices), margin):
        return None
    while low < high:
        middle = (low + high) // 2
        layout = lay_out_local(local, replace(options, cpu_moe=middle), devices)
        low, high = (low, middle) if fits(layout, margin) else (middle + 1, high)
    return low


def most_gpu_layers(
    local: LocalModel, options: LocalOptions, devices: Sequence[LocalDevice], *, margin: int = 0
) -> int:
    """The largest ``--n-gpu-layers`` that fits.

    Args:
        local: The model, its tensors with types.
        options: Options of the server.
        devices: Devices in order.
        margin: Bytes to leave free on every device.
    """
    low, high = 0, len(local.network.blocks) + 1
    while low < high:
        middle = (low + high + 1) // 2
        layout = lay_out_local(local, replace(options, gpu_layers=middle), devices)
        low, high = (middle, high) if fits(layout, margin) else (low, middle - 1)
    return low
