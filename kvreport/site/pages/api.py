"""The API reference: every public name of the package with what its docstring says.

Read from the source with griffe, so that the page says what the code says. It is part of the project's
own site; a site about another catalog has no use for it.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup, escape

import kvreport
from kvreport.build_cache import code
from kvreport.query import options
from kvreport.resources import data_dir, read_table
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.templating import render
from kvreport.site.page_type import Inputs, PageType

if TYPE_CHECKING:
    import griffe

URI: Final = "about/api/"
INSTALL: Final = "about/install/"
"""Where a site says how to get the package."""

_WITH_OPTIONS: Final = "estimate"
"""The function under which every option stands; others refer to it."""
_ACCEPTED: Final[dict[str, str]] = read_table("accepted types")
"""What a keyword takes in Python, by how its flag is written."""
_ROLE: Final = re.compile(r":[a-z]+:`~?([^`]+)`")
_CODE: Final = re.compile(r"``([^`]+)``|`([^`]+)`")


@dataclass(frozen=True, slots=True)
class ApiName:
    """A parameter, an attribute or an error: its name, its type, its default, what it is."""

    name: str
    type: str
    default: str
    meaning: Markup


@dataclass(frozen=True, slots=True)
class ApiEntry:
    """A function, a class or a method."""

    name: str
    id: str
    signature: str
    text: tuple[Markup, ...]
    parameters: tuple[ApiName, ...]
    returns: tuple[ApiName, ...]
    raises: tuple[ApiName, ...]
    examples: tuple[str, ...]
    options: tuple[ApiName, ...] = ()
    members: tuple[ApiEntry, ...] = ()


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the page, on the site of the public catalog."""
    if inputs.site.catalog.folder.resolve() != data_dir().resolve():
        return
    parts = inputs.site.parts
    install = INSTALL if INSTALL in inputs.addresses else ""
    entries = parts.value("api", parts.key(code()), every_entry)
    yield Page(
        uri=URI,
        kind="tool",
        title="Python API reference",
        heading="Python API",
        description=f"{len(entries)} public names of the package kvreport: arguments, results, errors.",
        lead=render("api/lead.html", URI, {"version": kvreport.__version__, "install": install}),
        sections=tuple(
            Section(one.id, f"kvreport.{one.name}", render("api/entry.html", URI, {"entry": one}))
            for one in entries
        ),
        names=("API", "Python", "reference", *(one.name for one in entries)),
        boost=0.5,
    )


def every_entry() -> tuple[ApiEntry, ...]:
    """Return what the reference says of every public name."""
    return tuple(entry(name) for name in kvreport.__all__ if not name.startswith("__"))


def entry(name: str) -> ApiEntry:
    """Return what the reference says of a public name."""
    found = getattr(kvreport, name)
    return _entry(_source(found.__module__)[found.__name__], name, _types(found))


def _types(found: Any) -> dict[str, str]:  # noqa: ANN401 (a function or a class)
    """Types of a class's fields as its code and that of its bases state them, which griffe reads one module at a time."""
    bases = reversed(found.__mro__) if isinstance(found, type) else ()
    return {field: str(stated) for base in bases for field, stated in inspect.get_annotations(base).items()}


@cache
def _source(module: str) -> griffe.Module:
    import griffe

    path = Path(str(inspect.getsourcefile(sys.modules[module])))
    return griffe.visit(
        module,
        filepath=path,
        code=path.read_text(encoding="utf-8"),
        docstring_parser=griffe.Parser.google,
        docstring_options={"returns_multiple_items": False, "returns_named_value": False},
    )


def _entry(found: Any, name: str, types: dict[str, str]) -> ApiEntry:  # noqa: ANN401 (any of griffe's objects)
    parts: dict[str, list[Any]] = {}
    for part in found.docstring.parsed if found.docstring else ():
        parts.setdefault(part.kind.value, []).append(part.value)
    stated = (
        {one.name: one for one in found.parameters if not str(one.kind.value).startswith("variadic")}
        if found.is_function
        else {}
    )
    listed = [*_all(parts, "parameters"), *_all(parts, "other parameters"), *_all(parts, "attributes")]
    return ApiEntry(
        name=name,
        id=f"kvreport-{name.replace('.', '-')}",  # case tells Estimate from estimate
        signature=_signature(found, name),
        text=tuple(prose(text) for block in parts.get("text", ()) for text in block.split("\n\n")),
        parameters=tuple(
            ApiName(
                one.name,
                types.get(one.name, str(one.annotation or "")),
                _default(stated.get(one.name)),
                prose(one.description),
            )
            for one in listed
        ),
        options=tuple(
            ApiName(
                one.name, _ACCEPTED.get(one.kind, one.kind), "", Markup("%s (%s)") % (one.help, one.flags[0])
            )
            for one in (options() if name == _WITH_OPTIONS else ())
            if one.flags and one.name not in stated
        ),
        returns=tuple(
            ApiName("", str(found.returns or one.annotation or ""), "", prose(one.description))
            for one in _all(parts, "returns")
        ),
        raises=tuple(
            ApiName(str(one.annotation), "", "", prose(one.description)) for one in _all(parts, "raises")
        ),
        examples=tuple(
            str(code)
            for block in parts.get("examples", ())
            for kind, code in block
            if kind.value == "examples"
        ),
        members=tuple(
            _entry(member, f"{name}.{member.name}", {})
            for member in (found.members.values() if found.is_class else ())
            if not member.name.startswith("_") and (member.is_function or "property" in member.labels)
        ),
    )


def _all(parts: dict[str, list[Any]], kind: str) -> list[Any]:
    return [one for block in parts.get(kind, ()) for one in block]


def _signature(found: Any, name: str) -> str:  # noqa: ANN401 (any of griffe's objects)
    """Return the call as a reader writes it; records and properties have none."""
    if not found.is_function:
        return ""
    given: list[str] = []
    for one in found.parameters:
        if one.name in ("self", "cls"):
            continue
        if one.kind is not None and one.kind.value == "keyword-only" and "*" not in given:
            given.append("*")
        if one.kind is not None and one.kind.value.startswith("variadic"):
            given.append(f"{'**' if 'keyword' in one.kind.value else '*'}{one.name}")
        else:
            given.append(one.name if one.default is None else f"{one.name}={one.default}")
    return f"{name}({', '.join(given)})"


def _default(stated: griffe.Parameter | None) -> str:
    return "" if stated is None or stated.default is None else str(stated.default)


def prose(text: str) -> Markup:
    """Return a docstring's text as HTML: code marked as code, roles as the name they lead to.

    >>> str(prose("See :class:`~kvreport.errors.InputError` and ``kv=None`` & more."))
    'See <code>InputError</code> and <code>kv=None</code> &amp; more.'
    """
    named = _ROLE.sub(lambda found: f"``{found[1].rpartition('.')[2]}``", inspect.cleandoc(text))
    parts: list[Markup] = []
    end = 0
    for found in _CODE.finditer(named):
        parts += [escape(named[end : found.start()]), Markup("<code>%s</code>") % (found[1] or found[2])]
        end = found.end()
    return _joined([*parts, escape(named[end:])])


def _joined(parts: Sequence[Markup]) -> Markup:
    return Markup("").join(parts)


TYPE: Final = PageType("api", pages)
