"""What llama.cpp keeps where: weights, caches, states and buffers of every device and of the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final

from kvreport.accounting.engines.llama_cpp.cells_and_states import (
    Cells,
    cache_bytes,
    checkpoint_bytes,
    count_cells,
    output_bytes,
    output_tokens,
    rollback_copies,
    state_bytes,
    widest_values,
)
from kvreport.accounting.engines.llama_cpp.compute_graph import build_graph
from kvreport.accounting.engines.llama_cpp.local_model import Companions, LocalModel, companion_options
from kvreport.accounting.engines.llama_cpp.network import (
    Attention,
    Block,
    FeedForward,
    LatentAttention,
    Network,
)
from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.accounting.engines.llama_cpp.placement import (
    FeedHomes,
    LocalDevice,
    Placement,
    place,
    repeated_bytes,
    weight_bytes,
)
from kvreport.accounting.engines.llama_cpp.planner import Backend, assign
from kvreport.accounting.engines.llama_cpp.planner import sizes as sizes_of
from kvreport.accounting.engines.llama_cpp.tensors import WorstStep
from kvreport.accounting.engines.llama_cpp.types import cache_type

_KEPT_REPEATS: Final = 4
_LENGTHS: Final = range(1, 13)
"""Layers of the patterns that are looked for, as of five windows and one full layer."""

PIPELINE_COPIES: Final = 4
"""Copies of split inputs with pipeline parallelism (``GGML_SCHED_MAX_COPIES``)."""


@dataclass(frozen=True, kw_only=True)
class HeldBytes:
    """What a device or the host holds."""

    weights: int = 0  # Model weights; on the host mapped from the file as it is loaded by default.
    kv: int = 0  # Keys and values of all slots in the layers that lie here.
    state: int = 0  # Recurrent states of all slots in these layers.
    compute: int = 0  # The compute buffer, as printed at start.
    companions: int = 0  # What a draft model, prediction blocks and a projector take.


@dataclass(frozen=True, kw_only=True)
class DeviceBytes(HeldBytes, LocalDevice):
    """A device with what it holds."""

    # What the compute buffer grows by when the device computes on weights in host memory.
    offload_copies: int = 0
    beside: int = 0  # What the host holds of the memory that it shares with the device.

    @property
    def total(self) -> int:
        """Bytes in all."""
        held = self.weights + self.kv + self.state + self.companions
        return held + self.compute + self.offload_copies + self.context

    @property
    def room(self) -> int:
        """Bytes that caches and everything else may take: what the device can use, less the host's part of it."""
        return self.usable if self.shared is None else min(self.usable, self.shared - self.beside)

    @property
    def free(self) -> int:
        """Bytes left; negative where some are missing."""
        return self.room - self.total

    @property
    def shortfall(self) -> int:
        """Bytes missing, 0 if it fits."""
        return max(0, -self.free)


@dataclass(frozen=True, kw_only=True)
class HostBytes(HeldBytes):
    """What is kept in host memory."""

    output: int = 0  # The buffer of logits.
    # The most that llama-server's prompt cache grows to while it runs; not taken at start.
    prompt_cache: int = 0
    checkpoints: int = 0  # The most that checkpoints of windows and states grow to while it runs; likewise.
    # Weights that devices hold, too (a tied embedding). They are mapped from the file, so that the system
    # drops them where memory is short.
    repeated: int = 0
    usable: int | None = None  # Memory that the host has; None where it is not known, or part of a device's.

    @property
    def total(self) -> int:
        """Bytes in all at start."""
        return self.weights + self.kv + self.state + self.compute + self.output + self.companions

    @property
    def shortfall(self) -> int:
        """Bytes missing, 0 if it fits or nobody said what there is."""
        return 0 if self.usable is None else max(0, self.total - self.usable)

    @property
    def most(self) -> int:
        """Bytes in all once the prompt cache and all checkpoints are filled."""
        return self.total + self.prompt_cache + self.checkpoints


