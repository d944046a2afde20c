"""One model on many machines: what each quantization needs at each context, and the longest context that fits.

The layout of one slot with every layer on one device, as llama.cpp 0c1e57098 makes it. Nothing in it depends on the
device but the memory, and the scratch of Apple's, so a model is laid out once and asked about every machine.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from kvreport.accounting.engines.llama_cpp.cells_and_states import (
    cache_bytes,
    count_cells,
    output_bytes,
    state_bytes,
)
from kvreport.accounting.engines.llama_cpp.layout import slot_buffers
from kvreport.accounting.engines.llama_cpp.local_model import LocalModel
from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.accounting.engines.llama_cpp.placement import (
    LocalDevice,
    place,
    repeated_bytes,
    weight_bytes,
)
from kvreport.accounting.engines.llama_cpp.quantize import with_mix
from kvreport.accounting.lessons import context_within, layers_to_move
from kvreport.catalog.local_architectures import LocalArchitectures
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.estimation.home_case import open_local

MIXES: Final = ("q8_0", "q6_k", "q5_k_m", "q4_k_m", "q3_k_m", "q2_k")
"""Quantization mixes of the tables, from the largest."""

CONTEXTS: Final = tuple(1 << power for power in range(12, 21))
"""Contexts of the tables: 4K to 1M tokens."""

_DEVICE: Final = LocalDevice("device", 1 << 60, offloads=False)
_APPLE: Final = replace(_DEVICE, align=32, scratch="metal")
_COPIES: Final = replace(_DEVICE, scratch="cuda")
"""A device that reserves 16-bit copies of the quantized caches that flash attention reads, as those of NVIDIA and AMD do."""


@dataclass(frozen=True)
class AtHome:
    """A model laid out on one device."""

    contexts: tuple[int, ...]  # Contexts that it was laid out for, rising; the model's own is the last.
    beside_weights: tuple[int, ...]  # Bytes of caches, states and compute buffer of one slot at each context.
    weights: dict[str, int]  # Bytes on the device for each mix.
    host: dict[str, int]  # Bytes of the embedding on the host for each mix.
    host_beside: tuple[int, ...]  # Bytes of buffers on the host at each context.
    # Bytes that the compute buffer of an Apple GPU has more at each context (below 0: less), by Metal's
    # scratch.
    metal: tuple[int, ...]
    repeated: dict[str, int]  # Bytes of the host's embedding that the device holds, too, for each mix.
    # Bytes of the routed experts of each layer for each mix; empty for a dense model.
    experts: dict[str, tuple[int, ...]]
    quantized: AtHome | None = (
        None  # The same with a cache in Q8_0; None where llama.cpp has no such cache of it.
    )

    def file_bytes(self, mix: str) -> int:
        """Bytes of the tensors in the file: a tied embedding is there once, and twice where it is loaded."""
        return self.weights[mix] + self.host[mix] - self.repeated[mix]

    def on_host(self, mix: str) -> tuple[int, ...]:
        """Bytes on the host at each context that no device holds."""
        weights = self.host[mix] - self.repeated[mix]
        return tuple(weights + buffers for buffers in self.host_beside)

    def longest(self, mix: str, device: LocalDevice) -> int:
        """The longest context that fits, in tokens, as of :func:`~kvreport.accounting.lessons.context_within`.

        ``mix``: quantization mix. ``device``: a device, whose memory may have the host's bytes, too.
        """
        room = device.usable - device.context - self.weights[mix]
        return context_within(self.contexts, self._beside(mix, device), room)

    def common(self, longest: int) -> int:
        """The longest of the tables' contexts and the model's own that is no longer, for a command; 0 if none is."""
        return max((one for one in (*CONTEXTS, self.contexts[-1]) if one <= longest), default=0)

    def shortfall(self, mix: str, device: LocalDevice) -> int:
        """Bytes missing at the shortest context; 0 if it fits.

        Arguments are those of :meth:`longest`.
        """
        return max(0, self.weights[mix] + self._beside(mix, device)[0] + device.context - device.usable)

    def _beside(self, mix: str, device: LocalDevice) -> tuple[int, ...]:
        parts = [self.beside_weights]
        if device.scratch == "metal":
            parts.append(self.metal)
        if device.has_all:
            parts.append(self.on_host(mix))
        return tuple(map(sum, zip(*parts, strict=True)))

    def in_main_memory(self, mix: str, context: int) -> int:
        """Bytes of main memory without a GPU, at the first tabled context that is not shorter."""
        place_of = self._place(context)
        return self.weights[mix] + self.beside_weights[place_of] + self.on_host(mix)[place_of]

    def free(self, mix: str, device: LocalDevice, context: int) -> int:
        """Bytes of a device that are left, at the first tabled context that is not shorter; below 0 if it does not fit."""
        return (
            device.usable
            - device.context
            - self.weights[mix]
            - self._beside(mix, device)[self._place(context)]
        )

    def _place(self, context: int) -> int:
        return min(bisect_left(self.contexts, context), len(self.contexts) - 1)

    def cpu_experts(self, mix: str, device: LocalDevice, context: int) -> int | None:
        """The fewest leading layers whose experts have to stay on the CPU; None if that is not enough.

        Only for a device with memory of its own: in one memory nothing is gained.

        The device also holds a copy of one layer's experts while it computes on host weights.

        Other arguments as of :meth:`longest`.
        """
        place_of = min(bisect_right(self.contexts, context), len(self.contexts)) - 1
        needed = self.weights[mix] + self.beside_weights[max(place_of, 0)] + device.context - device.usable
        moved = layers_to_move(needed, self.experts[mix])
        return None if moved < 0 else moved


_KNOWN: dict[tuple[int, tuple[str, ...]], tuple[Model, AtHome | None]] = {}
"""Layouts by the identity of the model, which is kept with them."""


def at_home(model: Model, mixes: tuple[str, ...] = MIXES) -> AtHome | None:
    """Lay a model out for every context and mix, once; None if llama.cpp does not convert it."""
    key = (id(model), mixes)
    if key not in _KNOWN:
        _KNOWN[key] = (model, _laid_out(model, mixes))
    return _KNOWN[key][1]


def _laid_out(model: Model, mixes: tuple[str, ...]) -> AtHome | None:
    if model.architecture not in LocalArchitectures.need().by_class:
        return None
    try:
        local, _ = open_local(model, mixes[-1], None)
        contexts = _contexts(local, model.context_tokens)
        beside, host_beside, metal = _beside(local, contexts)
        typed = {mix: with_mix(local, mix) for mix in mixes}
    except InputError:
        return None
    try:
        small = _beside(local, contexts, "q8_0")
    except InputError:
        small = None
    options = LocalOptions(context=contexts[0], parallel=1)
    placement = place(local.network, options, (_DEVICE,))
    weights = {
        mix: weight_bytes(one.tensors, placement, options, tied=one.network.tied)
        for mix, one in typed.items()
    }
    laid = AtHome(
        contexts=contexts,
        beside_weights=beside,
        metal=metal,
        weights={mix: sizes[0] for mix, sizes in weights.items()},
        host={mix: sizes[1] for mix, sizes in weights.items()},
        host_beside=host_beside,
        repeated={
            mix: repeated_bytes(one.tensors, placement, tied=one.network.tied) for mix, one in typed.items()
        },
        experts={mix: _experts(one) for mix, one in typed.items()},
    )
    if small is None:
        return laid
    beside, host_beside, metal = small
    return replace(laid, quantized=replace(laid, beside_weights=beside, host_beside=host_beside, metal=metal))


def _contexts(local: LocalModel, longest: int) -> tuple[int, ...]:
    """The contexts of the tables, where windows end to grow, and the model's own."""
    window = count_cells(local.network, LocalOptions(context=longest, parallel=1), longest).window
    usual = sorted({*CONTEXTS, window})
    return (*(tokens for tokens in usual if CONTEXTS[0] <= tokens < longest), longest)


