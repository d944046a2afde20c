"""Models with several residual streams.

With hyper-connections every mixer and feed-forward network reads the streams mixed and writes back to all of them:
``build_hc_mix``, ``build_hc_combine``, ``build_inp_ple`` and ``build_ple`` of ``src/models/qwen4exp.cpp`` of llama.cpp
0c1e57098. A layer may add embeddings of the last tokens together (n-grams), from a table in host memory. With alternating
updates one stream is computed, and the others are predicted and corrected: ``src/models/gemma3n.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kvreport.accounting.engines.llama_cpp.attention_blocks import Place
from kvreport.accounting.engines.llama_cpp.network import (
    FeedForward,
    Hyper,
    Network,
    Ngram,
    Recurrence,
)
from kvreport.accounting.engines.llama_cpp.recurrent import RecurrentPlace
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
    graph_input,
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

Compute = Callable[[Tensor], Tensor]


def connected_stacked(hyper: Hyper, stream: Tensor) -> Tensor:
    """All streams from the embedding, equal at first."""
    hidden, tokens = stream.ne[:2]
    return Tensor("repeat", (hidden, hyper.streams, tokens), srcs=(reshape(stream, hidden, 1, tokens),))


def ngrams_embedded(graph: Graph, network: Network, tokens: int, cpu: int) -> Tensor | None:
    """Rows of the table of n-grams for every token, side by side (``build_inp_ple``).

    ``tokens``: tokens of one micro-batch. ``cpu``: number of the host's backend, where the table lies.
    """
    ngram = next((block.ngram for block in network.blocks if block.ngram is not None), None)
    if ngram is None:
        return None
    rows = graph_input(ngram.width // ngram.row * tokens, width=I32)
    out = reshape(get_rows(weight(ngram.row, 1 << 16, home=cpu), rows), ngram.width, tokens)
    graph.expand(out)
    return out


def connected_layer(
    at: Place, hyper: Hyper, streams: Tensor, picked: Tensor | None, run: tuple[Compute, Compute]
) -> Tensor:
    """One layer: mixer and feed-forward network, each between a mix of the streams and their update.

    Args:
        at: Where the layer stands.
        hyper: The model's streams.
        streams: All streams, ``[hidden, streams, tokens]``.
        picked: Rows of the tokens that are wanted, in the last layer.
        run: What computes the layer's mixer and what computes its feed-forward network.
    """
    cur, shares = _mixed(at, hyper, streams)
    at.graph.expand(cur)
    cur = run[0](cur)
    if picked is not None:
        cur, shares = get_rows(cur, picked), get_rows(shares, picked)
        hidden, count, tokens = streams.ne[:3]
        flat = get_rows(reshape(streams, hidden * count, tokens), picked)
        streams = reshape(flat, hidden, count, flat.ne[1])
    streams = _updated(streams, cur, shares)
    cur, shares = _mixed(at, hyper, streams)
    return _updated(streams, run[1](cur), shares)


def connected_merged(hyper: Hyper, streams: Tensor, home: int) -> Tensor:
    """The output's mix, whose operation is never the fused one."""
    hidden, count, tokens = streams.ne[:3]
    normed, gate = _gate(hyper, streams, home)
    gated = reshape(mul(normed, like("unary", gate)), hidden, count, tokens)
    parts = [view(gated, (hidden, tokens), (hidden * count * F32,)) for _ in range(count)]
    cur = cont(parts[0])
    for part in parts[1:]:
        cur = add(cur, part)
    return like("scale", cur)


def _gate(hyper: Hyper, streams: Tensor, home: int) -> tuple[Tensor, Tensor]:
    hidden, count, tokens = streams.ne[:3]
    wide = hidden * count
    normed = reshape(_normed(streams, home), wide, tokens)
    low = mul_mat(weight(wide, hyper.rank, home=home), normed)
    return normed, mul_mat(weight(hyper.rank, wide, home=home), like("unary", like("scale", low)))


def _mixed(at: Place, hyper: Hyper, streams: Tensor) -> tuple[Tensor, Tensor]:
    """The layer's input, and what each stream gets of its output."""
    hidden, count, tokens = streams.ne[:3]
    normed, gate = _gate(hyper, streams, at.home)
    parts = (reshape(normed, hidden, count, tokens), reshape(gate, hidden, count, tokens))
    mixed = Tensor("hc_pre", (hidden, tokens), srcs=parts)
    return mixed, mul_mat(weight(hidden * count, count, home=at.home), normed)


def _updated(streams: Tensor, out: Tensor, shares: Tensor) -> Tensor:
    shares = like("scale", like("unary", like("scale", shares)))
    return Tensor("hc_post", streams.ne, srcs=(out, streams, shares))


