"""llama.cpp's caches: every cell is allocated at start, rounded to 256."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kvreport.accounting.engines.llama_cpp.inventory import latent_widths
from kvreport.accounting.kv_cache import cache_terms
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.accounting.profile import UNBOUNDED, CacheProfile, Term
from kvreport.catalog.caches import Cache, FullAttention, Latent, RecurrentState
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.llama_cpp import LocalArchitectures
from kvreport.catalog.model import Model

CELL_STEP: Final = 256
"""llama.cpp rounds cells up to this."""

MICRO_BATCH: Final = 512
"""llama.cpp's default ``n_ubatch``; window caches hold that many more cells."""


def cell_plan(model: Model, kv_format: KvFormat | None, serving: Serving) -> BlockPlan:
    """llama.cpp's caches: cells padded to 256, windows with a micro-batch more, states in float32.

    Requests that share one row of cells each keep a window in it (``llama-kv-cache-iswa.cpp``).
    """
    terms = list(_cells(model, kv_format, serving.sequences))
    notes = ["allocated up front for the whole context; nothing is paged"]
    return BlockPlan(
        block_bytes=1, profile=CacheProfile.of(terms), block_tokens=CELL_STEP, notes=tuple(notes)
    )


def stored_caches(model: Model, caches: tuple[Cache, ...]) -> tuple[Cache, ...]:
    """What llama.cpp caches of a layer: keys and values of every head where it unfolds latents before (MiniCPM3).

    ``caches``: the layer's caches.
    """
    known = LocalArchitectures.need().by_class.get(model.architecture)
    widths = latent_widths(model) if known is not None and known.unfolded else None
    if widths is None:
        return caches
    return tuple(
        FullAttention(kv_heads=model.attention_heads, key_dim=widths[0] + cache.rope_dim, value_dim=widths[1])
        if isinstance(cache, Latent)
        else cache
        for cache in caches
    )


def _cells(model: Model, kv_format: KvFormat | None, sequences: int) -> Iterator[Term]:
    for group in model.layers:
        for cache in stored_caches(model, group.caches):
            for term in cache_terms(cache, kv_format):
                wide = term
                if term.kind == "state" and isinstance(cache, RecurrentState):
                    elements = sum(
                        (t.channels + t.groups * t.channels_per_group) * t.columns for t in cache.tensors
                    )
                    wide = replace(term, constant_bytes=4 * elements)
                elif term.rate_bytes:
                    cap = term.cap_tokens
                    if cap < UNBOUNDED:
                        cap = -(-(cap * sequences + MICRO_BATCH) // CELL_STEP) * CELL_STEP
                    wide = replace(
                        term,
                        rate_bytes=term.rate_bytes * CELL_STEP // term.step_tokens,
                        step_tokens=CELL_STEP,
                        cap_tokens=cap,
                    )
                yield wide.scaled(group.count)
