"""What the tests of the config reader share: reading a class's config, adding up what came out."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kvreport.architectures import read_config
from kvreport.catalog.model import Model


def read(architecture: str, **keys: object) -> Model:
    """Read a config of one class; keys that are left out take the class's defaults."""
    return read_config({"architectures": [architecture], **keys}, id="test/model", assume_defaults=True)


def total(model: Model) -> int:
    """Parameters of a model without its layers for multi-token prediction."""
    return sum(row.parameters for row in model.weights if row.component != "mtp")


def parts(model: Model) -> dict[str, int]:
    """Parameters by component, without empty ones."""
    found: Counter[str] = Counter()
    for row in model.weights:
        found[row.component] += row.parameters
    return dict(found)


def kinds(model: Model) -> list[str]:
    """For each layer in order, the kinds of what it keeps, joined."""
    return ["+".join(c.kind for c in model.layers[group].caches) for group in model.pattern]


def read_trimmed(source: Any, **fields: Any) -> Model:
    """Read a config that a test has cut down to what it is about: the class's defaults are asked for."""
    return read_config(source, assume_defaults=True, **fields)
