"""Chapters as they are downloaded: no template syntax, full addresses, and they run elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

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


@pytest.mark.parametrize("name", ["02-the-formula", "14-one-decision-chain"])
def test_a_notebook_runs_from_an_empty_folder(name, quantities, tmp_path):
    path = REPOSITORY / "docs" / "chapters" / f"{name}.py"
    book = nbformat.reads(notebook.notebook(made(path, quantities)), as_version=4)
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(book, timeout=300, kernel_name="python3", resources=where).execute()
    shown = [one for cell in book.cells if cell.cell_type == "code" for one in cell.outputs]
    assert any("kv-instrument" in str(one.get("data", {}).get("text/html", "")) for one in shown)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_every_script_runs_from_an_empty_folder(path, quantities, tmp_path):
    script = tmp_path / path.name
    script.write_text(notebook.script(made(path, quantities)), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUTF8": "1"}
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
