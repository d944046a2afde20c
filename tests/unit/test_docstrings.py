"""What a public docstring must say: arguments and fields that no type or unit tells, and what is raised."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import pytest

import kvreport
from kvreport.accounting.engines.llama_cpp.rules import LlamaCpp

ROOMS = ("accounting", "catalog", "estimation", "evidence", "startup_log", "traffic")
SELF_EXPLAINING = 3
"""So many arguments or fewer may be told by their names, their types and the first line."""

BARE = re.compile(r"\b(?:int|float|str|bool|ArrayLike|Integers|Any|range)\b")
"""Types of numbers, words and arrays: a record of the package says what it is by its own docstring."""
UNIT = re.compile(
    r"(?:^|_)(?:bytes|tokens|requests|seqs|layers|heads|devices|gpus|ranks|blocks|experts|s|ms|share|rate|dim|width|rows"
    r"|columns|percent|batch|per_token|per_layer|version|context|vocabulary|states|steps|slots|count)$"
)
"""Ends of names that carry their unit."""

Function = ast.FunctionDef


def _public(node: ast.AST, owner: str = "") -> Iterator[tuple[str, ast.AST]]:
    for child in getattr(node, "body", ()):
        if isinstance(child, Function | ast.ClassDef) and not child.name.startswith("_"):
            yield f"{owner}{child.name}", child
            if isinstance(child, ast.ClassDef):
                yield from _public(child, f"{child.name}.")


def _arguments(function: Function) -> list[str]:
    every = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    return [one.arg for one in every if one.arg not in ("self", "cls")]


def _of_the_protocol(name: str) -> bool:
    """True for a method that the engines' base class, or llama.cpp's for Ollama, documents for all of them."""
    return "." in name and not name.startswith("EngineRules.") and hasattr(LlamaCpp, name.split(".")[1])


def _tells_itself(name: str, annotation: ast.expr | None) -> bool:
    return annotation is not None and (not BARE.search(ast.unparse(annotation)) or bool(UNIT.search(name)))


def _holes(name: str, node: ast.AST, of_module: str, source: list[str]) -> Iterator[str]:
    """What neither a docstring nor a field's comment says, where the module's docstring does not say it once for all."""
    said = ast.get_docstring(node) or ""
    if not said:
        yield f"{name}: no docstring"
    elif isinstance(node, ast.ClassDef):
        if any("dataclass" in ast.unparse(one) for one in node.decorator_list):
            untold = [one for one in _fields(node) if not _commented(one, source)]
            told = said + of_module
            yield from (f"{name}: field {one.target.id}" for one in untold if one.target.id not in told)
    elif isinstance(node, Function):
        told_elsewhere = _of_the_protocol(name) or re.search(r"rguments (are those|as|of)\b", said)
        arguments = [] if told_elsewhere else _arguments(node)
        if len(arguments) > SELF_EXPLAINING or "Args:" in said:
            types = {one.arg: one.annotation for one in (*node.args.args, *node.args.kwonlyargs)}
            told = said + of_module
            missing = [one for one in arguments if one not in told and not _tells_itself(one, types.get(one))]
            if missing:
                yield f"{name}: arguments {', '.join(missing)}"
        if "Raises:" not in said and any(isinstance(one, ast.Raise) and one.exc for one in ast.walk(node)):
            yield f"{name}: what it raises"


def _commented(field: ast.AnnAssign, source: list[str]) -> bool:
    """True if a comment stands beside a field, or on the line above it."""
    return source[field.lineno - 2].lstrip().startswith("# ") or "  # " in source[field.end_lineno - 1]


def _fields(node: ast.ClassDef) -> list[ast.AnnAssign]:
    return [
        one
        for one in node.body
        if isinstance(one, ast.AnnAssign)
        and isinstance(one.target, ast.Name)
        and "ClassVar" not in ast.unparse(one.annotation)
        and not one.target.id.startswith("_")
        and not _tells_itself(one.target.id, one.annotation)
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_say_arguments_errors_and_fields(repository, room):
    package = repository / "kvreport"
    found = [
        f"{path.relative_to(package)}: {hole}"
        for path in sorted((package / room).rglob("*.py"))
        for text in [path.read_text("utf-8")]
        for tree in [ast.parse(text)]
        for name, node in _public(tree)
        for hole in _holes(name, node, ast.get_docstring(tree) or "", text.splitlines())
    ]
    assert found == []


@pytest.mark.parametrize("name", [one for one in kvreport.__all__ if not one.startswith("__")])
def test_public_names_say_every_argument_and_field(name):
    thing = getattr(kvreport, name)
    said = inspect.getdoc(thing) or ""
    if is_dataclass(thing):
        assert [one.name for one in fields(thing) if one.name not in said] == []
    elif inspect.isfunction(thing):
        arguments = inspect.signature(thing).parameters
        assert [one for one in arguments if one not in said] == []
    assert said
