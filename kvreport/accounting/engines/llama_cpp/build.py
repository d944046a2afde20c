"""llama.cpp's compute graph of a network, built node by node.

Every function follows the one of the same name in ``src/llama-graph.cpp`` or in ``src/models/*.cpp`` of llama.cpp
0c1e57098: the order of nodes and what may be written in place decide the size of the compute buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kvreport.accounting.engines.llama_cpp import altup, hyper, recurrent
from kvreport.accounting.engines.llama_cpp.attention import AttentionInputs, attention, latent_attention
from kvreport.accounting.engines.llama_cpp.feed import feed_forward, mixture
from kvreport.accounting.engines.llama_cpp.network import (
    Attention,
    Block,
    FeedForward,
    Hyper,
    LatentAttention,
    Mixture,
    Network,
    Recurrence,
)
from kvreport.accounting.engines.llama_cpp.placement import Placement
from kvreport.accounting.engines.llama_cpp.tensors import (
    F32,
    I32,
    Graph,
    Tensor,
    WorstStep,
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
    view,
    weight,
)


def build_graph(network: Network, step: WorstStep, homes: Placement) -> Graph:
    """The graph of one step.

    ``step``: tokens, sequences, outputs and cells of the step. ``homes``: where weights and caches are.
    """
    graph = Graph()
    stream = _embed(graph, network, step, homes)
    inputs = AttentionInputs(step, network)
    rows = graph_input(step.outputs, width=I32)
    per_layer = _per_layer_inputs(graph, network, step, homes, stream) if network.per_layer else None
    last = len(network.blocks) - 1
    early = not (network.late_rows or network.late_before_norm)
    if network.hyper is not None:
        _in_connections(graph, network, network.hyper, step, homes, inputs, stream, rows)
        return graph
    if network.streams > 1 and per_layer is not None:
        stream = _in_streams(graph, network, step, homes, inputs, stream, per_layer)
        _head(graph, network, homes, stream, rows)
        return graph
    for index, block in enumerate(network.blocks):
        picked = rows if index == last and early else None
        stream = _layer(_At(graph, network, step, homes, inputs, index), block, stream, picked)
        if per_layer is not None:
            stream = _per_layer_embedding(network, step, homes, index, stream, per_layer)
        if block.out_scaled:
            stream = mul(stream, weight(1, home=homes.layers[index]))
    _head(graph, network, homes, stream, rows)
    return graph


def _in_streams(
    graph: Graph,
    network: Network,
    step: WorstStep,
    homes: Placement,
    inputs: AttentionInputs,
    stream: Tensor,
    per_layer: Tensor,
) -> Tensor:
    """The layers of a model with several residual streams."""
    streams = altup.stacked(network, stream, homes.layers[0])
    for index, block in enumerate(network.blocks):
        at = _At(graph, network, step, homes, inputs, index)
        feed = block.feed if isinstance(block.feed, FeedForward) else FeedForward(network.hidden)
        streams = altup.layer(network, feed, streams, per_layer, at.home, index, partial(_mix, at, block))
    return altup.merged(network, streams, homes.output)


def _in_connections(
    graph: Graph,
    network: Network,
    joined: Hyper,
    step: WorstStep,
    homes: Placement,
    inputs: AttentionInputs,
    stream: Tensor,
    rows: Tensor,
) -> None:
    """The layers and the head of a model with hyper-connections (``qwen4exp.cpp``)."""
    table = hyper.embedded(graph, network, step.tokens, homes.cpu)
    streams = hyper.stacked(joined, stream)
    last = len(network.blocks) - 1
    for index, block in enumerate(network.blocks):
        at = _At(graph, network, step, homes, inputs, index)
        where = hyper.At(graph, inputs, joined, at.home, homes.caches[index])
        run = (partial(_mix, at), partial(_fed, at))
        streams = hyper.layer(where, block, streams, table, rows if index == last else None, run)
    cur = hyper.merged(joined, streams, homes.output)
    cur.is_output = True
    _logits(graph, network, homes, cur)


def _fed(at: _At, block: Block, cur: Tensor) -> Tensor:
    return _feed(at, block, cur, cur)


def _embed(graph: Graph, network: Network, step: WorstStep, homes: Placement) -> Tensor:
    tokens = graph_input(step.tokens, width=I32)
    given = graph_input(network.hidden, step.tokens)
    stream = get_rows(weight(network.hidden, network.vocabulary, home=homes.cpu), tokens)
    graph.expand(stream)
    if network.predicts:
        return _joined_with_state(network, step, homes, stream)
    graph.expand(given)
    if network.learned_positions:
        positions = graph_input(step.tokens, width=I32)
        stream = add(stream, get_rows(weight(network.hidden, 1 << 11, home=homes.cpu), positions))
    return stream


def _joined_with_state(network: Network, step: WorstStep, homes: Placement, embedding: Tensor) -> Tensor:
    """What a prediction block reads: the trunk's last state and the token's embedding, normed and projected."""
    home, hidden = homes.layers[0], network.hidden
    state = norm(graph_input(hidden, step.tokens), home)
    both = concat(norm(embedding, home), state)
    return mul_mat(weight(2 * hidden, hidden, home=home), both)


@dataclass(frozen=True)
class _At:
    graph: Graph
    network: Network
    step: WorstStep
    homes: Placement
    inputs: AttentionInputs
    index: int

    @property
    def home(self) -> int:
        return self.homes.layers[self.index]


def _layer(at: _At, block: Block, stream: Tensor, picked: Tensor | None) -> Tensor:
    layered = block.normal == "layer"
    kept = stream
    cur = norm(stream, at.home, layer_norm=layered) if block.pre_norms else stream
    normed = cur
    if isinstance(block.mixer, Recurrence) and block.mixer.mechanism in ("gated_deltanet", "kda"):
        at.graph.expand(cur)
    if block.mixer is not None:
        cur = _mix(at, block, cur)
        if block.second is not None:
            cur = add(cur, _mixed(at, block.second, norm(stream, at.home)))
    if picked is not None:
        cur, kept = get_rows(cur, picked), get_rows(kept, picked)
        if block.parallel:
            normed = get_rows(normed, picked)
    if block.parallel:
        return _parallel(at, block, kept, normed, cur)
    if block.mixer is not None:
        if block.post_norms:
            cur = norm(cur, at.home)
        kept = add(kept, cur) if block.residual_first in ("mixer", "both") else add(cur, kept)
        if block.feed is None:
            return kept
        cur = norm(kept, at.home, layer_norm=layered) if block.pre_norms else kept
    if block.feed is not None:
        cur = _feed(at, block, cur, kept)
        if block.post_norms:
            cur = norm(cur, at.home)
        return add(kept, cur) if block.residual_first in ("feed", "both") else add(cur, kept)
    return cur


def _parallel(at: _At, block: Block, kept: Tensor, normed: Tensor, mixed: Tensor) -> Tensor:
    source = norm(kept, at.home, layer_norm=block.normal == "layer") if block.own_norm else normed
    fed = _feed(at, block, source, kept)
    return add(add(mixed, fed), kept) if block.mixer_first else add(add(fed, kept), mixed)


def _mix(at: _At, block: Block, cur: Tensor) -> Tensor:
    return cur if block.mixer is None else _mixed(at, block.mixer, cur)


def _mixed(at: _At, mixer: Attention | LatentAttention | Recurrence, cur: Tensor) -> Tensor:
    cache_home = at.homes.caches[at.index]
    if isinstance(mixer, Attention):
        return attention(at.graph, at.inputs, mixer, cur, at.home, cache_home)
    if isinstance(mixer, LatentAttention):
        return latent_attention(at.graph, at.inputs, mixer, cur, at.home, cache_home)
    return recurrent.layer(at.graph, at.inputs, mixer, cur, at.home, cache_home)


def _feed(at: _At, block: Block, cur: Tensor, residual: Tensor) -> Tensor:
    feed = block.feed
    if feed is None:
        return cur
    if isinstance(feed, Mixture):
        return mixture(at.graph, feed, cur, residual, at.home, at.homes.experts[at.index])
    return feed_forward(feed, cur, at.homes.dense[at.index])


def _head(graph: Graph, network: Network, homes: Placement, stream: Tensor, rows: Tensor) -> None:
    home = homes.output
    if network.late_before_norm:
        if network.hidden_output:
            stream.is_output = True
        stream = get_rows(stream, rows)
    cur = norm(stream, home, layer_norm=network.blocks[-1].normal == "layer")
    if network.late_rows:
        if network.hidden_output:
            cur.is_output = True
        cur = get_rows(cur, rows)
    cur.is_output = True
    _logits(graph, network, homes, cur)


def _logits(graph: Graph, network: Network, homes: Placement, cur: Tensor) -> None:
    logits = mul_mat(weight(network.hidden, network.vocabulary, home=homes.output), cur)
    logits.is_output = True
    graph.expand(logits)


def _per_layer_inputs(
    graph: Graph, network: Network, step: WorstStep, homes: Placement, stream: Tensor
) -> Tensor:
    """Gemma 4's per-layer embeddings, projected and laid out by layer (``project_per_layer_inputs``)."""
    layers, width = len(network.blocks), network.per_layer
    tokens = graph_input(step.tokens, width=I32)
    table = get_rows(weight(width * layers, network.vocabulary, home=homes.cpu), tokens)
    table = like("scale", reshape(table, width, layers, step.tokens))
    graph.expand(table)
    first = homes.layers[0]
    projected = like("scale", mul_mat(weight(network.hidden, width * layers, home=first), stream))
    projected = norm(reshape(projected, width, layers, step.tokens), first)
    merged = like("scale", add(projected, table))
    return cont(permute(merged, 0, 2, 1, 3))


def _per_layer_embedding(
    network: Network, step: WorstStep, homes: Placement, index: int, stream: Tensor, per_layer: Tensor
) -> Tensor:
    home, width = homes.layers[index], network.per_layer
    cur = like("unary", mul_mat(weight(network.hidden, width, home=home), stream))
    cur = mul(cur, view(per_layer, (width, step.tokens), (width * F32,)))
    cur = norm(mul_mat(weight(width, network.hidden, home=home), cur), home)
    return add(stream, cur)
