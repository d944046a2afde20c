"""What kvreport computes for the same model: the figure beside every reading."""

from __future__ import annotations

from functools import cache
from typing import Final

from experiments.models import Subject
from kvreport.accounting.allocation import plan_blocks
from kvreport.accounting.case import Case
from kvreport.accounting.demand import demand
from kvreport.accounting.plan import Serving
from kvreport.accounting.profile import CacheProfile
from kvreport.accounting.roofline import Peaks, decode, prefill
from kvreport.catalog.caches import FullAttention, Latent, SlidingWindow
from kvreport.catalog.engine import Engine
from kvreport.catalog.load import Catalog, open_catalog

_NOT_BUILT: Final = ("vision", "audio", "mtp")

SCORE_BYTES: Final = 6
"""Of one attention score while ``eager`` attention takes the softmax: the 16-bit scores that go in
and the 32-bit probabilities that come out stand side by side."""


@cache
def catalog() -> Catalog:
    """Return the public catalog, for its formats and engines."""
    return open_catalog()


def engine() -> Engine:
    """Return the engine whose conventions the tensors follow."""
    return catalog().engine("transformers")


def profile(model: Subject) -> CacheProfile:
    """Return what one request holds in transformers' cache."""
    case = Case(
        model=model.record,
        engine=engine(),
        accelerators=(),
        formats=catalog().weight_formats,
        serving=Serving(max_batched_tokens=1),
    )
    return plan_blocks(case).profile


def cache_bytes(model: Subject, context_tokens: int, batch: int = 1) -> int:
    """Bytes that the caches of a batch hold after a prefill."""
    return batch * int(profile(model).request_bytes(context_tokens))


def weights_bytes(model: Subject) -> int:
    """Bytes of the weights that are built: the text part at 16 bits, nothing padded."""
    return 2 * parameter_count(model)


def parameter_count(model: Subject) -> int:
    """Parameters of the text part, without towers and draft layers."""
    return sum(row.parameters for row in model.record.weights if row.component not in _NOT_BUILT)


def score_bytes(model: Subject, tokens: int, batch: int) -> int:
    """Least memory of eager attention: one layer's scores, as they pass the softmax."""
    return SCORE_BYTES * batch * model.record.attention_heads * tokens * tokens


def growth_bytes(model: Subject, context_tokens: int) -> int:
    """Largest copy that one request needs while its cache grows by a token.

    ``torch.cat`` writes the longer tensor while the shorter one still stands. Keys are let go before
    values are copied; a window copies both first.
    """
    most = 0
    for group in model.record.layers:
        for kept in group.caches:
            if isinstance(kept, FullAttention):
                size = kept.kv_heads * max(kept.key_dim, kept.value_dim) * context_tokens
            elif isinstance(kept, SlidingWindow):
                size = kept.kv_heads * (kept.key_dim + kept.value_dim) * min(context_tokens, kept.window)
            elif isinstance(kept, Latent):
                size = max(kept.latent_dim, kept.rope_dim) * context_tokens
            else:
                continue
            most = max(most, 2 * size)
    return most


def largest_batch(model: Subject, context_tokens: int, room_bytes: int, *, grows: bool) -> int:
    """Most requests whose caches fit into the room, with or without the copy that growing makes."""
    each = cache_bytes(model, context_tokens + 1)
    if grows:
        each += growth_bytes(model, context_tokens + 1)
    return room_bytes // each


def decode_bound(
    model: Subject, batch: int, context_tokens: int, bytes_per_s: float, operations_per_s: float
) -> float:
    """Least seconds of one decode step at these rates."""
    peaks = _peaks(bytes_per_s, operations_per_s)
    return float(decode(_demand(model), peaks, batch, context_tokens).seconds)


def prefill_bound(
    model: Subject, batch: int, prompt_tokens: int, bytes_per_s: float, operations_per_s: float
) -> float:
    """Least seconds of a prefill at these rates."""
    peaks = _peaks(bytes_per_s, operations_per_s)
    return float(prefill(_demand(model), peaks, prompt_tokens, batch=batch).seconds)


def decode_bytes(model: Subject, batch: int, context_tokens: int) -> float:
    """Bytes that one decode step must read: weights, caches, states."""
    asked = _demand(model)
    each = float(asked.cache_bytes_read(context_tokens)) + asked.state_bytes_touched
    return float(asked.weight_bytes_read(batch)) + batch * each


def prefill_operations(model: Subject, batch: int, prompt_tokens: int) -> float:
    """Floating-point operations of a prefill."""
    asked = _demand(model)
    each = prompt_tokens * sum(asked.operations_per_token.values()) + sum(asked.head_operations.values())
    return batch * (each + float(asked.prefill_attention_operations(0, prompt_tokens)))


def _demand(model: Subject):  # noqa: ANN202
    return demand(model.record, catalog().weight_format("bf16"), catalog().weight_formats)


def _peaks(bytes_per_s: float, operations_per_s: float) -> Peaks:
    return Peaks(bytes_per_s, dict.fromkeys(("bf16", "fp8", "int8", "fp4"), operations_per_s), float("nan"))
