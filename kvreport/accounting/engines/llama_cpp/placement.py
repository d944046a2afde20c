"""Which device holds which layer and which tensor, as llama.cpp places them.

``llama_model_base::load_tensors`` and ``create_tensor`` of llama.cpp 0c1e57098 (``src/llama-model.cpp``,
``src/llama-model-loader.cpp``); ``--n-cpu-moe`` and ``--override-tensor`` are the same mechanism there.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Final

from kvreport.accounting.engines.llama_cpp.inventory import LocalTensor
from kvreport.accounting.engines.llama_cpp.network import Network
from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.accounting.engines.llama_cpp.planner import Scratch
from kvreport.catalog.accelerator import Accelerator
from kvreport.errors import InputError

_EXPERTS: Final = re.compile(r"ffn_(up|down|gate|gate_up)_(ch|)exps")
_INPUTS: Final = frozenset({"token_embd", "per_layer_token_embd", "position_embd"})
_FIRST_LAYER: Final = frozenset({"per_layer_model_proj", "per_layer_proj_norm"})


@dataclass(frozen=True)
class FeedHomes:
    """Backends that hold the matrices of a feed-forward network or of its routed experts."""

    up: int  # Backend of the up projection.
    gate: int  # Backend of the gate, and of gate and up where they are one matrix.
    down: int  # Backend of the down projection.

    @classmethod
    def all_on(cls, home: int) -> FeedHomes:
        """Everything on one backend."""
        return cls(home, home, home)


@dataclass(frozen=True)
class LocalDevice:
    """A device that llama.cpp puts layers on."""

    name: str  # What the user calls it.
    usable: int  # Bytes that are free for a process.
    context: int = 0  # Bytes that the backend takes for itself and prints nowhere.
    align: int = 128  # Bytes that its allocations are multiples of.
    offloads: bool = True  # True if it takes over large batches of operations on weights in host memory.
    pipelines: bool = False  # True if it can overlap copies with work (CUDA's events).
    # Whose rules say what operations need in addition to their results; HIP is CUDA's code.
    scratch: Scratch = "none"
    # Bytes that the device and the host can hold together, where they are one memory; None otherwise.
    shared: int | None = None

    @property
    def has_all(self) -> bool:
        """True if the host has no memory that the device cannot use, so that nothing is gained by moving to it."""
        return self.shared is not None and self.shared <= self.usable


_SCRATCH: Final[Mapping[str, Scratch]] = {"apple": "metal", "nvidia": "cuda", "amd": "cuda"}
"""The backend that llama.cpp is built with for a vendor's devices."""


def local_device(accelerator: Accelerator, coefficients: Mapping[str, float]) -> LocalDevice:
    """One device with what its backend does."""
    apple = accelerator.vendor.lower() == "apple"
    own = coefficients.get("device_context_metal" if apple else "device_context", 0.0)
    return LocalDevice(
        name=accelerator.id,
        usable=accelerator.usable_bytes,
        context=int(own),
        align=32 if apple else 128,
        offloads=not apple,
        # CUDA, ROCm, Vulkan and Metal all state asynchronous computing and events, which several devices need.
        pipelines=True,
        scratch=_SCRATCH.get(accelerator.vendor.lower(), "none"),
        shared=accelerator.shared_bytes,
    )


@dataclass(frozen=True)
class Placement:
    """Where layers are."""

    layers: tuple[int, ...]  # Device of each layer, or the number of devices for the CPU.
    output: int  # The same for the output layer.
    experts: tuple[FeedHomes, ...]  # The same for up, gate and down of the routed experts of each layer.
    dense: tuple[FeedHomes, ...]  # The same for each layer's dense feed-forward network.
    caches: tuple[int, ...]  # The same for the caches of each layer.
    cpu: int  # The number that means the CPU.
    # Cumulated shares of the devices, for matrices split by rows; empty otherwise.
    shares: tuple[float, ...] = ()

    @property
    def all_homes(self) -> frozenset[int]:
        """Every device that holds something."""
        feeds = (home for feed in (*self.experts, *self.dense) for home in (feed.up, feed.gate, feed.down))
        return frozenset((*self.layers, self.output, *feeds))


def place(network: Network, options: LocalOptions, devices: Sequence[LocalDevice]) -> Placement:
    """Put layers on devices.

    The last ``--n-gpu-layers`` of layers and output layer go to devices, divided by ``--tensor-split`` or by
    free memory. ``--n-cpu-moe`` and ``--override-tensor`` move single tensors.

    Raises:
        InputError: If an option names a device that is not there.
    """
    count, cpu = len(network.blocks), len(devices)
    # Prediction blocks are counted although they are not loaded (n_layer_all).
    every = count + network.prediction_layers + 1
    wanted = every if options.gpu_layers is None or options.gpu_layers < 0 else options.gpu_layers
    on_device = min(wanted, every) if devices else 0
    start = max(every - wanted, 0) if devices else every
    edges = _edges(options, devices)

    def home(index: int) -> int:
        if index < start or on_device == 0:
            return cpu
        return min(bisect_right(edges, (index - start) / on_device), cpu - 1)

    layers = tuple(home(index) for index in range(count))
    finder = _Overrides(options, cpu)
    feeds = [
        (finder.feed(index, where, experts=True), finder.feed(index, where, experts=False))
        for index, where in enumerate(layers)
    ]
    return Placement(
        layers=layers,
        output=home(every - 1),
        experts=tuple(experts for experts, _ in feeds),
        dense=tuple(dense for _, dense in feeds),
        caches=layers if options.kv_offload else (cpu,) * count,
        cpu=cpu,
        shares=edges if options.split_mode == "row" and cpu > 1 else (),
    )


