"""Composites by listings: a text part, the encoders beside it, and whose word on ties counts.

    encoder: siglip vision_tower.vision_model vision_config siglip_vision text_hidden=hidden if nested

names a part (``parts/*.txt``), the module that it is built in (``.`` for none), the section of the config that sizes it,
its defaults (after a ``/`` those of a config without the section), and formulas of what the part is given.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import (
    either_tied,
    inner_tied,
    outer_tied,
    saved_before_five,
    tied,
    whole_tied,
)
from kvreport.architectures.keys import Keys
from kvreport.architectures.listing import EncoderLine, Listing, part_listing
from kvreport.architectures.parts import ConfigSection, Formulas, part
from kvreport.architectures.tensor_builders import Tensors
from kvreport.architectures.vision import section_or_default


def encoder_section(line: EncoderLine, keys: Keys) -> ConfigSection:
    """Return the scope of an encoder's section, with the names that its part has for keys."""
    around = keys.outer if line.part else keys
    usual = line.absent if around.section(line.section) is None else line.defaults
    listed = part_listing(line.part) if line.part else Listing(line.section)
    return ConfigSection(section_or_default(around, line.section, usual), listed, {})


def encoder_tensors(scope: Formulas, lines: Iterable[EncoderLine]) -> Tensors:
    """Return the tensors of all encoders whose conditions hold."""
    tensors: Tensors = ()
    for line in lines:
        if line.part and scope.holds(line.condition):
            given = {word: scope.value(formula, word) for word, formula in line.given.items()}
            tensors += part(line.part, encoder_section(line, scope.root).root, line.module, **given)
    return tensors


def tied_by(whose: str, keys: Keys) -> bool:
    """Tell whether the head of a composite is its embedding.

    Args:
        whose: The word that counts: that of the ``whole``, of the ``first`` of whole and text part that has one, of ``either``,
            of the text part (``inner``), of the whole ``alone``, or of nobody (``never``).
        keys: The text part.
    """
    match whose:
        case "either":
            return either_tied(keys)
        case "inner":
            return inner_tied(keys)
        case "alone":
            return outer_tied(keys)
        case "whole":
            return whole_tied(keys)
        case "never":
            outer_tied(keys)
            return False
    return tied(keys)


def text_model(keys: Keys, usual: str, *, ties: str = "first") -> Blueprint:
    """Read the text part of a composite by its own class, which its ``model_type`` names.

    Args:
        keys: The text part.
        usual: The ``model_type`` that a text part without one has.
        ties: Whose word counts, as for :func:`tied_by`. Where neither part says it, the text's own default holds, which a
            release of transformers before 5 leaves out when it saves, and which is that of the whole in transformers 5.24.
    """
    from kvreport.architectures import layered  # noqa: PLC0415 - it is built on this
    from kvreport.architectures.registry import find_architecture  # noqa: PLC0415 - it knows all readers

    if keys.outer is keys:
        raise keys.fault("text_config", None, "an object that describes the text model")
    data = dict(keys.data)
    if not keys.has("model_type", "architectures"):
        data["model_type"] = usual
    tied_inside = ties == "either" and keys.raw("tie_word_embeddings") is True
    if ties in ("alone", "never"):
        data["tie_word_embeddings"] = ties == "alone" and outer_tied(keys)
    elif ties != "inner" and keys.outer.has("tie_word_embeddings") and not tied_inside:
        data["tie_word_embeddings"] = keys.outer.raw("tie_word_embeddings")
    elif ties == "whole" and keys.has("tie_word_embeddings") and not saved_before_five(keys.outer):
        data["tie_word_embeddings"] = None
    text = Keys(data, keys.where, keys.path, None, keys.trail)
    architecture = find_architecture(text)
    if architecture.name in layered.index().texts and layered.listing(architecture.name).reads:
        raise keys.fault("model_type", architecture.name, "the class of a text model")
    blueprint = architecture.read(text.with_defaults(architecture.defaults))
    blueprint.outer = [replace(tensor, name=f"language_model.{tensor.name}") for tensor in blueprint.outer]
    blueprint.prefix = f"language_model.{blueprint.prefix}"
    return blueprint
