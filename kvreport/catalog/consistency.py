"""Compare what a model record states twice, and bound what its numbers make together.

A record says what a layer caches, and it lists the checkpoint's tensors. Both speak of the same layers,
KV heads and widths, so each proves the other: the key and value projections have exactly the rows that
the caches store, a latent has one down-projection per layer, a convolution's state is as wide as its
kernel. A slip in either place (``layers: "0-15"`` beside tensors of 32 layers) would change an answer
by a factor and look plausible; here it is a fault.

The rules hold for tensors by what they are for and how they are split, never by a model's name. All
models of the public catalog satisfy them; where a rule has an exception, the exception is a property
of an architecture and is said beside the rule.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Final

from kvreport.catalog.base import Contradiction
from kvreport.catalog.caches import (
    Cache,
    ChunkedAttention,
    CrossAttention,
    FullAttention,
    Indexer,
    Latent,
    RecurrentState,
    Ring,
    Shared,
    SlidingWindow,
)

if TYPE_CHECKING:
    from kvreport.catalog.model import Model, WeightGroup

NOTHING_KEPT: Final = "no cache"
"""What the layers of a pooling model are called."""

MAX_PARAMETERS: Final = 10**15
"""Parameters of one model: four hundred times the largest that is published (2.8 * 10^12)."""

MAX_ELEMENTS_PER_TOKEN: Final = 1 << 24
"""Cached elements of one token over all layers; the largest in the catalog is 2 * 10^6.

