"""Several residual streams of which one is computed and the others are predicted and corrected (Gemma 3n).

``src/models/gemma3n.cpp`` of llama.cpp 0c1e57098.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kvreport.accounting.engines.llama_cpp.network import FeedForward, Network
from kvreport.accounting.engines.llama_cpp.tensors import (
    F32,
    Tensor,
    add,
    concat,
    cont,
    like,
    mul,
    mul_mat,
    norm,
    permute,
    reshape,
    transpose,
    view,
    weight,
)

SPARSE_LAYERS: Final = 10
"""First layers whose gate keeps only its largest values (``n_layer_sparsity`` of ``src/models/models.h``)."""

_STREAM_AXIS: Final = 2


def stacked(network: Network, stream: Tensor, home: int) -> Tensor:
    """All streams from the embedding: the others are projections with its magnitude."""
    others = network.streams - 1
    target = _magnitude(stream)
    repeated = Tensor("repeat", (*stream.ne[:2], others), srcs=(stream,))
    added = mul_mat(weight(network.hidden, network.hidden, others, home=home), repeated)
    return concat(stream, _scaled(added, target), _STREAM_AXIS)


def merged(network: Network, streams: Tensor, home: int) -> Tensor:
    """The mean of all streams, after the others are projected back."""
    others = network.streams - 1
    target = _magnitude(_one(streams))
    back = mul_mat(weight(network.hidden, network.hidden, others, home=home), _others(streams))
    back = _scaled(back, target)
    cur = _one(streams)
    for _ in range(others):
        cur = add(cur, _one(back))
    return like("scale", cur)


def layer(
    network: Network,
    feed: FeedForward,
    streams: Tensor,
    per_layer: Tensor,
    home: int,
    index: int,
    mix: Callable[[Tensor], Tensor],
) -> Tensor:
    """One layer.

    Args:
        network: The network.
        feed: The layer's feed-forward network.
        streams: All streams.
        per_layer: Per-layer embeddings.
        home: Backend of the layer.
        index: The layer.
        mix: The layer's attention.
    """
    hidden, tokens = network.hidden, streams.ne[1]
    predictions = _predicted(network, streams, home)
    active = _one(predictions)
    cur = norm(active, home)
    low = mul_mat(weight(hidden, network.low_rank, home=home), cur)
    beside = add(norm(mul_mat(weight(network.low_rank, hidden, home=home), low), home), cur)
    cur = add(norm(mix(cur), home), active)
    both = like("scale", add(cur, beside))
    cur = norm(both, home)
    up = mul_mat(weight(hidden, feed.width, home=home), cur)
    gate = mul_mat(weight(hidden, feed.width, home=home), cur)
    if index < SPARSE_LAYERS:
        gate = _largest(gate)
    cur = mul(up, like("unary", gate))
    cur = norm(mul_mat(weight(feed.width, hidden, home=home), cur), home)
    corrected = _corrected(network, predictions, add(cur, both), home)
    first = mul(_one(corrected), weight(hidden, home=home))
    first = like("unary", mul_mat(weight(hidden, network.per_layer, home=home), first))
    first = mul(first, view(per_layer, (network.per_layer, tokens), (network.per_layer * F32,)))
    first = norm(mul_mat(weight(network.per_layer, hidden, home=home), first), home)
    return concat(_one(corrected), add(_others(corrected), first), _STREAM_AXIS)


def _one(streams: Tensor) -> Tensor:
    return view(streams, streams.ne[:2], (streams.ne[0] * F32,))


def _others(streams: Tensor) -> Tensor:
    hidden, tokens, count, _ = streams.ne
    return view(streams, (hidden, tokens, count - 1), (hidden * F32, hidden * tokens * F32))


def _magnitude(x: Tensor) -> Tensor:
    return like("sqrt", Tensor("sum_rows", (1, *x.ne[1:]), srcs=(like("sqr", x),)))


def _scaled(x: Tensor, target: Tensor) -> Tensor:
    magnitude = _magnitude(x)
    return like("div", mul(x, target), magnitude)


def _router(network: Network, x: Tensor, home: int) -> Tensor:
    routed = like("scale", norm(x, home))
    return like("unary", mul_mat(weight(network.hidden, network.streams, home=home), routed))


def _predicted(network: Network, streams: Tensor, home: int) -> Tensor:
    count, tokens = network.streams, streams.ne[1]
    shares = mul_mat(weight(count, count * count, home=home), _router(network, _one(streams), home))
    shares = reshape(shares, count, count, tokens)
    mixed = mul_mat(cont(permute(streams, 1, 2, 0, 3)), shares)
    return add(cont(permute(mixed, 0, 2, 1, 3)), streams)


def _corrected(network: Network, predictions: Tensor, computed: Tensor, home: int) -> Tensor:
    count, tokens = network.streams, predictions.ne[1]
    routed = _router(network, computed, home)
    difference = like("sub", computed, _one(predictions))
    shares = like("scale", mul_mat(weight(count, count, home=home), routed))
    shares = cont(transpose(shares), 1, tokens, count)
    repeated = Tensor("repeat", predictions.ne, srcs=(difference,))
    return add(mul(repeated, shares), predictions)


def _largest(x: Tensor) -> Tensor:
    mean = Tensor("mean", (1, *x.ne[1:]), srcs=(x,))
    squares = Tensor("sum_rows", (1, *x.ne[1:]), srcs=(like("sqr", like("sub", x, mean)),))
    deviation = like("sqrt", like("scale", squares))
    return like("unary", like("sub", x, add(mean, like("scale", deviation))))
