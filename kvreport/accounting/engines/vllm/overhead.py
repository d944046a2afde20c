"""What loading adds to the tensors of a checkpoint, as vLLM reports it.

The tensors themselves are :mod:`kvreport.accounting.weights`. An engine keeps more: position
tables, copies that its kernels want, and experts padded to the tiles of its kernels (vLLM 0.10 to 0.33).
Each rule holds for every model that it applies to. Bytes are per rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kvreport.accounting.engines.projections import allocated_rows, missing_projections
from kvreport.accounting.engines.step import Loading
from kvreport.accounting.engines.vllm.expert_kernels import (
    GROUP_VALUES,
    TILES,
    Kernel,
    block_float_kernel,
    rounded_up,
    triton_bytes,
)
from kvreport.accounting.engines.vllm.kernels import Device, idle_indexers
from kvreport.accounting.kv_cache import SERVED_BYTES, rotary_width
from kvreport.accounting.weights import format_of, is_down, rank_elements
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.caches import Latent, SlidingWindow
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import WeightFormat
from kvreport.catalog.model import Model, WeightGroup
from kvreport.catalog.release import Release, release_of
from kvreport.catalog.remembered import remembered

_AXES_FACTOR: Final = 4
_BLOCK_FLOAT: Final = "mxfp4"
_SCALED_FLOAT: Final = "nvfp4"
_WIDENED_SCALES: Final = "bnb-4bit-dq"
_WIDE_SCALE_BYTES: Final = 4
_SCALED_TILES: Final = (128, 1)
_TRITON_SHARE: Final = 64

_FLOAT_BLOCKS: Final = "fp8-block"
_COLUMN_SCALE_BYTES: Final = 2

_PADDED_FORMATS: Final = ("fp8-block", "fp8-tensor")
_ROW_BYTES: Final = 512
_FLOAT_BYTES: Final = 4
_BASES: Final = 2
"""Bases of rotation where latents are compressed: theirs and that of windows."""
_ROW_PADDING_BYTES: Final = 256

_TAKEN_FROM_BYTES: Final = 10 << 20
_TAKEN_BYTES: Final = 2 << 20
_KEPT_REST_BYTES: Final = 1 << 20
_UNSPLIT_BYTES: Final = 20 << 20
_WHOLE_FORMATS: Final = ("fp8", "int4", "int8", "nvfp4")
"""Formats whose matrices are loaded each into one tensor, their scales into another."""

_INDEX_READ_PLAIN: Final = ("indexer.wk.weight",)
_READ_PLAIN: Final = ("q_a_proj.weight", "kv_a_proj_with_mqa.weight", "q_b_proj.weight", "o_proj.weight")
_CONNECTIONS: Final = ("attn_hc.fn", "ffn_hc.fn")

_FUSED: Final = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    **dict.fromkeys(("gate_proj", "up_proj", "w1", "w3"), "gate_up_proj"),
    **dict.fromkeys(("q_a_proj", "kv_a_proj_with_mqa"), "fused_qkv_a_proj"),
    **dict.fromkeys(("in_proj_qkv", "in_proj_z"), "in_proj_qkvz"),
}
"""The tensors of a checkpoint that vLLM loads into one."""

_LISTS: Final = ("keys_of_shared_layers", "float_rotation", "rotation_of_windows", "float_connections")
"""Lists of classes whose models are loaded otherwise."""

_Stored = Sequence[tuple[WeightGroup, WeightFormat | None]]
"""A model's tensors, each with its format; None is the model's own 16- or 32-bit type."""


def load_overhead(loading: Loading) -> dict[str, int]:
    """Bytes per rank that loading adds, by what they are for.

    Returns:
        ``position_table``, ``missing_projections``, ``absorbed_projection``, ``widened_scales``, ``grouped_scales``,
        ``expert_padding``, ``idle_indexers``, ``read_plain``, ``float_connections``, ``row_padding``, ``left_by_padding`` and
        ``allocated_blocks``, where they apply.
    """
    model, layout = loading.model, loading.layout
    stored = _stored(model, loading.weight_format, loading.formats)
    listed = {kind: loading.engine.lists(kind, model.architecture) for kind in _LISTS}
    joined = listed["keys_of_shared_layers"]
    unsplit = loading.accelerator.vendor.upper() == "NVIDIA" and release_of(loading.engine).has(
        "loads_unsplit"
    )
    parts = {
        "position_table": _position_table(model, listed["float_rotation"], listed["rotation_of_windows"]),
        "missing_projections": missing_projections(loading, joined=joined),
        "absorbed_projection": _absorbed(stored, layout.tensor),
        "widened_scales": _widened_scales(model, stored, layout.tensor),
        "grouped_scales": _grouped_scales(loading, stored),
        "expert_padding": _expert_padding(loading, stored),
        "idle_indexers": _idle_indexers(loading),
        "read_plain": _read_plain(loading, stored),
        "float_connections": _float_connections(model) if listed["float_connections"] else 0,
        "row_padding": _row_padding(loading, stored),
        "left_by_padding": _left_by_padding(loading, stored),
        "allocated_blocks": _allocated_blocks(
            model, joined, loading.weight_format, loading.formats, layout.tensor, layout.expert_ranks, unsplit
        ),
    }
    return {name: size for name, size in parts.items() if size}


@remembered
def _stored(model: Model, weight_format: WeightFormat | None, formats: Mapping[str, WeightFormat]) -> _Stored:
    """The tensors that loading may add to, each with its format: those that have one, and all experts."""
    each = ((row, format_of(model, row, weight_format, formats)) for row in model.weights)
    return [(row, form) for row, form in each if form is not None or row.component == "routed_experts"]


def _blocks(
    model: Model, stored: _Stored, name: str
) -> Iterator[tuple[WeightGroup, WeightFormat, tuple[int, int]]]:
    """The loaded tensors of a format whose scales are of blocks, each with the block's rows and columns."""
    for row, form in stored:
        if form is not None and form.name == name and form.block and row.component not in model.not_loaded:
            yield row, form, form.block


