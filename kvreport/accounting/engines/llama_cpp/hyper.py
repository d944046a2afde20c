"""Hyper-connections: residual streams that every mixer and feed-forward network reads mixed and writes back to.

Follows ``build_hc_mix``, ``build_hc_combine``, ``build_inp_ple`` and ``build_ple`` of ``src/models/qwen4exp.cpp`` of
llama.cpp 0c1e57098. A layer may add embeddings of the last tokens together (n-grams), from a table in host memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvreport.accounting.engines.llama_cpp.attention import AttentionInputs
from kvreport.accounting.engines.llama_cpp.network import Block, Hyper, Network, Ngram, Recurrence
from kvreport.accounting.engines.llama_cpp.recurrent import RecurrentPlace
from kvreport.accounting.engines.llama_cpp.tensors import (
    F16,
    F32,
    I32,
    Graph,
    Tensor,
    add,
    cont,
    get_rows,
    graph_input,
    like,
    mul,
    mul_mat,
    reshape,
    transpose,
    view,
    weight,
)

Compute = Callable[[Block, Tensor], Tensor]


@dataclass(frozen=True)
class At:
    """Where a layer stands.

    Attributes:
        graph: The graph that is planned.
        inputs: What every layer reads.
        hyper: The model's streams.
        home: Where the layer computes.
        cache_home: Where its states lie.
    """

    graph: Graph
    inputs: AttentionInputs
    hyper: Hyper
    home: int
    cache_home: int


def stacked(hyper: Hyper, stream: Tensor) -> Tensor:
    """All streams from the embedding, equal at first."""
    hidden, tokens = stream.ne[:2]
    return Tensor("repeat", (hidden, hyper.streams, tokens), srcs=(reshape(stream, hidden, 1, tokens),))


def embedded(graph: Graph, network: Network, tokens: int, cpu: int) -> Tensor | None:
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


def layer(
    at: At,
    block: Block,
    streams: Tensor,
    table: Tensor | None,
    picked: Tensor | None,
    run: tuple[Compute, Compute],
) -> Tensor:
    """One layer: mixer and feed-forward network, each between a mix of the streams and their update.

    Args:
        at: Where the layer stands.
        block: The layer.
        streams: All streams, ``[hidden, streams, tokens]``.
        table: Embeddings of n-grams.
        picked: Rows of the tokens that are wanted, in the last layer.
        run: What computes the mixer and what computes the feed-forward network.
    """
    if block.ngram is not None and table is not None:
        streams = _with_ngrams(at, block.ngram, streams, table)
    cur, shares = _mixed(at, streams)
    at.graph.expand(cur)
    cur = run[0](block, cur)
    if picked is not None:
        cur, shares = get_rows(cur, picked), get_rows(shares, picked)
        hidden, count, tokens = streams.ne[:3]
        flat = get_rows(reshape(streams, hidden * count, tokens), picked)
        streams = reshape(flat, hidden, count, flat.ne[1])
    streams = _updated(streams, cur, shares)
    cur, shares = _mixed(at, streams)
    return _updated(streams, run[1](block, cur), shares)


def merged(hyper: Hyper, streams: Tensor, home: int) -> Tensor:
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


def _mixed(at: At, streams: Tensor) -> tuple[Tensor, Tensor]:
    """The layer's input, and what each stream gets of its output."""
    hidden, count, tokens = streams.ne[:3]
    normed, gate = _gate(at.hyper, streams, at.home)
    parts = (reshape(normed, hidden, count, tokens), reshape(gate, hidden, count, tokens))
    mixed = Tensor("hc_pre", (hidden, tokens), srcs=parts)
    return mixed, mul_mat(weight(hidden * count, count, home=at.home), normed)


def _updated(streams: Tensor, out: Tensor, shares: Tensor) -> Tensor:
    shares = like("scale", like("unary", like("scale", shares)))
    return Tensor("hc_post", streams.ne, srcs=(out, streams, shares))


def _normed(streams: Tensor, home: int) -> Tensor:
    return mul(like("rms_norm", streams), weight(*streams.ne[:2], home=home))


def _with_ngrams(at: At, ngram: Ngram, streams: Tensor, table: Tensor) -> Tensor:
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


def _convolved(at: At, ngram: Ngram, x: Tensor) -> Tensor:
    """A dilated convolution over the last tokens, as a sum of shifted copies."""
    wide, kernel = x.ne[0], ngram.kernel
    kept = Recurrence("short_conv", ngram.history, 0, 0, 1, 1, conv_elements=ngram.history * wide)
    place = RecurrentPlace(at.graph, at.inputs, kept, at.home, at.cache_home)
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
