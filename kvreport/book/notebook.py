"""A chapter to take along: as a Jupyter notebook and as a script, for ``pip install kvreport[site]``.

A chapter's source is a program in percent format whose prose has ``{{ … }}`` expressions and links
between source files. What is taken along has the figures in their place and full addresses.
"""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a chapter.

    Attributes:
        kind: ``markdown`` or ``code``.
        text: Its content.
        hidden: Whether the page shows only its output.
    """

    kind: str
    text: str
    hidden: bool = False


def cells(source: str) -> list[Cell]:
    """Split a program in percent format into its cells."""
    found: list[Cell] = []
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
                Cell("markdown" if markdown else "code", shown, tags is not None and _HIDDEN in tags[1])
            )
        head, lines = line, []
    return found


def portable(source: str, uri: str, quantities: Quantities, site_url: str) -> list[Cell]:
    """Return a chapter's cells with figures computed and links in full.

    Args:
        source: The chapter's text.
        uri: Its address among the sources, ``chapters/02-the-formula.py``.
        quantities: The vocabulary of its expressions.
        site_url: Address of the site.

    Raises:
        InputError: If a figure does not hold.
    """
    here = urljoin(site_url, chapter_address(uri))
    made = [
        Cell(
            "markdown",
            f"*This is a chapter of [{site_url}]({here}). Install what it computes with:* "
            "`pip install 'kvreport[site]'`",
        )
    ]
    for cell in cells(source):
        text = cell.text
        if cell.kind == "markdown":
            text = _EXPRESSION.sub(lambda match: prose.state(" ".join(match[1].split()), quantities), text)
        made.append(Cell(cell.kind, _LINK.sub(lambda match: _full(match, uri, site_url), text), cell.hidden))
    return made


def notebook(made: Sequence[Cell]) -> str:
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


def script(made: Sequence[Cell]) -> str:
    """Return cells as a program in percent format, which editors and Jupytext open as a notebook."""
    parts = []
    for cell in made:
        if cell.kind == "markdown":
            text = "\n".join(f"# {line}".rstrip() for line in cell.text.splitlines())
            parts.append(f"# %% [markdown]\n{text}\n")
        else:
            parts.append(f"# %%\n{cell.text}\n")
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