def _beside(local: LocalModel, contexts: Sequence[int], cache: str = "f16") -> tuple[tuple[int, ...], ...]:
    """Caches and buffer at each context, the host's buffers, and what Metal's buffer has more.

    Buffers are linear in cells between the ends, but for Metal's, whose scratch stands where another buffer is free, and those
    with copies of a quantized cache.
    """
    ends, device = (contexts[0], contexts[-1]), _DEVICE if cache == "f16" else _COPIES
    (first, host_first), (last, host_last) = (slot_buffers(local, device, context, cache) for context in ends)
    span = max(contexts[-1] - contexts[0], 1)
    found, on_host, metal = [], [], []
    for context in contexts:
        options = LocalOptions(context=context, parallel=1, type_k=cache, type_v=cache)
        cells = count_cells(local.network, options, context)
        held = sum(cache_bytes(local.network, options, cells)) + sum(state_bytes(local.network, options))
        buffer = first + (last - first) * (context - contexts[0]) // span
        if device is _COPIES:
            buffer = slot_buffers(local, device, context, cache)[0]
        found.append(held + buffer)
        metal.append(slot_buffers(local, _APPLE, context, cache)[0] - buffer)
        output = output_bytes(local.network, options)
        on_host.append(output + host_first + (host_last - host_first) * (context - contexts[0]) // span)
    return tuple(found), tuple(on_host), tuple(metal)


def _experts(local: LocalModel) -> tuple[int, ...]:
    total = [0] * len(local.network.blocks)
    for tensor in local.tensors:
        if "_exps" in tensor.role and 0 <= tensor.layer < len(total):
            total[tensor.layer] += tensor.nbytes
    return tuple(total) if any(total) else ()
