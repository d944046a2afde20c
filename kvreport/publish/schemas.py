"""JSON Schemas of what the command line prints and the site publishes, and the promise that they make.

Within a schema's major version fields are added and never removed, renamed or given another type or unit.
So a reader ignores what it does not know, and a schema forbids no further field. The schemas lie in
``schema_files``; ``scripts/write_schemas.py`` derives them from many real answers and refuses to narrow what an earlier
one promised.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

from kvreport.resources import read_table

FOLDER: Final = "downloads/v1/schemas"
STORE: Final = Path(__file__).parent / "schema_files"
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
TITLES: Final[dict[str, str]] = read_table("schema titles")
_UNITS: Final = {
    "_bytes": "Bytes.",
    "_bytes_per_gpu": "Bytes per GPU.",
    "_tokens": "Tokens.",
    "_ms_lower_bound": "Milliseconds, a lower bound.",
    "_s": "Seconds.",
}
_OPEN_KEYS: Final = 2
"""From so many samples on whose keys all differ, an object is a map and not a record."""


def files(site_url: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of every schema, with its address as its identity."""
    for name in TITLES:
        schema = read(name)
        address = f"{FOLDER}/{name}.json"
        if schema is not None:
            yield address, encode({"$id": urljoin(site_url, address) if site_url else address, **schema})


def read(name: str) -> dict[str, Any] | None:
    """Return a schema; None if there is none yet."""
    path = STORE / f"{name}.json"
    if not path.is_file():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def encode(schema: Mapping[str, Any]) -> bytes:
    """Return a schema as it is published."""
    return (json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def derive(title: str, samples: list[Any]) -> dict[str, Any]:
    """Return the narrowest schema of this kind that all samples satisfy."""
    promise = (
        "Fields are added within a major version, and never removed, renamed or given another type or unit."
    )
    return {"$schema": DIALECT, "title": title, "description": promise, **_of(samples, "")}


def with_words(schema: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with the descriptions that an earlier one has and it has not."""
    made: dict[str, Any] = {}
    for key, value in schema.items():
        before = old.get(key)
        made[key] = (
            with_words(value, before) if isinstance(value, dict) and isinstance(before, dict) else value
        )
    if "description" in old and "type" in schema:
        made.setdefault("description", old["description"])
    return made


def _of(samples: list[Any], name: str) -> dict[str, Any]:
    kinds = sorted({_kind(sample) for sample in samples})
    if kinds == ["integer", "number"]:
        kinds = ["number"]
    elif "number" in kinds and "integer" in kinds:
        kinds.remove("integer")
    schema: dict[str, Any] = {} if not kinds else {"type": kinds[0] if len(kinds) == 1 else kinds}
    unit = next((words for end, words in reversed(_UNITS.items()) if name.endswith(end)), None)
    if unit is not None and not {"object", "array"} & set(kinds):
        schema["description"] = unit
    objects = [sample for sample in samples if isinstance(sample, dict)]
    if objects:
        schema |= _object(objects)
    items = [item for sample in samples if isinstance(sample, list) for item in sample]
    if items:
        schema["items"] = _of(items, name)
    return schema


def _object(objects: list[dict[str, Any]]) -> dict[str, Any]:
    names = {name for one in objects for name in one}
    if _is_map(objects, names):
        return {"additionalProperties": _of([value for one in objects for value in one.values()], "")}
    required = sorted(name for name in names if all(name in one for one in objects))
    properties = {name: _of([one[name] for one in objects if name in one], name) for name in sorted(names)}
    return {"properties": properties, "required": required} if required else {"properties": properties}


def _is_map(objects: list[dict[str, Any]], names: set[str]) -> bool:
    """Whether keys are data: ids of models and accelerators, formats, components."""
    shared = {name for name in names if all(name in one for one in objects)}
    ids = any("/" in name or "-" in name or name.isdigit() for name in names)
    return bool(names) and (ids or (len(objects) >= _OPEN_KEYS and not shared))


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def narrowed(old: Mapping[str, Any], new: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """Yield a sentence for every promise of a schema that its successor does not keep."""
    before, after = _types(old), _types(new)
    if before and not after >= before and not ("integer" in before and "number" in after):
        missing = sorted(before - after)
        if missing != ["null"]:  # a value that is always there now was promised to be there or null
            yield f"{place or 'the document'}: {', '.join(missing)} is no longer among its types"
    for name in old.get("required", ()):
        if name not in new.get("required", ()) and "properties" in new:
            yield f"{place}/{name}: is no longer always there"
    for name, schema in old.get("properties", {}).items():
        if name in new.get("properties", {}):
            yield from narrowed(schema, new["properties"][name], f"{place}/{name}")
        elif "properties" in new:
            yield f"{place}/{name}: is gone"
    for inner in ("items", "additionalProperties"):
        if isinstance(old.get(inner), dict) and isinstance(new.get(inner), dict):
            yield from narrowed(old[inner], new[inner], f"{place}/{inner}")


def _types(schema: Mapping[str, Any]) -> set[str]:
    kinds = schema.get("type", ())
    return {kinds} if isinstance(kinds, str) else set(kinds)
