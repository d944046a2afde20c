"""Attention blocks of llama.cpp's graphs (``build_qkv``, ``build_attn``, ``build_attn_mha``, latent attention)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvreport.accounting.engines.llama_cpp.network import Attention, BlockIndexer, IndexKeys, LatentAttention
from kvreport.accounting.engines.llama_cpp.tensors import (
    F16,
    F32,
    I32,
    I64,
    Graph,
    Tensor,
    WorstStep,
    add,
    cache,
    concat,
    cont,
    get_rows,
    graph_input,
    into,
    like,
    linear,
    mul,
    mul_mat,
    norm,
    permute,
    reshape,
    transpose,
    view,
    weight,
)
from kvreport.accounting.engines.llama_cpp.types import TYPES

if TYPE_CHECKING:
    from kvreport.accounting.engines.llama_cpp.network import Network


class AttentionInputs:
    """What every layer of a step shares: positions, masks, cell numbers, rotations.

    Each is made once and only where a layer uses it, as unused inputs are not part of a graph.
    """

    def __init__(self, step: WorstStep, network: Network) -> None:
        self.step = step
        self.positions = graph_input(step.tokens * network.positions, width=I32)
        per_stream = step.tokens // step.streams
        self.masks = {
            False: _mask(step, step.cells, per_stream),
            True: _mask(step, step.window_cells, per_stream),
        }
        rows = step.tokens if step.flash else step.tokens * max(1, step.value_padding)
        self.key_cells = {flag: graph_input(step.tokens, width=I64) for flag in (False, True)}
        self.value_cells = {flag: graph_input(rows, width=I64) for flag in (False, True)}
        self.key_rotation = {flag: _rotation(step.rotated_keys[flag]) for flag in (False, True)}
        self.value_rotation = {flag: _rotation(step.rotated_values[flag]) for flag in (False, True)}
        self.index_mask = graph_input(step.cells, per_stream, 1, step.streams, width=F16)
        self.index_cells = graph_input(step.tokens, width=I64)
        self.index_rotation: Tensor | None = None
        self.picks: Tensor | None = None
        self.blocks: dict[int, BlockInputs] = {}
        slots = graph_input(step.slots, width=I32)
        self.states_read = view(slots, (step.sequences,))
        self.states_moved = view(slots, (step.slots - step.sequences,))


@dataclass(frozen=True)
class BlockInputs:
    """What layers share that pick blocks of one size (``llm_graph_input_qsa``)."""

    members: Tensor  # Cells of each block.
    positions: Tensor  # Positions of each block.
    block_of: Tensor  # Block of each cell.
    bias: Tensor  # Which blocks each query sees.


def _mask(step: WorstStep, cells: int, tokens: int) -> Tensor:
    """The attention mask of one kind of layer: in 16 bits for flash attention, once cast from 32 bits."""
    flash = step.flash and step.fused
    filled = graph_input(cells, tokens, 1, step.streams, width=F16 if flash and not step.wide_masks else F32)
    return Tensor("cast", filled.ne, F16, (filled,)) if flash and step.wide_masks else filled


def _rotation(width: int) -> Tensor | None:
    return graph_input(width, width) if width else None


@dataclass(frozen=True)
class _Heads:
    query: Tensor
    key: Tensor | None
    value: Tensor | None


@dataclass
class Place:
    """Where a layer stands."""

    graph: Graph  # The graph that is planned.
    inputs: AttentionInputs  # What every layer reads: positions, masks, rows of the cache.
    home: int  # Backend where the layer computes.
    cache_home: int  # Backend where its caches and states lie.

    @property
    def step(self) -> WorstStep:
        """The step that is planned."""
        return self.inputs.step

    def weight(self, *ne: int) -> Tensor:
        """A weight of the layer."""
        return weight(*ne, home=self.home)

    def linear(self, x: Tensor, width: int, *, biased: bool = False) -> Tensor:
        """A matrix of so many outputs times ``x``, and its bias where it is ``biased``."""
        return linear(x, width, self.home, biased=biased)

    def norm(self, x: Tensor, *, layer_norm: bool = False) -> Tensor:
        """A norm and its weight."""
        return norm(x, self.home, layer_norm=layer_norm)


def attention(at: Place, attn: Attention, x: Tensor) -> Tensor:
    """Attention with cached keys and values, from the layer's normed input to the output projection."""
    picks = None
    if attn.picker is not None:
        picks = _picked_blocks(at, attn.picker, x)
    if attn.latent is None:
        heads, gate = _project(at, attn, x)
    else:
        heads, gate = _unfolded(at, attn.latent, x), None
    out = _attend(at, attn, heads, picks)
    if gate is not None:
        out = mul(out, like("unary", gate))
    out = at.linear(out, x.ne[0])
    return add(out, at.weight(x.ne[0])) if attn.out_bias else out


