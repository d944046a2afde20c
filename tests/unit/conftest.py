"""What several unit tests load."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def interface_words(repository: Path) -> Iterator[ModuleType]:
    """The script that writes all texts of the interface."""
    spec = importlib.util.spec_from_file_location(
        "interface_words", repository / "scripts/interface_words.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]
