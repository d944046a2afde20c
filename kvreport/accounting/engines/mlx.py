"""mlx-lm behind the engine protocol: caches grow in steps, a prompt is read in chunks.

Read in mlx-lm 0.32.0 (d78bf58) and 0.32.2: ``models/cache.py::KVCache`` grows by 256 tokens,
``models/cache.py::RotatingKVCache`` holds its window and the chunk being read, and ``generate.py::generate_step`` reads
prompts 2,048 tokens at a time. What a chunk computes in between is measured: 0.63 to 0.80 GB over five published runs.
Attention that no fused kernel covers also writes the scores of all heads, which grow with the context: latent attention,
quantized caches (``models/base.py::quantized_scaled_dot_product_attention``), and heads of other widths than the lists
``fused_head_dims`` of ``data/engines/mlx.yaml`` have for a release of MLX.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kvreport.accounting import numeric as xp
from kvreport.accounting.engines.protocol import EngineRules
from kvreport.accounting.engines.step import EngineStep, Following, Reserve
from kvreport.accounting.kv_cache import cache_terms
from kvreport.accounting.plan import BlockPlan
from kvreport.accounting.profile import UNBOUNDED, CacheProfile, Term
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.caches import ChunkedAttention, FullAttention, Latent, SlidingWindow
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.model import Model
from kvreport.catalog.release import plain_release, release_at, release_of

if TYPE_CHECKING:
    from kvreport.accounting.case import Case

CACHE_STEP: Final = 256
"""Tokens by which ``KVCache`` grows."""

PREFILL_STEP: Final = 2048
"""Tokens of a prompt that are read at once (``prefill_step_size``)."""

CHUNK_BYTES: Final = 700_000_000
"""What one chunk of a prompt computes in between: mean of five runs of ``mlx_lm.benchmark -p 2048`` on an M4 Max
(mlx-lm 0.28.2, 4-bit to 16-bit Qwen3), peak less weights and cache."""

SCORE_BYTES: Final = 2
"""Bytes of one score. LM Studio prints the same for a model of 24 heads of width 256 on an MLX without a kernel for
them: 98,304 B per token = 24 heads x 2,048 tokens x 2 B (lmstudio-ai/lmstudio-bug-tracker issue 2250)."""

FUSED: Final = "fused_head_dims"
"""The list of widths in the engine's record."""

FIRST_RELEASE: Final = (0, 28, 0)
"""The first release of MLX whose kernels were read."""

CHUNK_SPREAD: Final = 100_000_000
"""Half of the range of those five runs."""


