"""A chapter to take along: as a Jupyter notebook and as a script that prints.

A chapter's source is a program in percent format whose prose has ``{{ … }}`` expressions and links
between source files. What is taken along has the figures in their place and full addresses. It leaves out the checks of
the chapter's own figures, so that its first cell can be changed, and says where a statement no longer holds.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from posixpath import dirname, join, normpath
from typing import Final
from urllib.parse import urljoin

from kvreport.book import prose
from kvreport.book.glossary import chapter_address
from kvreport.book.quantities import Quantities

_EXPRESSION: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_LINK: Final = re.compile(r"\]\((?!https?:|#|mailto:)([^)\s?#]+)([^)\s]*)\)")
_TAGS: Final = re.compile(r"tags=\[([^\]]*)\]")
_HIDDEN: Final = "hide"
_MODEL: Final = re.compile(r"^MODEL\b.* = ", re.MULTILINE)
_CHANGEABLE: Final = (
    " Change `MODEL` in the first code cell to run it for your model: tables, predictions and exercises then follow your model, "
    "and the text still describes the original."
)


@dataclass(frozen=True, slots=True)
class NotebookCell:
    """A cell of a chapter."""

    kind: str  # ``markdown`` or ``code``.
    text: str
    hidden: bool = False  # Whether the page shows only its output.


def cells(source: str) -> list[NotebookCell]:
    """Split a program in percent format into its cells."""
    found: list[NotebookCell] = []
    head, lines = "", list[str]()
    for line in [*source.splitlines(), "# %%"]:
        if not line.startswith("# %%"):
            lines.append(line)
            continue
        text = "\n".join(lines).strip("\n")
        if head and text:
            markdown = "[markdown]" in head
            tags = _TAGS.search(head)
            shown = "\n".join(_uncommented(one) for one in text.splitlines()) if markdown else text
            found.append(
                NotebookCell(
                    "markdown" if markdown else "code", shown, tags is not None and _HIDDEN in tags[1]
                )
            )
        head, lines = line, []
    return found


def portable(source: str, uri: str, quantities: Quantities, site_url: str) -> list[NotebookCell]:
    """Return a chapter's cells with figures computed and links in full.

    Raises:
        InputError: If a figure does not hold.
    """
    here = urljoin(site_url, chapter_address(uri))
    imported = False
    made = [
        NotebookCell(
            "markdown",
            f"*This is a chapter of [{site_url}]({here}). It runs in the environment of a checkout of kvreport "
            "(`make venv`), or of its wheel with the extra `site`."
            + (_CHANGEABLE if _MODEL.search(source) else "")
            + "*",
        )
    ]
    for cell in cells(source):
        text = cell.text
        if cell.kind == "markdown":
            text = _EXPRESSION.sub(lambda match: prose.state(" ".join(match[1].split()), quantities), text)
        elif not (text := _without_checks(text)):
            continue
        elif not imported and "holds(lambda:" in text:
            text, imported = f"from kvreport.book.chapter import holds\n\n{text}", True
        made.append(
            NotebookCell(cell.kind, _LINK.sub(lambda match: _full(match, uri, site_url), text), cell.hidden)
        )
    return made


def notebook(made: Sequence[NotebookCell]) -> str:
    """Return cells as a Jupyter notebook (nbformat 4.5), without outputs."""
    listed = []
    for number, cell in enumerate(made):
        metadata: dict[str, object] = {}
        if cell.hidden:
            metadata = {"tags": [_HIDDEN], "jupyter": {"source_hidden": True}}
        one: dict[str, object] = {
            "cell_type": cell.kind,
            "id": f"cell-{number:03}",
            "metadata": metadata,
            "source": cell.text.splitlines(keepends=True),
        }
        if cell.kind == "code":
            one |= {"execution_count": None, "outputs": []}
        listed.append(one)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {
        "cells": listed,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def script(made: Sequence[NotebookCell]) -> str:
    """Return cells as a program in percent format that prints what a notebook shows."""
    parts = []
    for cell in made:
        if cell.kind == "markdown":
            text = "\n".join(f"# {line}".rstrip() for line in cell.text.splitlines())
            parts.append(f"# %% [markdown]\n{text}\n")
        else:
            parts.append(f"# %%\n{_printing(cell.text)}\n")
    return "\n".join(parts)


def browser_link(repo_url: str, branch: str, path: str) -> str:
    """Return the address that opens a published notebook in a browser, or "" without a GitHub repository.

    >>> browser_link("https://github.com/o/r/", "gh-pages", "learn/a/a.ipynb")
    'https://colab.research.google.com/github/o/r/blob/gh-pages/learn/a/a.ipynb'
    >>> browser_link("", "gh-pages", "learn/a/a.ipynb")
    ''
    """
    match = re.fullmatch(r"https://github\.com/([\w.-]+)/([\w.-]+?)(?:\.git)?/?", repo_url or "")
    if match is None:
        return ""
    return f"https://colab.research.google.com/github/{match[1]}/{match[2]}/blob/{branch}/{path}"


def _without_checks(source: str) -> str:
    """Return a cell without its asserts and claims. Asserts of what its words state, in the place of the last, print a note."""
    lines: list[str | None] = [*source.splitlines()]
    stated: list[ast.expr] = []
    place = 0
    for statement in ast.parse(source).body:
        if _is_check(statement):
            first, last = statement.lineno, statement.end_lineno or statement.lineno
            lines[first - 1 : last] = [None] * (last - first + 1)
            if isinstance(statement, ast.Assert) and not _is_figure(statement.test):
                stated.append(statement.test)
                place = first - 1
    if stated:
        lines[place] = (
            f"holds(lambda: {ast.unparse(ast.BoolOp(ast.And(), stated) if stated[1:] else stated[0])})"
        )
    return "\n".join(line for line in lines if line is not None).strip("\n")


def _is_figure(test: ast.expr) -> bool:
    """Return whether a test only compares figures of the chapter's own case."""
    return isinstance(test, ast.Compare) and all(isinstance(one, ast.Eq) for one in test.ops)


def _is_check(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assert() | ast.Expr(value=ast.Call(func=ast.Name(id="claim"))):
            return True
        case ast.For(body=body):
            rest = [one for one in body if not _is_check(one)]
            return len(rest) < len(body) and all(isinstance(one, ast.Assign) for one in rest)
    return False


def _printing(source: str) -> str:
    """Return a cell that prints the value of its last expression."""
    last = ast.parse(source).body[-1:]
    if not last or not isinstance(last[0], ast.Expr):
        return source
    lines = source.splitlines()
    shown = lines[last[0].lineno - 1 : last[0].end_lineno]
    return "\n".join([*lines[: last[0].lineno - 1], "print(" + "\n".join(shown) + "\n)"])


def _uncommented(line: str) -> str:
    return line[2:] if line.startswith("# ") else line[1:] if line.startswith("#") else line


def _full(match: re.Match[str], uri: str, site_url: str) -> str:
    target = normpath(join(dirname(uri), match[1]))
    if target.startswith("chapters/") and target.endswith(".py"):
        target = chapter_address(target)
    elif target.endswith(".md"):
        folder = target.removesuffix(".md").removesuffix("index").rstrip("/")
        target = f"{folder}/" if folder else ""
    return f"]({urljoin(site_url, target)}{match[2]})"
