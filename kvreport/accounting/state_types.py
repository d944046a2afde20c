"""Recurrent states in another element type than the checkpoint's: a server's flag, applied to a model."""

from __future__ import annotations

from typing import Final, cast

from kvreport.catalog.caches import Cache, Indexer, Precision, RecurrentState
from kvreport.catalog.model import Model

STATE_TYPES: Final = ("auto", "float32", "bfloat16", "float16")
"""What the flags of vLLM (``--mamba-ssm-cache-dtype``) and SGLang (``--mamba-ssm-dtype``) take; ``auto`` is the
checkpoint's own."""


def with_state_type(model: Model, named: str | None) -> Model:
    """A model whose recurrent states have another type; convolutions keep theirs.

    vLLM 0.33.0 ``model_executor/layers/mamba/mamba_utils.py::MambaStateDtypeCalculator``, SGLang 0.5.23
    ``srt/configs/mamba_utils.py::mamba2_state_dtype``.

    ``named``: the type by name; None or ``auto`` for the checkpoint's own.
    """
    if named is None or named == "auto" or named not in STATE_TYPES:
        return model
    return with_precisions(model, (("recurrent", cast("Precision", named)),))


Precisions = tuple[tuple[str, Precision], ...]
"""Element types of an engine's own: by the name of a state's tensor, or ``index`` for index keys."""


def with_precisions(model: Model, precisions: Precisions) -> Model:
    """A model whose states and index keys have the element types that an engine stores them in.

    ``precisions``: the types by name; what is not named keeps the checkpoint's.
    """
    if not precisions:
        return model
    named = dict(precisions)
    groups = tuple(
        group.model_copy(update={"caches": tuple(_typed(cache, named) for cache in group.caches)})
        for group in model.layers
    )
    return model if groups == model.layers else model.model_copy(update={"layers": groups})


def _typed(cache: Cache, named: dict[str, Precision]) -> Cache:
    if isinstance(cache, Indexer) and "index" in named and not cache.scaled:
        return cache.model_copy(update={"precision": named["index"]})
    if not isinstance(cache, RecurrentState):
        return cache
    tensors = tuple(
        one.model_copy(update={"precision": named[one.name]}) if one.name in named else one
        for one in cache.tensors
    )
    return cache.model_copy(update={"tensors": tensors})
