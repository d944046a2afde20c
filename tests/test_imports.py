"""The rooms' doors open one way."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kvreport.accounting.engines.by_family import FAMILIES

HEAVY = ("altair", "jinja2", "mkdocs", "pandas", "pyarrow", "vl_convert")


def test_every_import_contract_is_kept(repository):
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [linter, "--no-logo", "--no-cache"], cwd=repository, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("module", ["kvreport", "kvreport.cli"])
def test_an_estimate_does_not_pay_for_the_report(module):
    """`kvreport estimate` must answer at once, so its imports stay light."""
    program = f"import sys, {module}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_no_room_is_missing_from_what_a_contract_forbids(repository):
    """The layers contract is exhaustive; the others list rooms, and must list each that they are about."""
    settings = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = {one["id"]: one for one in settings["tool"]["importlinter"]["contracts"]}
    layers = contracts["layers"]["layers"]

    def rooms(layers):
        return {f"kvreport.{room.strip().split('.')[0]}" for layer in layers for room in layer.split("|")}

    below_dataset = rooms(layers[layers.index("dataset") + 1 :])
    listed = {name: set(one.get("source_modules", ())) for name, one in contracts.items()}
    assert listed["no-frames-below-dataset"] == below_dataset
    assert listed["no-html-below-site"] == below_dataset | {"kvreport.dataset"}
    assert listed["engine-in-adapters"] == rooms(layers) - {"kvreport.adapters"}


CLASS_NAME = re.compile(r"[\"'][A-Z][A-Za-z0-9_]+For(?:CausalLM|ConditionalGeneration|[A-Z][a-z]+LM)\b")
READS_CLASSES = ("architectures", "site")
"""The config reader's classes are its subject; a page shows one as an example."""


def test_no_rule_names_a_class_of_models(repository):
    """What an engine does by class is a list in its record, read from its source; the code knows traits only."""
    package = repository / "kvreport"
    naming = [
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if path.relative_to(package).parts[0] not in READS_CLASSES
        and CLASS_NAME.search(path.read_text("utf-8"))
    ]
    assert naming == []


def test_no_engine_is_told_apart_by_name_outside_its_own_module(repository):
    """What differs between engines is a method or an attribute of its rules; the catalog looks records up."""
    package = repository / "kvreport"
    compared = [
        f"{path.relative_to(package)}:{node.lineno}"
        for path in package.rglob("*.py")
        if path.relative_to(package).parts[:2] != ("accounting", "engines")
        and path.relative_to(package).parts[0] != "catalog"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Compare) and _names_an_engine(node)
    ]
    assert compared == []


def _names_an_engine(node):
    sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
    return any(side.endswith("engine.family") for side in sides) or (
        "family" in sides and any(f"'{name}'" in side for side in sides for name in FAMILIES)
    )


@pytest.mark.parametrize("step", ["load_overhead", "plan", "reserve"])
def test_each_step_of_the_trunk_has_one_caller(repository, step):
    """Weights, load overhead, reserve, pool and block plan are put together in one place: accounting/allocation.py."""
    package = repository / "kvreport"
    callers = [
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if path.relative_to(package).parts[:2] != ("accounting", "engines")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == step
    ]
    assert callers == ["accounting/allocation.py"]
