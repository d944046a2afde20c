"""Classes that are another class with its head changed: embedding, classification and reward models.

A pooling model runs a batch of tokens once and keeps nothing: no cache, and no output head. Its class
is its decoder's or encoder's with another ending, in transformers (``modeling_layers.py``,
``GenericForSequenceClassification``) and in the engines (vLLM, ``model_executor/models/adapters.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kvreport.architectures.blueprint import Blueprint, Layer, Tensor
from kvreport.architectures.keys import Keys
from kvreport.architectures.listed import NOTHING_KEPT, label_count

_HEADS: Final = {
    "ForSequenceClassification": "score",
    "ForTokenClassification": "score",
    "ForRewardModel": "score",
    "ForProcessRewardModel": "score",
    "RewardModel": "score",
    "ForSequenceEmbedding": "",
    "ForTextEncoding": "",
    "ForEmbedding": "",
    "TextModel": "",
    "Model": "",
}
"""Endings of pooling classes, longest first: name of the head that they add."""

_GENERATING: Final = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "Model")
NOTE: Final = "A pooling model: each batch of tokens is run once and nothing is kept, so there is no cache."


def base_class(name: str, known: Callable[[str], bool]) -> str | None:
    """Return the class that a pooling class is made of, or None.

    Args:
        name: The pooling class.
        known: Tells whether a class can be read.
    """
    for ending in _HEADS:
        if name.endswith(ending):
            stem = name.removesuffix(ending)
            for generating in _GENERATING:
                if stem and stem + generating != name and known(stem + generating):
                    return stem + generating
    return None


def read_variant(name: str, read: Callable[[Keys], Blueprint], keys: Keys) -> Blueprint:
    """Read a pooling class by the class it is made of.

    Args:
        name: The pooling class.
        read: Reads the class it is made of.
        keys: The (text) config.
    """
    blueprint = read(keys)
    outer = [tensor for tensor in blueprint.outer if tensor.component not in ("output_head", "mtp")]
    head = next(head for ending, head in _HEADS.items() if name.endswith(ending))
    if head:
        shape = (label_count(keys.outer), blueprint.hidden_size)
        outer.append(Tensor(f"{head}.weight", "output_head", shape, linear=False))
    blueprint.outer = outer
    blueprint.layers = [Layer(NOTHING_KEPT, (), layer.tensors) for layer in blueprint.layers]
    blueprint.notes.append(NOTE)
    return blueprint
