"""The command that holds coverage: a room below its floor, a new room and a room that went are faults."""

from __future__ import annotations

import importlib.util
import json
import tomllib
from pathlib import Path

import pytest


@pytest.fixture
def floors(repository: Path, tmp_path: Path, monkeypatch):
    spec = importlib.util.spec_from_file_location("floors", repository / "scripts/coverage_floors.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "pyproject.toml").write_text(
        "[tool.kvreport.coverage-floors]\ndefault = 80\nsite = 90\ngone = 50\n"
    )
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def file(reached: int, total: int) -> dict:
    return {
        "summary": {
            "covered_lines": reached,
            "num_statements": total,
            "covered_branches": 0,
            "num_branches": 0,
        }
    }


def test_rooms_are_summed_and_held(floors, tmp_path, capsys):
    report = tmp_path / "coverage.json"
    files = {
        "kvreport/site/a.py": file(80, 100),
        "kvreport/site/kit/b.py": file(99, 100),
        "kvreport/units.py": file(1, 1),
        "kvreport/words.py": file(1, 2),
    }
    report.write_text(json.dumps({"files": files}))
    assert floors.main(report) == 1
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "gone: no such room; take its floor out of pyproject.toml",
        "site: found 89.5%; allowed: 90% or more; test what is new",
        "words: found 50.0%; allowed: 80% or more; test what is new",
    ]


def test_every_floor_has_its_room(repository):
    settings = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    package = repository / "kvreport"
    rooms = {path.stem for path in package.glob("*.py")} | {
        path.parent.name for path in package.glob("*/__init__.py")
    }
    assert set(settings["tool"]["kvreport"]["coverage-floors"]) <= rooms | {"default"}
