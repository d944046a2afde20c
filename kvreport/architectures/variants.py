"""Classes that are another class with its head changed: embedding, classification and reward models.

A pooling model has no output head. Its class is its decoder's or encoder's with another ending, in transformers
(``modeling_layers.py``, ``GenericForSequenceClassification``) and in the engines (vLLM,
``model_executor/models/adapters.py``). A decoder keeps its caches there: its prompts are computed in steps, and its
attention has a place in the pool (vLLM, ``layers/attention/attention.py``, ``get_kv_cache_spec``). One whose tokens
see those after them keeps nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.keys import Keys
from kvreport.architectures.listed import ENCODERS, NOTHING_KEPT, label_count

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

_GENERATING: Final = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "MTModel", "Model")
_BIASED: Final = "ForTokenClassification"
"""The ending of classes whose head has a bias (``GenericForTokenClassification``)."""

TEXT_HALF: Final = "TextModel"
"""The ending of classes that are the text half of a composite, whose config may be the text part alone."""
_OWN_HEAD: Final = re.compile(
    r"^(?:cls|decoder\.bias|generator_\w+|lm_head\.\w+\.|lm_loss|logits|output|text_decoder\.cls)"
)
"""Names of tensors that belong to a head of several layers (BERT-like classes)."""

_SECOND_HEAD: Final = re.compile(r"^word_timestamp_head\.")
"""Names of a second head beside that of words (transformers 5.24, ``modeling_nemotron3_5_transcribe.py``)."""

NOTE: Final = "This is a pooling model. It processes each batch of tokens once and keeps nothing, so there is no KV cache."
DECODES: Final = "This is a pooling model based on a decoder. It generates no tokens, but engines keep a KV cache for its prompts."


def base_class(name: str, known: Callable[[str], bool]) -> str | None:
    """Return the class that a pooling class is made of, or None."""
    for ending in _HEADS:
        if name.endswith(ending):
            stem = name.removesuffix(ending)
            if ending == TEXT_HALF and known(f"{stem}TextForCausalLM"):
                return f"{stem}TextForCausalLM"
            both = known(stem + "ForCausalLM") and any(map(known, (stem + more for more in _GENERATING[2:4])))
            for generating in _GENERATING[2:] if both and ending != TEXT_HALF else _GENERATING:
                if stem and stem + generating != name and known(stem + generating):
                    return stem + generating
    return None


def read_variant(name: str, base: str, read: Callable[[Keys], Blueprint], keys: Keys) -> Blueprint:
    """Read a pooling class by the class it is made of.

    Raises:
        InputError: If the class has more than its base without a head, or a head of its own.
    """
    blueprint = read(keys)
    # A class may end like a text model and be none: Speech2TextModel is Speech2Text's.
    made = {name.removesuffix(ending): ending for ending in _HEADS if name.endswith(ending)}
    ending = next(ending for stem, ending in made.items() if base.removeprefix(stem) in _GENERATING)
    _check_heads(name, base, bool(_HEADS[ending]), blueprint, keys)
    dropped = ("mtp", *ENCODERS) if ending == TEXT_HALF else ("mtp",)
    outer = [
        tensor
        for tensor in blueprint.outer
        if tensor.component not in dropped
        and not _SECOND_HEAD.search(tensor.name)
        and (tensor.component != "output_head" or tensor.name.startswith("model."))
    ]
    if head := _HEADS[ending]:
        labels = label_count(keys.outer)
        outer.append(Weight(f"{head}.weight", "output_head", (labels, blueprint.hidden_size), linear=False))
        if ending == _BIASED:
            outer.append(Weight(f"{head}.bias", "output_head", (labels,)))
    blueprint.outer = outer
    caches = [cache for layer in blueprint.layers for cache in layer.caches]
    if not caches or any(cache.kind == "cross" for cache in caches):
        return pooled(blueprint)
    blueprint.notes.append(DECODES)
    return blueprint


def sees_ahead(blueprint: Blueprint, *configs: Keys) -> bool:
    """Whether a config gives up the order of tokens (``is_causal``: vLLM, ``models/llama.py`` and ``qwen2.py``)."""
    kinds = {cache.kind for layer in blueprint.layers for cache in layer.caches}
    told = any("is_causal" in one.data and one.raw("is_causal") is False for one in configs)
    return told and bool(kinds) and "state" not in kinds


def pooled(blueprint: Blueprint) -> Blueprint:
    """Take the caches out of a model that runs each batch once."""
    blueprint.layers = [Layer(NOTHING_KEPT, (), layer.tensors) for layer in blueprint.layers]
    blueprint.notes.append(NOTE)
    return blueprint


def _check_heads(name: str, base: str, classifies: bool, blueprint: Blueprint, keys: Keys) -> None:  # noqa: FBT001
    """Refuse a class that is not its base with the output head changed."""
    crossed = any(cache.kind == "cross" for layer in blueprint.layers for cache in layer.caches)
    encoder = not any(layer.caches for layer in blueprint.layers)
    if any(_OWN_HEAD.search(tensor.name) for tensor in blueprint.outer) or (
        classifies and (crossed or encoder)
    ):
        allowed = "a class that adds one matrix as its head to the decoder; this class adds layers"
        raise keys.outer.fault("architectures", name, f"{base} is the nearest class that is read; {allowed}")
