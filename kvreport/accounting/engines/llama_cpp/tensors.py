"""Tensors and compute graphs as ggml sees them: shapes, strides, views and the order of nodes.

Only what decides memory is kept: no values, no arithmetic. The functions carry the names of ggml's own
(``ggml.c`` of ggml 0.25.3, llama.cpp 0c1e57098), so that a graph here can be read beside a graph there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kvreport.accounting.engines.llama_cpp.types import TYPES, GgmlType

Shape = tuple[int, int, int, int]

F32: Final = 4
F16: Final = 2
I32: Final = 4
I64: Final = 8

IN_PLACE: Final = frozenset(
    {"fill", "scale", "add", "add_id", "sub", "mul", "div", "sqr", "sqrt", "unary", "rope", "rms_norm",
     "clamp", "soft_max"}
)  # fmt: skip
"""Operations that may write over one of their inputs (``ggml-alloc.c``, ``ggml_op_can_inplace``)."""

VIEW_OPS: Final = frozenset({"view", "reshape", "permute", "transpose"})


class Tensor:
    """One tensor of a graph.

    Attributes:
        op: What computes it; ``none`` for weights, caches and inputs.
        ne: Elements per dimension, the fastest first.
        nb: Bytes from one element to the next, per dimension.
        nbytes: Bytes to allocate for it.
        srcs: What it is computed from.
        root: The tensor whose memory it shows, if it is a view.
        home: Index of the backend that holds it already (weights and caches), else None.
        weight: True for a model weight, which pulls an operation to its own backend.
        is_input: True for what the caller fills in before each step.
        is_output: True for what must survive the graph.
        pinned: Backend that the graph's author chose, or None.
        stored: Types of cached keys and values that a flash attention reads, else empty.
    """

    __slots__ = (
        "backend", "children", "home", "is_input", "is_output", "mine", "nb", "nbytes", "ne", "offset", "op",
        "pinned", "place", "root", "seen", "srcs", "stored", "views", "weight",
    )  # fmt: skip

    def __init__(
        self,
        op: str,
        ne: tuple[int, ...],
        width: int = F32,
        srcs: tuple[Tensor, ...] = (),
        *,
        root: Tensor | None = None,
        nb: tuple[int, ...] | None = None,
        home: int | None = None,
        weight: bool = False,
        is_input: bool = False,
        nbytes: int | None = None,
    ) -> None:
        self.op = op
        self.ne: Shape = (*ne, 1, 1, 1, 1)[:4]  # type: ignore[assignment]
        self.nb: Shape = dense_strides(self.ne, width) if nb is None else (*nb, *([nb[-1]] * 4))[:4]  # type: ignore[assignment]
        count = self.ne[0] * self.ne[1] * self.ne[2] * self.ne[3]
        self.nbytes = count * width if nbytes is None else nbytes
        self.srcs = list(srcs)
        self.root: Tensor | None = None if root is None else (root.root or root)
        self.home = home
        self.weight = weight
        self.is_input = is_input
        self.is_output = False
        self.pinned: int | None = None
        self.stored: tuple[GgmlType, ...] = ()
        self.seen = False
        self.backend = -1
        self.children = 0
        self.views = 0
        self.offset = 0
        self.place = -1
        self.mine = False

    @property
    def width(self) -> int:
        """Bytes of one element."""
        return self.nb[0] if self.op != "transpose" else min(self.nb)

    @property
    def count(self) -> int:
        """Number of elements."""
        return self.ne[0] * self.ne[1] * self.ne[2] * self.ne[3]

    @property
    def contiguous(self) -> bool:
        """True if the elements lie in memory without gaps, in order."""
        expected = self.nb[0]
        if expected not in (1, 2, 4, 8):
            return False
        for extent, stride in zip(self.ne, self.nb, strict=True):
            if extent != 1 and stride != expected:
                return False
            expected *= extent
        return True


def dense_strides(ne: Shape, width: int) -> Shape:
    """Strides of a tensor without gaps."""
    first = width
    second = first * ne[0]
    third = second * ne[1]
    return (first, second, third, third * ne[2])


@dataclass
class Graph:
    """Nodes in the order of computation, and leafs in the order in which they were met."""

    nodes: list[Tensor] = field(default_factory=list)  # What is computed.
    leafs: list[Tensor] = field(default_factory=list)  # Weights, caches and inputs.
    # Every fused attention with the backend of its layer.
    fused: list[tuple[Tensor, int]] = field(default_factory=list)

    def expand(self, tensor: Tensor) -> None:
        """Append a tensor and everything it needs (``ggml_build_forward_expand``, left to right)."""
        stack: list[tuple[Tensor, int]] = []
        if tensor.seen:
            return
        tensor.seen = True
        stack.append((tensor, 0))
        while stack:
            current, index = stack.pop()
            srcs = current.srcs
            while index < len(srcs) and srcs[index].seen:
                index += 1
            if index < len(srcs):
                stack.append((current, index + 1))
                srcs[index].seen = True
                stack.append((srcs[index], 0))
                continue
            (self.leafs if current.op == "none" else self.nodes).append(current)


def weight(*ne: int, home: int, nbytes: int = 0) -> Tensor:
    """A model weight on backend ``home``; ``nbytes`` matters only where it is copied to another one."""
    return Tensor("none", ne, home=home, weight=True, nbytes=nbytes)


def cache(*ne: int, home: int, width: int = F16) -> Tensor:
    """A cache or state that was allocated before the graph."""
    return Tensor("none", ne, width, home=home)


def graph_input(*ne: int, width: int = F32) -> Tensor:
    """Something the caller fills in before each step; it lives in host memory."""
    return Tensor("none", ne, width, is_input=True)


def mul_mat(matrix: Tensor, x: Tensor) -> Tensor:
    """``matrix`` times ``x``."""
    return Tensor("mul_mat", (matrix.ne[1], x.ne[1], x.ne[2], x.ne[3]), srcs=(matrix, x))


def mul_mat_id(experts: Tensor, x: Tensor, ids: Tensor) -> Tensor:
    """``x`` through the experts named by ``ids``."""
    return Tensor("mul_mat_id", (experts.ne[1], ids.ne[0], x.ne[2], 1), srcs=(experts, x, ids))


def like(op: str, a: Tensor, *others: Tensor) -> Tensor:
    """A new dense tensor of the shape of ``a``, computed from ``a`` and others (add, mul, unary, ...)."""
    return Tensor(op, a.ne, a.width, (a, *others))


def add(a: Tensor, b: Tensor) -> Tensor:
    """Element-wise sum, in the shape of ``a``."""
    return like("add", a, b)


def mul(a: Tensor, b: Tensor) -> Tensor:
    """Element-wise product, in the shape of ``a``."""
    return like("mul", a, b)


def glu(gate: Tensor, up: Tensor | None = None) -> Tensor:
    """A gated activation: of two tensors, or of the two halves of one."""
    if up is not None:
        return like("glu", gate, up)
    return Tensor("glu", (gate.ne[0] // 2, *gate.ne[1:]), srcs=(gate,))


def get_rows(table: Tensor, ids: Tensor, width: int = F32) -> Tensor:
    """Rows of a table."""
    return Tensor("get_rows", (table.ne[0], ids.ne[0], ids.ne[1], ids.ne[2]), width, (table, ids))


def view(a: Tensor, ne: tuple[int, ...], nb: tuple[int, ...] | None = None) -> Tensor:
    """A part of a tensor; ``nb`` holds the strides after the first, dense if not given."""
    shape: Shape = (*ne, 1, 1, 1, 1)[:4]  # type: ignore[assignment]
    strides: tuple[int, ...]
    if nb is None:
        strides = dense_strides(shape, a.nb[0])
    else:
        strides = (a.nb[0], *nb)
        while len(strides) < 4:
            strides = (*strides, strides[-1] * shape[len(strides) - 1])
    return Tensor("view", shape, srcs=(a,), root=a, nb=strides, nbytes=0)


def reshape(a: Tensor, *ne: int) -> Tensor:
    """Another shape of the same dense memory."""
    return Tensor("reshape", ne, srcs=(a,), root=a, nb=dense_strides((*ne, 1, 1, 1)[:4], a.nb[0]), nbytes=0)  # type: ignore[arg-type]


def permute(a: Tensor, *axes: int) -> Tensor:
    """Dimensions in another order: dimension ``i`` of ``a`` becomes dimension ``axes[i]``."""
    ne, nb = [1] * 4, [0] * 4
    for index, axis in enumerate(axes):
        ne[axis], nb[axis] = a.ne[index], a.nb[index]
    return Tensor("permute", tuple(ne), srcs=(a,), root=a, nb=tuple(nb), nbytes=0)


def transpose(a: Tensor) -> Tensor:
    """The first two dimensions swapped."""
    return permute(a, 1, 0, 2, 3)


def cont(a: Tensor, *ne: int) -> Tensor:
    """A dense copy, of another shape if one is given."""
    return Tensor("cont", ne or a.ne, F32, (a,))


def concat(a: Tensor, b: Tensor, axis: int = 0) -> Tensor:
    """Two tensors joined along an axis."""
    ne = list(a.ne)
    ne[axis] += b.ne[axis]
    return Tensor("concat", tuple(ne), srcs=(a, b))


def into(op: str, target: Tensor, *srcs: Tensor) -> Tensor:
    """An operation that writes into ``target`` (``cpy``, ``set_rows``): its result is a view of it."""
    return Tensor(op, target.ne, srcs=srcs, root=target, nb=target.nb, nbytes=0)


def top_k(scores: Tensor, k: int) -> Tensor:
    """Indices of the ``k`` largest of each row, by a full sort (``ggml_argsort_top_k``)."""
    order = Tensor("argsort", scores.ne, I32, (scores,))
    return view(order, (k, *order.ne[1:]), order.nb[1:])


@dataclass(frozen=True)
class WorstStep:
    """The worst case that llama.cpp reserves for (``llama_context::sched_reserve``)."""

    tokens: int  # Tokens of the micro-batch, a multiple of ``sequences``.
    sequences: int  # Sequences in it.
    outputs: int  # Tokens whose logits are wanted.
    cells: int  # Cells that a full-attention layer reads, per stream.
    window_cells: int  # Cells that a window layer reads, per stream.
    streams: int = 1  # Streams of the cache: 1 if unified.
    flash: bool = True  # True if caches are laid out for flash attention.
    # False if flash attention was found to run on another device than its layer and was disabled.
    fused: bool = True
    auto: bool = False  # True if that is checked (``--flash-attn auto``).
    # Width of the rotation of quantized keys in full and in window layers, 0 if none.
    rotated_keys: tuple[int, int] = (0, 0)
    rotated_values: tuple[int, int] = (0, 0)  # The same for values.
    wide_keys: bool = False  # True if the cache is in 32 bits and flash attention has to convert it.
    # Values per token of the widest layer, if the transposed cache pads to it, else 0.
    value_padding: int = 0
    rollback: int = 0  # Copies of a recurrent state kept for rollback.
    slots: int = 1  # Sequences that states are kept for.
    wide_masks: bool = False  # True if masks are filled in 32 bits and cast for flash attention.
    key_type: GgmlType = TYPES["f16"]  # Storage type of cached keys.
    value_type: GgmlType = TYPES["f16"]  # Storage type of cached values.


def linear(x: Tensor, width: int, home: int, *, biased: bool = False) -> Tensor:
    """A matrix of so many outputs times ``x``, at ``home``, and its bias where it is ``biased``."""
    cur = mul_mat(weight(x.ne[0], width, home=home), x)
    return add(cur, weight(width, home=home)) if biased else cur


def norm(x: Tensor, home: int, *, layer_norm: bool = False) -> Tensor:
    """A norm and its weight (``build_norm``): RMS, or a layer norm, which has a bias, too."""
    cur = mul(like("norm" if layer_norm else "rms_norm", x), weight(x.ne[0], home=home))
    return add(cur, weight(x.ne[0], home=home)) if layer_norm else cur
