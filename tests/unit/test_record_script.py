"""The script that keeps what was predicted before any rule was changed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

LOGS = """logs:
  - id: log-1
    engine: llama-cpp
    source: A place
  - id: log-12
    engine: llama-cpp
    source: Another place
    first_error: 0.5000
sources:
  - covers: [logs]
"""


@pytest.fixture(scope="module")
def script(repository: Path):
    spec = importlib.util.spec_from_file_location("record", repository / "scripts/record_first_sight.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_error_is_written_to_its_log_alone(script) -> None:
    text = script.with_first_errors(LOGS, {"log-1": -0.0123})
    assert text == LOGS.replace("    source: A place\n", "    source: A place\n    first_error: -0.0123\n")
