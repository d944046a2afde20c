"""The words of a Python module: its strings and f-strings, by the syntax tree.

:func:`kvreport.words.worded` marks what the rule of :mod:`.is_text` cannot know: a label of one word in small letters.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final

from kvreport.translation.is_text import is_text
from kvreport.translation.text import Hole, Part, Say, has_tags, named, translated

_MUTE: Final = frozenset(
    [
        "verbatim",
        "compile",
        "search",
        "match",
        "fullmatch",
        "sub",
        "split",
        "finditer",
        "findall",
        "debug",
        "info",
        "warning",
        "error",
        "exception",
        "getattr",
        "hasattr",
        "setattr",
        "startswith",
        "endswith",
        "removeprefix",
        "removesuffix",
        "getLogger",
        "import_module",
        "Literal",
        "TypeVar",
        "NewType",
        "version",
        "DataFrame",
        "groupby",
        "environ",
        "read_text",
        "open",
        "query",
        "execute",
    ]
)
"""Functions whose strings no reader sees."""


def translate_module(source: str, say: Say) -> str:
    """Return a module with its words translated, and without comments where anything was.

    Args:
        source: The module.
        say: Gives translations.
    """
    tree = ast.parse(source)
    walk = _Words(say)
    made = walk.visit(tree)
    return ast.unparse(ast.fix_missing_locations(made)) + "\n" if walk.changed else source


_LABELS: Final = frozenset({"Cell", "Column", "Fact"})
"""Constructors whose first argument is always shown, and ``hint`` too."""


class _Words(ast.NodeTransformer):
    def __init__(self, say: Say) -> None:
        self._say = say
        self.changed = False

    def _text(self, node: ast.expr, parts: Sequence[Part], *, marked: bool = False) -> ast.expr:
        if getattr(node, "is_said", False):
            return node
        text = "".join(part if isinstance(part, str) else "\ue000" for part in parts)
        if not marked and not has_tags(text) and not is_text(text):
            return node
        said = translated(parts, self._say, node.lineno)
        if said == [part for part in parts if part]:
            return node
        self.changed = True
        for one in said:
            if isinstance(one, str) and len(said) == 1:
                done = ast.Constant(one)
                done.is_said = True  # type: ignore[attr-defined] # not a text of the source any more
                return done
        values = [
            ast.Constant(part) if isinstance(part, str) else ast.parse(part.source, mode="eval").body
            for part in said
        ]
        return _joined(values)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return self._text(node, [node.value]) if isinstance(node.value, str) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        # Values first: they may hold words of their own.
        values = [value if isinstance(value, ast.Constant) else self._value(value) for value in node.values]
        parts: list[Part] = [
            str(value.value)
            if isinstance(value, ast.Constant)
            else Hole(ast.unparse(value), named(_plain(old)))
            for value, old in zip(values, node.values, strict=True)
        ]
        made = self._text(node, parts)
        if made is not node:
            return made
        return ast.copy_location(_joined(values), node)

    def _value(self, node: ast.expr) -> ast.expr:
        """Return a value of an f-string as a call that makes it text."""
        if not isinstance(node, ast.FormattedValue):
            raise TypeError(ast.dump(node))
        value = self.visit(node.value)
        if node.conversion in (ord("r"), ord("s"), ord("a")):
            name = {ord("r"): "repr", ord("s"): "str", ord("a"): "ascii"}[node.conversion]
            value = ast.Call(ast.Name(name, ast.Load()), [value], [])
        spec = node.format_spec
        given: ast.expr = ast.Constant("")
        if isinstance(spec, ast.JoinedStr):
            given = _joined([v if isinstance(v, ast.Constant) else self._value(v) for v in spec.values])
        return ast.Call(ast.Name("format", ast.Load()), [value, given], [])

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "worded" and len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
            node.args = [self._text(node.args[0], [str(node.args[0].value)], marked=True)]
            return node
        if name in ("counted", "noun_for") and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            node.args[1] = self._text(node.args[1], [str(node.args[1].value)], marked=True)
            node.args[0] = self.visit(node.args[0])
            return node
        if name in _MUTE:
            return node
        if name in _LABELS:
            node.args[:1] = [self._label(one) for one in node.args[:1]]
            for keyword in node.keywords:
                if keyword.arg == "hint":
                    keyword.value = self._label(keyword.value)
        self.generic_visit(node)
        return node

    def _label(self, node: ast.expr) -> ast.expr:
        """Translate what a cell or a column shows, also one word in small letters."""
        if isinstance(node, ast.IfExp):
            node.body, node.orelse = self._label(node.body), self._label(node.orelse)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self._text(node, [node.value], marked=True)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        node.value = self.visit(node.value)
        if not isinstance(node.slice, ast.Constant):
            node.slice = self.visit(node.slice)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [self.visit(one) for one in node.body]
        node.args.defaults = [self.visit(one) for one in node.args.defaults]
        node.args.kw_defaults = [one and self.visit(one) for one in node.args.kw_defaults]
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        """Translate values; keys are names for programs."""
        names = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        node.values = [
            value if isinstance(name, str) and name.startswith("@") else self.visit(value)
            for name, value in zip(names, node.values, strict=True)
        ]
        node.keys = [
            key if key is None or isinstance(key, ast.Constant) else self.visit(key) for key in node.keys
        ]
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets):
            return node
        return self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        return node


def _plain(node: ast.expr) -> str:
    return ast.unparse(node.value) if isinstance(node, ast.FormattedValue) else ""


def _joined(values: Sequence[ast.expr]) -> ast.expr:
    """Return texts joined: no f-string, whose quotes depend on the version of Python."""
    return ast.Call(
        ast.Attribute(ast.Constant(""), "join", ast.Load()), [ast.Tuple(list(values), ast.Load())], []
    )