@remembered
def has_experts(model: Model) -> bool:
    """True for a model with routed experts."""
    return any(row.component == "routed_experts" for row in model.weights)


@remembered
def _position_table(model: Model, floats: bool, apart: bool) -> int:  # noqa: FBT001 - part of a memo's key
    """Cosines and sines of every position, once per width; 16 bits each, on every rank.

    Models that place images and time on axes of their own get a table of four times the positions
    (vLLM 0.8 to 0.33, ``rotary_embedding/mrope.py``). Of Qwen3.5's heads a quarter rotates, so that its
    table is that of its whole heads and plain positions. Classes without rotation have no table (0.33,
    ``models/jamba.py`` and ``nemotron_h.py``). Compressed latents rotate by a base of their own, and both their tables
    are floats (0.27.1 and 0.33.0, ``rotary_embedding/deepseek_scaling_rope.py::DeepseekV4ScalingRotaryEmbedding``).
    Layers share a table where width and parameters are equal (0.10.2 to 0.33.0 ``rotary_embedding/__init__.py::get_rope``).

    ``floats``: True for classes that ask for a table of 32-bit numbers. ``apart``: True for classes whose
    windows rotate by parameters of their own.
    """
    if not model.rotary_axes:
        return 0
    caches = model.every_cache
    widths = [
        width
        for width, _ in {
            (rotary_width(cache), apart and isinstance(cache, SlidingWindow)) for cache in caches
        }
    ]
    if any(isinstance(cache, Latent) and cache.stride > 1 for cache in caches):
        return sum(model.context_tokens * width * _FLOAT_BYTES * _BASES for width in widths)
    positions = model.context_tokens * (_AXES_FACTOR if model.rotary_axes > 1 else 1)
    return sum(positions * width * (_FLOAT_BYTES if floats else SERVED_BYTES) for width in widths)