def _unfolded(at: Place, latent: LatentAttention, x: Tensor) -> _Heads:
    """Keys and values of every head from a latent, before they are cached (``minicpm3.cpp``)."""
    tokens, heads, head = x.ne[1], latent.heads, latent.nope + latent.rotary
    compressed = _compressed_query(at, latent, x)
    query = reshape(at.linear(compressed, head * heads), head, heads, tokens)
    both = at.linear(x, latent.latent + latent.rotary)
    shared = view(both, (latent.rotary, 1, tokens), (both.nb[1], both.nb[1]))
    inner = at.norm(view(both, (latent.latent, tokens), (both.nb[1],)))
    wide = latent.nope + latent.value_dim
    unfolded = mul_mat(at.weight(latent.latent, wide * heads), inner)
    strides = (wide * F32, wide * heads * F32)
    key = view(unfolded, (latent.nope, heads, tokens), strides)
    value = cont(view(unfolded, (latent.value_dim, heads, tokens), strides))
    if latent.rotates:
        query = _turned(query, at.inputs.positions)
        shared = _turned(shared, at.inputs.positions)
    key = concat(key, Tensor("repeat", (latent.rotary, heads, tokens), srcs=(shared,)))
    return _Heads(query, key, value)


def _project(at: Place, attn: Attention, x: Tensor) -> tuple[_Heads, Tensor | None]:
    tokens = x.ne[1]
    query, key, value = _qkv(at, attn, x)
    gate = None
    full, stride = query, (attn.key_dim * 2 * F32, attn.key_dim * 2 * attn.heads * F32)
    if attn.gate == "doubled":
        query = view(full, (attn.key_dim, attn.heads, tokens), stride)
    elif attn.gate == "own":
        gate = at.linear(x, attn.gate_width)
    query = _position(at, attn, query)
    if attn.gate == "doubled":
        gate = cont(view(full, (attn.key_dim, attn.heads, tokens), stride), attn.key_dim * attn.heads, tokens)
    if key is None or value is None:
        return _Heads(query, None, None), gate
    key = _position(at, attn, key)
    if attn.value_norm:
        value = like("rms_norm", value)
    return _Heads(query, key, value), gate


def _turned(x: Tensor, positions: Tensor) -> Tensor:
    return Tensor("rope", x.ne, srcs=(x, positions))


def _position(at: Place, attn: Attention, heads: Tensor) -> Tensor:
    if attn.qk_norm == "head":
        heads = at.norm(heads)
    return _turned(heads, at.inputs.positions) if attn.rotary else heads


