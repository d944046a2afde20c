"""mlx-lm behind the engine protocol: caches grow in steps, a prompt is read in chunks.

``mlx_lm/models/cache.py`` and ``mlx_lm/generate.py`` of mlx-lm 0.32.0 (d78bf58, the same in 0.32.2): ``KVCache`` grows by 256 tokens,
``RotatingKVCache`` holds its window and the chunk being read, prompts are read 2,048 tokens at a time. What a
chunk computes in between is measured: 0.63 to 0.80 GB over five published runs, and the scores of latent
attention, which no fused kernel covers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from kvreport.accounting.engines.base import EngineRules
from kvreport.accounting.engines.step import Reserve, Step
from kvreport.accounting.kv_cache import cache_terms
from kvreport.accounting.plan import BlockPlan, CacheSetup
from kvreport.accounting.profile import UNBOUNDED, CacheProfile, Term
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.caches import Latent
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.model import Model

CACHE_STEP: Final = 256
"""Tokens by which ``KVCache`` grows."""

PREFILL_STEP: Final = 2048
"""Tokens of a prompt that are read at once (``prefill_step_size``)."""

CHUNK_BYTES: Final = 700_000_000
"""What one chunk of a prompt computes in between: mean of five runs of ``mlx_lm.benchmark -p 2048`` on an M4 Max
(mlx-lm 0.28.2: Qwen3-4B in bf16, q6, q5 and q4, Qwen3-30B-A3B in q5), peak less weights and cache."""

CHUNK_SPREAD: Final = 100_000_000
"""Half of the range of those five runs."""


@dataclass(frozen=True, slots=True)
class Mlx(EngineRules):
    """The rules of one mlx-lm release."""

    def plan(
        self,
        model: Model,
        setup: CacheSetup,
    ) -> BlockPlan:
        """Caches in steps of 256 tokens; a window holds the chunk that is being read, too."""
        return BlockPlan(
            block_bytes=1,
            profile=CacheProfile.of(_terms(model, setup.kv_format)),
            block_tokens=CACHE_STEP,
            notes=("grown in steps of 256 tokens as a request goes",),
        )

    def reserve(self, model: Model, accelerator: Accelerator, step: Step) -> Reserve:
        """What reading a prompt computes in between, at the model's own context for latent attention."""
        del accelerator, step
        latent = any(isinstance(cache, Latent) for group in model.layers for cache in group.caches)
        scores = latent_score_bytes(model.attention_heads, PREFILL_STEP) if latent else 0
        return Reserve(activations=CHUNK_BYTES + scores, non_framework=0, graphs=0, uncertainty=CHUNK_SPREAD)


def latent_score_bytes(heads: int, context: int) -> int:
    """Scores of latent attention while a chunk is read: products and weights, 16 bits each."""
    return 2 * 2 * heads * min(PREFILL_STEP, context) * context


def _terms(model: Model, kv_format: KvFormat | None) -> Iterator[Term]:
    for group in model.layers:
        for cache in group.caches:
            for term in cache_terms(cache, kv_format):
                yield _stepped(term).scaled(group.count)


def _stepped(term: Term) -> Term:
    if not term.rate_bytes:
        return term
    if term.cap_tokens < UNBOUNDED:
        return replace(term, cap_tokens=term.cap_tokens + PREFILL_STEP - 1)
    return replace(term, rate_bytes=term.rate_bytes * CACHE_STEP // term.step_tokens, step_tokens=CACHE_STEP)
