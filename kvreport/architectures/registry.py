"""Which function reads the config of which architecture class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from kvreport.architectures import families
from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.families import CLASSES, MODEL_TYPES
from kvreport.architectures.keys import Keys

Reader = Callable[[Keys], Blueprint]


@dataclass(frozen=True, slots=True)
class Architecture:
    """One architecture class.

    Attributes:
        name: The class named under ``architectures``.
        family: What people call its family.
        defaults: The class's own defaults for missing keys.
        read: The function that reads it.
    """

    name: str
    family: str
    defaults: Mapping[str, Any]
    read: Reader


_NOT_READ: Final = {
    "MiniCPMO": "MiniCPMV for its text and images; the config does not size the parts that hear and speak",
    "Phi4MMForCausalLM": (
        "Phi4MultimodalForCausalLM, the library's form of the same model; this config sizes neither the towers"
        " nor the adapters that its checkpoint holds"
    ),
    "RWKV7ForCausalLM": "RwkvForCausalLM (versions 4 and 5); the low-rank parts of 7 are sized by code",
}
"""What to give in place of classes that people ask for and whose bytes their configs do not tell."""

_BY_CLASS: Final[dict[str, Architecture]] = {}
_BY_MODEL_TYPE: Final[dict[str, Architecture]] = {}


def reads(
    *classes: str, family: str, model_types: tuple[str, ...] = (), defaults: Mapping[str, Any] | None = None
) -> Callable[[Reader], Reader]:
    """Register the decorated function as the reader of these classes.

    ``families.CLASSES`` and ``families.MODEL_TYPES`` must list them too: the module is imported only
    once a config names one of them.

    Args:
        *classes: Names under ``architectures``.
        family: What people call the family.
        model_types: Values of ``model_type`` that mean the same where a config names no class.
        defaults: The class's own defaults.
    """

    def register(function: Reader) -> Reader:
        for name in classes:
            if name in _BY_CLASS:
                raise ValueError(f"two readers for {name}")
            _BY_CLASS[name] = Architecture(name, family, defaults or {}, function)
        for model_type in model_types:
            if model_type in _BY_MODEL_TYPE:
                raise ValueError(f"two readers for model_type {model_type}")
            _BY_MODEL_TYPE[model_type] = _BY_CLASS[classes[0]]
        return function

    return register


def known_classes() -> tuple[str, ...]:
    """Return the names of all classes that can be read, sorted."""
    return tuple(sorted(CLASSES))


def _load(name: str) -> Architecture:
    """Return a class that the index knows, after importing the one module that reads it."""
    if name not in _BY_CLASS:
        import_module(f"{families.__name__}.{CLASSES[name]}")
    return _BY_CLASS[name]


def find_architecture(config: Keys) -> Architecture:
    """Return the architecture that a config names.

    ``model_type`` decides only where ``architectures`` is missing: a class that is named and not
    known is never replaced by another one.

    Raises:
        InputError: If the class is not known; the message names it and the keys looked for.
    """
    classes = config.texts("architectures") or []
    for name in classes:
        if name in CLASSES:
            return _load(name)
    model_type = config.text("model_type")
    if not classes and model_type is not None and model_type in MODEL_TYPES:
        return _load(MODEL_TYPES[model_type])
    allowed = (
        f"one of the {len(CLASSES)} classes this version can read (looked for the keys architectures"
        " and model_type; see the page on adding a model)"
    )
    if classes:
        reason = next((_NOT_READ[name] for name in classes if name in _NOT_READ), allowed)
        raise config.fault("architectures", ", ".join(classes), reason)
    raise config.fault(
        "architectures", f"no class, and model_type {model_type}" if model_type else None, allowed
    )
