"""Feed-forward networks and mixtures of experts (``build_ffn``, ``build_moe_ffn``)."""

from __future__ import annotations

from dataclasses import dataclass

from kvreport.accounting.engines.llama_cpp.network import FeedForward, Mixture
from kvreport.accounting.engines.llama_cpp.tensors import (
    F32,
    Graph,
    Tensor,
    add,
    get_rows,
    glu,
    like,
    linear,
    mul,
    mul_mat,
    mul_mat_id,
    norm,
    reshape,
    top_k,
    view,
    weight,
)


@dataclass(frozen=True)
class FeedHomes:
    """Backends that hold the matrices of a feed-forward network or of its routed experts.

    Attributes:
        up: Backend of the up projection.
        gate: Backend of the gate, and of gate and up where they are one matrix.
        down: Backend of the down projection.
    """

    up: int
    gate: int
    down: int

    @classmethod
    def all_on(cls, home: int) -> FeedHomes:
        """Everything on one backend."""
        return cls(home, home, home)


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


def mixture(graph: Graph, moe: Mixture, x: Tensor, residual: Tensor, home: int, experts: FeedHomes) -> Tensor:
    """A mixture of experts with what runs beside it.

    Args:
        graph: The graph that is planned.
        moe: The layer.
        x: The residual stream.
        residual: The stream before the norm, which Gemma 4's router reads.
        home: Where the layer computes.
        experts: Where its experts lie.
    """
    if moe.dense_beside is not None:
        return _beside_dense(graph, moe, x, residual, home, experts)
    logits = mul_mat(weight(x.ne[0], moe.experts, home=home), x)
    out = _experts(graph, moe, x, logits, home, experts)
    if moe.shared is None:
        return out
    shared = feed_forward(moe.shared, x, FeedHomes.all_on(home))
    if moe.shared_gate:
        gate = like("unary", mul_mat(weight(x.ne[0], 1, home=home), x))
        shared = mul(shared, gate)
    return add(out, shared)


def _beside_dense(
    graph: Graph, moe: Mixture, x: Tensor, residual: Tensor, home: int, experts: FeedHomes
) -> Tensor:
    """Gemma 4: a dense network and experts, each between norms of its own, router on the residual."""
    dense = (
        x
        if moe.dense_beside is None
        else norm(feed_forward(moe.dense_beside, x, FeedHomes.all_on(home)), home)
    )
    source = norm(residual, home)
    routed = like("scale", like("rms_norm", residual))
    routed = mul(routed, weight(residual.ne[0], home=home))
    logits = mul_mat(weight(residual.ne[0], moe.experts, home=home), routed)
    cur = norm(_experts(graph, moe, source, logits, home, experts), home)
    return add(dense, cur)


def _experts(graph: Graph, moe: Mixture, x: Tensor, logits: Tensor, home: int, experts: FeedHomes) -> Tensor:
    hidden, tokens = x.ne[0], x.ne[1]
    if moe.biased:
        logits = add(logits, weight(moe.experts, home=home))
    weights, chosen = _route(graph, moe, logits, home)
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
    graph.expand(out)
    return _sum_experts(graph, moe, out)


def _route(graph: Graph, moe: Mixture, logits: Tensor, home: int) -> tuple[Tensor, Tensor]:
    tokens = logits.ne[1]
    probs = logits
    if not moe.softmax_after:
        probs = like("unary", logits) if moe.probs_bias or moe.weight_first else like("soft_max", logits)
    selection = add(probs, weight(moe.experts, home=home)) if moe.probs_bias else probs
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
    graph.expand(weights)
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