With :data:`~kvreport.units.MAX_CONTEXT_TOKENS`, and at most 72 bytes for one element and its scale, a request stays
below 2^61 bytes, so that 64-bit arithmetic cannot wrap.
"""

MAX_VECTORS_PER_TOKEN: Final = 1 << 18
"""Cached vectors of one token over all layers: a storage format may pad each to 4,096 bytes."""

MAX_STATE_ELEMENTS: Final = 1 << 40
"""Elements that a request holds at any length: states, rings and encoder tokens."""

MAX_INNER_WIDTH: Final = 1 << 24
"""Inner width of an MLP; the widest in the catalog is 65,536."""

MAX_CHOSEN_WIDTH: Final = 1 << 26
"""Inner width of all experts that one token passes through."""

_OWN_STACKS: Final = frozenset({"vision", "audio", "mtp"})
"""Components that have layers of their own, which ``layers`` does not count."""

_HeadsCache = FullAttention | SlidingWindow | ChunkedAttention | CrossAttention


def contradictions(model: Model) -> Iterator[Contradiction]:
    """Yield every contradiction between layers, caches and tensors of a model that is valid field by field."""
    excessive = list(_excessive(model))
    yield from excessive
    if excessive:
        return
    yield from _incomplete(model)
    yield from _layer_counts(model)
    yield from _kv_projections(model)
    yield from _latents(model)
    yield from _convolutions(model)
    yield from _widths(model)


def _excessive(model: Model) -> Iterator[Contradiction]:
    """Products of fields that no model has and 64-bit arithmetic does not hold."""
    elements = vectors = constant = 0
    for group in model.layers:
        for cache in group.caches:
            wide, count, kept = _held(cache)
            elements += wide * group.count
            vectors += count * group.count
            constant += kept * group.count
    parameters = sum(group.parameters for group in model.weights)
    inner = _inner_width(model, "dense_mlp")
    chosen = _inner_width(model, "routed_experts") * (model.experts.per_token if model.experts else 1)
    for field, found, limit, what in (
        ("layers", elements, MAX_ELEMENTS_PER_TOKEN, "cached elements per token, over all layers"),
        ("layers", vectors, MAX_VECTORS_PER_TOKEN, "cached vectors per token, over all layers"),
        ("layers", constant, MAX_STATE_ELEMENTS, "elements of state per request, over all layers"),
        ("weights", parameters, MAX_PARAMETERS, "parameters"),
        ("weights", inner, MAX_INNER_WIDTH, "inner width of an MLP"),
        ("experts", chosen, MAX_CHOSEN_WIDTH, "inner width of the experts of one token"),
    ):
        if found > limit:
            yield Contradiction(field, f"{found:,} {what}", f"at most {limit:,}")


def _inner_width(model: Model, component: str) -> int:
    """The widest inner side of a component's matrices."""
    matrices = (g.shape for g in model.weights if g.component == component and len(g.shape) > 1)
    return max((prod(shape[-2:]) // model.hidden_size for shape in matrices), default=0)


def _held(cache: Cache) -> tuple[int, int, int]:
    """Return a cache's elements and vectors per token, and its elements whatever the length."""
    match cache:
        case FullAttention() | SlidingWindow() | ChunkedAttention():
            return cache.kv_heads * (cache.key_dim + cache.value_dim), 2 * cache.kv_heads, 0
        case CrossAttention():
            width = cache.kv_heads * (cache.key_dim + cache.value_dim)
            return width, 2 * cache.kv_heads, width * cache.encoder_tokens
        case Latent():
            return cache.latent_dim + cache.rope_dim, 1, 0
        case Indexer():
            return cache.index_dim, 1, 0
        case Ring():
            return cache.elements_per_token, 1, cache.elements_per_token * cache.window
        case RecurrentState():
            return 0, 0, sum(_state_elements(cache))
        case Shared():
            return 0, 0, 0


def _state_elements(cache: RecurrentState) -> Iterator[int]:
    for tensor in cache.tensors:
        yield (tensor.channels + tensor.groups * tensor.channels_per_group) * tensor.columns


def is_pooling(model: Model) -> bool:
    """True for a model that reads a text once and keeps nothing: embeddings, rewards, classifiers.

    Its file says so by the name of its layers.
    """
    return all(group.name == NOTHING_KEPT and not group.caches for group in model.layers)


def _incomplete(model: Model) -> Iterator[Contradiction]:
    """Statements without which nothing can be answered."""
    caches = [cache for group in model.layers for cache in group.caches]
    kinds = {cache.kind for cache in caches}
    if not kinds - {"shared"} and not is_pooling(model):
        yield Contradiction("layers", "no layer that caches anything", "caches of at least one layer")
    for cache in caches:
        if isinstance(cache, Shared) and cache.reads not in kinds:
            allowed = f"a cache of another layer; this model has {', '.join(sorted(kinds - {'shared'}))}"
            yield Contradiction("layers.caches.reads", repr(cache.reads), allowed)
    attends = kinds & {"full", "sliding", "chunked", "latent", "cross"}
    if attends and not model.attention_heads:
        yield Contradiction(
            "attention_heads", "0", f"at least 1, because layers have {', '.join(sorted(attends))} caches"
        )
    if model.experts is not None and model.experts.per_token > model.experts.routed:
        yield Contradiction(
            "experts.per_token", f"{model.experts.per_token:,}", f"at most routed, {model.experts.routed:,}"
        )


def _stack(model: Model) -> Iterator[WeightGroup]:
    """Yield the tensors that the model's layers have, one or more in each."""
    return (group for group in model.weights if group.component not in _OWN_STACKS and "*" in group.name)


def _layer_counts(model: Model) -> Iterator[Contradiction]:
    """Tensors of the layer stack: none more often than there are layers, and one in every layer."""
    layers = model.layer_count
    counts: Counter[str] = Counter()
    too_many: dict[str, int] = {}
    for group in _stack(model):
        if group.component == "routed_experts":
            most = layers * (model.experts.routed if model.experts else 1)
            if group.count > most:
                too_many[group.name] = group.count
        elif group.name.count("*") == 1:
            counts[group.name] += group.count
            if group.count > layers:
                too_many[group.name] = group.count
    if too_many:
        name, count = next(iter(too_many.items()))
        others = f", and {len(too_many) - 1:,} other tensors likewise" if len(too_many) > 1 else ""
        found = f"{layers:,} layers, but {count:,} x {name}{others}"
        yield Contradiction("layers", found, "no tensor more often than there are layers (times experts)")
        return
    # Tensors that exist in two forms (of dense and of sparse layers) have their last two words in common.
    tails: Counter[str] = Counter()
    for name, count in counts.items():
        tails[".".join(name.split(".")[-2:])] += count
    stated = {*counts.values(), *tails.values()}
    if stated and layers not in stated:
        found = f"{layers:,} layers, while no tensor is there more often than {max(counts.values()):,} times"
        yield Contradiction("layers", found, "as many as the tensors that every layer has")


def _kv_projections(model: Model) -> Iterator[Contradiction]:
    """Key and value projections: together as many rows as the caches of all layers have elements.

    Fewer are right in two architectures: values that are the keys again (Gemma 4's full attention has no
    ``v_proj``), and blocks whose weights several layers share (Zamba2) or that run several times (Inkling 2 Mini),
    where queries are as few as keys. More are right where experts make a value (K2 Horizon): each layer has as
    many of the same matrix, ``v_experts.*``. What makes the kernel of a convolution of keys is no projection.
    """
    if is_pooling(model):
        return
    cached: dict[int, int] = defaultdict(int)
    keys: dict[int, int] = defaultdict(int)
    widths: dict[int, set[int]] = defaultdict(set)
    for group in model.layers:
        for cache in group.caches:
            if isinstance(cache, _HeadsCache):
                heads = cache.kv_heads
                cached[heads] += group.count * heads * (cache.key_dim + cache.value_dim)
                keys[heads] += group.count * heads * cache.key_dim
                widths[heads] |= {cache.key_dim, cache.value_dim, cache.key_dim + cache.value_dim}
    projections = [
        group
        for group in model.weights
        if group.component == "attention"
        and group.split == "kv_heads"
        and len(group.shape) == 2
        and "conv" not in group.name
    ]
    if not projections:
        return
    rows: dict[int, int] = defaultdict(int)
    routed: dict[int, int] = defaultdict(int)
    for tensor in projections:
        heads = tensor.heads or 0
        of = routed if tensor.name.count("*") > 1 else rows
        of[heads] += tensor.count * tensor.shape[0]
        allowed = sorted(heads * width for width in widths[heads])
        if heads not in cached:
            known = ", ".join(f"{number:,}" for number in sorted(cached)) or "none"
            found = f"{heads:,} KV heads in {tensor.name}"
            yield Contradiction("layers.caches.kv_heads", found, f"as in the caches: {known}")
        elif tensor.shape[0] not in allowed:
            found = f"{tensor.shape[0]:,} rows of {tensor.name}"
            words = " or ".join(f"{number:,}" for number in allowed)
            yield Contradiction("weights.shape", found, f"KV heads x width of the caches: {words}")
    for heads, elements in cached.items():
        if rows[heads] in (elements, keys[heads]):
            continue
        if 0 < rows[heads] < elements and (
            _shared_blocks(model, projections)
            if not routed[heads]
            else routed[heads] % (elements - rows[heads]) == 0
        ):
            continue
        found = f"{elements:,} cached elements per token in layers of {heads:,} KV heads"
        yield Contradiction("layers", found, f"{rows[heads]:,}, the rows of their key and value projections")


def _shared_blocks(model: Model, projections: list[WeightGroup]) -> bool:
    """Whether queries, keys and values are there equally often, and in fewer layers than cache them."""
    queries = {
        group.count
        for group in model.weights
        if group.component == "attention" and group.split == "heads" and len(group.shape) == 2
    }
    return queries == {group.count for group in projections} and len(queries) == 1


def _latents(model: Model) -> Iterator[Contradiction]:
    """Latents: a down-projection as wide, in every layer that keeps them.

    Compressed latents (DeepSeek-V4) have compressors beside the projection, some of the same width: there
    as many as layers is the least.
    """
    latents: Counter[int] = Counter()
    compressed: set[int] = set()
    for group in model.layers:
        for width in {_latent_width(cache) for cache in group.caches if isinstance(cache, Latent)}:
            own = [c for c in group.caches if isinstance(c, Latent) and _latent_width(c) == width]
            plain = [c for c in own if c.stride == 1 and c.window is None]
            latents[width] += group.count * max(len(plain), 1)
            if len(plain) < len(own):
                compressed.add(width)
    if not latents:
        return
    rows: Counter[int] = Counter()
    for tensor in model.weights:
        if tensor.component == "attention" and tensor.split == "replicated" and len(tensor.shape) == 2:
            rows[tensor.shape[0]] += tensor.count
    for width, count in latents.items():
        if rows[width] == count or (width in compressed and rows[width] > count):
            continue
        found = f"{count:,} latents of {width:,} elements"
        yield Contradiction("layers", found, f"{rows[width]:,}, the projections with as many rows")


def _latent_width(cache: Latent) -> int:
    return cache.latent_dim + cache.rope_dim


def _convolutions(model: Model) -> Iterator[Contradiction]:
    """Convolutions: as many rows as their states have channels, for every width of a kernel.

    A kernel of four taps keeps three columns. States without such a tensor (RWKV's token shift) are left.
    """
    channels: Counter[int] = Counter()
    for group in model.layers:
        for cache in group.caches:
            if isinstance(cache, RecurrentState):
                for tensor in cache.tensors:
                    if tensor.name == "conv":
                        width = tensor.channels + tensor.groups * tensor.channels_per_group
                        channels[tensor.columns + 1] += group.count * width
    rows: Counter[int] = Counter()
    for weight in model.weights:
        if weight.component == "recurrent" and "conv" in weight.name and len(weight.shape) == 3:
            rows[weight.shape[-1]] += weight.count * weight.shape[0]
    for taps, count in rows.items():
        if channels[taps] != count:
            found = f"{channels[taps]:,} convolution channels with {taps - 1:,} columns"
            yield Contradiction("layers", found, f"{count:,}, the rows of the kernels of {taps:,} taps")


def _widths(model: Model) -> Iterator[Contradiction]:
    """The embedding has the hidden size; query projections have the attention heads."""
    for group in model.weights:
        if group.component == "embedding" and group.split == "vocabulary" and len(group.shape) == 2:
            if group.shape[1] != model.hidden_size and not group.looked_up:
                found = f"{model.hidden_size:,}, but {group.name} of {group.shape[1]:,}"
                yield Contradiction("hidden_size", found, "the width of the embedding")
            if group.shape[0] < model.vocabulary and not group.looked_up:
                found = f"{model.vocabulary:,}, but {group.name} of {group.shape[0]:,} rows"
                yield Contradiction("vocabulary", found, "at most the rows of the embedding")
    heads = {
        group.heads
        for group in model.weights
        if group.component == "attention" and group.split == "heads" and len(group.shape) == 2
    }
    if heads and model.attention_heads not in heads:
        known = " or ".join(f"{number:,}" for number in sorted(h for h in heads if h is not None))
        yield Contradiction(
            "attention_heads", f"{model.attention_heads:,}", f"{known}, as the tensors divide"
        )
