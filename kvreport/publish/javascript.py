r"""Translate the restricted Python of :mod:`kvreport.accounting.kernel` to JavaScript.

The translator reads the syntax tree and refuses what it does not know, so that nothing is translated
by guess. What it knows is listed in the kernel's own docstring. Names become camelCase; annotations
become JSDoc, so that a type checker reads the result.

>>> print(translate("def half(x: int) -> int:\n    return x // 2\n").body)
/**
 * @param {number} x
 * @returns {number}
 */
function half(x) {
  return Math.floor(x / 2);
}
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

PRELUDE: Final = """\
/**
 * Round to the nearest integer or to decimal digits, a half to the even neighbor, as Python does.
 * @param {number} x
 * @param {number} [digits]
 * @returns {number}
 */
function roundHalfEven(x, digits = 0) {
  const tens = 10 ** digits, floor = Math.floor(x * tens);
  // A number of two powers is halfway exactly; others are on one side.
  if (Math.abs(x * 2 ** (digits + 1)) % 2 !== 1) return digits ? Number(x.toFixed(digits)) : Math.round(x);
  return (floor % 2 === 0 ? floor : floor + 1) / tens;
}

/**
 * The remainder with the divisor's sign, as Python's.
 * @param {number} a
 * @param {number} b
 * @returns {number}
 */
function modulo(a, b) {
  return a - b * Math.floor(a / b);
}
"""

_OPERATORS: Final = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}
_COMPARISONS: Final = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "===",
    ast.NotEq: "!==",
}
_CALLS: Final = {
    "min": "Math.min",
    "max": "Math.max",
    "abs": "Math.abs",
    "int": "Math.trunc",
    "round": "roundHalfEven",
    "math.ceil": "Math.ceil",
    "math.floor": "Math.floor",
    "math.log2": "Math.log2",
    "math.isnan": "Number.isNaN",
}
_CONSTANTS: Final = {"math.inf": "Infinity", "math.nan": "NaN"}
_LISTS: Final = ("ReserveRates",)
"""Records that JavaScript has as lists of their fields, as JSON writes them: thirty names for each model would be its file."""
_SIMPLE: Final = {"int": "number", "float": "number", "bool": "boolean", "str": "string"}
_INDENT: Final = "  "


class TranslationError(ValueError):
    """Something in the source is outside the subset."""

    def __init__(self, node: ast.AST, what: str) -> None:
        super().__init__(f"line {getattr(node, 'lineno', '?')}: {what} cannot be translated")


@dataclass(frozen=True, slots=True)
class Translation:
    """JavaScript made from Python."""

    body: str
    names: tuple[str, ...]  # What the body defines and a caller may use, in order.
    declarations: tuple[str, ...]  # The same as TypeScript, ``name: type;`` each.
    types: tuple[str, ...]
    # What each type's name stands for, for a module that imports it.
    aliases: Mapping[str, str] = field(default_factory=dict)


def camel(name: str) -> str:
    """Return a name as JavaScript writes it; constants stay as they are.

    >>> camel("request_bytes"), camel("MAX_REQUESTS"), camel("_")
    ('requestBytes', 'MAX_REQUESTS', '_')
    """
    if name.isupper():
        return name
    return re.sub(r"(?<=[a-z0-9])_([a-z0-9])", lambda found: found[1].upper(), name)


def translate(source: str, known: Mapping[str, str] = MappingProxyType({})) -> Translation:
    """Translate a module in the subset; ``known`` are types that it imports, by name.

    Raises:
        TranslationError: Something is outside the subset.
    """
    parts: list[str] = []
    places: dict[str, list[str]] = {}
    truths: dict[str, list[str]] = {}
    names: list[str] = []
    declarations: list[str] = []
    types: list[str] = []
    aliases: dict[str, str] = dict(known)
    for node in ast.parse(source).body:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                continue
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                text = _constant(value)
                parts.append(f"const {name} = {text};")
                names.append(name)
                declarations.append(f"{name}: {'string' if text.startswith(chr(34)) else 'number'};")
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                aliases[name] = _type(value, aliases)
                types.append(f"type {name} = {aliases[name]};")
            case ast.ClassDef(name=name):
                fields = _fields(node, aliases)
                truths[name] = [one for one, kind in fields.items() if kind == "boolean"]
                if name in _LISTS:
                    places[name] = list(fields)
                    aliases[name] = f"readonly [{', '.join(fields.values())}]"
                else:
                    shown = "; ".join(f"{camel(one)}: {kind}" for one, kind in fields.items())
                    aliases[name] = f"{{ {shown} }}"
                types.append(f"type {name} = {aliases[name]};")
            case ast.FunctionDef():
                made = _Function(node, aliases, places, truths)
                parts.append(made.text())
                names.append(camel(node.name))
                declarations.append(made.declaration())
            case _:
                raise TranslationError(node, type(node).__name__)
    return Translation("\n\n".join(parts), tuple(names), tuple(declarations), tuple(types), aliases)


def _constant(node: ast.expr) -> str:
    """Return a module constant: a number or text, written or computed from numbers."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
        return json.dumps(node.value)
    if (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.LShift)
        and isinstance(node.left, ast.Constant)
        and isinstance(node.right, ast.Constant)
    ):
        return str(node.left.value << node.right.value)  # type: ignore[operator]
    raise TranslationError(node, "a constant that is not a number or text")


