"""YAML and JSON read strictly: no anchors or aliases, no key twice, no objects, no file beyond reason."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from kvreport.errors import CatalogError, shorten

MAX_FILE_BYTES: Final = 4 << 20
MAX_JSON_BYTES: Final = 8 << 20
MAX_DEPTH: Final = 100
_MANY_OPENINGS: Final = 3000
"""More signs that open a level than the compiled YAML reader, which descends without a limit, can take."""
_MAYBE_ANCHOR: Final = re.compile(r"(?m)(?:^|[\s\[{,:-])[&*][^\s,\[\]{}]")
_DECIMAL: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(_Base):  # type: ignore[misc]
    """A safe loader that refuses a key given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        """Build a mapping, every key once and a text."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None or key_node.tag != "tag:yaml.org,2002:str":
                raise _refused(f"a key that is not a text: {shorten(key)}", key_node)
            if key in seen:
                raise _refused(f"the key {shorten(key)} twice", key_node)
            seen.add(key)
        found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return found


def _refused(what: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, what, node.start_mark)


def _plain_number(loader: _StrictLoader, node: yaml.ScalarNode) -> int:
    """Return a whole number in decimal digits.

    YAML 1.1 reads ``010`` as 8, ``1:30`` as 90 and ``1_0`` as 10; YAML 1.2 reads other numbers or texts.
    """
    if not _DECIMAL.fullmatch(str(node.value)):
        raise _refused(f"the number {shorten(node.value)}, which YAML versions read differently", node)
    number: int = loader.construct_yaml_int(node)
    return number


def _plain_fraction(loader: _StrictLoader, node: yaml.ScalarNode) -> float:
    """Return a fraction; ``1:30.5`` and ``1_0.5`` are numbers in YAML 1.1 alone."""
    if {":", "_"} & set(str(node.value)):
        raise _refused(f"the number {shorten(node.value)}, which YAML versions read differently", node)
    number: float = loader.construct_yaml_float(node)
    return number


_StrictLoader.add_constructor("tag:yaml.org,2002:int", _plain_number)
_StrictLoader.add_constructor("tag:yaml.org,2002:float", _plain_fraction)
# A date is a text here: a field that wants one says which form it takes.
_StrictLoader.add_constructor("tag:yaml.org,2002:timestamp", _StrictLoader.construct_yaml_str)


def read_yaml(path: Path, where: str) -> object:
    """Read one YAML file strictly.

    Raises:
        CatalogError: If the file cannot be read as plain YAML.
    """
    fault = partial(CatalogError.of, where, "")
    try:
        text = _text(path, "YAML", MAX_FILE_BYTES, fault)
        if text.startswith("{") and (written := _json(text)) is not None:
            return written
        if _MAYBE_ANCHOR.search(text):
            _refuse_anchors(text, fault)
        if sum(text.count(sign) for sign in ("[", "{", "- ", "? ")) > _MANY_OPENINGS:
            _refuse_depth(text, fault)
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a safe loader, made stricter
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark, error.problem or "no YAML"
        place = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        allowed = (
            "decimal digits without a leading zero" if "YAML versions" in problem else "YAML, every key once"
        )
        raise fault(f"{problem}{place}", allowed) from error
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, CatalogError):
            raise
        raise fault(shorten(str(error)), "YAML") from error
    except RecursionError as error:
        raise fault("values nested too deeply", "a catalog file") from error


def _json(text: str) -> object:
    """Return what a program wrote as JSON, which is YAML too and is read many times faster; None if it is not."""
    try:
        return _strict_json(text, lambda found, _: ValueError(found))
    except (ValueError, RecursionError):
        return None


def _strict_json(text: str, fault: Callable[[str, str], Exception]) -> object:
    """The value that JSON says: no key twice, no number that is none."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        made = dict(pairs)
        if len(made) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for place, name in enumerate(names) if name in names[:place])
            raise fault(f"the key {shorten(twice)} twice", "JSON, every key once")
        return made

    def number(word: str) -> None:
        raise fault(word, "finite numbers")

    found: object = json.loads(text, object_pairs_hook=once, parse_constant=number)
    return found


def read_json(path: Path, where: str) -> object:
    """Read one JSON file strictly: no key twice, no number that is none.

    Raises:
        CatalogError: If the file cannot be read as such.
    """
    fault = partial(CatalogError.of, where, "")
    try:
        return _strict_json(_text(path, "JSON", MAX_JSON_BYTES, fault), fault)
    except CatalogError:
        raise
    except ValueError as error:
        raise fault(shorten(str(error), 120), "JSON") from error
    except RecursionError as error:
        raise fault("values nested too deeply", "a catalog file") from error


def _text(path: Path, kind: str, limit: int, fault: Callable[[str, str], CatalogError]) -> str:
    """Return what a file says, if it is one and not beyond reason."""
    try:
        if not path.is_file():
            raise fault("no regular file", f"a {kind} file")
        if path.stat().st_size > limit:
            raise fault(f"{path.stat().st_size:,} bytes", f"at most {limit:,} bytes")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise fault(f"a byte that is not UTF-8 at position {error.start}", f"{kind} in UTF-8") from error
    except OSError as error:
        raise fault(error.strerror or "an unreadable file", "a readable file") from error


def _refuse_anchors(text: str, fault: Callable[[str, str], CatalogError]) -> None:
    for event in yaml.parse(text, Loader=_Base):
        if getattr(event, "anchor", None) is not None:
            mark = event.start_mark
            place = f" in line {mark.line + 1}" if mark else ""
            raise fault(f"an anchor or alias{place}", "values written out where they belong")


def _refuse_depth(text: str, fault: Callable[[str, str], CatalogError]) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_Base):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise fault("values nested too deeply", f"at most {MAX_DEPTH} levels")
