"""Recurrent layers of llama.cpp's graphs: Mamba, Mamba-2, Gated DeltaNet, KDA, short convolutions.

From ``src/models/mamba-base.cpp``, ``delta-net-base.cpp``, ``qwen35moe.cpp``, ``kimi-linear.cpp`` and ``lfm2.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable

from kvreport.accounting.engines.llama_cpp.attention_blocks import Place
from kvreport.accounting.engines.llama_cpp.network import Recurrence
from kvreport.accounting.engines.llama_cpp.tensors import (
    F32,
    Tensor,
    add,
    cache,
    concat,
    cont,
    get_rows,
    glu,
    into,
    like,
    mul,
    mul_mat,
    reshape,
    transpose,
    view,
)

ReadRows = Callable[[Tensor, Tensor], Tensor]


def layer(place: Place, mixer: Recurrence, x: Tensor) -> Tensor:
    """One recurrent layer, from its normed input to its output projection."""
    at = RecurrentPlace(place, mixer)
    match mixer.mechanism:
        case "mamba1":
            return _mamba1(at, x)
        case "mamba2":
            return _mamba2(at, x)
        case "gated_deltanet":
            return _gated_deltanet(at, x)
        case "kda":
            return _kda(at, x)
        case "short_conv":
            return _short_conv(at, x)
        case _:
            return _linear_attention(at, x)


class RecurrentPlace(Place):
    """Where a recurrent layer stands: graph, dimensions and the states it reads and writes."""

    def __init__(self, place: Place, mixer: Recurrence) -> None:
        super().__init__(place.graph, place.inputs, place.home, place.cache_home)
        step = place.step
        copies = 1 + step.rollback
        self.mixer = mixer
        self.sequences = step.sequences
        self.per_sequence = step.tokens // step.sequences
        self.snapshots = copies if step.rollback else 1
        self.conv = cache(mixer.conv_elements, step.slots * copies, home=place.cache_home, width=F32)
        self.state = cache(mixer.state_elements, step.slots * copies, home=place.cache_home, width=F32)

    def read(self, states: Tensor, rows: ReadRows = get_rows) -> Tensor:
        """Rows of a state cache for the sequences of the batch (``build_rs``)."""
        size = states.ne[0]
        graph, inputs = self.graph, self.inputs
        table = reshape(states, size, states.ne[1])
        empty = view(table, (0, 1))
        graph.expand(into("scale", empty, empty))
        out = rows(table, inputs.states_read)
        graph.expand(out)
        rest = inputs.step.slots - self.sequences
        extra = get_rows(table, inputs.states_moved)
        graph.expand(into("cpy", view(states, (size, rest), (size * F32,)), extra))
        return out

    def carried(self, x: Tensor, channels: int, *, copied: bool = False) -> Tensor:
        """The kept columns and the new ones; the last of them are kept, copied first by some models."""
        mixer = self.mixer
        before = reshape(self.read(self.conv), mixer.conv, channels, self.sequences)
        joined = concat(before, transpose(x))
        for _ in range(self.snapshots):
            last = view(joined, (mixer.conv, channels, self.sequences), joined.nb[1:3])
            self.keep(cont(last) if copied else last, self.conv)
        return joined

    def keep(self, source: Tensor, states: Tensor) -> None:
        """Write new states back."""
        target = view(states, (states.ne[0], self.sequences), (states.nb[1],))
        self.graph.expand(into("cpy", target, source, target))


def _convolve(at: RecurrentPlace, x: Tensor, channels: int) -> Tensor:
    """The causal convolution with its carried columns; returns its raw output."""
    return _convolved(at, at.carried(x, channels), channels)


def _convolved(at: RecurrentPlace, joined: Tensor, channels: int) -> Tensor:
    kernel = at.weight(at.mixer.conv + 1, channels)
    return Tensor("ssm_conv", (channels, at.per_sequence, at.sequences), srcs=(joined, kernel))


def _short_conv(at: RecurrentPlace, x: Tensor) -> Tensor:
    hidden = x.ne[0]
    x = reshape(x, hidden, at.per_sequence, at.sequences)
    both = at.linear(x, 3 * hidden)
    shape = (hidden, both.ne[1], both.ne[2])
    b, c, gate = (view(both, shape, both.nb[1:3]) for _ in range(3))
    mixed = mul(b, gate)
    out = _convolve(at, mixed, hidden)
    out = mul_mat(at.weight(hidden, hidden), mul(c, out))
    return reshape(out, hidden, at.per_sequence * at.sequences)


def _mamba1(at: RecurrentPlace, x: Tensor) -> Tensor:
    mixer, hidden, inner = at.mixer, x.ne[0], at.mixer.inner
    carried = reshape(at.read(at.conv), mixer.conv, inner, at.sequences)
    x = reshape(x, hidden, at.per_sequence, at.sequences)
    both = at.linear(x, 2 * inner)
    u = view(both, (inner, both.ne[1], both.ne[2]), both.nb[1:3])
    z = view(both, (inner, both.ne[1], both.ne[2]), both.nb[1:3])
    joined = concat(carried, transpose(u))
    at.keep(view(joined, (mixer.conv, inner, at.sequences), joined.nb[1:3]), at.conv)
    u = like("unary", add(_convolved(at, joined, inner), at.weight(inner)))
    rest = mul_mat(at.weight(inner, mixer.rank + 2 * mixer.state), u)
    dt = view(rest, (mixer.rank, at.per_sequence, at.sequences), rest.nb[1:3])
    b, c = (
        view(
            rest, (mixer.state, 1, at.per_sequence, at.sequences), (mixer.state * F32, rest.nb[1], rest.nb[2])
        )
        for _ in range(2)
    )
    if mixer.normed:
        dt, b, c = at.norm(dt), at.norm(b), at.norm(c)
    else:
        dt = cont(dt)
    dt = add(mul_mat(at.weight(mixer.rank, inner), dt), at.weight(inner))
    heads = reshape(u, 1, inner, at.per_sequence, at.sequences)
    scanned = _scan(at, heads, dt, b, c)
    flat = view(scanned, (mixer.state * inner * at.sequences,))
    at.keep(flat, at.state)
    y = view(scanned, (inner, at.per_sequence, at.sequences), heads.nb[2:4])
    y = Tensor("add", y.ne, srcs=(y, mul(u, at.weight(inner))))
    y = glu(cont(z), y)
    out = mul_mat(at.weight(inner, hidden), y)
    return reshape(out, hidden, at.per_sequence * at.sequences)


def _scan(at: RecurrentPlace, x: Tensor, dt: Tensor, b: Tensor, c: Tensor) -> Tensor:
    mixer = at.mixer
    decay = at.weight(mixer.state, mixer.heads)

    def rows(table: Tensor, ids: Tensor) -> Tensor:
        states = view(table, (mixer.state, x.ne[0], x.ne[1], table.ne[1]))
        size = x.count + at.snapshots * mixer.state_elements * at.sequences
        return Tensor("ssm_scan", (size,), srcs=(states, x, dt, decay, b, c, ids))

    return at.read(at.state, rows)


def _mamba2(at: RecurrentPlace, x: Tensor) -> Tensor:
    mixer, hidden, inner = at.mixer, x.ne[0], at.mixer.inner
    head_dim, channels = inner // mixer.heads, inner + 2 * mixer.groups * mixer.state
    carried = reshape(at.read(at.conv), mixer.conv, channels, at.sequences)
    both = at.linear(x, inner + channels + mixer.heads)
    both = reshape(both, both.ne[0], at.per_sequence, at.sequences)
    heads = (head_dim, mixer.heads, at.per_sequence, at.sequences)
    z = view(both, heads, (head_dim * F32, both.nb[1], both.nb[2]))
    xbc = view(both, (channels, at.per_sequence, at.sequences), both.nb[1:3])
    dt = view(both, (mixer.heads, at.per_sequence, at.sequences), both.nb[1:3])
    joined = concat(carried, transpose(xbc))
    for _ in range(at.snapshots):
        at.keep(view(joined, (mixer.conv, channels, at.sequences), joined.nb[1:3]), at.conv)
    xbc = like("unary", add(_convolved(at, joined, channels), at.weight(channels)))
    u = view(xbc, heads, (head_dim * F32, xbc.nb[1], xbc.nb[2]))
    grouped = (mixer.state, mixer.groups, at.per_sequence, at.sequences)
    b, c = (view(xbc, grouped, (mixer.state * F32, xbc.nb[1], xbc.nb[2])) for _ in range(2))
    dt = add(cont(dt), at.weight(mixer.heads))
    scanned = _scan(at, u, dt, b, c)
    kept = view(scanned, (mixer.state_elements, at.sequences, at.snapshots))
    at.keep(kept, at.state)
    y = view(scanned, heads)
    y = Tensor("add", y.ne, srcs=(y, mul(u, at.weight(1, mixer.heads))))
    y = glu(cont(z), y)
    if mixer.normed:
        y = at.norm(reshape(y, inner // mixer.groups, mixer.groups, at.per_sequence, at.sequences))
    y = reshape(y, inner, at.per_sequence * at.sequences)
    return mul_mat(at.weight(inner, hidden), y)


def _gated_deltanet(at: RecurrentPlace, x: Tensor) -> Tensor:
    mixer, hidden, inner = at.mixer, x.ne[0], at.mixer.inner
    channels = inner + 2 * mixer.groups * mixer.state
    head_v = inner // mixer.heads
    per, sequences = at.per_sequence, at.sequences
    mixed = reshape(at.linear(x, channels), channels, per, sequences)
    z = at.linear(x, inner)
    beta = at.linear(x, mixer.heads)
    beta = like("unary", reshape(beta, 1, mixer.heads, per, sequences))
    alpha = reshape(at.linear(x, mixer.heads), mixer.heads, per, sequences)
    alpha = like("unary", add(alpha, at.weight(mixer.heads)))
    gate = reshape(mul(alpha, at.weight(mixer.heads)), 1, mixer.heads, per, sequences)
    joined = at.carried(mixed, channels, copied=mixer.copied_columns)
    state = reshape(at.read(at.state), head_v, head_v, mixer.heads, sequences)
    conv = like("unary", _convolved(at, joined, channels))
    q, k = (
        view(conv, (mixer.state, mixer.groups, per, sequences), (mixer.state * F32, conv.nb[1], conv.nb[2]))
        for _ in range(2)
    )
    v = view(conv, (head_v, mixer.heads, per, sequences), (head_v * F32, conv.nb[1], conv.nb[2]))
    q, k = like("scale", like("rms_norm", q)), like("scale", like("rms_norm", k))
    out = _delta_rule(at, (q, k, v), gate, beta, state)
    out = at.norm(out)
    shaped = reshape(z, head_v, mixer.heads, per, sequences)
    out = mul(out, like("unary", shaped))
    out = mul_mat(at.weight(inner, hidden), reshape(out, inner, per, sequences))
    return reshape(out, hidden, per * sequences)


def _delta_rule(
    at: RecurrentPlace, qkv: tuple[Tensor, Tensor, Tensor], gate: Tensor, beta: Tensor, state: Tensor
) -> Tensor:
    """The fused delta rule: outputs and new states in one tensor, states copied back."""
    v = qkv[2]
    dim, heads, per, sequences = v.ne
    rows = per * sequences + at.snapshots * dim * sequences
    result = Tensor("gated_delta_net", (dim * heads, rows), srcs=(*qkv, gate, beta, state))
    out = view(result, (dim, heads, per, sequences))
    if at.snapshots == 1:
        kept = view(result, (dim, dim, heads, sequences))
    else:
        kept = view(result, (dim * dim * heads, sequences, at.snapshots))
    at.keep(kept, at.state)
    return out


def _kda(at: RecurrentPlace, x: Tensor) -> Tensor:
    mixer, hidden = at.mixer, x.ne[0]
    heads, dim = mixer.heads, mixer.state
    inner, per, sequences = heads * dim, at.per_sequence, at.sequences
    carried = at.read(at.conv)
    q, k, v = (_kda_conv(at, x, carried) for _ in range(3))
    gate = mul_mat(at.weight(dim, inner), at.linear(x, dim))
    gate = like("unary", add(gate, at.weight(inner)))
    gate = mul(reshape(gate, dim, heads, per * sequences), reshape(at.weight(1, heads), 1, heads, 1))
    gate = reshape(gate, dim, heads, per, sequences)
    beta = reshape(at.linear(x, heads), 1, heads, per, sequences)
    beta = like("unary", beta)
    state = reshape(at.read(at.state), dim, dim, heads, sequences)
    q, k = like("scale", like("rms_norm", q)), like("scale", like("rms_norm", k))
    out = cont(_delta_rule(at, (q, k, v), gate, beta, state))
    flat = reshape(reshape(x, hidden, per, sequences), hidden, per * sequences)
    second = mul_mat(at.weight(dim, inner), mul_mat(at.weight(hidden, dim), flat))
    second = reshape(second, dim, heads, per * sequences)
    normed = at.norm(reshape(out, dim, heads, per * sequences))
    gated = cont(mul(normed, like("unary", second)), inner, per * sequences)
    return mul_mat(at.weight(inner, hidden), gated)


def _kda_conv(at: RecurrentPlace, x: Tensor, carried: Tensor) -> Tensor:
    mixer = at.mixer
    inner, per, sequences = mixer.heads * mixer.state, at.per_sequence, at.sequences
    part = view(carried, (mixer.conv, inner, sequences), (mixer.conv * F32, carried.nb[1]))
    projected = reshape(mul_mat(at.weight(x.ne[0], inner), x), inner, per, sequences)
    joined = concat(part, transpose(projected))
    last = view(joined, (mixer.conv, inner, sequences), joined.nb[1:3])
    target = view(at.conv, (mixer.conv, inner, sequences), (mixer.conv * F32, at.conv.nb[1]))
    at.graph.expand(into("cpy", target, last, target))
    kernel = reshape(at.weight(mixer.conv + 1, 1, inner), mixer.conv + 1, inner)
    out = Tensor("ssm_conv", (inner, per, sequences), srcs=(joined, kernel))
    out = like("unary", reshape(out, inner, per * sequences))
    return reshape(out, mixer.state, mixer.heads, per, sequences)


def _linear_attention(at: RecurrentPlace, x: Tensor) -> Tensor:
    """A linear attention whose graph is not followed node by node: projections, state, gate, output."""
    mixer, hidden, inner = at.mixer, x.ne[0], at.mixer.inner
    q, k, v, gate = (at.linear(x, inner) for _ in range(4))
    state = at.read(at.state)
    mixed = Tensor("linear_attention", q.ne, srcs=(q, k, v, state))
    at.keep(view(mixed, (mixer.state_elements or 1,)), at.state)
    out = mul(at.norm(mixed), like("unary", gate))
    return mul_mat(at.weight(inner, hidden), out)
