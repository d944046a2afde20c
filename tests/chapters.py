"""Chapters executed cell by cell in this process with what each cell shows, and pages as text with their figures."""

from __future__ import annotations

import ast
import re
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any, Final

from kvreport.book import prose, reader_case
from kvreport.book.notebook import NotebookCell, cells
from kvreport.book.quantities import Quantities
from kvreport.catalog.claim import load_claims
from kvreport.catalog.load import open_catalog
from kvreport.evidence.claims import ledger, to_json

REPOSITORY: Final = Path(__file__).parents[1]
DOCS, DATA = REPOSITORY / "docs", REPOSITORY / "data"
FIRST_CELLS = {
    "01": '"llama-3.1-8b", "H100"',
    "02": '"Qwen/Qwen2.5-7B-Instruct", "H100"',
    "03": '"llama-3.1-8b", "H100"',
    "04": 'MODEL = "Qwen/Qwen2.5-7B-Instruct"',
    "05": 'MODEL = "deepseek-v3"',
    "06": 'MODEL = "qwen3.6-27b"',
    "07": 'MODEL = "llama-3.1-8b"',
    "08": 'MODEL = "llama-3.1-8b"',
    "09": '"llama-3.1-8b", "H100"',
    "10": 'MODEL = "llama-3.1-70b"',
    "11": 'MODEL = "deepseek-v3"',
    "12": 'MODEL = "llama-3.1-8b"',
    "13": '"Qwen/Qwen2.5-7B-Instruct", "H100"',
    "14": '"llama-3.1-70b", "H200"',
}
"""The model of a chapter as its first cell names it. Chapter 11 is about several; its model with latents can be changed."""
FULL, LATENT, HYBRID, STATE, LARGE = (
    "qwen3-32b",
    "glm-4.7-flash",
    "qwen3.6-27b",
    "mamba-codestral-7b",
    "deepseek-v3",
)
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


@cache
def executed(path: Path) -> tuple[tuple[NotebookCell, str], ...]:
    """Run a chapter; each cell with the HTML of its output, or "" for none."""
    names: dict[str, Any] = {"__name__": "chapter"}
    return tuple(
        (cell, _shown(cell.text, names, path) if cell.kind == "code" else "")
        for cell in cells(path.read_text(encoding="utf-8"))
    )


def _shown(source: str, names: dict[str, Any], path: Path) -> str:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(path), "exec"), names)  # noqa: S102
    if last is None:
        return ""
    value = eval(compile(ast.Expression(last.value), str(path), "eval"), names)  # noqa: S307
    html = getattr(value, "_repr_html_", None)
    return str(html()) if callable(html) else ""


def page(path: Path) -> str:
    """Everything that a chapter shows, as HTML; its prose as plain text."""
    return "\n".join(cell.text if cell.kind == "markdown" else html for cell, html in executed(path))


def words(path: Path) -> int:
    """Words that a reader reads once: prose, questions, captions; not code, tables, drawings or folded answers."""
    return _counted(page(path), "table|svg|details|pre")


def all_words(path: Path) -> int:
    """Words of everything that can be read: folded answers, options' reasons and tables too, but no drawing or code."""
    return _counted(page(path), "svg|pre")


def _counted(html: str, left_out: str) -> int:
    text = re.sub(rf"<({left_out})\b.*?</\1\s*>", " ", html, flags=re.DOTALL)
    text = re.sub(r"\{\{\s*([^=}]*?)\s*(?:=|\bas\b).*?\}\}", r" \1 ", text, flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return len(_WORD.findall(unescape(re.sub(r"<[^<>]*>", " ", text))))


@cache
def quantities() -> Quantities:
    return Quantities(open_catalog(DATA))


@cache
def resolved(address: str) -> str:
    """A page of docs with its figures in place."""
    path = DOCS / address
    source = prose.markdown_of(path)
    about = quantities().about(reader_case.of_text(source, quantities().catalog))
    return prose.resolve(page(path) if path.suffix == ".py" else source, about, address)[0]


@cache
def shown(address: str) -> str:
    """The text of a page, figures in place; of JSON as published; of data as it is."""
    if address == "evidence/claims.json":
        return to_json(ledger(load_claims(DATA / "claims"), quantities()))
    path = REPOSITORY / address if address.startswith("data/") else DOCS / address
    if path.suffix == ".yaml":
        return path.read_text(encoding="utf-8")
    made = re.sub(r"<(svg|pre|template)\b.*?</\1\s*>", " ", resolved(address), flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^<>]*>", " ", made)).split())


def of_another_model(text: str, number: str, model: str) -> str:
    """The text of a chapter with another model in its first cell."""
    old = FIRST_CELLS[number]
    assert text.count(old) == 1
    return text.replace(old, re.sub(r'"[^"]*-[^"]*"', f'"{model}"', old, count=1))
