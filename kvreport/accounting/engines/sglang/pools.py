"""SGLang's pools (0.5.23): every token has one cell, and hybrids have two pools of fixed proportions."""

from __future__ import annotations

from typing import Final

from kvreport.accounting.kv_cache import cache_terms
from kvreport.accounting.plan import BlockPlan
from kvreport.accounting.profile import CacheProfile, Term
from kvreport.catalog.caches import RecurrentState, SlidingWindow
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.model import Model

SWA_SHARE: Final = 0.8
"""SGLang's ``swa_full_tokens_ratio``: window cells per cell of full attention."""

STATE_RATIO: Final = 0.9
"""SGLang's ``mamba_full_memory_ratio``: state pool over KV pool."""


def token_pool(model: Model, kv_format: KvFormat | None, tensor_parallel: int) -> BlockPlan:
    """SGLang's pools: one cell per token; windows and states in pools of fixed proportion.

    The pool of full-attention tokens binds: a request takes ``context`` of its cells, and each
    costs its share of the window pool and, for hybrids, of the state pool too.
    """
    full, window, states = 0, 0, False
    for group in model.layers:
        for cache in group.caches:
            if isinstance(cache, RecurrentState):
                states = True
                continue
            for term in cache_terms(cache, kv_format, tensor_parallel=tensor_parallel):
                rate = -(-term.rate_bytes // term.step_tokens) * group.count
                if isinstance(cache, SlidingWindow):
                    window += rate
                else:
                    full += rate
    notes = []
    if not full:
        full, window = window, 0
    cell = full + int(window * SWA_SHARE)
    if window:
        notes.append(f"window layers have a pool of {SWA_SHARE} cells per cell of full attention")
    if states:
        cell = int(cell * (1 + STATE_RATIO))
        notes.append(f"{STATE_RATIO / (1 + STATE_RATIO):.0%} of the pool is kept for recurrent states")
    terms = (Term("full", max(cell, 1)),)
    return BlockPlan(block_bytes=max(cell, 1), profile=CacheProfile(terms), notes=tuple(notes))
