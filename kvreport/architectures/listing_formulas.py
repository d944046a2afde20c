"""Formulas of a listing: whole-number arithmetic over the keys of a config, and nothing else.

A formula is a Python expression of config keys (``hidden_size``, ``vision_config.depth``), numbers,
``+ - * // %``, powers, comparisons, ``and``/``or``/``not``, ``a if b else c`` and the functions below.
Listings are part of this package; the evaluator still accepts nothing that it does not name.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import ceil, floor
from types import MappingProxyType
from typing import Any, Final

Look = Callable[[str], Any]
"""Given the dotted path of a key, its value."""

MAX_VALUE: Final = 1 << 60


def _up(value: int, multiple: int) -> int:
    """Round up to a multiple."""
    return -(-value // multiple) * multiple


def _count(values: object, *wanted: object) -> int:
    """How many entries of a list, or letters of a text, are one of these."""
    return sum(value in wanted for value in values) if isinstance(values, list | tuple | str) else 0


def _below(values: object, limit: int) -> int:
    """How many numbers of a list are indices below a limit."""
    return sum(value < limit for value in set(values)) if isinstance(values, list | tuple) else 0


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        "abs": abs,
        "below": _below,
        "ceil": ceil,
        "count": _count,
        "floor": floor,
        "int": int,
        "len": lambda values: len(values) if isinstance(values, list | tuple | str) else 0,
        "max": max,
        "min": min,
        "round": round,
        "sum": lambda values: sum(values) if isinstance(values, list | tuple) else values,
        "up": _up,
    }
)
_OPERATORS: Final[Mapping[type[ast.AST], Callable[[Any, Any], Any]]] = MappingProxyType(
    {
        ast.Add: lambda a, b: a + b,
        ast.Sub: lambda a, b: a - b,
        ast.Mult: lambda a, b: a * b,
        ast.Div: lambda a, b: a / b,
        ast.FloorDiv: lambda a, b: a // b,
        ast.Mod: lambda a, b: a % b,
        ast.Pow: lambda a, b: a**b if 0 <= b <= 8 else MAX_VALUE,
        ast.Eq: lambda a, b: a == b,
        ast.NotEq: lambda a, b: a != b,
        ast.Lt: lambda a, b: a < b,
        ast.LtE: lambda a, b: a <= b,
        ast.Gt: lambda a, b: a > b,
        ast.GtE: lambda a, b: a >= b,
        ast.In: lambda a, b: a in b if isinstance(b, list | tuple | str) else False,
        ast.NotIn: lambda a, b: a not in b if isinstance(b, list | tuple | str) else True,
    }
)


@lru_cache(maxsize=8192)
def parse(text: str) -> ast.expr:
    """Parse a formula once.

    Raises:
        SyntaxError: If it is not an expression.
    """
    return ast.parse(text.strip(), mode="eval").body


def evaluate(text: str, look: Look) -> Any:  # noqa: ANN401 - a number, a truth value, a text or a list
    """Evaluate a formula.

    Raises:
        ValueError: If the formula uses what it may not, or divides by zero.
    """
    try:
        return _value(parse(text), look)
    except (ZeroDivisionError, TypeError, OverflowError) as error:
        raise ValueError(f"{text}: {error}") from error


def _value(node: ast.AST, look: Look) -> Any:  # noqa: ANN401 - one line per kind of node
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name() | ast.Attribute():
            return look(_path(node))
        case ast.BinOp(left=left, op=operator, right=right):
            return _OPERATORS[type(operator)](_value(left, look), _value(right, look))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, look)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, look)
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            return _OPERATORS[type(operator)](_value(left, look), _value(right, look))
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_value(value, look) for value in values)
        case ast.BoolOp(op=ast.Or(), values=values):
            return next((found for value in values if (found := _value(value, look))), None)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, look) else orelse, look)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return [_value(element, look) for element in elements]
        case ast.Subscript(value=value, slice=index):
            return _value(value, look)[_value(index, look)]
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(argument, look) for argument in arguments))
    raise ValueError(f"{ast.unparse(node)}: not part of a formula")


def _path(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{_path(value)}.{name}"
    raise ValueError(f"{ast.unparse(node)}: not the name of a key")
