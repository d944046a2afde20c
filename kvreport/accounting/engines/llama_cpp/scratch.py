"""Memory of an operation in addition to its result, as the backends state it to the graph's allocator.

``get_alloc_size`` of each backend's buffer type, llama.cpp 0c1e57098: ``ggml-cuda.cu`` with ``fattn.cu`` and
``fattn-common.cuh`` (HIP compiles the same files), ``ggml-metal.cpp`` with ``ggml-metal-ops.cpp``. Vulkan and the
processor allocate results only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from kvreport.accounting.engines.llama_cpp.tensors import Tensor

Scratch = Literal["none", "cuda", "metal"]

_ALIGN: Final = 128
"""Alignment of the copies after the result (``ggml_cuda_flash_attn_ext_get_f16_extra_data``)."""

_QUERIES, _CELLS = 8, 64
"""``OP_FLASH_ATTN_EXT_NQPSG`` and ``OP_FLASH_ATTN_EXT_NCPSG`` (``ggml-metal-impl.h``)."""

_FEW_QUERIES, _WORKGROUPS = 32, 32
"""Queries and workgroups whose partial results are kept (``ggml_metal_op_flash_attn_ext_extra_tmp``)."""

_SCALES: Final = 8 + 256 * 4
"""Scales of one matrix product with experts (``ggml_metal_op_mul_mat_id_extra_amax``)."""


def scratch_bytes(tensor: Tensor, rules: Scratch, *, copies: bool) -> int:
    """Bytes in addition to the result of one operation.

    ``tensor``: the operation's result. ``rules``: the backend's rules. ``copies``: True if flash
    attention reserves 16-bit copies of keys and values.
    """
    if rules == "cuda":
        return _copied(tensor) if copies and tensor.op == "flash_attn" else 0
    if rules == "metal":
        return _metal(tensor, copies=copies)
    return 0


def _copied(tensor: Tensor) -> int:
    """Copies of keys and values that are not in 16-bit floats; latent values are a view of the keys."""
    _, key, value = tensor.srcs[:3]
    end = tensor.nbytes
    shared = value.root is not None and value.root is key.root
    for source, kind in zip((key, value), tensor.stored, strict=True):
        if kind.name != "f16" and not (source is value and shared):
            end = _padded(end, _ALIGN) + 2 * source.count
    return end - tensor.nbytes


def _metal(tensor: Tensor, *, copies: bool) -> int:
    match tensor.op:
        case "flash_attn":
            return _metal_attention(tensor, copies=copies)
        case "mul_mat_id":
            experts, _, ids = tensor.srcs[:3]
            return 4 * experts.ne[2] * (1 + ids.ne[1]) + _SCALES
        case "argsort":
            return tensor.nbytes
        case _:
            return 0


def _metal_attention(tensor: Tensor, *, copies: bool) -> int:
    query, key, value, mask = tensor.srcs[:4]
    shared = value.root is not None and value.root is key.root
    rows = 0
    for source, kind in zip((key, value), tensor.stored, strict=True):
        converted = copies and kind.quantized
        width = 2 * (key if shared else source).ne[0] if converted else kind.nbytes(source.nb[1] // 2)
        rows += width * source.ne[2] * source.ne[3]
    padding = _CELLS * (rows + 2 * mask.ne[1] * mask.ne[2] * mask.ne[3])
    blocks = -(-query.ne[1] // _QUERIES) * -(-mask.ne[0] // _CELLS) * mask.ne[2] * mask.ne[3]
    queries = min(query.ne[1], _FEW_QUERIES)
    partial = 4 * queries * query.ne[2] * query.ne[3] * _WORKGROUPS * (value.ne[0] + 2)
    kept = 0
    if copies:
        kept = _padded(2 * key.count, 16) + (0 if shared else _padded(2 * value.count, 16))
    return padding + _padded(blocks, 32) + partial + kept


def _padded(size: int, step: int) -> int:
    return -(-size // step) * step