@dataclass(frozen=True, slots=True)
class Mlx(EngineRules):
    """The rules of one mlx-lm release."""

    def plan(self, case: Case) -> BlockPlan:
        """Caches in steps of 256 tokens; a window holds the chunk that is being read, too."""
        return BlockPlan(
            block_bytes=1,
            profile=CacheProfile.of(_terms(case.model, case.kv_format)),
            block_tokens=CACHE_STEP,
            notes=("grown in steps of 256 tokens as a request goes", *self._kernel_notes(case.model)),
        )

    def _kernel_notes(self, model: Model) -> Iterator[str]:
        """Which heads no fused kernel reads prompts with, in this release or only in older ones."""
        if any(isinstance(cache, Latent) for cache in model.every_cache):
            yield "latent attention writes its scores to memory while a prompt is read: they grow with its length"
        for key_dim, value_dim in sorted(set(_head_dims(model))):
            width = _width(key_dim, value_dim)
            written = f"the scores of {model.attention_heads} heads x {PREFILL_STEP:,} tokens x the prompt x {SCORE_BYTES} B"
            if not self._fused(key_dim, value_dim):
                yield f"no fused kernel of this MLX reads prompts with heads of {width}: {written} are written to memory"
            elif not self.engine.lists(FUSED, width, release_at("mlx", FIRST_RELEASE)):
                yield f"MLX before the release of this answer writes {written} (heads of {width}): --engine mlx@0.31.2"

    def at_release(self, version: str) -> Engine:
        """The record with the kernels of one release of MLX, which mlx-lm of the same number is taken to run on."""
        if not plain_release(version) or version == self.engine.version:
            return self.engine
        return self.engine.model_copy(update={"version": version, "label": f"{self.engine.label} {version}"})

    def reserve(self, model: Model, accelerator: Accelerator, step: EngineStep) -> Reserve:
        """What reading a prompt of the stated length, or of the model's own, computes in between."""
        tokens = model.context_tokens if step.context_tokens is None else step.context_tokens
        scores = self._score_bytes(model, accelerator, tokens, narrow=step.narrow_cache)
        spread = xp.full_like(tokens, CHUNK_SPREAD)
        return Reserve(activations=CHUNK_BYTES + scores, non_framework=0, graphs=0, uncertainty=spread)

    def device_class(self, accelerator: Accelerator) -> tuple[Hashable, Hashable]:
        """The GPUs with matrix units run kernels that others do not."""
        return self._has_matrix_units(accelerator), (accelerator.vendor, accelerator.compute_capability)

    def reserve_follows_cache(self, model: Model) -> bool:
        """No fused kernel reads a quantized cache."""
        return True

    def following_peak(self, model: Model, accelerator: Accelerator, step: EngineStep) -> Following | None:
        """Scores that no fused kernel keeps out of memory grow with the prompt."""
        narrow, units = step.narrow_cache, self._has_matrix_units(accelerator)

        def peak(tokens: Any) -> Any:  # noqa: ANN401 - a number or an array
            return self._score_bytes(model, accelerator, tokens, narrow=narrow)

        return (narrow, units), peak, 0

    def _score_bytes(self, model: Model, accelerator: Accelerator, tokens: Any, *, narrow: bool) -> Any:  # noqa: ANN401
        """Scores of the layer that writes most of them while a chunk is read; 0 where all attention is fused."""
        most: Any = 0 * tokens
        for cache in model.every_cache:
            if isinstance(cache, Latent):
                seen = tokens if cache.window is None else xp.minimum(tokens, cache.window + PREFILL_STEP - 1)
                found = latent_score_bytes(model.attention_heads, tokens, seen // cache.stride)
            elif isinstance(cache, FullAttention | SlidingWindow | ChunkedAttention):
                if not narrow and self._fused(cache.key_dim, cache.value_dim, accelerator):
                    continue
                found = (
                    SCORE_BYTES
                    * model.attention_heads
                    * xp.minimum(PREFILL_STEP, tokens)
                    * _seen(cache, tokens)
                )
            else:
                continue
            most = xp.maximum(most, found)
        return most

    def _fused(self, key_dim: int, value_dim: int, accelerator: Accelerator | None = None) -> bool:
        """True if a fused kernel reads a prompt with heads of these widths."""
        width = _width(key_dim, value_dim)
        # The record's own release says of MLX only that it is no older than the newest list.
        stated = self.engine.label.endswith(f" {self.engine.version}")
        release = release_of(self.engine) if stated else release_at("mlx", ())
        units = accelerator is not None and self._has_matrix_units(accelerator)
        kinds = [FUSED, *(["fused_by_matrix_units"] if units else [])]
        return any(self.engine.lists(kind, width, release) for kind in kinds)

    def _has_matrix_units(self, accelerator: Accelerator) -> bool:
        return self.engine.lists("matrix_units", accelerator.architecture)


def latent_score_bytes(heads: int, context: Any, seen: Any = None) -> Any:  # noqa: ANN401
    """Scores of latent attention while a chunk is read: products and weights, 16 bits each.

    ``heads``: query heads. ``context``: tokens of the prompt, or an array of them. ``seen``: stored
    vectors that the last chunk attends to; None for one of each token.
    """
    return 2 * SCORE_BYTES * heads * xp.minimum(PREFILL_STEP, context) * (context if seen is None else seen)


def _head_dims(model: Model) -> Iterator[tuple[int, int]]:
    """Widths of keys and values of a head, for each cache of them."""
    for cache in model.every_cache:
        if isinstance(cache, FullAttention | SlidingWindow | ChunkedAttention):
            yield cache.key_dim, cache.value_dim


def _width(key_dim: int, value_dim: int) -> str:
    """Widths as the lists of kernels write them: ``128``, or ``96x64``."""
    return str(key_dim) if key_dim == value_dim else f"{key_dim}x{value_dim}"


def _seen(cache: FullAttention | SlidingWindow | ChunkedAttention, tokens: Any) -> Any:  # noqa: ANN401
    """Tokens that the last chunk of a prompt attends to."""
    if isinstance(cache, FullAttention):
        return tokens
    width = cache.window if isinstance(cache, SlidingWindow) else cache.chunk
    return xp.minimum(tokens, width + PREFILL_STEP - 1)


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
