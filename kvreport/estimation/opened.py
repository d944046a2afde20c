"""A model as it was found or read, with what has to be said about it."""

from __future__ import annotations

from dataclasses import dataclass

from kvreport.catalog.model import Model


@dataclass(frozen=True, slots=True)
class Opened:
    """A model, and how it came to be."""

    model: Model
    # What was not stated, and where files were believed instead; one sentence each.
    assumptions: tuple[str, ...] = ()
    not_read: tuple[str, ...] = ()  # Keys of the config that look like sizes and were not used.


def said_of(opened: Opened) -> tuple[str, ...]:
    """What has to be said about how a model was read, one sentence each."""
    if not opened.not_read:
        return opened.assumptions
    return (*opened.assumptions, f"Keys of the config that were not read: {', '.join(opened.not_read)}.")


def listed(model: Model) -> Opened:
    """A catalog's model; where nobody has read its quantizer, that its format is taken is said."""
    if model.release_known:
        return Opened(model)
    sentence = (
        f"{model.id}: no source states the formats in which the repository stores the weights; "
        f"{model.weight_format} is assumed."
    )
    return Opened(model, (sentence,))
