"""Figures as printed, and small expressions that recompute them.

A figure in prose or in a published claim is text such as ``1.20 GB``. Its digits say how exact it
means to be. An expression such as ``kv_request("llama-3.1-8b", tokens=2048) * 8`` says where it
should come from. This module reads both and compares them; what the names in an expression mean
is :mod:`kvreport.book.quantities`.

Expressions are data, not code: numbers, text, arithmetic, and calls of known functions. There is
no attribute, no index, no comparison and no way to reach anything else.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kvreport.errors import InputError, shorten
from kvreport.resources import read_table

Quantity = Callable[..., float]
Value = Quantity | float | str | None
"""What a name of an expression stands for: a function, a number, or a name or nothing as an argument."""

UNITS: Final[Mapping[str, float]] = read_table("units")
"""What one of each unit is, in bytes, tokens, seconds or plain numbers."""

_COUNTED: Final = frozenset(
    re.findall(
        r"\w+",
        "block blocks card cards conversation conversations element elements expert experts fold GPU GPUs "
        "head heads layer layers log logs number numbers page pages parameter pixels rank ranks replica replicas request "
        "requests sequence sequences session sessions slots state states step steps user users vectors ",
    )
)
"""Nouns that count things: each is a unit of one."""

PARTNER: Final[Mapping[str, str]] = read_table("partner units")
"""The unit that each is taken for: powers of 1,000 and powers of 1,024."""

_BINARY: Final[Mapping[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: math.pow,
}
_SIGNS: Final[Mapping[type[ast.operator], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Pow: "**",
}
Tree = int | float | list[Any]
"""An expression as JSON; see :func:`tree_of`."""
_FIGURE: Final = re.compile(r"\s*(?P<about>[≈~]\s*)?(?P<value>-?[0-9][0-9,]*(?:\.[0-9]+)?)\s*(?P<unit>\D.*|)")


@dataclass(frozen=True, slots=True)
class PrintedFigure:
    """A number as printed."""

    text: str
    unit: str  # A key of :data:`UNITS` or a counting noun.
    about: bool = False  # True if it is marked as rough; trailing zeros are then not exact digits.

    @classmethod
    def parse(cls, text: str) -> PrintedFigure:
        """Read ``1.20 GB``, ``≈ 40 GB``, ``4×`` or ``131,072 bytes``.

        Raises:
            InputError: If it is not a number with a known unit.
        """
        match = _FIGURE.fullmatch(text)
        if match is None:
            raise InputError(f"figure: found {shorten(text)}; allowed: a number and a unit, such as 1.2 GB")
        unit = match["unit"].strip()
        unit_factor(unit)
        return cls(match["value"], unit, about=match["about"] is not None)

    @property
    def number(self) -> float:
        """The number, in its unit."""
        return float(self.text.replace(",", ""))

    @property
    def value(self) -> float:
        """The number in bytes, tokens, seconds or as a plain number."""
        return self.number * unit_factor(self.unit)

    @property
    def half_step(self) -> float:
        """Half of the last digit's place, in the figure's unit: how far rounding can move it."""
        whole, _, decimals = self.text.replace(",", "").partition(".")
        if decimals or not self.about:
            return 0.5 * 10.0 ** -len(decimals)
        return 0.5 * 10.0 ** (len(whole) - len(whole.rstrip("0")))

    def matches(self, computed: float, unit: str | None = None) -> bool:
        """Whether the computed value, printed to this figure's digits (in ``unit``, else in its own), is this figure."""
        value = computed / unit_factor(self.unit if unit is None else unit)
        # A half rounds either way: printing 2.5 as 2 or 3 is not an error of the arithmetic. And a double
        # holds neither the figure nor the value exactly: at nine digits before the point, a half of the
        # tenth is off by more than a billionth of itself.
        slack = 2 * math.ulp(max(abs(value), abs(self.number)))
        return abs(value - self.number) <= self.half_step * (1 + 1e-9) + slack

    def is_exact(self, computed: float) -> bool:
        """Whether the computed value is the figure to the last bit that a double holds."""
        return math.isclose(computed, self.value, rel_tol=1e-12)