@remembered
def _absorbed(stored: _Stored, tensor_parallel: int) -> int:
    """MLA decodes with its up-projection unquantised: a quantised one is kept a second time."""
    size = 0
    for row, form in stored:
        if "kv_b_proj" not in row.name or len(row.shape) < 2 or row.component == "mtp":
            continue
        if form is not None:
            size += row.parameters * SERVED_BYTES // tensor_parallel
    return size


def _idle_indexers(loading: Loading) -> int:
    """Indexers that no checkpoint has weights for, since their layers take another's choice; each rank has them whole."""
    _, layers = idle_indexers(loading.model, loading.engine)
    rows = [row for row in loading.model.weights if ".indexer." in row.name and row.component != "mtp"]
    return sum(loading.row_bytes(row) // row.count * layers for row in rows) if layers else 0


def _read_plain(loading: Loading, stored: _Stored) -> int:
    """Projections of some classes are loaded at 16 bits where the checkpoint stores fewer."""
    lists = {"latents_read_plain": _READ_PLAIN, "index_read_plain": _INDEX_READ_PLAIN}
    kept = (each for kind, each in lists.items() if loading.engine.lists(kind, loading.model.architecture))
    names = tuple(name for each in kept for name in each)
    if not names:
        return 0
    added = 0.0
    for row, form in stored:
        if form is None or row.component != "attention" or not row.name.endswith(names):
            continue
        scale = form.scale_bytes / (form.block[0] * form.block[1]) if form.block and all(form.block) else 0.0
        added += rank_elements(row, loading.layout.tensor) * (SERVED_BYTES - form.bits / 8 - scale)
    return int(added)


def _float_connections(model: Model) -> int:
    """Mixing matrices of residual streams are kept at 32 bits, on every rank."""
    rows = (row for row in model.weights if row.name.endswith(_CONNECTIONS) and row.component != "mtp")
    return sum(row.parameters * (_FLOAT_BYTES - SERVED_BYTES) for row in rows)


@remembered
def _widened_scales(model: Model, stored: _Stored, tensor_parallel: int) -> int:
    """Scales that bitsandbytes quantised a second time are kept as float32, so that kernels need not."""
    added = 0.0
    for row, form, (_, columns) in _blocks(model, stored, _WIDENED_SCALES):
        scales = rank_elements(row, tensor_parallel) / columns
        added += scales * (_WIDE_SCALE_BYTES - form.scale_bytes)
    return int(added)


def _grouped_scales(loading: Loading, stored: _Stored) -> int:
    """Scales of FP8 blocks are written out for every column where Marlin's kernels compute: 16 bits per 128 rows.

    ``quantization/utils/marlin_utils_fp8.py``, ``prepare_fp8_layer_for_marlin`` and ``prepare_fp8_moe_layer_for_marlin``
    (0.10.2 to 0.33.0). They compute below capability 8.9, and since 0.29.0 matrices outside the experts on 8.9, too: until
    then Marlin refused it (0.28.0 ``kernels/linear/scaled_mm/marlin.py``, ``is_supported``), and CUTLASS's kernels, which
    come first, need 9.0. Experts on 8.9 are Triton's (0.29.0 ``fused_moe/oracle/fp8.py``).
    """
    device, layout = Device.of(loading.accelerator), loading.layout
    if not device.marlin:
        return 0
    added = 0.0
    for row, form, (rows, columns) in _blocks(loading.model, stored, _FLOAT_BLOCKS):
        experts = row.component == "routed_experts"
        if device.floats and (experts or not release_of(loading.engine).has("marlin_on_native_floats")):
            continue
        each = _COLUMN_SCALE_BYTES / columns - form.scale_bytes / (rows * columns)
        added += rank_elements(row, layout.expert_ranks if experts else layout.tensor) * each
    return int(added)


def _expert_padding(loading: Loading, stored: _Stored) -> int:
    """Experts of 4-bit floats are padded to their kernels' tiles.

    MXFP4: the model's width, and on most GPUs each rank's share of the inner side. NVFP4: each
    rank's share of the inner side.
    """
    model, layout, release = loading.model, loading.layout, release_of(loading.engine)
    kernel = padding_kernel(model, loading.engine, loading.accelerator)
    if kernel is None:
        return 0
    vendored = kernel == "triton" and release.has("vendored_triton_kernels")
    added = 0.0
    for row, form in stored:
        if row.component != "routed_experts" or form is None or len(row.shape) < 2:
            continue
        if form.name not in (_BLOCK_FLOAT, _SCALED_FLOAT):
            continue
        inner, width = _expert_sides(model, row)
        count, share = row.count, -(-inner // layout.expert_ranks)
        if layout.expert and model.experts is not None:
            # Whole experts, as many as the fullest rank has.
            routed = model.experts.routed
            count, share = row.count * -(-routed // layout.expert_ranks) // routed, inner
        per_rank = count * share * width
        if vendored and form.name == _BLOCK_FLOAT:
            added += count * _triton_padding(release, row, share, width)
            continue
        inner_tile, width_tile = TILES[kernel] if form.name == _BLOCK_FLOAT else _SCALED_TILES
        padded = count * rounded_up(share, inner_tile) * rounded_up(width, width_tile)
        scaled = form.block and (form.name == _SCALED_FLOAT or kernel != "triton")
        scale_bits = 8 * form.scale_bytes / form.block[1] if scaled and form.block else 0.0
        added += (padded - per_rank) * (form.bits + scale_bits) / 8
    return int(added)


def _triton_padding(release: Release, row: WeightGroup, share: int, width: int) -> float:
    """Bytes that one expert matrix takes beyond its values and scales; gate and up are one matrix of both.

    Biases, which are widened from 16 to 32 bits, belong to the matrix that has their outputs.
    """
    share_up = rounded_up(share, _TRITON_SHARE)
    stored = share * width * (1 / 2 + 1 / GROUP_VALUES)
    if is_down(row):
        return triton_bytes(release, width, share_up) + SERVED_BYTES * width - stored
    return triton_bytes(release, 2 * share_up, width) / 2 + SERVED_BYTES * share_up - stored


def padding_kernel(model: Model, engine: Engine, accelerator: Accelerator) -> Kernel | None:
    """The kernel that reads MXFP4 experts; None without routed experts, and where none of them are padded."""
    capability = accelerator.compute_capability or ""
    if accelerator.vendor.upper() != "NVIDIA" or not capability or not has_experts(model):
        return None
    return block_float_kernel(engine, model.architecture, int(capability.split(".")[0]), engine.expert_kernel)


def _left_by_padding(loading: Loading, stored: _Stored) -> int:
    """Bytes that no tensor holds after AMD's devices padded 16-bit experts, and that are not given back.

    A layer's padded down projections go where its gate and up projections lay, which are freed a moment before, and split that
    block; the rest is smaller than what any later layer asks for. NVIDIA's devices split no such block while weights load
    (0.22.0 to 0.33.0 ``v1/worker/gpu_worker.py::_scoped_allocator_max_split``). It is charged where all that stays is; the
    line that tells what loading took leaves it out.
    """
    layout, release = loading.layout, release_of(loading.engine)
    charged = release.has("charges_all_that_stays") and release.has("experts_padded_on_amd")
    if loading.accelerator.vendor.upper() != "AMD" or not charged:
        return 0
    freed = padded = 0
    for row, form in stored:
        if row.component != "routed_experts" or len(row.shape) < 2:
            continue
        down = is_down(row)
        side = row.shape[-1] // (layout.expert_ranks if down and not layout.expert else 1)
        if form is not None or side * SERVED_BYTES % _ROW_BYTES:
            return 0
        elements = rank_elements(row, layout.expert_ranks)
        if down:
            padded += elements * SERVED_BYTES + elements // side * _ROW_PADDING_BYTES
        else:
            freed += elements * SERVED_BYTES
    return max(freed - padded, 0) if padded else 0


def _row_padding(loading: Loading, stored: _Stored) -> int:
    """Rows on AMD's devices are set apart: 256 bytes after each whose length is a multiple of 512.

    FP8 matrices outside the experts, by blocks or with one scale (``quantization/utils/fp8_utils.py``,
    ``_maybe_pad_fp8_weight``, read in 0.10.2 and 0.33.0; rows with a scale each are not), and 16-bit experts
    (``fused_moe/unquantized_fused_moe_method.py``, ``_maybe_pad_weight``, in 0.6.6 and 0.29.0; 0.30.0 to 0.33.0 copy the
    padded values back into the tensor that was loaded, whose rows stay as they were).
    """
    layout, release = loading.layout, release_of(loading.engine)
    if loading.accelerator.vendor.upper() != "AMD":
        return 0
    padded = 0
    for row, form in stored:
        experts = row.component == "routed_experts"
        plain = form is None and experts and release.has("experts_padded_on_amd")
        if len(row.shape) < 2 or row.component == "mtp":
            continue
        if not plain and (experts or form is None or form.name not in _PADDED_FORMATS):
            continue
        elements = rank_elements(row, layout.expert_ranks if experts else layout.tensor)
        side = row.shape[-1]
        if row.split == "rows" or row.name.endswith(("o_proj.weight", "out_proj.weight")):
            side = -(-side // layout.tensor)
        if experts and not layout.expert and is_down(row):
            side = -(-side // layout.expert_ranks)
        if side * (SERVED_BYTES if plain else 1) % _ROW_BYTES == 0:
            padded += elements // side
    return padded * _ROW_PADDING_BYTES


@remembered
def _allocated_blocks(
    model: Model,
    joined: bool,  # noqa: FBT001 - part of a memo's key
    weight_format: WeightFormat | None,
    formats: Mapping[str, WeightFormat],
    tensor_ranks: int,
    expert_ranks: int,
    unsplit: bool,  # noqa: FBT001 - part of a memo's key
) -> int:
    """What PyTorch's allocator counts beyond the tensors that it holds.

    From 10 MiB on, a tensor's memory is taken in multiples of 2 MiB, and a rest of up to 1 MiB stays with the tensor, so that it is
    counted as allocated (PyTorch ``c10/cuda/CUDACachingAllocator.cpp``, ``get_allocation_size`` and ``should_split``). Since 0.22.0
    vLLM loads on NVIDIA's devices with ``max_split_size_mb`` 20 (``v1/worker/gpu_worker.py::_scoped_allocator_max_split``, the same
    up to 0.33.0), where from 20 MiB on every rest stays (own-002). What an engine fuses is one tensor: queries, keys and values,
    gate and up, and a layer's experts. A matrix that is repacked after loading takes as much again as the one that it replaces.
    """
    tensors: dict[tuple[str, int], int] = {}
    for row in allocated_rows(model, joined):
        if row.component in model.not_loaded or row.component == "mtp" or len(row.shape) < 2:
            continue
        form = format_of(model, row, weight_format, formats)
        if form is not None and not form.name.startswith(_WHOLE_FORMATS):
            continue
        module, _, name = row.name.removesuffix(".weight").rpartition(".")
        ranks, count = tensor_ranks, row.count
        if row.component == "routed_experts":
            module, ranks = "experts", expert_ranks
            if model.experts is not None and len(row.shape) == 2:
                count = max(1, count // model.experts.routed)
        key = f"{module}.{_FUSED.get(name, name)}", count
        bits = 8 * SERVED_BYTES if form is None else form.bits
        tensors[key] = tensors.get(key, 0) + int(rank_elements(row, ranks) * bits / 8) // count
    taken = 0
    for (_, count), size in tensors.items():
        rest = -size % _TAKEN_BYTES if size >= _TAKEN_FROM_BYTES else 0
        whole = unsplit and size >= _UNSPLIT_BYTES
        taken += rest * count if whole or rest <= _KEPT_REST_BYTES else 0
    return taken


def _expert_sides(model: Model, row: WeightGroup) -> tuple[int, int]:
    """Intermediate side and model-width side of one expert matrix."""
    rows, columns = row.shape[-2:]
    down = is_down(row)
    return (columns, rows) if down or (rows == model.hidden_size != columns) else (rows, columns)
