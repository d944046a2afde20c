"""Which class a config names, and what reads it: a function of ``families/``, a listing, or a variant of one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from functools import partial
from importlib import import_module
from math import log
from typing import Any, Final

from kvreport.architectures import families, layered, listing
from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.families import index
from kvreport.architectures.keys import Keys
from kvreport.architectures.listed import read_listed
from kvreport.architectures.nearest import NEAREST, NO_CHECKPOINT, NOT_READ, PREDICTS, READ_AS
from kvreport.architectures.published import published_defaults
from kvreport.architectures.variants import TEXT_HALF, base_class, read_variant

Reader = Callable[[Keys], Blueprint]


@dataclass(frozen=True, slots=True)
class Architecture:
    """One architecture class."""

    name: str  # The class named under ``architectures``.
    family: str
    defaults: Mapping[str, Any]  # The class's own defaults for missing keys.
    read: Reader


_DRAFTED: Final = {"LlamaForCausalLM": "LlamaForCausalLMEagle3"}

_BY_CLASS: Final[dict[str, Architecture]] = {}
_BY_MODEL_TYPE: Final[dict[str, Architecture]] = {}


def reads(*classes: str, family: str, model_types: tuple[str, ...] = ()) -> Callable[[Reader], Reader]:
    """Register the decorated function as the reader of these classes.

    ``families.index`` finds the decorator in the source: the module is imported only
    once a config names one of them.

    ``model_types`` mean the same where a config names no class.
    """

    def register(function: Reader) -> Reader:
        defaults = published_defaults().get(classes[0], {})
        for name in classes:
            if name in _BY_CLASS:
                raise ValueError(f"two readers for {name}")
            _BY_CLASS[name] = Architecture(name, family, defaults, function)
        for model_type in model_types:
            if model_type in _BY_MODEL_TYPE:
                raise ValueError(f"two readers for model_type {model_type}")
            _BY_MODEL_TYPE[model_type] = _BY_CLASS[classes[0]]
        return function

    return register


def known_classes() -> tuple[str, ...]:
    """Return the names of all classes that have a reader or a listing of their own, sorted."""
    return tuple(sorted({*index().classes, *listing.index()}))


def _load(name: str) -> Architecture:
    """Return a class that the index knows, after importing the one module that reads it."""
    module = index().classes.get(name)
    if name not in _BY_CLASS and module == families.LAYERED:
        defaults = published_defaults().get(layered.index().first[name], {})
        read = partial(layered.read_layered, name)
        _BY_CLASS[name] = Architecture(name, layered.listing(name).family, defaults, read)
    elif name not in _BY_CLASS and module is not None:
        import_module(f"{families.__name__}.{module}")
    elif name not in _BY_CLASS:
        listed = listing.listing(name)
        _BY_CLASS[name] = Architecture(name, listed.family, {}, partial(read_listed, listed))
    return _BY_CLASS[name]


def _is_known(name: str) -> bool:
    return name in index().classes or name in listing.index()


def is_read(name: str) -> bool:
    """Tell whether a class has a reader or a listing, or is a pooling variant of one that has."""
    return _is_known(name) or base_class(name, _is_known) is not None


def _variant(name: str) -> Architecture | None:
    """Return a pooling class or a reward model as its decoder's class without what it does not need."""
    base = base_class(name, _is_known)
    if base is None:
        return None
    own = _load(base)
    read = own.read
    # Without caches it is no decoder: the text half of CLIP is an encoder with a head of its own.
    if name.endswith(TEXT_HALF) and base in listing.index() and listing.listing(base).caches:
        read = partial(read_listed, listing.listing(base), text_alone=True)
    return Architecture(name, own.family, own.defaults, partial(read_variant, name, base, read))


def find_architecture(config: Keys) -> Architecture:
    """Return the architecture that a config names.

    ``model_type`` decides only where ``architectures`` is missing: a class that is named and not
    known is never replaced by another one.

    Raises:
        InputError: If the class is not known; the message names it and the nearest class that is.
    """
    classes = [READ_AS.get(name, name) for name in config.texts("architectures") or []]
    for name in classes:
        if name in _DRAFTED and config.data.get("draft_vocab_size") is not None:
            # EAGLE-3's own checkpoints name the class of the model that they draft for.
            return _load(_DRAFTED[name])
        if _is_known(name):
            return _load(name)
    for name in classes:
        variant = _variant(name) if name not in NOT_READ else None
        if variant is not None:
            return variant
    model_type = config.text("model_type")
    if not classes and model_type is not None:
        named = index().model_types.get(model_type) or listing.model_types().get(model_type)
        if named is not None:
            return _load(named)
    if classes:
        reason = next((NOT_READ[name] for name in classes if name in NOT_READ), None)
        allowed = reason or _allowed(classes[0], model_type, config)
        raise config.fault("architectures", ", ".join(classes), allowed)
    found = f"no class, and model_type {model_type}" if model_type else None
    raise config.fault("architectures", found, _allowed("", model_type, config))


_TEXT_PARTS: Final = ("text_config", "llm_config", "language_config", "llm_cfg", "thinker_config", "decoder")
"""Sections that describe a composite's text model."""
_ALIKE: Final = 1.2
"""Likeness of names (2 where they are equal) from which on a name says more than the keys of the config."""
_BEGINNING: Final = 3
"""Letters that a misspelled name begins with like the name that is meant."""
_SAME_KEYS: Final = 0.6
"""Share of a config's keys, each by how rare it is, that makes a class a near one."""
_LEAST_KEYS: Final = 4
"""Keys that a class and a config have in common at least: every model has a width and layers."""
_KEYS_SAID: Final = 3
_BUILT: Final = 0.2
"""What it counts that other classes are built of one: of nearly equal ones, a reader knows that class."""


