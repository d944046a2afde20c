"""Chapters as they are downloaded: no template syntax, and full addresses. That they run elsewhere, ``test_notebooks_installed`` holds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest

from kvreport.book import notebook
from kvreport.book.quantities import Quantities
from kvreport.catalog.load import open_catalog

REPOSITORY = Path(__file__).parents[2]
CHAPTERS = sorted((REPOSITORY / "docs" / "chapters").glob("*.py"))
SITE = "https://example.org/kv/"

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def quantities() -> Quantities:
    return Quantities(open_catalog(REPOSITORY / "data"))


def made(path: Path, quantities: Quantities) -> list[notebook.Cell]:
    return notebook.portable(path.read_text(encoding="utf-8"), f"chapters/{path.name}", quantities, SITE)


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_download_has_figures_and_full_addresses(path, quantities):
    cells = made(path, quantities)
    text = notebook.notebook(cells)
    nbformat.validate(nbformat.reads(text, as_version=4))
    prose = "\n".join(cell.text for cell in cells if cell.kind == "markdown")
    assert "{{" not in text
    assert "}}" not in prose
    assert re.findall(r"\]\((?!https?://|#)[^)]+\)", text) == []
    assert f"{SITE}learn/" in prose
    assert "pip install 'kvreport[site]'" in prose
    program = notebook.script(cells)
    compile(program, path.name, "exec")
    assert notebook.cells(program)[1:] == [notebook.Cell(c.kind, c.text) for c in cells[1:]]
    assert any(cell["metadata"].get("tags") == ["hide"] for cell in json.loads(text)["cells"])