@dataclass(frozen=True)
class LocalLayout:
    """A model laid out on devices and host."""

    devices: tuple[DeviceBytes, ...]  # What each device holds.
    host: HostBytes  # What the host holds.
    cells: Cells  # Numbers of cells.
    kv_cache_bytes: int  # Keys, values and states of all slots, everywhere.
    layers_on_device: int  # Layers, the output layer included, that are on devices.
    layers: int  # Layers, the output layer included.

    @property
    def shortfall(self) -> int:
        """Bytes missing on the device or host that misses most, 0 if everything fits."""
        return max(self.host.shortfall, *(device.shortfall for device in self.devices), 0)

    @property
    def fits(self) -> bool:
        """True if neither a device nor the host is short."""
        return self.shortfall == 0

    @property
    def fits_devices(self) -> bool:
        """True if no device is short."""
        return not any(device.shortfall for device in self.devices)

    @property
    def fullest(self) -> DeviceBytes:
        """The device with the least room left."""
        return min(self.devices, key=lambda device: device.free)


@dataclass(frozen=True)
class Setup:
    """A start to be laid out."""

    local: LocalModel  # The model with a type for every tensor.
    options: LocalOptions  # The server's options.
    devices: Sequence[LocalDevice] = ()  # Devices in order; none runs everything on the CPU.
    # Bytes that the host has; None where they are not known, or part of a device's.
    host_memory: int | None = None

    def lay_out(self, **changes: Any) -> LocalLayout:  # noqa: ANN401 - the fields of LocalOptions
        """The layout, with some options changed."""
        options = replace(self.options, **changes) if changes else self.options
        return lay_out_local(self.local, options, self.devices, self.host_memory)


@dataclass(frozen=True)
class _Placed:
    """A model on its devices: what no number of cells or slots changes, which searches try by the dozen."""

    local: LocalModel  # The model.
    placement: Placement  # Where its layers are.
    weights: tuple[int, ...]  # Bytes of weights on each device, the host last.
    repeated: int  # Bytes of the host's weights that a device holds, too.

    @cached_property
    def folded(self) -> tuple[Network, Placement]:
        """The network with fewer repeats, where its layers repeat."""
        whole = self.local.network, self.placement
        return whole if _has_inputs_by_layer(self.local.network) else _folded(*whole)


@lru_cache(maxsize=64)
def _placed(local: LocalModel, options: LocalOptions, devices: tuple[LocalDevice, ...]) -> _Placed:
    network, placement = local.network, place(local.network, options, devices)
    weights = weight_bytes(local.tensors, placement, options, tied=network.tied)
    return _Placed(
        local, placement, tuple(weights), repeated_bytes(local.tensors, placement, tied=network.tied)
    )


def lay_out_local(
    local: LocalModel,
    options: LocalOptions,
    devices: Sequence[LocalDevice] = (),
    host_memory: int | None = None,
) -> LocalLayout:
    """Lay a model out as llama.cpp would.

    ``devices``: devices in order; none runs everything on the CPU. ``host_memory``: bytes that the host
    has; None where it is not known, or part of a device's.

    Raises:
        InputError: What llama.cpp refuses, in one sentence.
    """
    return _laid_out(local, options, tuple(devices), host_memory)


@lru_cache(maxsize=128)
def _laid_out(
    local: LocalModel, options: LocalOptions, devices: tuple[LocalDevice, ...], host_memory: int | None
) -> LocalLayout:
    network = local.network
    latent = any(isinstance(block.mixer, LatentAttention) for block in network.blocks)
    options.check(latent=latent)
    placed = _placed(local, replace(options, context=0, parallel=None, unified=None), devices)
    placement, weights = placed.placement, placed.weights
    cells = count_cells(network, options, local.model.context_tokens)
    kv = _by_home(cache_bytes(network, options, cells), placement)
    state = _by_home(state_bytes(network, options), placement)
    compute, copies = compute_bytes(placed, options, devices, cells)
    beside, blocks = _companion_bytes(local.companions, options, devices, placement, cells)
    host = HostBytes(
        weights=weights[-1] + blocks[-1],
        kv=kv[-1],
        state=state[-1],
        compute=compute[-1],
        output=output_bytes(network, options),
        companions=beside[-1],
        prompt_cache=options.cache_ram,
        checkpoints=options.checkpoints * options.slots * checkpoint_bytes(network, options, cells),
        repeated=placed.repeated,
        usable=host_memory,
    )
    # Several devices with shared memory are several computers; the host's part lies in the first.
    first = next((index for index, device in enumerate(devices) if device.shared is not None), None)
    return LocalLayout(
        devices=tuple(
            DeviceBytes(
                **vars(device),
                weights=weights[index] + blocks[index],
                kv=kv[index],
                state=state[index],
                compute=compute[index],
                offload_copies=copies[index],
                companions=beside[index],
                beside=host.total - host.repeated if index == first else 0,
            )
            for index, device in enumerate(devices)
        ),
        host=host,
        cells=cells,
        kv_cache_bytes=sum(kv) + sum(state),
        layers_on_device=sum(where != placement.cpu for where in (*placement.layers, placement.output)),
        layers=len(network.blocks) + 1,
    )


