"""llama.cpp's compute graph of a network, built node by node.

Every function follows the one of the same name in ``src/llama-graph.cpp`` or in ``src/models/*.cpp`` of llama.cpp
0c1e57098: the order of nodes and what may be written in place decide the size of the compute buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kvreport.accounting.engines.llama_cpp import recurrent, residuals
from kvreport.accounting.engines.llama_cpp.attention_blocks import (
    AttentionInputs,
    Place,
    attention,
    latent_attention,
)
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
from kvreport.accounting.engines.llama_cpp.placement import FeedHomes, Placement
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
    glu,
    graph_input,
    like,
    linear,
    mul,
    mul_mat,
    mul_mat_id,
    norm,
    permute,
    reshape,
    top_k,
    view,
    weight,
)


def build_graph(network: Network, step: WorstStep, homes: Placement) -> Graph:
    """The graph of one step.

    ``step``: tokens, sequences, outputs and cells of the step. ``homes``: where weights and caches are.
    """
    return _Builder(network, step, homes).build()


class _Builder:
    """A graph while it is built."""

    def __init__(self, network: Network, step: WorstStep, homes: Placement) -> None:
        self.graph, self.network, self.step, self.homes = Graph(), network, step, homes

    def build(self) -> Graph:
        network, homes = self.network, self.homes
        stream = self._embed()
        inputs = AttentionInputs(self.step, network)
        rows = graph_input(self.step.outputs, width=I32)
        layers = [_At(self.graph, homes, inputs, index) for index in range(len(network.blocks))]
        per_layer = self._per_layer_inputs(stream) if network.per_layer else None
        if network.hyper is not None:
            self._in_connections(network.hyper, layers, stream, rows)
            return self.graph
        if network.streams > 1 and per_layer is not None:
            stream = self._in_streams(layers, stream, per_layer)
        else:
            early = not (network.late_rows or network.late_before_norm)
            for at, block in zip(layers, network.blocks, strict=True):
                stream = _layer(at, block, stream, rows if at is layers[-1] and early else None)
                if per_layer is not None:
                    stream = self._per_layer_embedding(at.home, stream, per_layer)
                if block.out_scaled:
                    stream = mul(stream, at.weight(1))
        self._head(stream, rows)
        return self.graph

    def _in_streams(self, layers: Sequence[_At], stream: Tensor, per_layer: Tensor) -> Tensor:
        """The layers of a model with several residual streams."""
        network = self.network
        streams = residuals.alternating_stacked(network, stream, self.homes.layers[0])
        for at, block in zip(layers, network.blocks, strict=True):
            mix = partial(_mix, at, block)
            streams = residuals.alternating_layer(network, at.index, streams, per_layer, at.home, mix)
        return residuals.alternating_merged(network, streams, self.homes.output)

    def _in_connections(self, joined: Hyper, layers: Sequence[_At], stream: Tensor, rows: Tensor) -> None:
        """The layers and the head of a model with hyper-connections (``qwen4exp.cpp``)."""
        table = residuals.ngrams_embedded(self.graph, self.network, self.step.tokens, self.homes.cpu)
        streams = residuals.connected_stacked(joined, stream)
        for at, block in zip(layers, self.network.blocks, strict=True):
            if block.ngram is not None and table is not None:
                streams = residuals.with_ngrams(at, block.ngram, streams, table)
            run = (partial(_mix, at, block), partial(_fed, at, block))
            picked = rows if at is layers[-1] else None
            streams = residuals.connected_layer(at, joined, streams, picked, run)
        cur = residuals.connected_merged(joined, streams, self.homes.output)
        cur.is_output = True
        self._logits(cur)

    def _embed(self) -> Tensor:
        network = self.network
        tokens = graph_input(self.step.tokens, width=I32)
        given = graph_input(network.hidden, self.step.tokens)
        stream = get_rows(weight(network.hidden, network.vocabulary, home=self.homes.cpu), tokens)
        self.graph.expand(stream)
        if network.predicts:
            return self._joined_with_state(stream)
        self.graph.expand(given)
        if network.learned_positions:
            positions = graph_input(self.step.tokens, width=I32)
            stream = add(stream, get_rows(weight(network.hidden, 1 << 11, home=self.homes.cpu), positions))
        return stream

    def _joined_with_state(self, embedding: Tensor) -> Tensor:
        """What a prediction block reads: the trunk's last state and the token's embedding, normed and projected."""
        home, hidden = self.homes.layers[0], self.network.hidden
        state = norm(graph_input(hidden, self.step.tokens), home)
        both = concat(norm(embedding, home), state)
        return mul_mat(weight(2 * hidden, hidden, home=home), both)

    def _head(self, stream: Tensor, rows: Tensor) -> None:
        network, home = self.network, self.homes.output
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
        self._logits(cur)

    def _logits(self, cur: Tensor) -> None:
        logits = mul_mat(weight(self.network.hidden, self.network.vocabulary, home=self.homes.output), cur)
        logits.is_output = True
        self.graph.expand(logits)

    def _per_layer_inputs(self, stream: Tensor) -> Tensor:
        """Gemma 4's per-layer embeddings, projected and laid out by layer (``project_per_layer_inputs``)."""
        layers, width = len(self.network.blocks), self.network.per_layer
        tokens = graph_input(self.step.tokens, width=I32)
        table = get_rows(weight(width * layers, self.network.vocabulary, home=self.homes.cpu), tokens)
        table = like("scale", reshape(table, width, layers, self.step.tokens))
        self.graph.expand(table)
        first = self.homes.layers[0]
        projected = like("scale", mul_mat(weight(self.network.hidden, width * layers, home=first), stream))
        projected = norm(reshape(projected, width, layers, self.step.tokens), first)
        merged = like("scale", add(projected, table))
        return cont(permute(merged, 0, 2, 1, 3))

    def _per_layer_embedding(self, home: int, stream: Tensor, per_layer: Tensor) -> Tensor:
        width = self.network.per_layer
        cur = like("unary", mul_mat(weight(self.network.hidden, width, home=home), stream))
        cur = mul(cur, view(per_layer, (width, self.step.tokens), (width * F32,)))
        cur = norm(mul_mat(weight(width, self.network.hidden, home=home), cur), home)
        return add(stream, cur)


