"""The type that a release computes in on a device, and whether that widens a 16-bit checkpoint."""

from __future__ import annotations

from typing import Final

from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.model import Model
from kvreport.catalog.support import Ruling, TypeRule, numbers, within

CUDA: Final = "NVIDIA"
"""The maker whose devices formats are ruled for by capability."""

FLOAT32: Final = "float32"
WIDE: Final = "fp32"
"""The format of weights and caches that are computed in float32."""

PLAIN_FORMATS: Final = ("bf16",)
"""Formats of 16-bit checkpoints that a release may widen."""

_IN_FLOAT16: Final = ("int4", "int8", "gptq")
"""Beginnings of the names of formats whose checkpoints name float16 as their type, whatever they were made from."""


def computed_in(ruling: Ruling, accelerator: Accelerator, model: Model, form: str, dtype: str | None) -> str:
    """The type that a release computes in: the one asked for, else the checkpoint's own, else what it falls back to.

    ``ruling``: what the release says. ``form``: name of its weights' format. ``dtype``: the type asked
    for; None is the checkpoint's own.
    """
    if dtype is not None:
        return dtype
    unstable = model.architecture in ruling.unstable
    lacking = [rule for rule in ruling.rules.types if lacks_type(rule, accelerator)]
    own = stored_type(model, form)
    if own == FLOAT32 and form != WIDE:
        own = "float16" if lacking else "bfloat16"
    if own in {rule.dtype for rule in lacking if not rule.casts}:
        return own
    if not lacking:
        return "bfloat16" if unstable and own == "float16" else own
    return FLOAT32 if unstable else "float16"


def stored_type(model: Model, form: str) -> str:
    """The type that a checkpoint of a model in a format names: float16 for those that are written so."""
    return FLOAT32 if form == WIDE else "float16" if form.startswith(_IN_FLOAT16) else model.dtype


def lacks_type(rule: TypeRule, accelerator: Accelerator) -> bool:
    """True if a device does not compute in the type that a rule is about."""
    own = accelerator.compute_capability
    return accelerator.vendor == CUDA and own is not None and not within(rule, numbers(own))


def widens(ruling: Ruling, accelerator: Accelerator, model: Model, form: str, dtype: str | None) -> bool:
    """Whether a release widens a 16-bit checkpoint to float32; arguments as for :func:`computed_in`."""
    plain = form in PLAIN_FORMATS and bool(ruling.rules.types)
    return plain and computed_in(ruling, accelerator, model, form, dtype) == FLOAT32
