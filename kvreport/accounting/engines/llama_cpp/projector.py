"""The compute graph of a vision projector: what llama.cpp reserves when it loads one.

Follows ``clip_graph::build_vit`` and the graphs of ``tools/mtmd/models`` (Qwen2-VL and its kin merge patches first)
of llama.cpp 0c1e57098, for the image with which the projector is warmed up. A larger image enlarges the buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvreport.accounting.engines.llama_cpp.planner import Backend, plan
from kvreport.accounting.engines.llama_cpp.tensors import (
    F16,
    F32,
    I32,
    Graph,
    Tensor,
    add,
    concat,
    cont,
    get_rows,
    glu,
    graph_input,
    like,
    linear,
    permute,
    reshape,
    transpose,
    view,
    weight,
)

if TYPE_CHECKING:
    from kvreport.accounting.engines.llama_cpp.inventory import LocalTensor


@dataclass(frozen=True)
class Projector:
    """A vision encoder with its projector."""

    tensors: tuple[LocalTensor, ...]
    side: int  # Patches per side of the image it is warmed up with.
    patch: int  # Pixels per side of a patch.
    hidden: int  # Width of a patch.
    inner: int  # Width inside the feed-forward network.
    heads: int  # Attention heads.
    layers: int
    merge: int = 1  # Patches per side that become one token.
    kernels: int = 1  # Convolutions over the image: two where frames are merged in pairs.
    kernel_width: int = F16  # Bytes of an element of the convolution's kernel.
    position: bool = False  # True if learned positions are added.
    entry_norm: bool = False  # True if the patches are normed before the first layer.
    exit_norm: bool = False  # True if they are normed after the last.
    class_patch: bool = False  # True if one more patch stands for the whole image.
    fused: bool = False  # True if queries, keys and values are one matrix.
    biased: bool = True  # True if matrices have biases.
    patch_biased: bool = False  # True if the convolution has a bias.
    gated: bool = False  # True if the feed-forward network has a gate.
    scaled: bool = False  # True if what a block adds is scaled first.
    turned: bool = False  # True if queries and keys are turned (rotary positions).
    windowed: bool = False  # True if some layers look into a window only.
    pairs_first: bool = False  # True if patches are put in the order of merging before the first layer.
    stacked: frozenset[int] = frozenset()  # Layers whose outputs go to the language model too.
    projection: tuple[int, ...] = ()  # Widths after each matrix of the projection.

    @property
    def weights(self) -> int:
        """Bytes of its tensors."""
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def compute(self) -> int:
        """Bytes of its compute buffer after loading, with flash attention."""
        return max(plan(_graph(self), (Backend(), Backend(32))))


def _graph(own: Projector) -> Graph:
    graph, patches = Graph(), own.side * own.side
    stream = _entrance(own, patches)
    tokens = patches + own.class_patch
    mask = None
    if own.windowed:
        mask = Tensor("cpy", (tokens, tokens), F16, (graph_input(tokens, tokens),))
        stream = _in_order(stream, own.hidden, tokens)
    if own.entry_norm:
        stream = _norm(stream, biased=own.biased)
    turns = graph_input(tokens * 4, width=I32) if own.turned else None
    gathered: Tensor | None = None
    for layer in range(own.layers):
        mixed = _attend(graph, own, _norm(stream, biased=own.biased), tokens, mask, turns)
        stream = add(_scaled(own, mixed), stream)
        stream = add(stream, _scaled(own, _feed(own, _norm(stream, biased=own.biased))))
        if layer in own.stacked:
            feature = _project(own, stream, patches, normed=True)
            gathered = feature if gathered is None else concat(gathered, feature)
    if own.exit_norm:
        stream = _norm(stream, biased=own.biased)
    if own.class_patch:
        stream = cont(view(stream, (own.hidden, patches), stream.nb[1:]), own.hidden, patches)
    stream = _project(own, stream, patches, normed=False)
    if own.windowed:
        stream = get_rows(stream, graph_input(stream.ne[1], width=I32))
    if gathered is not None:
        stream = concat(stream, gathered)
    stream.is_output = True
    graph.expand(stream)
    return graph


def _scaled(own: Projector, cur: Tensor) -> Tensor:
    return like("mul", cur, weight(own.hidden, home=0)) if own.scaled else cur


def _entrance(own: Projector, patches: int) -> Tensor:
    """The convolution over the image, as a matrix product over its unrolled patches."""
    image = graph_input(own.side * own.patch, own.side * own.patch, 3)
    elements = 3 * own.patch * own.patch
    parts = []
    for _ in range(own.kernels):
        rows = Tensor("im2col", (elements, own.side, own.side), own.kernel_width, (image,))
        kernel = Tensor("none", (elements, own.hidden), own.kernel_width, home=0, weight=True)
        product = Tensor("mul_mat", (patches, own.hidden), F32, (reshape(rows, elements, patches), kernel))
        parts.append(cont(product, own.side, own.side, own.hidden))
    stream = parts[0] if len(parts) == 1 else add(*parts)
    if own.pairs_first:
        stream = _paired(own, cont(permute(stream, 1, 2, 0, 3), own.hidden * 2, own.side // 2, own.side))
    else:
        stream = cont(transpose(reshape(stream, patches, own.hidden)), own.hidden, patches)
    if own.patch_biased:
        stream = add(stream, weight(own.hidden, home=0))
    if own.class_patch:
        stream = concat(stream, weight(own.hidden, 1, home=0), 1)
    if own.position:
        learned = weight(own.hidden, stream.ne[1], home=0)
        if own.pairs_first:
            wide = cont(learned, own.hidden * 2, own.side // 2, own.side)
            learned = _paired(own, wide)
        stream = add(stream, learned)
    return stream


def _paired(own: Projector, stream: Tensor) -> Tensor:
    cut = reshape(stream, own.hidden * 2, own.side // 2, 2, own.side // 2)
    return cont(permute(cut, 0, 2, 1, 3), own.hidden, own.side * own.side)


def _in_order(stream: Tensor, hidden: int, tokens: int) -> Tensor:
    rows = get_rows(reshape(stream, hidden * 4, tokens // 4), graph_input(tokens // 4, width=I32))
    return reshape(rows, hidden, tokens)


def _norm(stream: Tensor, *, biased: bool) -> Tensor:
    cur = like("mul", like("norm", stream), weight(stream.ne[0], home=0))
    return add(cur, weight(stream.ne[0], home=0)) if biased else cur


def _attend(
    graph: Graph, own: Projector, cur: Tensor, tokens: int, mask: Tensor | None, turns: Tensor | None
) -> Tensor:
    width = own.hidden // max(own.heads, 1)
    shape = (width, own.heads, tokens)
    if own.fused:
        whole = linear(cur, own.hidden * 3, 0, biased=own.biased)
        parts = [view(whole, shape, (width * F32, whole.nb[1])) for _ in range(3)]
    else:
        parts = [reshape(linear(cur, own.hidden, 0, biased=own.biased), *shape) for _ in range(3)]
    if turns is not None:
        parts = [like("rope", part, turns) if index < 2 else part for index, part in enumerate(parts)]
    for part in parts:
        graph.expand(part)
    query, *others = (permute(part, 0, 2, 1, 3) for part in parts)
    halves = [Tensor("cpy", part.ne, F16, (part,)) for part in others]
    srcs = (query, *halves) if mask is None else (query, *halves, mask)
    mixed = Tensor("flash_attn", shape, F32, srcs)
    return linear(reshape(mixed, own.hidden, tokens), own.hidden, 0, biased=own.biased)


def _feed(own: Projector, cur: Tensor) -> Tensor:
    upper = linear(cur, own.inner, 0, biased=own.biased)
    gate = linear(cur, own.inner, 0, biased=own.biased) if own.gated else None
    upper = like("unary", upper) if gate is None else glu(gate, upper)
    return linear(upper, own.hidden, 0, biased=own.biased)


def _project(own: Projector, stream: Tensor, patches: int, *, normed: bool) -> Tensor:
    area = own.merge * own.merge
    tokens = max(patches // area, 1)
    if area > 1:
        merged = reshape(stream, own.hidden * area, tokens)
        stream = merged if own.pairs_first else cont(merged)
    if normed:
        stream = _norm(stream, biased=own.biased)
    for index, wide in enumerate(own.projection):
        if index:
            stream = like("unary", stream)
        stream = linear(stream, wide, 0, biased=True)
    return stream