def _companion_bytes(
    companions: Companions,
    options: LocalOptions,
    devices: Sequence[LocalDevice],
    placement: Placement,
    cells: Cells,
) -> tuple[list[int], list[int]]:
    """What companions take on each device, the host last; and the weights of prediction blocks, part of the model's."""
    total, blocks = [0] * (placement.cpu + 1), [0] * (placement.cpu + 1)
    same = replace(companion_options(options), context=cells.context)
    if companions.prediction is not None:
        # The blocks lie after the last layer, where the output layer is.
        where = placement.output
        own = replace(same, gpu_layers=0 if where == placement.cpu else None)
        if where != placement.cpu:
            own = replace(own, tensor_split=tuple(float(index == where) for index in range(placement.cpu)))
        layout = lay_out_local(companions.prediction, own, devices)
        _add_layout(total, layout)
        blocks = [*(device.weights for device in layout.devices), layout.host.weights]
        total = [size - weights for size, weights in zip(total, blocks, strict=True)]
    if companions.draft is not None:
        _add_layout(total, lay_out_local(companions.draft, same, devices))
    if companions.projector is not None:
        home = placement.cpu if companions.projector_on_host else 0
        total[home] += companions.projector.weights + companions.projector.compute
    return total, blocks


def _add_layout(total: list[int], layout: LocalLayout) -> None:
    for index, device in enumerate(layout.devices):
        total[index] += device.total - device.context
    total[-1] += layout.host.total


def _by_home(per_layer: Sequence[int], placement: Placement) -> list[int]:
    total = [0] * (placement.cpu + 1)
    for size, where in zip(per_layer, placement.caches, strict=True):
        total[where] += size
    return total


def compute_bytes(
    placed: _Placed, options: LocalOptions, devices: Sequence[LocalDevice], cells: Cells
) -> tuple[list[int], list[int]]:
    """Compute buffers of every device, the host last, and what operations on host weights add to each.

    ``placed``: the model on these devices. ``cells``: numbers of cells.
    """
    network, placement = placed.local.network, placed.placement
    step = plan_step(network, options, cells)
    if not _every_row_leaves(options, cells):
        network, placement = placed.folded
    backends = (*(_backend(device, options) for device in devices), Backend(32))
    pipelined = _pipelined(options, devices, placement)
    homes = replace(placement, shares=())
    plain = _planned(network, step, homes, backends, PIPELINE_COPIES if pipelined else 1, ())
    on_host = placement.cpu in placement.all_homes
    eager = tuple(
        replace(backend, offloads=device.offloads) for backend, device in zip(backends, devices, strict=False)
    )
    if not (devices and on_host and options.op_offload and any(device.offloads for device in devices)):
        return list(plain), [0] * len(plain)
    grown = _planned(network, step, homes, (*eager, backends[-1]), 1, placed.local.sizes_by_shape)
    copied = [max(0, after - before) for before, after in zip(plain, grown, strict=True)]
    # What a device takes over, the host does not compute.
    return [*plain[:-1], grown[-1]], [*copied[:-1], 0]


