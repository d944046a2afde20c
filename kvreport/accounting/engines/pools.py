"""Engines without vLLM's shared block pool: SGLang, llama.cpp and transformers' ``generate``.

SGLang 0.5.23 gives every token of the pool one cell, and hybrids two pools of fixed proportions.
llama.cpp allocates every cell up front, rounded to 256. transformers grows one tensor per layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kvreport.accounting.kv_cache import cache_terms, state_tensor_bytes
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.accounting.profile import UNBOUNDED, CacheProfile, Term
from kvreport.catalog.caches import Indexer, RecurrentState, SlidingWindow, StateTensor
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.model import Model

SWA_SHARE: Final = 0.8
"""SGLang's ``swa_full_tokens_ratio``: window cells per cell of full attention."""

STATE_RATIO: Final = 0.9
"""SGLang's ``mamba_full_memory_ratio``: state pool over KV pool."""

CELL_STEP: Final = 256
"""llama.cpp rounds cells up to this."""

MICRO_BATCH: Final = 512
"""llama.cpp's default ``n_ubatch``; window caches hold that many more cells."""


def sglang(model: Model, kv_format: KvFormat | None, tensor_parallel: int) -> BlockPlan:
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


def llama_cpp(model: Model, kv_format: KvFormat | None, serving: Serving) -> BlockPlan:
    """llama.cpp's caches: cells padded to 256, windows with a micro-batch more, states in float32.

    Requests that share one row of cells each keep a window in it (``llama-kv-cache-iswa.cpp``).
    """
    terms = list(_cells(model, kv_format, serving.sequences))
    notes = ["allocated up front for the whole context; nothing is paged"]
    if serving.context_parallel > 1:
        notes.append("no context parallelism")
    return BlockPlan(
        block_bytes=1, profile=CacheProfile.of(terms), block_tokens=CELL_STEP, notes=tuple(notes)
    )


def _cells(model: Model, kv_format: KvFormat | None, sequences: int) -> Iterator[Term]:
    for group in model.layers:
        for cache in group.caches:
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


def transformers(model: Model, kv_format: KvFormat | None, tensor_parallel: int) -> BlockPlan:
    """What ``generate`` holds, tensor by tensor, as transformers 5.23 keeps it.

    A window keeps one token less than it looks back, because the token that asks brings its own;
    index keys stay in the model's type; a convolution's state keeps one column more than the
    products need, and a recurrent state is float32 whatever the model's type. Found equal to the
    byte on real tensors (``experiments/check.py``).
    """
    return BlockPlan(block_bytes=1, profile=CacheProfile.of(_tensors(model, kv_format, tensor_parallel)))


def _tensors(model: Model, kv_format: KvFormat | None, tensor_parallel: int) -> Iterator[Term]:
    for group in model.layers:
        for cache in group.caches:
            if isinstance(cache, Indexer):
                plain = cache.model_copy(update={"scaled": False})
                yield from (term.scaled(group.count) for term in cache_terms(plain))
            elif isinstance(cache, RecurrentState):
                size = sum(_state_tensor(tensor, tensor_parallel) for tensor in cache.tensors)
                yield Term("state", constant_bytes=size).scaled(group.count)
            else:
                for term in cache_terms(cache, kv_format, tensor_parallel=tensor_parallel):
                    kept = term
                    if term.cap_tokens < UNBOUNDED and term.kind != "ring":
                        kept = replace(term, cap_tokens=max(term.cap_tokens - 1, 1))
                    yield kept.scaled(group.count)


def _state_tensor(tensor: StateTensor, tensor_parallel: int) -> int:
    if tensor.name == "conv":
        return state_tensor_bytes(tensor.model_copy(update={"columns": tensor.columns + 1}), tensor_parallel)
    precision = "float32" if tensor.precision == "model" else tensor.precision
    return state_tensor_bytes(tensor.model_copy(update={"precision": precision}), tensor_parallel)
