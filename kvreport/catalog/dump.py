"""A model as the text of its catalog file: readable, deterministic, read back equal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kvreport.catalog.model import LayerGroup, Model

_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_SAFE: Final = _PLAIN | frozenset("0123456789_./+-()* ,")
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"})


def dump_model(model: Model) -> str:
    """Write a model as YAML, fields in the record's order, one line per layer group and weight.

    Fields that equal their default are left out, so a file says what is particular.
    """
    data = model.model_dump(mode="json", exclude_defaults=True)
    lines = ["schema_version: 1"]
    for name in type(model).model_fields:
        if name == "schema_version" or name not in data:
            continue
        value = data[name]
        if name == "layers":
            lines += ["layers:", *_layers(model.layers)]
        elif name in ("weights", "notes", "sources"):
            lines += [f"{name}:", *(f"  - {_flow(item)}" for item in value)]
        elif isinstance(value, list | dict):
            lines.append(f"{name}: {_flow(value)}")
        else:
            lines.append(f"{name}: {_scalar(value)}")
    return "\n".join(lines) + "\n"


def _layers(groups: Iterable[LayerGroup]) -> Iterator[str]:
    for group in groups:
        yield f"  - name: {_scalar(group.name)}"
        yield f"    layers: {json.dumps(group.layers)}"
        if group.caches:
            yield "    caches:"
        for cache in group.caches:
            # The kind tells the records apart, so it is written although it is a default.
            fields = {"kind": cache.kind, **cache.model_dump(mode="json", exclude_defaults=True)}
            yield f"      - {_flow(fields)}"


def _flow(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    return _scalar(value, flow=True)


def _scalar(value: object, *, flow: bool = False) -> str:
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    text = str(value)
    safe = (
        text[:1] in _PLAIN
        and text[-1:] != " "
        and set(text) <= (_SAFE - {","} if flow else _SAFE)
        and text.lower() not in _WORDS
    )
    # JSON strings are YAML strings.
    return text if safe else json.dumps(text, ensure_ascii=False)
