"""Every chapter as a reader takes it: a wheel with its extra [site] and nothing else, in an empty folder.

The environment is a new one. It holds the wheel, and of the packages here only those that `kvreport[site]` requires,
directly or not; so a requirement that the extra forgets is missing. `KVREPORT_CLEAN_INSTALL=1` lets pip install the
same from the package index that it is configured for.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import venv
import zipfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from chapters import FIRST_CELLS, FULL, LATENT, STATE, of_another_model
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from test_packaging import archive, wheel

from kvreport.book import notebook
from kvreport.book.quantities import Quantities
from kvreport.catalog.load import open_catalog

REPOSITORY = Path(__file__).parents[2]
CHAPTERS = sorted((REPOSITORY / "docs" / "chapters").glob("*.py"))
SITE = "https://example.org/kv/"
EXERCISES = yaml.safe_load((REPOSITORY / "tests/exercises.yaml").read_text(encoding="utf-8"))
OTHER = {"05": LATENT, "06": STATE, "11": "kimi-k2"}
"""Models for the chapters about one design."""
RUN = """
import json, os, pathlib, sys
import nbformat
from nbclient import NotebookClient
import kvreport
assert pathlib.Path(kvreport.__file__).is_relative_to(sys.prefix), kvreport.__file__
folder, done = pathlib.Path(sys.argv[1]), {}
for path in sorted(folder.glob("*.ipynb")):
    empty = folder / path.stem
    empty.mkdir()
    book = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
    NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(empty)}}).execute()
    shown = [one for cell in book.cells if cell.cell_type == "code" for one in cell.outputs]
    html = "".join(str(one.get("data", {}).get("text/html", "")) for one in shown)
    done[path.stem] = [html.count("kv-instrument__title"), len(list(empty.iterdir()))]
print(json.dumps(done))
"""

pytestmark = [pytest.mark.slow]
__all__ = ["archive", "wheel"]  # fixtures


def required(extra: str) -> set[str]:
    """Names of the distributions that `kvreport[extra]` installs here, without kvreport."""
    found: set[tuple[str, str]] = set()
    todo = [("kvreport", extra), ("kvreport", "")]
    while todo:
        name, wanted = todo.pop()
        if (name, wanted) in found:
            continue
        found.add((name, wanted))
        for text in metadata.requires(name) or ():
            requirement = Requirement(text)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": wanted}):
                continue
            child = canonicalize_name(requirement.name)
            todo += [(child, ""), *((child, one) for one in requirement.extras)]
    return {name for name, _ in found} - {"kvreport"}


def bring(name: str, target: Path) -> None:
    """Link what a distribution has installed here into another folder of packages."""
    found = metadata.distribution(name)
    for file in found.files or ():
        top = file.parts[0]
        if top not in {"..", "__pycache__"} and not (target / top).exists():
            (target / top).symlink_to(Path(str(found.locate_file(top))).resolve())


@pytest.fixture(scope="module")
def clean(wheel, tmp_path_factory) -> Path:
    """The interpreter of a new environment that has `kvreport[site]` from the wheel."""
    folder = tmp_path_factory.mktemp("clean") / "environment"
    real = os.environ.get("KVREPORT_CLEAN_INSTALL") == "1"
    venv.create(folder, with_pip=real, symlinks=True)
    python = folder / "bin" / "python"
    if real:
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[site]"]
        subprocess.run(command, check=True)
        return python
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(packages)
    for name in sorted(required("site")):
        bring(name, packages)
    return python


@pytest.fixture(scope="module", params=["its model", "another model"])
def downloads(request, tmp_path_factory) -> Path:
    """A folder with every chapter's notebook and script, and nothing else."""
    folder = tmp_path_factory.mktemp("downloads")
    quantities = Quantities(open_catalog(REPOSITORY / "data"))
    for path in CHAPTERS:
        text, number = path.read_text(encoding="utf-8"), path.stem[:2]
        cells = notebook.portable(text, f"chapters/{path.name}", quantities, SITE)
        if request.param == "another model" and number in FIRST_CELLS:
            (place,) = (
                n for n, one in enumerate(cells) if one.kind == "code" and FIRST_CELLS[number] in one.text
            )
            text = of_another_model(cells[place].text, number, OTHER.get(number, FULL))
            cells[place] = replace(cells[place], text=text)
        (folder / f"{path.stem}.ipynb").write_text(notebook.notebook(cells), encoding="utf-8")
        (folder / f"{path.stem}.py").write_text(notebook.script(cells), encoding="utf-8")
    return folder


def alone() -> dict[str, str]:
    """This process's environment without what would lead to the checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_"))}
    return kept | {"PYTHONUTF8": "1"}


def test_the_extra_names_what_the_site_imports():
    names = required("site")
    assert {"mkdocs", "altair", "ipykernel", "pyarrow", "nbclient"} <= names
    assert "playwright" not in names


def test_every_notebook_runs_with_the_wheel_alone(clean, downloads):
    done = subprocess.run(
        [clean, "-c", RUN, downloads],
        cwd=downloads,
        env=alone(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert sorted(told) == [path.stem for path in CHAPTERS]
    for name, (instruments, files) in told.items():
        assert instruments >= 1, name
        assert files == 0, f"{name} leaves files behind"


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_every_script_runs_with_the_wheel_alone(clean, downloads, path, tmp_path):
    done = subprocess.run(
        [clean, downloads / path.name], cwd=tmp_path, env=alone(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert list(tmp_path.iterdir()) == []


def asked(path: Path) -> int:
    """How many exercises a chapter sets: numbered ones, open ones among them."""
    return len(
        re.findall(r'^ {4}f?"(?:\*\*[1-9]\.|[1-9]\. [A-Z(])', path.read_text(encoding="utf-8"), re.MULTILINE)
    )


def as_printed(figure: str) -> tuple[float, float]:
    """A figure, and half of its last digit."""
    plain = figure.replace(",", "")
    return float(plain), 0.5 * 10.0 ** -len(plain.partition(".")[2])


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_every_exercise_is_worked_out_in_its_script(clean, downloads, path, tmp_path):
    """A reader adds a line to the script, or changes its first cell, and finds the figure that the solution has."""
    listed = EXERCISES[path.stem]
    assert len(listed) == asked(path)
    program = (downloads / path.name).read_text(encoding="utf-8")
    run = {}
    for old, new in {tuple(one.get("change", ("", ""))) for one in listed}:
        work = [one["is"] for one in listed if "is" in one] if not old else []
        assert not old or program.count(old) == 1
        text = program.replace(old, new) if old else program
        lines = "".join(f'print("worked out:", float({one}))\n' for one in work)
        done = subprocess.run(
            [clean, "-c", f"{text}\n{lines}"],
            cwd=tmp_path,
            env=alone(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        run[old, new] = done.stdout
    out = run["", ""]
    values = iter(re.findall(r"^worked out: (\S+)$", out, re.MULTILINE))
    solved = iter(re.findall(r"^Solution\n(\d[\d,]*(?:\.\d+)?)", out, re.MULTILINE))
    for one in listed:
        if "change" in one:
            assert one["says"] in run[tuple(one["change"])]
            continue
        figure = next(solved) if "says" not in one else None
        if figure is None:
            (figure,) = re.findall(re.escape(one["says"]).replace(r"\{\}", r"(\d[\d,]*(?:\.\d+)?)"), out)
        value, half = as_printed(figure)
        assert abs(float(next(values)) - value) <= half * 1.001, one
    assert next(solved, None) is None