def slot_buffers(local: LocalModel, device: LocalDevice, context: int, cache: str = "f16") -> tuple[int, int]:
    """Bytes of the compute buffers of a device that has every layer, and of the host, for one slot."""
    options = LocalOptions(context=context, parallel=1, type_k=cache, type_v=cache)
    cells = count_cells(local.network, options, context)
    on_device, on_host = compute_bytes(_placed(local, options, (device,)), options, (device,), cells)[0]
    return on_device, on_host


def _backend(device: LocalDevice, options: LocalOptions) -> Backend:
    copies = device.scratch in options.cache_copies and not options.wide_masks
    return Backend(device.align, scratch=device.scratch, copies_caches=copies)


def _every_row_leaves(options: LocalOptions, cells: Cells) -> bool:
    """True if logits are computed for all tokens: their buffer may go where earlier layers left room, so all count."""
    tokens = min(cells.context, cells.ubatch)
    return output_tokens(options, tokens, cells.batch) >= tokens > options.slots


def _has_inputs_by_layer(network: Network) -> bool:
    """True where layers do not simply repeat.

    Inputs grow with per-layer embeddings and with the mask of each layer of sparse attention; networks of many
    widths leave gaps that depend on their order.
    """
    widths = {block.feed.width for block in network.blocks if isinstance(block.feed, FeedForward)}
    return _is_sparse(network) or network.per_layer > 0 or len(widths) > _WIDTHS_THAT_REPEAT


_WIDTHS_THAT_REPEAT: Final = 2


def _is_sparse(network: Network) -> bool:
    return any(
        (isinstance(block.mixer, LatentAttention) and bool(block.mixer.indexer))
        or (isinstance(block.mixer, Attention) and bool(block.mixer.picker))
        for block in network.blocks
    )


def _folded(network: Network, placement: Placement) -> tuple[Network, Placement]:
    """The network and where its layers are, with fewer repeats of what repeats.

    Repeats on the same backends reuse each other's memory: what is free after one is what was free two before. Equal to
    the whole network's buffers for every recorded run, and for drawn placements (``tests/unit/test_llama_cpp.py``).
    """
    every = tuple(
        zip(
            network.blocks,
            placement.layers,
            placement.experts,
            placement.dense,
            placement.caches,
            strict=True,
        )
    )
    numbers: dict[tuple[object, ...], int] = {}
    kinds = [numbers.setdefault(one, len(numbers)) for one in every]
    kept: list[tuple[Block, int, FeedHomes, FeedHomes, int]] = []
    at = 0
    while at < len(every):
        spared, length = max((_spared(kinds, at, length), -length) for length in _LENGTHS)
        end = at + (_KEPT_REPEATS * -length if spared else 1)
        kept.extend(every[at:end])
        at = end + spared
    blocks, layers, experts, dense, caches = zip(*kept, strict=True)
    return (
        replace(network, blocks=blocks, prediction_layers=0),
        replace(placement, layers=layers, experts=experts, dense=dense, caches=caches),
    )