def read_named(keys: Keys, data: Mapping[str, Any]) -> Blueprint:
    """Read what a text part says, or what is put in its place, by the class that it names."""
    text = Keys(data, keys.where, keys.path, None, keys.trail)
    architecture = find_architecture(text)
    return architecture.read(text.with_defaults(architecture.defaults))


def _near_keys(config: Keys) -> tuple[str, tuple[str, ...]] | None:
    """Return the class whose layers and caches are most like those of an unknown one, and the rarest keys that both have.

    That is the class of a composite's text part; otherwise the class that has most of the config's keys. A key counts by
    how few classes have it: ``kv_lora_rank`` says more of the caches than ``hidden_size``.
    """
    for section in _TEXT_PARTS:
        inner = config.data.get(section)
        if not isinstance(inner, Mapping):
            continue
        named = inner.get("architectures")
        for name in named if isinstance(named, list) else ():
            if isinstance(name, str) and _is_known(name):
                return name, ()
        model_type = inner.get("model_type")
        known = _of_type(model_type) if isinstance(model_type, str) else None
        if known is not None:
            return known, ()
    classes = {
        name: frozenset(defaults)
        for name, defaults in published_defaults().items()
        if name.endswith("ForCausalLM") and _is_known(name)
    }
    owners = Counter(key for keys in classes.values() for key in keys)
    rarity = {key: log(len(classes) / count) for key, count in owners.items()}
    stated = frozenset(config.data) & rarity.keys()
    of_stated = sum(rarity[key] for key in stated)
    built = Counter((*NEAREST.values(), *READ_AS.values()))

    def weight(keys: frozenset[str]) -> float:
        return sum(rarity[key] for key in keys)

    def rank(name: str) -> tuple[float, str]:
        shared = weight(stated & classes[name])
        of_both = shared / (weight(stated | classes[name]) or 1)
        return shared / of_stated + of_both / 2 + _BUILT * log(1 + built[name]), name

    if len(stated) < _LEAST_KEYS or not of_stated:
        return None
    near = max(classes, key=rank)
    shared = stated & classes[near]
    if weight(shared) < _SAME_KEYS * of_stated or len(shared) < _LEAST_KEYS:
        return None
    return near, tuple(sorted(shared, key=lambda key: (-rarity[key], key))[:_KEYS_SAID])


def _writes_text(name: str, data: Mapping[str, Any]) -> bool:
    """Whether a class or its config says so: an image classifier is near no class of text models, whatever keys they share."""
    return name.endswith(_WRITERS) or "text_config" in data or any("vocab" in key for key in data)


_WRITERS: Final = ("ForCausalLM", "ForConditionalGeneration")


def _of_type(model_type: str) -> str | None:
    for guess in (model_type, model_type.removesuffix("_text")):
        known = index().model_types.get(guess) or listing.model_types().get(guess)
        if known is not None:
            return known
    return None


def _allowed(name: str, model_type: str | None, config: Keys) -> str:
    """Say what can be read, beginning with the nearest class."""
    near = nearest_class(name, model_type)
    surely = name in NEAREST or _of_type(model_type or "") is not None
    shared: tuple[str, ...] = ()
    if not surely and (near is None or not name or _likeness(name, near)[0] < _ALIKE):
        # A class that has neither a name nor layers like another's is told of none: letters alone say nothing.
        near, shared = (_near_keys(config) or (None, ())) if _writes_text(name, config.data) else (None, ())
    both = f" (both have {', '.join(shared)})" if shared else ""
    hint = f"{near} is the nearest class that is read{both}; " if near else ""
    if NO_CHECKPOINT.search(name):
        return (
            "the class that the checkpoint's own config.json names; this is an engine's name for what runs it"
        )
    if PREDICTS.search(name):
        return (
            f"{near}'s config, whose MTP layers are included with it (--num-speculative-tokens, or --draft for a"
            " separate model)"
        )
    return (
        f"{hint}one of {len(known_classes())} classes and their pooling variants (looked for the keys"
        " architectures and model_type; see the page on adding a model)"
    )


def nearest_class(name: str, model_type: str | None = None) -> str | None:
    """Return the class whose name is nearest to an unknown one, or None if none is near."""
    if name in NEAREST:
        return NEAREST[name]
    known_type = _of_type(model_type or "")
    if known_type is not None:
        return known_type
    if name:
        return max(known_classes(), key=lambda known: _likeness(name, known))
    types = {**listing.model_types(), **index().model_types}
    close = get_close_matches(model_type or "", types, 1, 0.5)
    return types[close[0]] if close else None


def _likeness(name: str, known: str) -> tuple[float, float, str]:
    """Rank a known class by how much its name is like an unknown one; the likeness of the whole names breaks ties."""
    stem, other = _stem(name), _stem(known)
    begins = _shared(stem, other) / max(len(stem), len(other), 1)
    whole = SequenceMatcher(None, name, known)
    alike = SequenceMatcher(None, stem, other).ratio() + begins
    other_letters = max(len(name), len(known)) - sum(block.size for block in whole.get_matching_blocks())
    misspelled = other_letters <= 1 and _shared(name, known) >= _BEGINNING
    return (max(alike, _ALIKE) if misspelled else alike, whole.ratio(), known)


def _shared(one: str, other: str) -> int:
    """Return the length of what two names begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _stem(name: str) -> str:
    """Return what tells a class from others: its name without what most names end in."""
    return re.sub(r"(For[A-Z]\w+|LMHeadModel|_?MTP(?:Model)?|Model|Eagle\d*)$", "", name).lower()