def _type(node: ast.expr | None, aliases: dict[str, str]) -> str:
    """Return an annotation as TypeScript writes it."""
    match node:
        case ast.Name(id=name) if name in _SIMPLE:
            return _SIMPLE[name]
        case ast.Name(id=name) if name in aliases:
            return aliases[name]
        case ast.Subscript(value=ast.Name(id="Sequence" | "list"), slice=inner):
            return f"readonly ({_type(inner, aliases)})[]"
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=elements)):
            return f"readonly [{', '.join(_type(one, aliases) for one in elements)}]"
        case None:
            raise ValueError("an argument without an annotation cannot be translated")
    raise TranslationError(node, f"the type {ast.unparse(node)}")


def _fields(node: ast.ClassDef, aliases: dict[str, str]) -> dict[str, str]:
    """Return the types of a ``NamedTuple``'s fields; nothing else of it is translated."""
    if [ast.unparse(base) for base in node.bases] != ["NamedTuple"]:
        raise TranslationError(node, f"class {node.name}")
    fields = {}
    for one in node.body:
        match one:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=None):
                fields[name] = _type(annotation, aliases)
            case ast.Expr(value=ast.Constant()):
                continue
            case _:
                raise TranslationError(one, f"{type(one).__name__} in a record")
    return fields