def _normed(streams: Tensor, home: int) -> Tensor:
    return mul(like("rms_norm", streams), weight(*streams.ne[:2], home=home))


def with_ngrams(at: Place, ngram: Ngram, streams: Tensor, table: Tensor) -> Tensor:
    """All streams, ``[hidden, streams, tokens]``, with what the layer makes of a table of embedded n-grams."""
    hidden, count, tokens = streams.ne[:3]
    wide, home = hidden * count, at.home

    def grouped(x: Tensor) -> Tensor:
        return _normed(reshape(x, hidden, count, tokens), home)

    key = mul_mat(weight(ngram.width, wide, home=home), table)
    value = mul_mat(weight(ngram.width, hidden, home=home), table)
    key, query = grouped(key), grouped(streams)
    score = like("scale", Tensor("sum_rows", (1, count, tokens), srcs=(mul(key, query),)))
    size = like("sqrt", like("clamp", like("unary", score)))
    gate = like("unary", mul(like("unary", score), size))
    spread = Tensor("repeat", (hidden, count, tokens), srcs=(reshape(value, hidden, 1, tokens),))
    gated = mul(spread, gate)
    normed = reshape(grouped(reshape(gated, wide, tokens)), wide, tokens)
    convolved = _convolved(at, ngram, normed)
    convolved = reshape(cont(like("unary", convolved)), hidden, count, tokens)
    return add(streams, add(gated, convolved))


def _convolved(at: Place, ngram: Ngram, x: Tensor) -> Tensor:
    """A dilated convolution over the last tokens, as a sum of shifted copies."""
    wide, kernel = x.ne[0], ngram.kernel
    kept = Recurrence("short_conv", ngram.history, 0, 0, 1, 1, conv_elements=ngram.history * wide)
    place = RecurrentPlace(at, kept)
    per, sequences = place.per_sequence, place.sequences
    joined = place.carried(reshape(x, wide, per, sequences), wide, copied=True)
    total: Tensor | None = None
    for _ in range(kernel):
        shifted = cont(transpose(view(joined, (per, wide, sequences), joined.nb[1:3])))
        column = view(weight(kernel, wide, home=at.home), (1, wide), (kernel * F16,))
        column = reshape(Tensor("cont", (1, wide), F16, (column,)), wide)
        term = mul(shifted, Tensor("cast", (wide,), srcs=(column,)))
        total = term if total is None else add(total, term)
    return x if total is None else total


SPARSE_LAYERS: Final = 10
"""First layers whose gate keeps only its largest values (``n_layer_sparsity`` of ``src/models/models.h``)."""

_STREAM_AXIS: Final = 2


def alternating_stacked(network: Network, stream: Tensor, home: int) -> Tensor:
    """All streams from the embedding: the others are projections with its magnitude."""
    others = network.streams - 1
    target = _magnitude(stream)
    repeated = Tensor("repeat", (*stream.ne[:2], others), srcs=(stream,))
    added = mul_mat(weight(network.hidden, network.hidden, others, home=home), repeated)
    return concat(stream, _scaled(added, target), _STREAM_AXIS)


def alternating_merged(network: Network, streams: Tensor, home: int) -> Tensor:
    """The mean of all streams, after the others are projected back."""
    others = network.streams - 1
    target = _magnitude(_one(streams))
    back = mul_mat(weight(network.hidden, network.hidden, others, home=home), _others(streams))
    back = _scaled(back, target)
    cur = _one(streams)
    for _ in range(others):
        cur = add(cur, _one(back))
    return like("scale", cur)


def alternating_layer(
    network: Network,
    index: int,
    streams: Tensor,
    per_layer: Tensor,
    home: int,
    mix: Callable[[Tensor], Tensor],
) -> Tensor:
    """One layer.

    Args:
        network: The network.
        index: The layer.
        streams: All streams.
        per_layer: Per-layer embeddings.
        home: Backend of the layer.
        mix: The layer's attention.
    """
    hidden, tokens = network.hidden, streams.ne[1]
    fed = network.blocks[index].feed
    width = fed.width if isinstance(fed, FeedForward) else hidden
    predictions = _predicted(network, streams, home)
    active = _one(predictions)
    cur = norm(active, home)
    low = mul_mat(weight(hidden, network.low_rank, home=home), cur)
    beside = add(norm(mul_mat(weight(network.low_rank, hidden, home=home), low), home), cur)
    cur = add(norm(mix(cur), home), active)
    both = like("scale", add(cur, beside))
    cur = norm(both, home)
    up = mul_mat(weight(hidden, width, home=home), cur)
    gate = mul_mat(weight(hidden, width, home=home), cur)
    if index < SPARSE_LAYERS:
        gate = _largest(gate)
    cur = mul(up, like("unary", gate))
    cur = norm(mul_mat(weight(width, hidden, home=home), cur), home)
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
