"""YAML and JSON read strictly: no anchors or aliases, no key twice, no objects, no file beyond reason."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

import yaml

from kvreport.errors import CatalogError, shorten

MAX_FILE_BYTES: Final = 4 << 20
MAX_JSON_BYTES: Final = 8 << 20
MAX_DEPTH: Final = 100
_DECIMAL: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER: Any = yaml.resolver.Resolver()
_TEXT: Final = "tag:yaml.org,2002:str"
_TAGS: Final[dict[type, str]] = {
    yaml.MappingStartEvent: "tag:yaml.org,2002:map",
    yaml.SequenceStartEvent: "tag:yaml.org,2002:seq",
}
_WORDS_READ: Final = 65_536
"""Words whose kind is remembered: files of a catalog say the same few thousand."""


class _StrictLoader(_Base):  # type: ignore[misc]
    """A safe loader that makes values of what the parser sees, without a tree of nodes, and refuses more than YAML does.

    The tree took two thirds of the time in which a catalog is read.
    """

    def get_single_data(self) -> object:
        """The value of the one document; None where there is none."""
        self.get_event()
        if isinstance(self.get_event(), yaml.StreamEndEvent):
            return None
        found = self._value(self.get_event(), MAX_DEPTH)
        self.get_event()
        after = self.get_event()
        if not isinstance(after, yaml.StreamEndEvent):
            raise _refused("another document", after)
        return found

    def _value(self, event: Any, levels: int) -> object:  # noqa: ANN401 - the compiled parser's events have no types
        _refuse_anchor(event)
        kind = type(event)
        if kind is yaml.ScalarEvent:
            tag = _tag(event)
            if tag == _TEXT:
                return event.value
            node = yaml.ScalarNode(tag, event.value, event.start_mark, event.end_mark)
            return self.construct_object(node, deep=True)
        if event.tag not in (None, "!", _TAGS[kind]):
            raise _refused(f"could not determine a constructor for the tag {shorten(event.tag)}", event)
        if not levels:
            raise _refused("values nested too deeply", event, f"at most {MAX_DEPTH} levels")
        return self._list(levels - 1) if kind is yaml.SequenceStartEvent else self._mapping(levels - 1)

    def _list(self, levels: int) -> list[object]:
        found = []
        while type(event := self.get_event()) is not yaml.SequenceEndEvent:
            found.append(self._value(event, levels))
        return found

    def _mapping(self, levels: int) -> dict[str, object]:
        """A mapping, every key once and a text."""
        found: dict[str, object] = {}
        while type(event := self.get_event()) is not yaml.MappingEndEvent:
            _refuse_anchor(event)
            key = event.value if type(event) is yaml.ScalarEvent else None
            value = None if key is None else self._value(self.get_event(), levels)
            if key is None or _tag(event) != _TEXT:
                raise _refused(f"a key that is not a text: {shorten(key)}", event)
            if key in found:
                raise _refused(f"the key {shorten(key)} twice", event)
            found[key] = value
        return found


def _tag(event: Any) -> str:  # noqa: ANN401
    """What kind of value a scalar is: as it says itself, or as YAML reads a plain word."""
    if event.tag not in (None, "!"):
        return str(event.tag)
    return _plain_tag(event.value) if event.implicit[0] else _TEXT


@lru_cache(maxsize=_WORDS_READ)
def _plain_tag(word: str) -> str:
    return str(_RESOLVER.resolve(yaml.ScalarNode, word, (True, False)))


def _refused(what: str, at: Any, allowed: str = "YAML, every key once") -> yaml.constructor.ConstructorError:  # noqa: ANN401
    return yaml.constructor.ConstructorError(None, None, what, at.start_mark, allowed)


def _refuse_anchor(event: Any) -> None:  # noqa: ANN401
    if event.anchor is not None:
        raise _refused("an anchor or alias", event, "values written out where they belong")


def _refused_number(node: yaml.ScalarNode) -> yaml.constructor.ConstructorError:
    what = f"the number {shorten(node.value)}, which YAML versions read differently"
    return _refused(what, node, "decimal digits without a leading zero")


def _plain_number(loader: _StrictLoader, node: yaml.ScalarNode) -> int:
    """Return a whole number in decimal digits.

    YAML 1.1 reads ``010`` as 8, ``1:30`` as 90 and ``1_0`` as 10; YAML 1.2 reads other numbers or texts.
    """
    if not _DECIMAL.fullmatch(str(node.value)):
        raise _refused_number(node)
    number: int = loader.construct_yaml_int(node)
    return number


def _plain_fraction(loader: _StrictLoader, node: yaml.ScalarNode) -> float:
    """Return a fraction; ``1:30.5`` and ``1_0.5`` are numbers in YAML 1.1 alone."""
    if {":", "_"} & set(str(node.value)):
        raise _refused_number(node)
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
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a safe loader, made stricter
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark, error.problem or "no YAML"
        place = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise fault(f"{problem}{place}", error.note or "YAML, every key once") from error
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