def _qkv(at: Place, attn: Attention, x: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
    q_width = attn.heads * attn.key_dim * (2 if attn.gate == "doubled" else 1)
    k_width, v_width = attn.kv_heads * attn.key_dim, attn.kv_heads * attn.value_dim
    if attn.fused:
        return _fused_qkv(at, attn, x)
    query = at.linear(x, q_width, biased=attn.biased)
    if attn.gate != "doubled":
        query = _shaped(at, attn, query, attn.heads, normed=True)
    if not attn.owns_cache:
        return query, None, None
    key = at.linear(x, k_width, biased=attn.biased)
    value = key if attn.same_kv else at.linear(x, v_width, biased=attn.biased)
    key = _shaped(at, attn, key, attn.kv_heads, normed=True)
    value = _shaped(at, attn, value, attn.kv_heads)
    return query, key, value


def _shaped(at: Place, attn: Attention, x: Tensor, heads: int, *, normed: bool = False) -> Tensor:
    if normed and attn.qk_norm == "full":
        x = at.norm(x)
    return reshape(x, x.ne[0] // heads, heads, x.ne[1])


def _fused_qkv(at: Place, attn: Attention, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    tokens = x.ne[1]
    widths = (attn.heads * attn.key_dim, attn.kv_heads * attn.key_dim, attn.kv_heads * attn.value_dim)
    both = at.linear(x, sum(widths), biased=attn.biased)
    row = both.nb[1]
    query = view(both, (attn.key_dim, attn.heads, tokens), (attn.key_dim * F32, row))
    key = view(both, (attn.key_dim, attn.kv_heads, tokens), (attn.key_dim * F32, row))
    value = view(both, (attn.value_dim, attn.kv_heads, tokens), (attn.value_dim * F32, row))
    return query, key, value


def _attend(at: Place, attn: Attention, heads: _Heads, picks: Tensor | None) -> Tensor:
    step, windowed = at.step, attn.window is not None
    cells = step.window_cells if windowed else step.cells
    turned = _turn(at, heads, windowed=windowed)
    at.graph.expand(turned.query)
    mask = at.inputs.masks[windowed]
    order = (turned.key, turned.value) if step.window_cells else (turned.value, turned.key)
    for tensor in order:
        if tensor is not None:
            at.graph.expand(tensor)
    k_width, v_width = attn.kv_heads * attn.key_dim, attn.kv_heads * attn.value_dim
    keys = cache(k_width, cells, step.streams, home=at.cache_home)
    values = cache(v_width, cells, step.streams, home=at.cache_home)
    if turned.key is not None and turned.value is not None:
        at.graph.expand(_store(turned.key, keys, at.inputs.key_cells[windowed]))
        at.graph.expand(_store_values(step, turned.value, values, at.inputs.value_cells[windowed]))
    k = view(keys, (attn.key_dim, attn.kv_heads, cells, step.streams), (attn.key_dim * F16, k_width * F16))
    v = _cached_values(step, attn, values, cells)
    sinks = at.weight(attn.heads) if attn.sinks else None
    out = attend(
        at,
        turned.query,
        k,
        v,
        mask if picks is None else _sparse_mask(mask, picks),
        sinks=sinks,
    )
    rotation = at.inputs.value_rotation[windowed]
    return _hadamard(out, rotation) if rotation is not None else out


def _turn(at: Place, heads: _Heads, *, windowed: bool) -> _Heads:
    """Rotate queries, keys and values of a quantized cache (``llama_mul_mat_hadamard``)."""
    by_key, by_value = at.inputs.key_rotation[windowed], at.inputs.value_rotation[windowed]
    query, key, value = heads.query, heads.key, heads.value
    if by_key is not None:
        query = _hadamard(query, by_key)
        key = None if key is None else _hadamard(key, by_key)
    if by_value is not None and value is not None:
        value = _hadamard(value, by_value)
    return _Heads(query, key, value)


def _hadamard(x: Tensor, rotation: Tensor) -> Tensor:
    width = rotation.ne[0]
    rows = x.count // width
    flat = reshape(x, width, rows) if x.contiguous else cont(x, width, rows)
    return reshape(mul_mat(rotation, flat), *x.ne)


def _store(x: Tensor, target: Tensor, cells: Tensor) -> Tensor:
    flat = view(x, (x.ne[0] * x.ne[1], x.ne[2]), (x.nb[2],))
    return into("set_rows", target, flat, cells, target)


def _store_values(step: WorstStep, x: Tensor, target: Tensor, cells: Tensor) -> Tensor:
    if step.flash:
        return _store(x, target, cells)
    width, tokens = x.ne[0] * x.ne[1], x.ne[2]
    flat = reshape(x, width, tokens) if x.nb[2] == width * F32 else cont(x, width, tokens)
    if width < step.value_padding:
        flat = Tensor("pad", (step.value_padding, tokens), srcs=(flat,))
    return into("set_rows", target, reshape(flat, 1, flat.count), cells, target)


def _cached_values(step: WorstStep, attn: Attention, values: Tensor, cells: int) -> Tensor:
    dim, heads = attn.value_dim, attn.kv_heads
    if step.flash:
        return view(values, (dim, heads, cells, step.streams), (dim * F16, heads * dim * F16))
    return view(values, (cells, heads, dim, step.streams), (cells * dim * F16, cells * F16))


def attend(
    at: Place,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor,
    *,
    sinks: Tensor | None = None,
    up: Tensor | None = None,
) -> Tensor:
    """Scores, softmax and values, or one fused operation (``build_attn_mha``).

    Args:
        at: Where the layer stands; scores are computed where its cache is (``--no-kv-offload``).
        q: Queries, ``[dim, heads, tokens]``.
        k: Cached keys, ``[dim, heads, cells, streams]``.
        v: Cached values, dense or transposed.
        mask: Attention mask.
        sinks: Attention sinks, if any.
        up: Matrix that widens a latent to value heads, if attention is latent.
    """
    step, transposed = at.step, v.nb[1] > v.nb[2]
    split = (q.ne[0], q.ne[1], q.ne[2] // step.streams, step.streams)
    q = view(q, split, (q.nb[1], q.nb[2], q.nb[2] * split[2]))
    q, k, v = (permute(tensor, 0, 2, 1, 3) for tensor in (q, k, v))
    extra = () if sinks is None else (sinks,)
    if step.flash and step.fused:
        if step.wide_keys:
            k, v = (Tensor("cast", tensor.ne, F16, (tensor,)) for tensor in (k, v))
        out = Tensor("flash_attn", (v.ne[0], q.ne[2], q.ne[1], q.ne[3]), srcs=(q, k, v, mask, *extra))
        out.stored = (TYPES["f16"],) * 2 if step.wide_keys else (step.key_type, step.value_type)
        at.graph.fused.append((out, at.home))
        if up is not None:
            out = permute(mul_mat(up, permute(out, 0, 2, 1, 3)), 0, 2, 1, 3)
            out = cont(out)
        out = reshape(out, out.ne[0] * out.ne[1], out.ne[2] * out.ne[3])
    else:
        scores = mul_mat(k, q)
        scores = like("soft_max", scores, mask, *extra)
        if not transposed:
            v = Tensor("cont", transpose(v).ne, F16, (transpose(v),))
        out = mul_mat(v, scores)
        if up is not None:
            out = mul_mat(up, out)
        out = permute(out, 0, 2, 1, 3)
        out = cont(out, out.ne[0] * out.ne[1], out.ne[2] * out.ne[3])
        if at.cache_home != at.home:
            # build_attn_mha: from the cache to the attention's output, everything runs where the cache is.
            out.pinned = at.cache_home
    at.graph.expand(out)
    return out


def latent_attention(at: Place, attn: LatentAttention, x: Tensor) -> Tensor:
    """Latent attention with absorbed projections (``deepseek2.cpp``, ``deepseek32.cpp``)."""
    step, tokens = at.step, x.ne[1]
    compressed = _compressed_query(at, attn, x)
    picks = _picked(at, attn, x, compressed)
    head = attn.nope + attn.rotary
    q = reshape(at.linear(compressed, head * attn.heads), head, attn.heads, tokens)
    both = at.linear(x, attn.latent + attn.rotary)
    latent = view(both, (attn.latent, tokens), (both.nb[1],))
    k_rope = view(both, (attn.rotary, 1, tokens), (both.nb[1], both.nb[1]))
    q_rope = view(q, (attn.rotary, attn.heads, tokens), q.nb[1:3])
    q_nope = view(q, (attn.nope, attn.heads, tokens), q.nb[1:3])
    if attn.rotates:
        k_rope = _turned(k_rope, at.inputs.positions)
    latent = at.norm(latent)
    if attn.rotates:
        q_rope = _turned(q_rope, at.inputs.positions)
    absorb = at.weight(attn.nope, attn.latent, attn.heads)
    absorbed = permute(mul_mat(absorb, permute(q_nope, 0, 2, 1, 3)), 0, 2, 1, 3)
    query = concat(absorbed, q_rope)
    latent = reshape(latent, attn.latent, 1, tokens)
    key = concat(latent, k_rope)
    for tensor in (query, latent, key):
        at.graph.expand(tensor)
    width = attn.latent + attn.rotary
    cells = step.cells
    keys = cache(width, cells, step.streams, home=at.cache_home)
    at.graph.expand(_store(key, keys, at.inputs.key_cells[False]))
    mask = at.inputs.masks[False] if picks is None else _sparse_mask(at.inputs.masks[False], picks)
    k = view(keys, (width, 1, cells, step.streams), (width * F16, width * F16))
    v = view(k, (attn.latent, 1, cells, step.streams), k.nb[1:])
    up = at.weight(attn.latent, attn.value_dim, attn.heads)
    out = attend(at, query, k, v, mask, up=up)
    return at.linear(out, x.ne[0])


def _compressed_query(at: Place, attn: LatentAttention, x: Tensor) -> Tensor:
    if not attn.query_rank:
        return x
    return at.norm(at.linear(x, attn.query_rank))


def _picked(at: Place, attn: LatentAttention, x: Tensor, compressed: Tensor) -> Tensor | None:
    if attn.indexer is None:
        return None
    if attn.owns_indexer:
        at.inputs.picks = _index(at, attn.indexer, x, compressed)
    return at.inputs.picks


def _index(at: Place, indexer: IndexKeys, x: Tensor, compressed: Tensor) -> Tensor:
    """The lightning indexer: its keys, its scores and the cells it picks."""
    step, tokens, dim = at.step, x.ne[1], indexer.dim
    if at.inputs.index_rotation is None:
        at.inputs.index_rotation = graph_input(dim, dim)
    rotation = at.inputs.index_rotation
    q = reshape(
        at.linear(compressed, dim * indexer.heads),
        dim,
        indexer.heads,
        tokens,
    )
    q = _turned(q, at.inputs.positions)
    key = at.norm(at.linear(x, dim), layer_norm=True)
    key = reshape(key, dim, 1, tokens)
    key = _turned(key, at.inputs.positions)
    q, key = mul_mat(rotation, q), mul_mat(rotation, key)
    keys = cache(dim, step.cells, step.streams, home=at.cache_home)
    at.graph.expand(_store(key, keys, at.inputs.index_cells))
    weights = at.linear(x, indexer.heads)
    per = tokens // step.streams
    q = view(q, (dim, indexer.heads, per, step.streams), (q.nb[1], q.nb[2], q.nb[2] * per))
    weights = view(
        weights,
        (indexer.heads, per, 1, step.streams),
        (weights.nb[1], weights.nb[1] * per, weights.nb[1] * per),
    )
    weights = like("scale", weights)
    k = view(keys, (dim, 1, step.cells, step.streams), (dim * F16, dim * F16))
    scores = Tensor(
        "lightning_indexer", (step.cells, per, 1, step.streams), srcs=(q, k, weights, at.inputs.index_mask)
    )
    chosen = Tensor("top_k", (min(step.cells, indexer.top_k), per, 1, step.streams), I32, (scores,))
    return Tensor("cont", chosen.ne, I32, (chosen,))


def _picked_blocks(at: Place, picker: BlockIndexer, x: Tensor) -> Tensor:
    """Scores of pooled index keys, and the cells of the best blocks (``build_qsa_top_k`` of ``qwen4exp.cpp``)."""
    step, tokens, dim, size = at.step, x.ne[1], picker.dim, picker.block
    cells, streams = step.cells, step.streams
    blocks, per = -(-cells // size), tokens // streams
    if size not in at.inputs.blocks:
        at.inputs.blocks[size] = BlockInputs(
            graph_input(size * blocks, streams, width=I32),
            graph_input(4 * blocks * streams, width=I32),
            graph_input(cells, streams, width=I32),
            graph_input(blocks, per, streams),
        )
    shared = at.inputs.blocks[size]
    key = reshape(at.linear(x, dim), dim, 1, tokens)
    keys = cache(dim, cells, streams, home=at.cache_home)
    at.graph.expand(_store(key, keys, at.inputs.index_cells))
    members = get_rows(view(keys, (dim, cells, streams), (dim * F16, dim * cells * F16)), shared.members)
    members = reshape(members, dim, size, blocks, streams)
    pooled = _summed([cont(view(members, (dim, blocks, streams), members.nb[2:])) for _ in range(size)])
    pooled = at.norm(reshape(like("scale", pooled), dim, blocks * streams))
    pooled = reshape(pooled, dim, 1, blocks * streams)
    pooled = _turned(pooled, shared.positions)
    pooled = reshape(pooled, dim, blocks, streams)
    query = reshape(at.linear(x, dim * picker.heads), dim, picker.heads, tokens)
    query = at.norm(query)
    query = _turned(query, at.inputs.positions)
    score = mul_mat(pooled, reshape(query, dim, picker.heads * per, streams))
    score = like("unary", reshape(score, blocks, picker.heads, per, streams))
    heads = [view(score, (blocks, per, streams), score.nb[2:]) for _ in range(picker.heads)]
    score = add(_summed([cont(heads[0]), *heads[1:]]), shared.bias)
    spread = get_rows(cont(permute(score, 1, 0, 2, 3)), shared.block_of)
    spread = cont(permute(spread, 1, 0, 2, 3))
    mask = at.inputs.masks[False]
    mask = mask if mask.width == F32 else Tensor("cast", mask.ne, F32, (mask,))
    spread = add(spread, reshape(mask, cells, per, streams))
    width = min(cells, picker.top_k + size - 1)
    chosen = Tensor("top_k", (width, per, streams), I32, (spread,))
    return reshape(Tensor("cont", chosen.ne, I32, (chosen,)), width, per, 1, streams)


def _summed(parts: list[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = add(total, part)
    return total


def _sparse_mask(mask: Tensor, picks: Tensor) -> Tensor:
    blank = Tensor("fill", mask.ne, mask.nb[0], (mask,))
    cells, per, _, streams = mask.ne
    rows = view(blank, (1, cells, per, streams), (blank.nb[0], blank.nb[1], blank.nb[2]))
    flat = view(picks, (picks.ne[0], per, streams), (picks.nb[1], picks.nb[2]))
    zeros = Tensor("none", (1, picks.ne[0], per, streams))
    zeros = Tensor("fill", zeros.ne, srcs=(zeros,))
    filled = into("set_rows", rows, zeros, flat, rows)
    back = view(filled, (cells, per, 1, streams), (filled.nb[2], filled.nb[3], filled.nb[3]))
    return Tensor("add", mask.ne, mask.nb[0], (back, mask))
