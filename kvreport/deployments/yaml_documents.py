"""YAML and JSON documents as people deploy them: anchors, merge keys and templates allowed, every value a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from kvreport.budgets import DEPLOYMENT, guard
from kvreport.errors import InputError

MOST_DEPTH: Final = 60
"""Levels of a document: a rendered LeaderWorkerSet has 14."""
MOST_DOCUMENTS: Final = 500

_HIDDEN: Final = {"{{": "\ue000", "}}": "\ue001", '"': "\ue002", "'": "\ue003", ":": "\ue004", "#": "\ue005"}
"""What stands for the signs of a template where YAML would read a mapping, a quote or a comment."""
_TEMPLATE: Final = re.compile(r"\{\{(?P<inner>[^{}\n]*)\}\}")


class Map(dict[str, Any]):
    """A mapping that knows the line it begins in and those of its values."""

    line: int = 0

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__()
        self.lines: dict[str, int] = {}

    def at(self, *path: str) -> Any:  # noqa: ANN401 - what a document holds
        """The value at a path of keys; an empty mapping where there is none."""
        found: Any = self
        for key in path:
            found = found.get(key) if isinstance(found, Map) else None
        return Map() if found is None else found

    def map(self, *path: str) -> Map:
        """The mapping at a path; an empty one where there is none."""
        found = self.at(*path)
        return found if isinstance(found, Map) else Map()

    def text(self, *path: str) -> str:
        """The text at a path; empty where there is none."""
        found = self.at(*path)
        return found if isinstance(found, str) else ""

    def maps(self, *path: str) -> list[Map]:
        """The mappings in a list at a path."""
        found = self.at(*path)
        return [one for one in found if isinstance(one, Map)] if isinstance(found, list) else []


class Seq(list[Any]):
    """A list that knows the line of each item."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__()
        self.lines: list[int] = []


_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """Plain values stay texts: a version, a count and a share are read where they are used."""

    yaml_implicit_resolvers = {"<": [("tag:yaml.org,2002:merge", re.compile(r"^(?:<<)$"))]}  # noqa: RUF012 - as in yaml

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Take in what is merged, every key once: merges of merges would repeat keys without end."""
        super().flatten_mapping(node)
        node.value = list({str(key.value): (key, value) for key, value in node.value}.values())


def _map(loader: _Loader, node: yaml.MappingNode) -> Iterator[Map]:
    made = Map()
    made.line = node.start_mark.line + 1
    yield made
    loader.flatten_mapping(node)
    for key, value in node.value:
        name = str(key.value)
        made[name] = loader.construct_object(value, deep=True)
        made.lines[name] = value.start_mark.line + 1


def _seq(loader: _Loader, node: yaml.SequenceNode) -> Iterator[Seq]:
    made = Seq()
    yield made
    for item in node.value:
        made.append(loader.construct_object(item, deep=True))
        made.lines.append(item.start_mark.line + 1)


def _text(_: _Loader, node: yaml.ScalarNode) -> str:
    return str(node.value)


_Loader.add_constructor("tag:yaml.org,2002:map", _map)
_Loader.add_constructor("tag:yaml.org,2002:seq", _seq)
_Loader.add_constructor(None, _text)


def read_documents(text: str, where: str) -> list[Map]:
    """The mappings of a text; none where it is no YAML of mappings.

    Templates stay in the values as they are written; a line that is nothing but a template is left out.

    Raises:
        InputError: If it is YAML that cannot be read, or more than the budget.
    """
    hidden = "\n".join(
        ""
        if re.fullmatch(r"\s*\{\{.*\}\}\s*", line) and ":" not in line.split("{{")[0]
        else _TEMPLATE.sub(_hide, line)
        for line in text.split("\n")
    )
    try:
        depth = 0
        for count, event in enumerate(yaml.parse(hidden, Loader=_Base)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MOST_DEPTH or count > DEPLOYMENT.rows:
                raise InputError(
                    f"{where}: found more than {MOST_DEPTH} levels or {DEPLOYMENT.rows:,} values; allowed: a deployment file"
                )
        with guard(where, "YAML, or a script"):
            found = list(yaml.load_all(hidden, Loader=_Loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark else ""
        raise InputError(
            f"{where}: found {getattr(error, 'problem', None) or 'no YAML'}{place}; allowed: YAML, or a script"
        ) from None
    if len(found) > MOST_DOCUMENTS:
        raise InputError(f"{where}: found {len(found):,} documents; allowed: at most {MOST_DOCUMENTS}")
    budget = [DEPLOYMENT.rows]
    return [_shown(one, budget, where) for one in found if isinstance(one, Map)]


def _hide(found: re.Match[str]) -> str:
    text = found[0]
    for sign, hidden in _HIDDEN.items():
        text = text.replace(sign, hidden)
    return text


def _shown(value: Any, budget: list[int], where: str) -> Any:  # noqa: ANN401 - what a document holds
    """The document with templates as they are written, and every alias counted as a value of its own."""
    budget[0] -= 1
    if budget[0] < 0:
        raise InputError(
            f"{where}: found more than {DEPLOYMENT.rows:,} values with its aliases; allowed: a deployment file"
        )
    if isinstance(value, Map):
        made = Map()
        made.line, made.lines = value.line, value.lines
        made.update({key: _shown(one, budget, where) for key, one in value.items()})
        return made
    if isinstance(value, Seq):
        listed = Seq()
        listed.lines = value.lines
        listed.extend(_shown(one, budget, where) for one in value)
        return listed
    for sign, hidden in _HIDDEN.items():
        value = value.replace(hidden, sign)
    return value
