"""The comparison of two versions of the config reader."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import compare_answers, compare_readings


def test_readings_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    assert compare_readings.record(before, 1, ["GPT2LMHeadModel flat"]) == 0
    assert compare_answers.compare(before, before) == 0
    lines = before.read_text(encoding="utf-8").splitlines()
    assert len(lines) > 40
    first = json.loads(lines[0])
    first["answer"]["parameters"] = 1
    after.write_text("\n".join([json.dumps(first), *lines[1:]]), encoding="utf-8")
    assert compare_answers.compare(before, after) == 1
    assert ".parameters: " in capsys.readouterr().out
