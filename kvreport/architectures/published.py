"""The classes' own defaults, as their config classes publish them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any


@cache
def published_defaults() -> Mapping[str, Mapping[str, Any]]:
    """Return every default that is known.

    Of a listing they are under its ``model_type`` and the dotted path of the key, of a reader in code under its first
    class, of a section that several classes have (an encoder) under a name of its own.

    Source: ``defaults.json`` is written by ``scripts/generate_defaults.py`` from transformers' config classes.
    ``kept_defaults.json``, which goes before it, has what they do not publish: classes that are only in repositories
    (the ``configuration_*.py`` beside the weights), encoders' sections, and values that a class changes after it is made.
    """
    folder = resources.files(__package__)
    generated, kept = (
        json.loads((folder / name).read_text(encoding="utf-8"))
        for name in ("defaults.json", "kept_defaults.json")
    )
    return {name: {**generated.get(name, {}), **kept.get(name, {})} for name in {**generated, **kept}}


def published(name: str) -> Mapping[str, Any]:
    """Return the defaults of one class or section.

    Raises:
        KeyError: If none are kept under this name.
    """
    return published_defaults()[name]