def _fed(at: _At, block: Block, cur: Tensor) -> Tensor:
    return _feed(at, block, cur, cur)


class _At(Place):
    """Where a layer stands in its network."""

    def __init__(self, graph: Graph, homes: Placement, inputs: AttentionInputs, index: int) -> None:
        super().__init__(graph, inputs, homes.layers[index], homes.caches[index])
        self.homes, self.index = homes, index


def _layer(at: _At, block: Block, stream: Tensor, picked: Tensor | None) -> Tensor:
    layered = block.normal == "layer"
    kept = stream
    cur = at.norm(stream, layer_norm=layered) if block.pre_norms else stream
    normed = cur
    if isinstance(block.mixer, Recurrence) and block.mixer.mechanism in ("gated_deltanet", "kda"):
        at.graph.expand(cur)
    if block.mixer is not None:
        cur = _mix(at, block, cur)
        if block.second is not None:
            cur = add(cur, _mixed(at, block.second, at.norm(stream)))
    if picked is not None:
        cur, kept = get_rows(cur, picked), get_rows(kept, picked)
        if block.parallel:
            normed = get_rows(normed, picked)
    if block.parallel:
        return _parallel(at, block, kept, normed, cur)
    if block.mixer is not None:
        if block.post_norms:
            cur = at.norm(cur)
        kept = add(kept, cur) if block.residual_first in ("mixer", "both") else add(cur, kept)
        if block.feed is None:
            return kept
        cur = at.norm(kept, layer_norm=layered) if block.pre_norms else kept
    if block.feed is not None:
        cur = _feed(at, block, cur, kept)
        if block.post_norms:
            cur = at.norm(cur)
        return add(kept, cur) if block.residual_first in ("feed", "both") else add(cur, kept)
    return cur


def _parallel(at: _At, block: Block, kept: Tensor, normed: Tensor, mixed: Tensor) -> Tensor:
    source = at.norm(kept, layer_norm=block.normal == "layer") if block.own_norm else normed
    fed = _feed(at, block, source, kept)
    return add(add(mixed, fed), kept) if block.mixer_first else add(add(fed, kept), mixed)


def _mix(at: _At, block: Block, cur: Tensor) -> Tensor:
    return cur if block.mixer is None else _mixed(at, block.mixer, cur)


def _mixed(at: _At, mixer: Attention | LatentAttention | Recurrence, cur: Tensor) -> Tensor:
    if isinstance(mixer, Attention):
        return attention(at, mixer, cur)
    if isinstance(mixer, LatentAttention):
        return latent_attention(at, mixer, cur)
    return recurrent.layer(at, mixer, cur)


def _feed(at: _At, block: Block, cur: Tensor, residual: Tensor) -> Tensor:
    feed = block.feed
    if feed is None:
        return cur
    if isinstance(feed, Mixture):
        return mixture(at, feed, cur, residual, at.homes.experts[at.index])
    return feed_forward(feed, cur, at.homes.dense[at.index])


def feed_forward(feed: FeedForward, x: Tensor, homes: FeedHomes) -> Tensor:
    """A dense network: up, gate, activation, down."""
    hidden = x.ne[0]
    biased = feed.biased
    up = linear(x, feed.width * (2 if feed.fused else 1), homes.up, biased=biased)
    if feed.fused:
        cur = glu(up)
    elif feed.gated:
        cur = glu(linear(x, feed.width, homes.gate, biased=biased), up)
    else:
        cur = like("unary", up)
    return linear(cur, hidden, homes.down, biased=biased)