def _edges(options: LocalOptions, devices: Sequence[LocalDevice]) -> tuple[float, ...]:
    shares = options.tensor_split or tuple(float(max(device.usable, 1)) for device in devices)
    if options.split_mode == "none" and devices:
        if not 0 <= options.main_gpu < len(devices):
            raise InputError(f"--main-gpu: found {options.main_gpu}; allowed: 0 to {len(devices) - 1}")
        shares = tuple(1.0 if index == options.main_gpu else 0.0 for index in range(len(devices)))
    if len(shares) > len(devices) > 0:
        raise InputError(
            f"--tensor-split: found {len(shares)} shares for {len(devices)} devices; allowed: one per device"
        )
    shares = (*shares, *([0.0] * (len(devices) - len(shares))))
    return tuple(edge / (sum(shares) or 1.0) for edge in accumulate(shares))


class _Overrides:
    """Where single tensors go: the first pattern that matches a name decides."""

    def __init__(self, options: LocalOptions, cpu: int) -> None:
        self.cpu, self.cpu_moe = cpu, options.cpu_moe
        self.rules = [(_compiled(pattern), _device(buffer, cpu)) for pattern, buffer in options.overrides]
        self.any = bool(self.rules) or self.cpu_moe > 0

    def home(self, name: str, role: str, layer: int, usual: int) -> int:
        """Where a tensor goes that its layer would put on ``usual``."""
        for pattern, device in self.rules:
            if pattern.search(name):
                return device
        if layer < self.cpu_moe and layer >= 0 and _EXPERTS.search(role):
            return self.cpu
        return usual

    def feed(self, layer: int, usual: int, *, experts: bool) -> FeedHomes:
        """Where the parts of a feed-forward network go."""
        if not self.rules and not experts:
            return FeedHomes.all_on(usual)
        suffix = "_exps" if experts else ""
        roles = (f"ffn_up{suffix}", f"ffn_gate{suffix}", f"ffn_down{suffix}")
        return FeedHomes(*(self.home(f"blk.{layer}.{role}.weight", role, layer, usual) for role in roles))


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _device(buffer: str, cpu: int) -> int:
    """The device of a buffer type: ``CPU`` and pinned host buffers, or a number at the end of a device's name."""
    found = re.fullmatch(r"[A-Za-z]+(\d+)(?:_Split)?", buffer)
    if found is None or "host" in buffer.lower():
        if buffer.upper().startswith("CPU") or "host" in buffer.lower():
            return cpu
        raise InputError(f"--override-tensor: found {buffer!r}; allowed: CPU, or a device such as CUDA0")
    if int(found[1]) >= cpu:
        raise InputError(
            f"--override-tensor: found {buffer!r} with {cpu} devices; allowed: up to number {cpu - 1}"
        )
    return int(found[1])


def weight_bytes(
    tensors: Sequence[LocalTensor], placement: Placement, options: LocalOptions, *, tied: bool
) -> list[int]:
    """Bytes of weights on each device, the CPU last.

    Token embeddings are always on the CPU; a tied output matrix is loaded a second time where the output layer is.

    ``tied``: True if the embedding is the output matrix, too.
    """
    finder = _Overrides(options, placement.cpu)
    total = [0] * (placement.cpu + 1)
    for tensor in tensors:
        where = _home_of(tensor, placement)
        if finder.any:
            name = tensor.name if finder.rules else ""  # which takes longer to make than all else
            where = finder.home(name, tensor.role, tensor.layer, where)
        _add(total, tensor, where, placement)
        if tied and tensor.role == "token_embd" and placement.output != placement.cpu:
            _add(total, replace(tensor, role="output"), placement.output, placement)
    return total


def repeated_bytes(tensors: Sequence[LocalTensor], placement: Placement, *, tied: bool) -> int:
    """Bytes of host weights that a device holds a second time: a tied embedding."""
    if not tied or placement.output == placement.cpu:
        return 0
    return sum(tensor.nbytes for tensor in tensors if tensor.role == "token_embd")


def _add(total: list[int], tensor: LocalTensor, where: int, placement: Placement) -> None:
    split = placement.shares and where != placement.cpu and tensor.is_matrix and tensor.stack == 1
    if not split:
        total[where] += tensor.nbytes
        return
    row, done = tensor.nbytes // tensor.rows, 0
    for index, edge in enumerate(placement.shares):
        end = tensor.rows if index == placement.cpu - 1 else int(tensor.rows * edge)
        total[index] += (end - done) * row
        done = end


def _home_of(tensor: LocalTensor, placement: Placement) -> int:
    if tensor.role in _INPUTS:
        return placement.cpu
    if tensor.role in _FIRST_LAYER:
        return placement.layers[0]
    if tensor.layer < 0 or tensor.layer >= len(placement.layers):
        return placement.output
    return placement.layers[tensor.layer]
