"""What one request holds in the cache, as the architecture itself needs it.

No engine is involved: no blocks, no padding, no reservation for tokens in flight. Those are
:mod:`kvreport.accounting.blocks`. Bytes are per device, after tensor parallelism.
"""

from __future__ import annotations

from typing import Final

from kvreport.accounting.profile import UNBOUNDED, CacheProfile, Kind, Term
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
    StateTensor,
)
from kvreport.catalog.formats import KvFormat, RecordFormat
from kvreport.catalog.model import Model
from kvreport.errors import InputError

SERVED_BYTES: Final = 2
"""Bytes of one unquantised element as served: engines serve float32 checkpoints at 16 bits."""

_PRECISION_BYTES: Final = {
    "model": SERVED_BYTES,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8": 1,
}
_INDEX_SCALE_BYTES: Final = 4

# Rows of a page where a format pads pages: the layout that DeepSeek-V4's kernels prescribe
# (vLLM 0.33.0, models/deepseek_v4).
_PAGE_TOKENS: Final = 256
_WINDOW_PAGE_TOKENS: Final = 64
_SHORT_RING: Final = 8
_SHORT_RING_PAGE_TOKENS: Final = 4
_RING_PAGE_TOKENS: Final = 8
_INDEX_SCALE_EVERY: Final = 128


