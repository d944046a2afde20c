"""Which backend computes what, and how much memory each needs for it: ggml's scheduler and allocator.

Follows ``ggml-backend.cpp`` (``ggml_backend_sched_split_graph``) and ``ggml-alloc.c``
(``ggml_gallocr_alloc_graph_impl``) of ggml 0.25.3, llama.cpp 0c1e57098. Everything is planned before anything is
allocated, so the sizes are exact for a given graph: what a dry run prints.

What operations take in addition to their results is stated by ``get_alloc_size`` of each backend's buffer type:
``ggml-cuda.cu`` with ``fattn.cu`` and ``fattn-common.cuh`` (HIP compiles the same files), ``ggml-metal.cpp`` with
``ggml-metal-ops.cpp``. Vulkan and the processor allocate results only.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from kvreport.accounting.engines.llama_cpp.tensors import IN_PLACE, VIEW_OPS, Graph, Tensor

if TYPE_CHECKING:
    from kvreport.accounting.engines.llama_cpp.tensors import Tensor

OFFLOAD_MIN_BATCH: Final = 32
"""Batch from which a device takes over an operation whose weights are in host memory
(``GGML_OP_OFFLOAD_MIN_BATCH``, ``ggml-cuda.cu``)."""


@dataclass(frozen=True)
class Backend:
    """Where operations run."""

    align: int = 128  # Bytes that every allocation is a multiple of.
    # True if it takes over operations with weights in host memory (CUDA does, RPC does not).
    offloads: bool = False
    scratch: Scratch = "none"  # Whose rules say what operations need in addition to their results.
    copies_caches: bool = False  # True if flash attention reserves 16-bit copies of the caches that it reads.


def plan(graph: Graph, backends: Sequence[Backend], *, copies: int = 1) -> list[int]:
    """Bytes of each backend's compute buffer.

    ``backends``: in order of preference; the CPU is the last. ``copies``: copies of every split's inputs
    (pipeline parallelism keeps four).
    """
    assign(graph, backends)
    return sizes(graph, backends, copies=copies)


def sizes(graph: Graph, backends: Sequence[Backend], *, copies: int = 1) -> list[int]:
    """Bytes of each backend's compute buffer for a graph whose nodes have a backend."""
    nodes, leafs = _split(graph, copies)
    return _allocate(nodes, leafs, backends)


def _first_choice(tensor: Tensor, backends: Sequence[Backend]) -> int:
    holder = tensor.root or tensor
    if holder.home is not None:
        return holder.home
    if tensor.is_input:
        return len(backends) - 1
    if tensor.op in ("rope", "flash_attn"):
        return -1
    for src in tensor.srcs:
        if src.weight and src.home is not None:
            last = len(backends) - 1
            if src.home == last and _batch(tensor) >= OFFLOAD_MIN_BATCH:
                for index in range(last):
                    if backends[index].offloads:
                        return index
            return src.home
    return -1


def _batch(tensor: Tensor) -> int:
    match tensor.op:
        case "get_rows":
            return 0
        case "mul_mat":
            return tensor.ne[1]
        case "mul_mat_id" | "rope":
            return tensor.ne[2]
        case _:
            return tensor.ne[1] * tensor.ne[2] * tensor.ne[3]


def assign(graph: Graph, backends: Sequence[Backend]) -> None:
    """Choose a backend for every node: by weights and caches, then by what its neighbors got (passes 1 to 4)."""
    for tensor in (*graph.leafs, *graph.nodes):
        if tensor.backend == -1:
            tensor.backend = _first_choice(tensor, backends) if tensor.pinned is None else tensor.pinned
    computed = [node for node in graph.nodes if node.op not in VIEW_OPS]
    last = len(backends) - 1
    for order, devices_only in (
        (computed, True),
        (computed[::-1], True),
        (computed, False),
        (computed[::-1], False),
    ):
        current = -1
        for node in order:
            if node.backend != -1:
                current = -1 if devices_only and node.backend == last else node.backend
            elif current != -1:
                node.backend = current
    for node in graph.nodes:
        if node.backend == -1 and node.root is not None:
            node.backend = node.root.backend
        for src in node.srcs:
            if src.backend == -1:
                src.backend = src.root.backend if src.root is not None else node.backend
        if node.backend == -1:
            node.backend = 0


def _split(graph: Graph, copies: int) -> tuple[list[tuple[Tensor, int]], list[tuple[Tensor, int]]]:
    """Pass 5 and what follows: cut where the backend changes, and copy what a split reads from another."""
    splits: list[tuple[int, list[Tensor], list[Tensor]]] = []
    copied: dict[tuple[int, int], list[Tensor]] = {}
    pending: list[Tensor] = []
    for node in graph.nodes:
        if node.op in VIEW_OPS:
            (splits[-1][2] if splits else pending).append(node)
            continue
        if not splits or node.backend != splits[-1][0] or _needs_new_split(node, splits[-1]):
            splits.append((node.backend, [], pending if not splits else []))
        place, inputs, members = splits[-1]
        for index, src in enumerate(node.srcs):
            if src.backend != place:
                key = (id(src), place)
                if key not in copied:
                    copied[key] = [_duplicate(src, copies) for _ in range(copies)]
                    inputs.append(src)
                node.srcs[index] = copied[key][0]
        members.append(node)
    nodes: list[tuple[Tensor, int]] = []
    for place, inputs, members in splits:
        for source in inputs:
            keep = Tensor("none", source.ne, srcs=(source,), root=source, nbytes=0)
            nodes.append((keep, source.backend))
            nodes.append((copied[id(source), place][0], place))
        nodes.extend((node, node.backend) for node in members)
    return nodes, _leafs(graph, splits, copied, copies)


