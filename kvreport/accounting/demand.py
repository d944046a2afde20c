"""What one step of a model demands of one device: bytes read, operations, bytes passed on.

A step serves some tokens (decode: one of each request; prefill: all of a prompt). For each step the
weights are read once, for each request its cache is read and its states are read and written, and
each token is multiplied with every weight that it meets:

    operations = 2 * (weights met by the token) + 2 * heads * (key width + value width) * (tokens seen)

Three things make this more than "all weights, all cache":

- a mixture reads only the experts that some token of the step is sent to, on average
  ``E * (1 - (1 - k/E)^tokens)`` of ``E`` if every token picks ``k`` evenly (real routers are less
  even, so they touch fewer; this is the middle, not the edge);
- the embedding and other tables are looked up, not read: a row per token. A tied embedding is read
  as the output head;
- windows, chunks and sparse attention see a part of the context.

Everything left out (norms' arithmetic, softmax, sampling, activations written and read back)
makes the demand smaller, so times derived from it stay lower bounds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from kvreport.accounting import numeric as xp
from kvreport.accounting.kv_cache import SERVED_BYTES, cache_terms, heads_per_rank
from kvreport.accounting.numeric import Reals
from kvreport.accounting.profile import UNBOUNDED
from kvreport.accounting.weights import (
    ComponentBytes,
    format_of,
    is_tied,
    rank_elements,
    row_bytes,
    weights_by_component,
)
from kvreport.catalog.caches import (
    Cache,
    ChunkedAttention,
    CrossAttention,
    FullAttention,
    Indexer,
    Latent,
    RecurrentState,
    Shared,
    SlidingWindow,
)
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.model import Component, LayerGroup, Model, WeightGroup
from kvreport.catalog.remembered import remembered
from kvreport.catalog.variant import is_matrix

Multiplies = Literal["bf16", "fp8", "int8", "fp4"]

_IDLE: Final[frozenset[Component]] = frozenset({"vision", "audio", "mtp"})
"""Components that text decoding does not run."""

_STATE_OPERATIONS: Final = 4
"""Per element of a recurrent state and token: one multiply-add to update, one to read out."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What one token sees of a cache, summed over the layers that keep it alike."""

    bytes_per_entry: float  # Bytes read for every entry seen.
    operations_per_entry: float  # Operations of one decoded token for every entry seen.
    prefill_operations_per_entry: float  # The same while prefilling (MLA computes full keys there).
    cap_tokens: int = UNBOUNDED  # Tokens after which it sees no more, or ``UNBOUNDED``.
    step_tokens: int = 1  # Tokens per entry.
    chunked: bool = False  # True if sight begins again every ``cap_tokens``.
    constant_entries: int = 0  # Entries seen whatever the context (image or encoder tokens).

    def entries(self, context_tokens: xp.ArrayLike) -> Reals:
        """Entries that a token after ``context_tokens`` others sees."""
        context = xp.integers(context_tokens)
        seen = context % self.cap_tokens if self.chunked else xp.minimum(context, self.cap_tokens)
        return xp.reals(seen // self.step_tokens + self.constant_entries)

    def entries_up_to(self, tokens: xp.ArrayLike) -> Reals:
        """Entries seen by all of the first ``tokens`` tokens together, each seeing itself too."""
        count = xp.reals(tokens)
        if self.chunked:
            full, rest = count // self.cap_tokens, count % self.cap_tokens
            seen = full * _triangle(self.cap_tokens) + _triangle(rest)
        else:
            inside = xp.minimum(count, self.cap_tokens)
            seen = _triangle(inside) + (count - inside) * self.cap_tokens
        return xp.reals(seen / self.step_tokens + count * self.constant_entries)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a model in its formats asks of one device of a tensor-parallel group.

    Numbers may be arrays over layouts and weight formats (:meth:`stacked`); everything computed from them then
    has those axes too, before the contexts.
    """

    tensor_parallel: int  # Devices that the model is split over.
    dense_bytes: int | Reals  # Weights read in every step.
    expert_bytes: int | Reals  # All routed experts; a step reads a part of them.
    experts: int  # Routed experts per layer; 0 without a mixture.
    experts_per_token: int  # Experts that one token is sent to.
    # Of the weights that every token meets, by operand type.
    operations_per_token: Mapping[Multiplies, float | Reals]
    head_operations: Mapping[Multiplies, float | Reals]  # Of the output head, for tokens that are sampled.
    reaches: tuple[Reach, ...]  # What a token sees of the caches.
    attention_multiplies: Multiplies  # Operand type of attention.
    state_bytes_touched: int  # States of a request, read and written back.
    reduced_bytes_per_token: int  # Partial results that layers sum over the devices.

    def experts_touched(self, tokens: xp.ArrayLike) -> Reals:
        """Distinct experts per layer that a step of so many tokens reads, if routing is even."""
        count = xp.reals(tokens)
        if not self.experts:
            return xp.full_like(count, 0.0)
        missed = (1 - self.experts_per_token / self.experts) ** count
        return xp.reals(self.experts * (1 - missed))

    def weight_bytes_read(self, tokens: xp.ArrayLike) -> Reals:
        """Weight bytes that a step of so many tokens reads."""
        touched = self.experts_touched(tokens) / max(self.experts, 1)
        return xp.reals(self.dense_bytes + self.expert_bytes * touched)

    def cache_bytes_read(self, context_tokens: xp.ArrayLike) -> Reals:
        """Cache bytes that one decoded token reads."""
        total: Reals = xp.full_like(context_tokens, 0.0)
        for reach in self.reaches:
            total = total + reach.bytes_per_entry * reach.entries(context_tokens)
        return total

    def decode_attention_operations(self, context_tokens: xp.ArrayLike) -> Reals:
        """Operations of attention for one decoded token, its look at itself left out."""
        total: Reals = xp.full_like(context_tokens, 0.0) + self._state_operations
        for reach in self.reaches:
            total = total + reach.operations_per_entry * reach.entries(context_tokens)
        return total

    def prefill_attention_operations(self, cached_tokens: xp.ArrayLike, tokens: xp.ArrayLike) -> Reals:
        """Operations of attention for the tokens from ``cached_tokens`` up to ``tokens``."""
        new = xp.reals(tokens) - xp.reals(cached_tokens)
        total = new * self._state_operations
        for reach in self.reaches:
            seen = reach.entries_up_to(tokens) - reach.entries_up_to(cached_tokens)
            total = total + reach.prefill_operations_per_entry * seen
        return total

    @classmethod
    def stacked(cls, demands: Sequence[Sequence[Demand]]) -> Demand:
        """Demands of one model as one, with axes for layouts, devices, weight formats and contexts.

        ``demands``: for each layout one for each weight format; what is seen of the caches is the first
        one's.
        """
        first = [each[0] for each in demands]

        def table(values: Iterable[Iterable[float | Reals]]) -> Reals:
            return xp.reals([list(row) for row in values])[:, None, :, None]

        def by_kind(each: list[list[Mapping[Multiplies, float | Reals]]]) -> dict[Multiplies, Reals]:
            kinds = dict.fromkeys(kind for row in each for operations in row for kind in operations)
            return {
                kind: table((operations.get(kind, 0.0) for operations in row) for row in each)
                for kind in kinds
            }

        return replace(
            first[0],
            tensor_parallel=_by_layout([one.tensor_parallel for one in first]),
            dense_bytes=table((one.dense_bytes for one in row) for row in demands),
            expert_bytes=table((one.expert_bytes for one in row) for row in demands),
            operations_per_token=by_kind([[one.operations_per_token for one in row] for row in demands]),
            head_operations=by_kind([[one.head_operations for one in row] for row in demands]),
            state_bytes_touched=_by_layout([one.state_bytes_touched for one in first]),
        )

    def seeing(self, kv_format: KvFormat | None, reaches: Sequence[tuple[Reach, ...]]) -> Demand:
        """The same weights with other caches.

        ``kv_format``: how they are stored; None for the served 16-bit type. ``reaches``: what a token
        sees of them in each layout.
        """
        each = tuple(
            replace(
                parts[0],
                bytes_per_entry=_by_layout([one.bytes_per_entry for one in parts]),
                operations_per_entry=_by_layout([one.operations_per_entry for one in parts]),
                prefill_operations_per_entry=_by_layout([one.prefill_operations_per_entry for one in parts]),
            )
            for parts in zip(*reaches, strict=True)
        )
        return replace(self, reaches=each, attention_multiplies=_attending(kv_format))

    def shared_by(self, data_ranks: int) -> Demand:
        """The same with routed experts divided over data ranks too: each device reads that much less of them.

        Each of the other ranks brings tokens of its own, so operations stay what they are.
        """
        return self if data_ranks == 1 else replace(self, expert_bytes=self.expert_bytes // data_ranks)

    def interleaved(self, parts: int) -> Demand:
        """The same with a cache's tokens dealt out over ``parts`` ranks: each reads that much less of them.

        Each rank runs that many more heads over its tokens, so operations stay what they are.
        """
        return self if parts == 1 else replace(self, reaches=_interleaved(self.reaches, parts))

    @property
    def _state_operations(self) -> float:
        return self.state_bytes_touched / 2 / 4 * _STATE_OPERATIONS


def demand(
    model: Model,
    weight_format: WeightFormat | None,
    formats: Mapping[str, WeightFormat],
    kv_format: KvFormat | None = None,
    *,
    tensor_parallel: int = 1,
    loaded: ComponentBytes | None = None,
    on_host: Collection[str] = (),
) -> Demand:
    """Work out what one step asks of one device.

    Args:
        model: The model.
        weight_format: How weights are stored; None means as released.
        formats: Weight formats by name, for the names that released tensors carry.
        kv_format: How the cache is stored; None means the served 16-bit type.
        tensor_parallel: Devices that the model is split over.
        loaded: Weight bytes of one device by component, where they are known; None to work them out.
        on_host: Names of rows that are in host memory, and not in ``loaded``.

    Raises:
        InputError: If the format cannot store one of the model's caches, or is not known.
    """
    idle = _IDLE.union(model.not_loaded)
    tied = is_tied(model)
    head: Component = "embedding" if tied else "output_head"
    if loaded is None:
        loaded = weights_by_component(
            model, weight_format, formats, tensor_parallel, without=idle, on_host=on_host
        )
    tables = sum(
        row_bytes(model, row, weight_format, formats, tensor_parallel)
        for row in model.weights
        if row.looked_up and row.component not in {*idle, "embedding"} and row.name not in on_host
    )
    body: dict[Multiplies, float] = {}
    last: dict[Multiplies, float] = {}
    for row, operations in _products(model, tensor_parallel):
        form = format_of(model, row, weight_format, formats)
        kind: Multiplies = form.multiplies if form else "bf16"
        met = last if row.component == head else body
        met[kind] = met.get(kind, 0.0) + operations
    return Demand(
        tensor_parallel=tensor_parallel,
        dense_bytes=sum(
            size
            for component, size in loaded.items()
            if component not in idle and component != "routed_experts" and (component != "embedding" or tied)
        )
        - tables,
        expert_bytes=loaded.get("routed_experts", 0),
        experts=model.experts.routed if model.experts else 0,
        experts_per_token=model.experts.per_token if model.experts else 0,
        operations_per_token=body,
        head_operations=last,
        reaches=reaches_of(model, kv_format, tensor_parallel),
        attention_multiplies=_attending(kv_format),
        state_bytes_touched=2 * _state_bytes(model, tensor_parallel),
        reduced_bytes_per_token=2 * model.layer_count * model.hidden_size * SERVED_BYTES,
    )


@remembered
def _products(model: Model, tensor_parallel: int) -> list[tuple[WeightGroup, float]]:
    """The matrices that a token is multiplied with, and the operations of one device with each."""
    idle = _IDLE.union(model.not_loaded)
    tied = is_tied(model)
    per_token = model.experts.per_token / model.experts.routed if model.experts else 1.0
    found = []
    for row in model.weights:
        looked_up = row.looked_up or (row.component == "embedding" and not tied)
        if row.component in idle or looked_up or not is_matrix(row.shape):
            continue
        share = per_token if row.component == "routed_experts" else 1.0
        found.append((row, 2.0 * rank_elements(row, tensor_parallel) * share))
    return found


def _by_layout(values: Sequence[float]) -> Any:  # noqa: ANN401 - whole numbers stay whole
    """A number of each layout, with axes for devices, weight formats and contexts after it."""
    return xp.numpy().reshape(values, (-1, 1, 1, 1))


def _interleaved(reaches: tuple[Reach, ...], parts: int) -> tuple[Reach, ...]:
    if parts == 1:
        return reaches
    return tuple(replace(reach, bytes_per_entry=reach.bytes_per_entry / parts) for reach in reaches)


def _attending(kv_format: KvFormat | None) -> Multiplies:
    """The operand type of attention over a cache."""
    return "fp8" if kv_format is not None and kv_format.bits <= 8 else "bf16"


def reaches_of(
    model: Model, kv_format: KvFormat | None, tensor_parallel: int = 1, interleaved: int = 1
) -> tuple[Reach, ...]:
    """What a token sees of a model's caches, layer group by layer group.

    ``kv_format``: how the cache is stored; None means the served 16-bit type. ``tensor_parallel``: devices
    that the model is split over. ``interleaved``: ranks that a cache's tokens are dealt out over
    (:meth:`Demand.interleaved`).

    Raises:
        InputError: If the format cannot store one of the model's caches.
    """
    return _interleaved(tuple(_reaches(model, kv_format, tensor_parallel)), interleaved)


def _reaches(model: Model, kv_format: KvFormat | None, ranks: int) -> Iterator[Reach]:
    for group in model.layers:
        for cache in group.caches:
            source = _read_by(model, cache) if isinstance(cache, Shared) else cache
            if source is not None:
                picked = _picked(model, group, source)
                yield from _reach(model, group.count, source, kv_format, ranks, picked)


def _reach(
    model: Model,
    layers: int,
    cache: Cache,
    kv_format: KvFormat | None,
    ranks: int,
    picked: int | None,
) -> Iterator[Reach]:
    rate = sum(t.rate_bytes for t in cache_terms(cache, kv_format, tensor_parallel=ranks)) * layers
    heads = heads_per_rank(model.attention_heads, ranks) * layers
    match cache:
        case FullAttention() | SlidingWindow() | ChunkedAttention():
            work = 2.0 * heads * (cache.key_dim + cache.value_dim)
            cap = UNBOUNDED if picked is None else picked
            if isinstance(cache, SlidingWindow):
                cap = cache.window
            if isinstance(cache, ChunkedAttention):
                cap = cache.chunk
            yield Reach(rate, work, work, cap, chunked=isinstance(cache, ChunkedAttention))
        case CrossAttention():
            work = 2.0 * heads * (cache.key_dim + cache.value_dim)
            size = sum(term.constant_bytes for term in cache_terms(cache, kv_format, tensor_parallel=ranks))
            per_entry = size * layers / cache.encoder_tokens
            yield Reach(per_entry, work, work, 0, constant_entries=cache.encoder_tokens)
        case Latent():
            # Decoding works on the latent itself; prefill expands it to keys and values first.
            decoding = 2.0 * heads * (2 * cache.latent_dim + cache.rope_dim)
            prefilling = 2.0 * heads * (_expanded(model) + cache.rope_dim)
            cap = cache.window or UNBOUNDED
            if picked is not None:
                cap = min(cap, picked * cache.stride)
            yield Reach(rate, decoding, min(decoding, prefilling), cap, cache.stride)
        case Indexer():
            # Its heads are not in the catalog: one of them is the least there can be.
            work = 2.0 * cache.index_dim * layers
            yield Reach(rate, work, work, step_tokens=cache.stride)
        case _:
            return


def _picked(model: Model, group: LayerGroup, cache: Cache) -> int | None:
    """Entries that sparse attention reads; 0 if the source does not say how many; None if all.

    Latents of single tokens in a layer without an indexer of its own are picked by another layer's
    (GLM-5.2). Windows, and latents that compress many tokens to one and have no indexer
    (DeepSeek-V4's 128:1), are read whole; keys and values are picked only by their own layer's.
    """
    shared = False
    if isinstance(cache, Latent):
        if cache.window is not None:
            return None
        shared = cache.stride == 1
    own = [other for other in group.caches if isinstance(other, Indexer)]
    if not own and shared:
        own = [other for other in model.every_cache if isinstance(other, Indexer)]
    return min(other.top_k or 0 for other in own) if own else None


def _read_by(model: Model, cache: Shared) -> Cache | None:
    """The cache that a sharing layer reads: the first of that kind."""
    for other in model.every_cache:
        if other.kind == cache.reads:
            return other
    return None


def _expanded(model: Model) -> float:
    """Key and value width per head that MLA expands its latent to, without the rotary part."""
    for group in model.weights:
        if ".kv_b_proj" in group.name and len(group.shape) == 2:
            return group.shape[0] / model.attention_heads
    return 0.0


def _state_bytes(model: Model, ranks: int) -> int:
    return sum(
        term.constant_bytes * group.count
        for group in model.layers
        for cache in group.caches
        if isinstance(cache, RecurrentState)
        for term in cache_terms(cache, tensor_parallel=ranks)
    )


def _triangle(count: xp.ArrayLike) -> Reals:
    """1 + 2 + … + count."""
    value = xp.reals(count)
    return value * (value + 1) / 2