def unit_factor(unit: str) -> float:
    """What one of a unit is, in bytes, tokens, seconds or a plain number.

    ``bytes per token`` counts as ``bytes``: what a quantity is spread over does not change digits.

    Raises:
        InputError: If the unit is unknown.
    """
    for name in (unit, unit.split(" per ", maxsplit=1)[0].split("/token", maxsplit=1)[0].strip()):
        if name in UNITS:
            return UNITS[name]
        if name in _COUNTED:
            return 1.0
    raise InputError(
        f"unit: found {shorten(unit)}; allowed: {', '.join(u for u in UNITS if u)} or a counted noun"
    )


def is_counted(unit: str) -> bool:
    """Whether a unit is a noun that counts things, and has a singular.

    >>> is_counted("requests"), is_counted("GiB")
    (True, False)
    """
    return unit in _COUNTED or unit in ("tokens", "minutes")


def evaluate(expression: str, vocabulary: Mapping[str, Value]) -> float:
    """Compute an expression.

    Raises:
        InputError: If it is no such expression, a name is unknown or the result is not finite.
    """
    if len(expression) > 300:
        raise InputError(f"expression: found {len(expression)} characters; allowed: 300")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError) as error:
        raise InputError(
            f"expression: found {shorten(expression)}; allowed: one arithmetic expression"
        ) from error
    try:
        value = _number(_walk(tree.body, vocabulary), expression)
    except (ZeroDivisionError, OverflowError, ValueError, TypeError) as error:
        if isinstance(error, InputError):
            raise InputError(f"expression {shorten(expression, 120)}: {error}") from error
        raise InputError(f"expression {shorten(expression, 120)}: {error}") from error
    if not math.isfinite(value):
        raise InputError(f"expression {shorten(expression, 120)}: the result is not finite")
    return value


def names_in(expression: str) -> frozenset[str]:
    """Return every name that an expression uses.

    >>> sorted(names_in("2 * fits(MODEL, GPU)"))
    ['GPU', 'MODEL', 'fits']
    """
    tree = ast.parse(expression.strip(), mode="eval")
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))


def tree_of(expression: str) -> Tree:
    """Return an expression as JSON, for a reader of another language.

    A number is itself. Everything else is a list: ``["'", text]`` is a text or null, ``["$", name]`` a name,
    ``["()", name, arguments, named arguments]`` a call, ``["-", a]`` a negation, and ``[sign, a, b]`` arithmetic.

    >>> tree_of("2 * fits(MODEL, kv='fp8')")
    ['*', 2, ['()', 'fits', [['$', 'MODEL']], {'kv': ["'", 'fp8']}]]
    """
    return _tree(ast.parse(expression.strip(), mode="eval").body)


def _tree(node: ast.expr) -> Tree:
    match node:
        case ast.Constant(value=bool() | str() | None):
            return ["'", node.value]
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name):
            return ["$", name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return ["-", _tree(operand)]
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _SIGNS:
            return [_SIGNS[type(sign)], _tree(left), _tree(right)]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            named = {str(keyword.arg): _tree(keyword.value) for keyword in keywords}
            return ["()", name, [_tree(arg) for arg in args], named]
    raise InputError(f"found {type(node).__name__}; allowed: numbers, text, + - * / // **, known functions")


def _walk(node: ast.expr, vocabulary: Mapping[str, Value]) -> object:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None):
            return node.value
        case ast.Name(id=name):
            value = _known(name, vocabulary)
            if callable(value):
                raise InputError(f"{name} is a function; allowed: {name}(…)")
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(_walk(operand, vocabulary), "-")
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
            a = _number(_walk(left, vocabulary), "left side")
            b = _number(_walk(right, vocabulary), "right side")
            return _BINARY[type(sign)](a, b)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            function = _known(name, vocabulary)
            if not callable(function):
                raise InputError(f"{name} is a value; allowed: no brackets after it")
            values = [_walk(arg, vocabulary) for arg in args]
            named = {k.arg: _walk(k.value, vocabulary) for k in keywords if k.arg is not None}
            if len(named) != len(keywords):
                raise InputError("found **; allowed: named arguments")
            return function(*values, **named)
    raise InputError(f"found {type(node).__name__}; allowed: numbers, text, + - * / // **, known functions")


def _known(name: str, vocabulary: Mapping[str, Value]) -> Value:
    if name not in vocabulary:
        raise InputError(f"found the name {name!r}; allowed: {', '.join(sorted(vocabulary))}")
    return vocabulary[name]


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        # numpy's integers are neither; they say what they are through __index__ or __float__.
        try:
            return float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise InputError(f"{shorten(where)} is {shorten(value)}; allowed: a number") from None
    return value