def mixture(at: Place, moe: Mixture, x: Tensor, residual: Tensor, experts: FeedHomes) -> Tensor:
    """A mixture of experts with what runs beside it.

    ``residual``: the stream before the norm, which Gemma 4's router reads. ``experts``: where its experts lie.
    """
    if moe.dense_beside is not None:
        return _beside_dense(at, moe, x, residual, experts)
    logits = at.linear(x, moe.experts)
    out = _experts(at, moe, x, logits, experts)
    if moe.shared is None:
        return out
    shared = feed_forward(moe.shared, x, FeedHomes.all_on(at.home))
    if moe.shared_gate:
        gate = like("unary", at.linear(x, 1))
        shared = mul(shared, gate)
    return add(out, shared)


def _beside_dense(at: Place, moe: Mixture, x: Tensor, residual: Tensor, experts: FeedHomes) -> Tensor:
    """Gemma 4: a dense network and experts, each between norms of its own, router on the residual."""
    dense = (
        x
        if moe.dense_beside is None
        else at.norm(feed_forward(moe.dense_beside, x, FeedHomes.all_on(at.home)))
    )
    source = at.norm(residual)
    routed = like("scale", like("rms_norm", residual))
    routed = mul(routed, at.weight(residual.ne[0]))
    logits = mul_mat(at.weight(residual.ne[0], moe.experts), routed)
    cur = at.norm(_experts(at, moe, source, logits, experts))
    return add(dense, cur)


def _experts(at: Place, moe: Mixture, x: Tensor, logits: Tensor, experts: FeedHomes) -> Tensor:
    hidden, tokens = x.ne[0], x.ne[1]
    if moe.biased:
        logits = add(logits, at.weight(moe.experts))
    weights, chosen = _route(at, moe, logits)
    cur = reshape(x, hidden, 1, tokens)
    if moe.weight_first:
        cur = mul(Tensor("repeat", (hidden, moe.used, tokens), srcs=(cur,)), weights)
    cur = _expert_activation(moe, cur, chosen, experts)
    down = weight(moe.width, hidden, moe.experts, home=experts.down)
    out = mul_mat_id(down, cur, chosen)
    if moe.biased:
        out = like("add_id", out, weight(hidden, moe.experts, home=experts.down), chosen)
    if not moe.weight_first:
        out = mul(out, weights)
    at.graph.expand(out)
    return _sum_experts(at.graph, moe, out)


def _route(at: Place, moe: Mixture, logits: Tensor) -> tuple[Tensor, Tensor]:
    tokens = logits.ne[1]
    probs = logits
    if not moe.softmax_after:
        probs = like("unary", logits) if moe.probs_bias or moe.weight_first else like("soft_max", logits)
    selection = add(probs, at.weight(moe.experts)) if moe.probs_bias else probs
    if moe.weight_first:
        selection = logits
    chosen = top_k(selection, moe.used)
    weights = get_rows(reshape(probs, 1, moe.experts, tokens), chosen)
    if moe.softmax_after:
        weights = reshape(like("soft_max", reshape(weights, moe.used, tokens)), 1, moe.used, tokens)
    if moe.normed:
        flat = reshape(weights, moe.used, tokens)
        total = like("clamp", Tensor("sum_rows", (1, tokens), srcs=(flat,)))
        weights = reshape(like("div", flat, total), 1, moe.used, tokens)
    at.graph.expand(weights)
    return weights, chosen


def _expert_activation(moe: Mixture, cur: Tensor, chosen: Tensor, homes: FeedHomes) -> Tensor:
    hidden = cur.ne[0]
    if moe.fused:
        both = mul_mat_id(weight(hidden, 2 * moe.width, moe.experts, home=homes.gate), cur, chosen)
        shape = (moe.width, both.ne[1], both.ne[2])
        return glu(view(both, shape, both.nb[1:3]), view(both, shape, both.nb[1:3]))
    up = mul_mat_id(weight(hidden, moe.width, moe.experts, home=homes.up), cur, chosen)
    if moe.biased:
        up = like("add_id", up, weight(moe.width, moe.experts, home=homes.up), chosen)
    if not moe.gated:
        cur = like("unary", up)
        return like("sqr", cur) if moe.squared else cur
    gate = mul_mat_id(weight(hidden, moe.width, moe.experts, home=homes.gate), cur, chosen)
    if moe.biased:
        gate = like("add_id", gate, weight(moe.width, moe.experts, home=homes.gate), chosen)
    return glu(gate, up)


def _sum_experts(graph: Graph, moe: Mixture, out: Tensor) -> Tensor:
    hidden, tokens = out.ne[0], out.ne[2]
    parts = [view(out, (hidden, tokens), (out.nb[2],)) for _ in range(moe.used)]
    for part in parts:
        graph.expand(part)
    total = parts[0]
    for part in parts[1:]:
        total = Tensor("add", (hidden, tokens), F32, (total, part))
        graph.expand(total)
    if moe.used == 1:
        total = Tensor("cont", (hidden, tokens), F32, (total,))
    return total