class _Function:
    """One function on its way to JavaScript."""

    def __init__(
        self,
        node: ast.FunctionDef,
        aliases: dict[str, str],
        places: Mapping[str, list[str]],
        truths: Mapping[str, list[str]],
    ) -> None:
        arguments = node.args
        if (
            node.decorator_list
            or arguments.vararg
            or arguments.kwarg
            or arguments.kwonlyargs
            or arguments.defaults
        ):
            raise TranslationError(node, f"the signature of {node.name}")
        self._node = node
        self._parameters = [(one.arg, _type(one.annotation, aliases)) for one in arguments.args]
        kinds = {one.arg: ast.unparse(one.annotation) for one in arguments.args if one.annotation}
        self._places = {name: places[kind] for name, kind in kinds.items() if kind in places}
        self._returns = _type(node.returns, aliases)
        self._booleans = {name for name, kind in self._parameters if kind == "boolean"}
        self._booleans |= {f"{name}.{one}" for name, kind in kinds.items() for one in truths.get(kind, ())}
        assigned = [name for one in ast.walk(node) for name in _assigned(one)]
        self._once = {name for name in assigned if assigned.count(name) == 1}
        self._assigned = set(assigned)
        self._declared = {name for name, _ in self._parameters}
        self._hoisted: list[str] = []
        self._check_loops()

    def declaration(self) -> str:
        """Return the function's signature as a member of a TypeScript interface."""
        given = ", ".join(f"{camel(name)}: {kind}" for name, kind in self._parameters)
        return f"{camel(self._node.name)}({given}): {self._returns};"

    def text(self) -> str:
        """Return the function with its JSDoc."""
        body = self._node.body
        if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body = body[1:]
        lines = list(self._block(body, 1, top=True))
        if self._hoisted:
            lines.insert(0, f"{_INDENT}let {', '.join(map(camel, self._hoisted))};")
        given = [camel(name) for name, _ in self._parameters]
        comment = [f" * @param {{{kind}}} {camel(name)}" for name, kind in self._parameters]
        head = ["/**", *comment, f" * @returns {{{self._returns}}}", " */"]
        return "\n".join([*head, f"function {camel(self._node.name)}({', '.join(given)}) {{", *lines, "}"])

    def _check_loops(self) -> None:
        """Refuse a loop's names outside the loop: in JavaScript they are not there."""
        for loop in ast.walk(self._node):
            if isinstance(loop, ast.For):
                bound = {one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name)} - {"_"}
                inside = {id(one) for one in ast.walk(loop)}
                for one in ast.walk(self._node):
                    if isinstance(one, ast.Name) and one.id in bound and id(one) not in inside:
                        raise TranslationError(one, f"{one.id}, the name of a loop, outside of it")

    def _block(self, body: list[ast.stmt], depth: int, *, top: bool = False) -> Iterator[str]:
        for node in body:
            for line in self._statement(node, depth, top=top):
                yield line if line.startswith(_INDENT * depth) else _INDENT * depth + line

    def _statement(self, node: ast.stmt, depth: int, *, top: bool) -> Iterator[str]:
        match node:
            case ast.Return(value=ast.expr() as value):
                yield f"return {self._expression(value)};"
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                yield f"{self._declare(name, top=top)}{camel(name)} = {self._expression(value)};"
            case ast.Assign(targets=[ast.Tuple() as target], value=value):
                fresh = {one.id for one in target.elts if isinstance(one, ast.Name)}
                if not top or fresh & (self._declared | self._assigned):
                    raise TranslationError(
                        node, "unpacking into names that are already there or change later"
                    )
                self._declared |= fresh
                yield f"const {self._pattern(target)} = {self._expression(value)};"
            case ast.AugAssign(target=ast.Name(id=name), op=operator, value=value):
                joined = ast.BinOp(ast.Name(name), operator, value, lineno=node.lineno)
                yield f"{camel(name)} = {self._expression(joined)};"
            case ast.If(test=test, body=body, orelse=orelse):
                yield f"if ({self._condition(test)}) {{"
                yield from self._block(body, depth + 1)
                if orelse:
                    yield "} else {"
                    yield from self._block(orelse, depth + 1)
                yield "}"
            case ast.While(test=test, body=body, orelse=[]):
                yield f"while ({self._condition(test)}) {{"
                yield from self._block(body, depth + 1)
                yield "}"
            case ast.For(target=target, iter=sequence, body=body, orelse=[]):
                yield f"for (const {self._pattern(target)} of {self._expression(sequence)}) {{"
                yield from self._block(body, depth + 1)
                yield "}"
            case _:
                raise TranslationError(node, type(node).__name__)

    def _declare(self, name: str, *, top: bool) -> str:
        """Return ``const``, ``let`` or nothing for an assignment to a name."""
        if name in self._declared:
            return ""
        self._declared.add(name)
        if top:
            return "const " if name in self._once else "let "
        self._hoisted.append(name)
        return ""

    def _pattern(self, node: ast.expr) -> str:
        match node:
            case ast.Name(id=name):
                return camel(name)
            case ast.Tuple(elts=elements):
                names = [
                    "" if isinstance(one, ast.Name) and one.id == "_" else self._pattern(one)
                    for one in elements
                ]
                return f"[{', '.join(names)}]"
        raise TranslationError(node, f"the target {ast.unparse(node)}")

    def _condition(self, node: ast.expr) -> str:
        """Return a condition; only what is a boolean in both languages."""
        match node:
            case ast.Compare() | ast.Call():
                return self._expression(node)
            case ast.Name(id=name) if name in self._booleans:
                return camel(name)
            case ast.Attribute() if ast.unparse(node) in self._booleans:
                return self._expression(node)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return f"!({self._condition(operand)})"
            case ast.BoolOp(op=operator, values=values):
                sign = " && " if isinstance(operator, ast.And) else " || "
                return sign.join(f"({self._condition(one)})" for one in values)
        raise TranslationError(node, f"the condition {ast.unparse(node)}")

    def _expression(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=bool()):
                return str(node.value).lower()
            case ast.Constant(value=int() | float() | str()):
                return json.dumps(node.value)
            case ast.Name(id=name):
                return camel(name)
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                return self._attribute(owner, name)
            case ast.Subscript(value=ast.Name() as value, slice=ast.Constant(value=int(place))):
                return f"{self._expression(value)}[{place}]"
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return f"[{', '.join(self._expression(one) for one in elements)}]"
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return f"-{self._operand(operand)}"
            case ast.BinOp():
                return self._arithmetic(node)
            case ast.Compare(left=left, ops=operators, comparators=others):
                return self._comparison(node, left, operators, others)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return f"{self._grouped(test)} ? {self._operand(body)} : {self._operand(orelse)}"
            case ast.Call():
                return self._call(node)
            case ast.ListComp(
                elt=element, generators=[ast.comprehension(target=target, iter=sequence, ifs=[])]
            ):
                return (
                    f"{self._operand(sequence)}.map(({self._pattern(target)}) => {self._expression(element)})"
                )
        raise TranslationError(node, f"the expression {ast.unparse(node)}")

    def _attribute(self, owner: str, name: str) -> str:
        """Return a constant of ``math``, or the field of a record."""
        if owner in self._places:
            return f"{camel(owner)}[{self._places[owner].index(name)}]"
        return _CONSTANTS.get(f"{owner}.{name}") or f"{camel(owner)}.{camel(name)}"

    def _grouped(self, test: ast.expr) -> str:
        return f"({self._condition(test)})"

    def _operand(self, node: ast.expr) -> str:
        """Return an expression that stands beside an operator, in parentheses unless it is one thing."""
        text = self._expression(node)
        single = isinstance(
            node, ast.Constant | ast.Name | ast.Attribute | ast.Subscript | ast.Call | ast.List
        )
        return text if single else f"({text})"

    def _arithmetic(self, node: ast.BinOp) -> str:
        left, right = self._operand(node.left), self._operand(node.right)
        if isinstance(node.op, ast.FloorDiv):
            return f"Math.floor({left} / {right})"
        if isinstance(node.op, ast.Mod):
            return f"modulo({self._expression(node.left)}, {self._expression(node.right)})"
        if type(node.op) not in _OPERATORS:
            raise TranslationError(node, f"the operator of {ast.unparse(node)}")
        return f"{left} {_OPERATORS[type(node.op)]} {right}"

    def _comparison(
        self, node: ast.Compare, left: ast.expr, operators: list[ast.cmpop], others: list[ast.expr]
    ) -> str:
        parts = []
        for operator, right in zip(operators, others, strict=True):
            if type(operator) not in _COMPARISONS:
                raise TranslationError(node, f"the comparison {ast.unparse(node)}")
            parts.append(f"{self._operand(left)} {_COMPARISONS[type(operator)]} {self._operand(right)}")
            left = right
        return " && ".join(parts)

    def _call(self, node: ast.Call) -> str:
        if node.keywords or any(isinstance(one, ast.Starred) for one in node.args):
            raise TranslationError(node, f"the call {ast.unparse(node)}")
        name = ast.unparse(node.func)
        given = [self._expression(one) for one in node.args]
        if name == "len" and len(given) == 1:
            return f"{given[0]}.length"
        if name == "range" and len(given) == 1:
            return f"Array({given[0]}).keys()"
        if name not in _CALLS and not isinstance(node.func, ast.Name):
            raise TranslationError(node, f"the call {ast.unparse(node)}")
        return f"{_CALLS.get(name, camel(name))}({', '.join(given)})"


def _assigned(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement assigns."""
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name)])
            | ast.AnnAssign(target=ast.Name(id=name))
            | ast.AugAssign(target=ast.Name(id=name))
        ):
            yield name
