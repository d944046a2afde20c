"""The script that keeps what was predicted before any rule was changed."""

from __future__ import annotations

from scripts import record_first_sight as script

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


def test_an_error_is_written_to_its_log_alone() -> None:
    text = script.with_first_errors(LOGS, {"log-1": -0.0123})
    assert text == LOGS.replace("    source: A place\n", "    source: A place\n    first_error: -0.0123\n")