def vector_bytes(elements: int, kv_format: KvFormat | None = None) -> int:
    """Bytes of one cached vector (one head's key or value of one token).

    ``ceil(elements * bits / 8)`` plus its scales, padded to the format's alignment.

    ``elements``: width of the vector. ``kv_format``: how it is stored; None means the 16-bit type the
    model is served in.
    """
    if kv_format is None:
        return elements * SERVED_BYTES
    size = -int(-elements * kv_format.bits // 8)
    if kv_format.scale_bytes:
        scales = -(-elements // kv_format.scale_every) if kv_format.scale_every else 1
        size += scales * kv_format.scale_bytes
    return -(-size // kv_format.align_bytes) * kv_format.align_bytes


def pair_bytes(key_dim: int, value_dim: int, kv_format: KvFormat | None = None) -> int:
    """Bytes of one head's key and value of one token, where a format may store values otherwise than keys."""
    key = vector_bytes(key_dim, kv_format)
    if kv_format is None or kv_format.value_bits is None:
        pair = key + vector_bytes(value_dim, kv_format)
    else:
        pair = key - int(-value_dim * kv_format.value_bits // 8) + kv_format.value_scale_bytes
    align = 1 if kv_format is None else kv_format.pair_align_bytes
    return -(-pair // align) * align


def latent_bytes(cache: Latent, kv_format: KvFormat | None = None) -> int:
    """Bytes of one stored latent: the compressed part and the rotary part beside it.

    Formats with ``wide_rope_bytes`` quantise only the compressed part: ``fp8_ds_mla`` is
    512 FP8 + 4 scales of 4 B + 64 rotary elements of 2 B = 656 B. Kernels with records of their own state them.
    """
    if isinstance(kv_format, RecordFormat):
        return kv_format.record_bytes if cache.window is None else kv_format.window_record_bytes
    if kv_format is None or not kv_format.wide_rope_bytes:
        return vector_bytes(cache.latent_dim + cache.rope_dim, kv_format)
    wide = cache.rope_dim * kv_format.wide_rope_bytes
    size = -int(-cache.latent_dim * kv_format.bits // 8) + wide
    if kv_format.scale_every:
        size += -(-cache.latent_dim // kv_format.scale_every) * kv_format.scale_bytes
    return -(-size // kv_format.align_bytes) * kv_format.align_bytes


def index_bytes(cache: Indexer) -> int:
    """Bytes of one index key: FP8 with a 4-byte scale per 128 elements, FP8 alone, or the model's type."""
    if not cache.scaled:
        return cache.index_dim * (1 if cache.precision == "float8" else SERVED_BYTES)
    return cache.index_dim + -(-cache.index_dim // _INDEX_SCALE_EVERY) * _INDEX_SCALE_BYTES


def placed_bytes(row_bytes: int, rows: int, kv_format: KvFormat | None = None) -> int:
    """Bytes of one row where pages of ``rows`` are padded to a multiple that the format sets.

    DeepSeek-V4's kernels want pages at multiples of 576 bytes, so a 584-byte state takes 585 in a
    page of 64 and 864 in a page of two.
    """
    if kv_format is None or kv_format.page_align_bytes == 1:
        return row_bytes
    page = -(-row_bytes * rows // kv_format.page_align_bytes) * kv_format.page_align_bytes
    return -(-page // rows)


def heads_per_rank(heads: int, tensor_parallel: int) -> int:
    """KV heads (or groups) that one rank holds; beyond one per rank they replicate."""
    return max(1, -(-heads // tensor_parallel))


def state_tensor_bytes(tensor: StateTensor, tensor_parallel: int = 1) -> int:
    """Bytes of one state tensor of one request on one rank.

    Channels divide by the ranks; groups that do not divide are extended to one per rank.
    """
    channels = -(-tensor.channels // tensor_parallel)
    if tensor.groups:
        channels += heads_per_rank(tensor.groups, tensor_parallel) * tensor.channels_per_group
    return channels * tensor.columns * _PRECISION_BYTES[tensor.precision]


def state_bytes(cache: RecurrentState, tensor_parallel: int = 1) -> int:
    """Bytes of one layer's recurrent state of one request on one rank."""
    return sum(state_tensor_bytes(tensor, tensor_parallel) for tensor in cache.tensors)


def cache_terms(
    cache: Cache,
    kv_format: KvFormat | None = None,
    *,
    tensor_parallel: int = 1,
    context_parallel: int = 1,
) -> tuple[Term, ...]:
    """The terms of one layer's cache on one rank.

    ``cache``: what the layer keeps. ``kv_format``: how growing caches are stored; None means the served
    16-bit type. Index keys, compressor rings and states keep the precision their architecture gives them.
    ``tensor_parallel``: ranks that the heads are divided by; latents and index keys replicate.
    ``context_parallel``: ranks that the tokens are divided by while decoding.

    Raises:
        InputError: If the format cannot store this kind of cache.
    """
    match cache:
        case FullAttention():
            rate = _heads_bytes(cache, kv_format, tensor_parallel)
            return (Term("full", rate, step_tokens=context_parallel),)
        case SlidingWindow():
            rate = _heads_bytes(cache, kv_format, tensor_parallel)
            return (Term("sliding", rate, cap_tokens=cache.window),)
        case ChunkedAttention():
            rate = _heads_bytes(cache, kv_format, tensor_parallel)
            return (Term("chunked", rate, cap_tokens=cache.chunk),)
        case Latent():
            require_storable("latent", kv_format)
            rows = _WINDOW_PAGE_TOKENS if cache.window else _PAGE_TOKENS // cache.stride
            return (
                Term(
                    "latent",
                    placed_bytes(latent_bytes(cache, kv_format), rows, kv_format),
                    step_tokens=cache.stride * (1 if cache.window else context_parallel),
                    cap_tokens=cache.window or UNBOUNDED,
                ),
            )
        case Indexer():
            step = cache.stride * context_parallel
            key = placed_bytes(index_bytes(cache), _PAGE_TOKENS // cache.stride, kv_format)
            return (Term("indexer", key, step_tokens=step),)
        case Ring():
            rate = cache.elements_per_token * _PRECISION_BYTES["float32"]
            rows = _SHORT_RING_PAGE_TOKENS if cache.window <= _SHORT_RING else _RING_PAGE_TOKENS
            return (Term("ring", placed_bytes(rate, rows, kv_format), cap_tokens=cache.window),)
        case RecurrentState():
            return (Term("state", constant_bytes=state_bytes(cache, tensor_parallel)),)
        case CrossAttention():
            rate = _heads_bytes(cache, kv_format, tensor_parallel)
            return (Term("cross", constant_bytes=rate * cache.encoder_tokens),)
        case Shared():
            return ()


def held(
    model: Model,
    kv_format: KvFormat | None = None,
    *,
    tensor_parallel: int = 1,
    context_parallel: int = 1,
) -> CacheProfile:
    """What one request holds on one rank, summed over layers.

    Args:
        model: The model.
        kv_format: How growing caches are stored; None means the served 16-bit type.
        tensor_parallel: Ranks that heads and state channels are divided by.
        context_parallel: Ranks that tokens of full-attention and latent caches are divided by.

    Raises:
        InputError: If the format cannot store one of the model's caches.
    """
    return CacheProfile.of(
        term.scaled(group.count)
        for group in model.layers
        for cache in group.caches
        for term in cache_terms(
            cache, kv_format, tensor_parallel=tensor_parallel, context_parallel=context_parallel
        )
    )


def _heads_bytes(
    cache: FullAttention | SlidingWindow | ChunkedAttention | CrossAttention,
    kv_format: KvFormat | None,
    tensor_parallel: int,
) -> int:
    require_storable(cache.kind, kv_format)
    head = pair_bytes(cache.key_dim, cache.value_dim, kv_format)
    return heads_per_rank(cache.kv_heads, tensor_parallel) * head


def require_storable(kind: Kind, kv_format: KvFormat | None) -> None:
    """Refuse a format that cannot keep this kind of cache.

    Raises:
        InputError: Naming what the format stores.
    """
    if kv_format is not None and kind not in kv_format.stores:
        raise InputError(
            f"KV format {kv_format.name!r} cannot store a {kind} cache; "
            f"it stores: {', '.join(kv_format.stores)}"
        )


def rotary_width(cache: Cache) -> int:
    """Width of what rotates in a cache's keys; 0 where nothing does."""
    if isinstance(cache, FullAttention | SlidingWindow | ChunkedAttention):
        return cache.key_dim
    return cache.rope_dim if isinstance(cache, Latent) else 0
