"""Notes of what a chapter reads, after the build that wanted them has ended."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kvreport.catalog import dependency_notes


def test_a_chapter_runs_after_the_build_that_noted_its_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build that was broken off left the name of its folder, and every notebook run later ended with a traceback."""
    monkeypatch.setattr(sys, "argv", ["ipykernel_launcher.py"])
    monkeypatch.setenv(dependency_notes.FOLDER, str(tmp_path / "gone"))
    dependency_notes.note(tmp_path, "meta-llama/Llama-3.1-8B")
    assert not (tmp_path / "gone").exists()
    (tmp_path / "here").mkdir()
    monkeypatch.setenv(dependency_notes.FOLDER, str(tmp_path / "here"))
    dependency_notes.note(tmp_path, "meta-llama/Llama-3.1-8B")
    assert list((tmp_path / "here").iterdir())
