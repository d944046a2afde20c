"""Write ``kvreport/architectures/defaults.json``: the defaults that transformers' config classes publish.

Run it with an interpreter that has transformers (``make torch-check`` makes one). Of a listed class, the keys that its
listing's formulas use are kept; of a class that code reads, the keys that its entry has (to add one, write it with
``null`` and run this). What transformers does not publish stands in ``kept_defaults.json``.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from kvreport.architectures import families, listing
from kvreport.architectures.listing import Listing, split_outside

OUT = Path(__file__).resolve().parents[1] / "kvreport" / "architectures" / "defaults.json"


def main() -> None:
    """Write the file."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    found: dict[str, dict[str, Any]] = {}
    for name in sorted(listing.index()):
        listed = listing.listing(name)
        model_type = listed.config or next(iter(listed.model_types), "")
        if model_type not in CONFIG_MAPPING:
            continue
        type_of = CONFIG_MAPPING[model_type]
        published = type_of().to_dict()
        known = found.setdefault(model_type, {})
        for path in sorted(paths(listed)):
            value = at(published, path)
            # A field that the class itself leaves null is filled from others, as the listing derives it.
            left_null = path in listed.derived and getattr(type_of, path, None) is None
            if value is not ... and not isinstance(value, dict) and not left_null:
                known[path] = value
    for name, keys in read_by_code(CONFIG_MAPPING):
        published = CONFIG_MAPPING[name[1]]().to_dict()
        text = published.get("text_config") or published.get("thinker_config", {}).get("text_config") or {}
        values = {key: text.get(key, published.get(key, ...)) for key in keys}
        found[name[0]] = {key: value for key, value in values.items() if value is not ...}
    lines = (
        f"{json.dumps(name)}: {json.dumps(dict(sorted(known.items())), ensure_ascii=False)}"
        for name, known in sorted(found.items())
    )
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def read_by_code(known: Container[str]) -> Iterator[tuple[tuple[str, str], list[str]]]:
    """Yield the classes that code reads and transformers has: class and ``model_type``, and the keys of its entry."""
    written = json.loads(OUT.read_text(encoding="utf-8"))
    classes: dict[str, str] = {}
    for model_type, name in families.index().model_types.items():
        if model_type in known:
            classes.setdefault(name, model_type)
    for name in sorted(classes.keys() & written.keys()):
        yield (name, classes[name]), sorted(written[name])


def paths(listed: Listing) -> set[str]:
    """Return the keys that a listing's formulas name."""
    return {path for formula in formulas(listed) for path in keys_of(formula)}


def formulas(listed: Listing) -> Iterator[str]:
    """Yield every formula of a listing."""
    yield from (value for name, value in listed.sizes.items() if name != "head")
    yield from listed.derived
    yield from listed.derived.values()
    yield from (condition for condition, _ in listed.refused)
    for line in listed.caches:
        for name, value in line.sizes.items():
            if name not in ("mechanism", "reads") and not name.endswith("_type"):
                yield from (part for whole in value.split(";") for part in split_outside(whole))
        yield line.condition or "0"
    for row in listed.rows:
        yield from (*row.shape, row.count, row.heads or "0", row.condition or "0")


def keys_of(formula: str) -> Iterator[str]:
    """Yield the dotted paths that a formula looks up."""
    tree = ast.parse(formula.strip(), mode="eval")
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in inner | called:
            yield ast.unparse(node)


def at(config: dict[str, Any], path: str) -> Any:
    """Return the value at a dotted path, or ``...`` where there is none."""
    value: Any = config
    for key in path.split("."):
        if not isinstance(value, dict) or key not in value:
            return ...
        value = value[key]
    return value


if __name__ == "__main__":
    main()
