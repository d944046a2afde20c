"""Every example in a docstring is run."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import kvreport

PACKAGE = Path(kvreport.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


def test_there_are_examples():
    assert len(MODULES) >= 6


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted
    assert not found.failed