def _needs_new_split(node: Tensor, split: tuple[int, list[Tensor], list[Tensor]]) -> bool:
    place, inputs, _ = split
    return bool(inputs) and any(src.weight and src.backend != place for src in node.srcs)


def _duplicate(source: Tensor, copies: int) -> Tensor:
    copy = Tensor("none", source.ne, nb=source.nb, nbytes=_span(source))
    copy.is_input = copy.is_output = copies > 1
    return copy


def _span(tensor: Tensor) -> int:
    """Bytes from the first to the last element, gaps included (``ggml_nbytes``)."""
    if tensor.nbytes or tensor.root is None:
        return tensor.nbytes
    width = min(stride for stride in tensor.nb if stride)
    return width + sum((extent - 1) * stride for extent, stride in zip(tensor.ne, tensor.nb, strict=True))


def _leafs(
    graph: Graph,
    splits: list[tuple[int, list[Tensor], list[Tensor]]],
    copied: dict[tuple[int, int], list[Tensor]],
    copies: int,
) -> list[tuple[Tensor, int]]:
    leafs: list[tuple[Tensor, int]] = []
    if copies > 1:
        for leaf in graph.leafs:
            if leaf.is_input:
                leaf.is_output = True
                twins = [_duplicate(leaf, copies) for _ in range(copies - 1)]
                leafs.extend((twin, leaf.backend) for twin in (leaf, *twins))
        for place, inputs, _ in splits:
            for source in inputs:
                leafs.extend((copy, place) for copy in copied[id(source), place])
    leafs.extend((leaf, leaf.backend) for leaf in graph.leafs)
    return leafs


class _Arena:
    """Free blocks of one backend's buffer, best fit first (``ggml_dyn_tallocr``)."""

    __slots__ = ("align", "free", "peak")

    def __init__(self, align: int) -> None:
        self.align = align
        self.free: list[list[int]] = [[0, 1 << 62]]
        self.peak = 0

    def padded(self, size: int) -> int:
        return -(-size // self.align) * self.align

    def take(self, size: int) -> int:
        size = self.padded(size)
        best, best_size = -1, 1 << 62
        free = self.free
        for index in range(len(free) - 1):
            if size <= free[index][1] <= best_size:
                best, best_size = index, free[index][1]
        block = free[best]
        offset = block[0]
        block[0] += size
        block[1] -= size
        if block[1] == 0:
            del free[best]
        self.peak = max(self.peak, offset + size)
        return offset

    def give(self, offset: int, size: int) -> None:
        size = self.padded(size)
        free = self.free
        for index, block in enumerate(free):
            if block[0] + block[1] == offset:
                block[1] += size
                if index + 1 < len(free) and block[0] + block[1] == free[index + 1][0]:
                    block[1] += free[index + 1][1]
                    del free[index + 1]
                return
            if offset + size == block[0]:
                block[0] = offset
                block[1] += size
                if index and free[index - 1][0] + free[index - 1][1] == offset:
                    free[index - 1][1] += block[1]
                    del free[index]
                return
        insort(free, [offset, size])


def _allocate(
    nodes: list[tuple[Tensor, int]], leafs: list[tuple[Tensor, int]], backends: Sequence[Backend]
) -> list[int]:
    arenas = [_Arena(backend.align) for backend in backends]
    for tensor, place in nodes:
        if tensor.root is None:
            rules = backends[place]
            tensor.nbytes += scratch_bytes(tensor, rules.scratch, copies=rules.copies_caches)
    for leaf, place in leafs:
        _place(leaf, place, arenas)
    for node, place in nodes:
        if node.root is not None and node.op != "none":
            node.root.views += 1
        for tensor in (node, *node.srcs):
            if tensor.is_input:
                _place(tensor, place, arenas)
        for src in node.srcs:
            src.children += 1
    for node, place in nodes:
        for tensor in (*node.srcs, node):
            _place(tensor, place, arenas)
        for src in node.srcs:
            _let_go(src, arenas)
    return [arena.peak for arena in arenas]


def _let_go(src: Tensor, arenas: list[_Arena]) -> None:
    """One reader less; the last one frees the memory."""
    src.children -= 1
    if src.children or src.views:
        return
    root = src.root
    if root is None:
        if src.mine:
            _release(src, arenas)
        return
    root.views -= 1
    if not root.views and not root.children and root.mine:
        _release(root, arenas)


def _place(tensor: Tensor, place: int, arenas: list[_Arena]) -> None:
    if tensor.mine or tensor.root is not None or tensor.home is not None:
        return
    tensor.mine = True
    if tensor.op in IN_PLACE and _reuse_parent(tensor, arenas):
        return
    tensor.place = place
    tensor.offset = arenas[place].take(tensor.nbytes)


def _reuse_parent(tensor: Tensor, arenas: list[_Arena]) -> bool:
    """Write over an input that nobody else needs; views own no memory, so they are never taken over."""
    for parent in tensor.srcs:
        if not parent.mine or parent.is_output or parent.children != 1 or parent.views:
            continue
        if parent.ne != tensor.ne or parent.nb != tensor.nb:
            continue
        parent.mine = False
        tensor.place, tensor.offset = parent.place, parent.offset
        arena = arenas[parent.place]
        whole, used = arena.padded(parent.nbytes), arena.padded(tensor.nbytes)
        if whole > used:
            arena.give(parent.offset + used, whole - used)
        return True
    return False


def _release(tensor: Tensor, arenas: list[_Arena]) -> None:
    if not tensor.is_output:
        arenas[tensor.place].give(tensor.offset, tensor.nbytes)
        tensor.mine = False


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
