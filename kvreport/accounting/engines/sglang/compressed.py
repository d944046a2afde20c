"""The pools of compressed attention (DeepSeek-V4): windows, two compressed caches and their rings.

Follows ``DSV4PoolConfigurator`` of SGLang 0.5.23 (``srt/model_executor/pool_configurator.py``) with the
FlashMLA layout: a compressed token takes a slot of FP8 elements, 16-bit rotary elements and its scales,
and pages are padded. The window pool holds a tenth of the tokens of the full one; rings of the 4:1
compressor lie beside its pages, those of the 128:1 compressor belong to request slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvreport.accounting.engines.sglang import shapes
from kvreport.accounting.kv_cache import index_bytes
from kvreport.catalog.caches import Indexer, Latent
from kvreport.catalog.engine import Engine
from kvreport.catalog.model import Model
from kvreport.catalog.remembered import remembered

PAGE_ALIGN: Final = 576
SLOT_EXTRA: Final = 8
WIDE_BYTES: Final = 2
STATE_BYTES: Final = 4
"""Compressor states are float32 (``SGLANG_DSV4_COMPRESS_STATE_DTYPE``)."""

RINGS: Final = {4: 8, 128: 128}
DRAFTING_RINGS: Final = {4: 16, 128: 256}
"""Rows of a compressor's ring by its ratio, without and with a draft model."""

WINDOW_SHARE: Final = 0.1
"""``swa_full_tokens_ratio`` that the engine sets for these models."""


@dataclass(frozen=True, slots=True)
class CompressedSizes:
    """Sizes of one rank."""

    token_bytes: float  # Bytes of one more token of the full pool, its share of the window pool included.
    window_bytes: float  # Bytes of one token of the window pool.
    fixed_bytes: int  # Bytes of the request slots' rings.
    slot_bytes: int  # Bytes of one request slot's rings.


@remembered
def is_compressed(model: Model) -> bool:
    """True if layers keep latents of several tokens each, at the ratios that SGLang has pools for."""
    found = {cache.stride for cache in model.every_cache if isinstance(cache, Latent) and not cache.window}
    return bool(found) and found <= set(RINGS)


def compressed_sizes(
    model: Model,
    engine: Engine,
    *,
    max_requests: int,
    page_tokens: int,
    window_share: float,
    draft_tokens: int = 0,
) -> CompressedSizes:
    """Work out the sizes from the model's layers.

    Args:
        model: The model.
        engine: The record of the release. Those before 0.5.21 count slots without their page's padding and one ring of
            states per window; those before 0.5.15 keep the 128:1 compressor's rings beside the window's pages, too.
        max_requests: Requests that run at once on one data rank.
        page_tokens: ``--page-size``.
        window_share: Window tokens per token of the full pool.
        draft_tokens: Tokens that a draft model proposes; its one layer widens every size.
    """
    padded, rings_in_window = engine.compressed_pages_padded, engine.compressed_rings_in_window
    rings = DRAFTING_RINGS if draft_tokens else RINGS
    window, indexed, by_ratio = 0.0, 0.0, dict.fromkeys(RINGS, 0)
    compressed = 0.0
    states, ring_tokens = 0, page_tokens
    for group in model.layers:
        for cache in group.caches:
            if isinstance(cache, Latent) and cache.window:
                window += group.count * slot_bytes(cache, page_tokens, padded=padded)
                ring_tokens = page_tokens if padded else cache.window
            elif isinstance(cache, Latent):
                by_ratio[cache.stride] += group.count
                rows = page_tokens // cache.stride
                compressed += group.count * slot_bytes(cache, rows, padded=padded) / cache.stride
            elif isinstance(cache, Indexer):
                indexed += group.count * index_bytes(cache) / cache.stride
                states += group.count * 4 * cache.index_dim
    width = _width(model)
    states += by_ratio[4] * 4 * width
    window += rings[4] / ring_tokens * states * STATE_BYTES
    wide = 2 * width * STATE_BYTES * by_ratio[128]
    window += rings[128] / ring_tokens * wide * rings_in_window
    rows = (max_requests + 1) * rings[128] + rings[128] + 1
    rows = -(-rows // 128) * 128
    fixed = 0 if rings_in_window else rows * wide
    slot = 0 if rings_in_window else rings[128] * wide
    inflation = (model.layer_count + 1) / model.layer_count if draft_tokens else 1.0
    token = (compressed + indexed + window_share * window) * inflation
    return CompressedSizes(
        token_bytes=token, window_bytes=window * inflation, fixed_bytes=fixed, slot_bytes=slot
    )


def row_layout(cache: Latent) -> dict[str, float]:
    """The fields of a KV format that say what one slot holds, whatever ``--kv-cache-dtype`` is."""
    return {
        "bits": 8.0,
        "scale_bytes": SLOT_EXTRA,
        "scale_every": cache.latent_dim,
        "wide_rope_bytes": WIDE_BYTES,
        "page_align_bytes": PAGE_ALIGN,
    }


def slot_bytes(cache: Latent, rows: int, *, padded: bool = True) -> float:
    """Bytes of one slot in a page of ``rows``, the page's padding included unless told otherwise."""
    slot = cache.latent_dim + cache.rope_dim * WIDE_BYTES + SLOT_EXTRA
    if not padded:
        return slot
    return -(-slot * rows // PAGE_ALIGN) * PAGE_ALIGN / rows


def _width(model: Model) -> int:
    latent = shapes.latent_of(model)
    return latent.latent_dim + latent.rope_dim if latent else 0