def _spared(kinds: Sequence[int], at: int, length: int) -> int:
    """Layers of an even number of repeats of the next ``length`` ones, beyond those to keep."""
    end = at
    while end + length < len(kinds) and kinds[end] == kinds[end + length]:
        end += 1
    return max((end - at) // length + 1 - _KEPT_REPEATS, 0) // 2 * 2 * length


def _pipelined(options: LocalOptions, devices: Sequence[LocalDevice], placement: Placement) -> bool:
    return (
        len(devices) > 1
        and placement.cpu not in placement.all_homes
        and options.split_mode == "layer"
        and options.kv_offload
        and not options.overrides
        and all(device.pipelines for device in devices)
    )


@lru_cache(maxsize=4096)
def _planned(
    network: Network,
    step: WorstStep,
    homes: Placement,
    backends: tuple[Backend, ...],
    copies: int,
    sizes: tuple[tuple[tuple[int, int, int], int], ...],
) -> tuple[int, ...]:
    graph = build_graph(network, step, homes)
    known = dict(sizes)
    for leaf in graph.leafs if known else ():
        if leaf.weight and leaf.home == homes.cpu:
            leaf.nbytes = known.get(leaf.ne[:3], 4 * leaf.count if leaf.ne[1] == 1 else leaf.count)
    assign(graph, backends)
    if step.auto and step.fused and not _stays(network, step, homes, backends):
        return _planned(network, replace(step, fused=False), homes, backends, copies, sizes)
    return tuple(sizes_of(graph, backends, copies=copies))


def _stays(network: Network, step: WorstStep, homes: Placement, backends: tuple[Backend, ...]) -> bool:
    """True unless flash attention runs on another device than its layer, which disables it everywhere.

    ``llama_context::resolve_fused_ops`` asks with a graph of one token per sequence: few enough that no device takes
    over what lies in host memory, as it does with a whole micro-batch. Which backend computes what depends on weights
    and on the rows that they meet: the cells of a cache meet weights in sparse attention only (keys of blocks are
    normed), so every other network has one answer for all contexts. With one backend for all layers there is no other.
    """
    if len(homes.all_homes | set(homes.caches)) == 1:
        return True
    few = replace(step, tokens=step.sequences, outputs=step.sequences)
    if not _is_sparse(network):
        few = replace(few, cells=_ANY_CELLS, window_cells=step.window_cells and _ANY_CELLS)
    return _fused_stays(network, few, homes, backends)


_ANY_CELLS: Final = 1 << 12


@lru_cache(maxsize=4096)
def _fused_stays(network: Network, few: WorstStep, homes: Placement, backends: tuple[Backend, ...]) -> bool:
    graph = build_graph(network, few, homes)
    assign(graph, backends)
    return all(tensor.backend == home for tensor, home in graph.fused)


def plan_step(network: Network, options: LocalOptions, cells: Cells) -> WorstStep:
    """The worst case that llama.cpp reserves for (``llama_context::sched_reserve``)."""
    slots = options.slots
    tokens = min(cells.context, cells.ubatch)
    key = cache_type(options.type_k, "--cache-type-k")
    value = cache_type(options.type_v, "--cache-type-v")
    return WorstStep(
        tokens=-(-tokens // slots) * slots,
        sequences=slots,
        outputs=output_tokens(options, tokens, cells.batch),
        cells=cells.per_slot,
        window_cells=cells.window,
        streams=cells.streams,
        flash=options.uses_flash,
        auto=options.flash == "auto",
        rotated_keys=_key_rotations(network, quantized=key.quantized),
        rotated_values=_value_rotations(network, quantized=value.quantized),
        wide_keys=key.name == "f32",
        value_padding=0 if options.uses_flash else widest_values(network),
        rollback=rollback_copies(network, options),
        slots=slots,
        wide_masks=options.wide_masks,
        key_type=key,
        value_type=value,
    )


def _key_rotations(network: Network, *, quantized: bool) -> tuple[int, int]:
    """Width of the rotation of quantized keys: full layers, window layers (``build_input_k_rot``)."""
    full, window = (_common_width(network, windowed=flag, values=False) for flag in (False, True))
    return _doubled(full, quantized=quantized), _doubled(window, quantized=quantized)


def _value_rotations(network: Network, *, quantized: bool) -> tuple[int, int]:
    """The same for values, always in blocks of 64 (``build_input_v_rot``)."""
    full, window = (_common_width(network, windowed=flag, values=True) for flag in (False, True))
    return tuple(64 if quantized and width and width % 64 == 0 else 0 for width in (full, window))  # type: ignore[return-value]


def _common_width(network: Network, *, windowed: bool, values: bool) -> int:
    """Width of a head where all layers of a kind have the same, else 0."""
    widths = {
        block.mixer.value_dim if values else block.mixer.key_dim
        for block in network.blocks
        if isinstance(block.mixer, Attention) and (block.mixer.window is not None) == windowed
    }
    return widths.pop() if len(widths) == 1 else 0


def _doubled(width: int, *, quantized: bool) -> int:
    """The largest power of two, from 64, that divides a head."""
    if not quantized or width == 0 or width % 64:
        return 0
    turned = 64
    while width % (2 * turned) == 0:
        turned *= 2
    return turned
