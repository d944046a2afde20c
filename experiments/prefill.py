"""Running a model: prefilling in pieces, one decode step, the cache in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from experiments.models import Subject

PIECE_TOKENS: Final = 2048
"""Tokens of one forward pass, over all requests of the batch; keeps activations small and even."""


def tokens(model: Subject, batch: int, length: int, device: str) -> torch.Tensor:
    """Return a batch of token ids; which ids they are changes no size."""
    highest = min(model.text.get("vocab_size") or model.record.vocabulary, model.record.vocabulary)
    if device == "meta":
        return torch.zeros((batch, length), dtype=torch.long, device=device)
    generator = torch.Generator().manual_seed(length)
    return torch.randint(0, highest, (batch, length), generator=generator).to(device)


@torch.inference_mode()
def prefill(
    net: Any,  # noqa: ANN401
    ids: torch.Tensor,
    *,
    cache: object = None,
    piece: int | None = None,
    after: Callable[[int, object], None] | None = None,
) -> Any:  # noqa: ANN401
    """Prefill and return the cache.

    Args:
        net: The model.
        ids: Token ids, batch by length.
        cache: A cache to go on with; None for a new one.
        piece: Tokens of each request in one forward pass; None for all at once.
        after: Called after each piece with the tokens held and the cache.
    """
    length = ids.shape[1]
    step = length if piece is None else piece
    for start in range(0, length, step):
        part = ids[:, start : start + step]
        cache = forward(net, part, cache)
        if after is not None:
            after(start + part.shape[1], cache)
    return cache


@torch.inference_mode()
def forward(net: Any, ids: torch.Tensor, cache: object) -> Any:  # noqa: ANN401
    """Run one forward pass and return the cache; only the last token becomes logits."""
    options: dict[str, Any] = {"use_cache": True}
    if hasattr(net, "lm_head"):
        options["logits_to_keep"] = 1
    if cache is not None:
        options["past_key_values"] = cache
    return net(input_ids=ids, **options).past_key_values
