"""A second try is named, and many of them fail the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import reruns

FAILS_ONCE = """\
import pytest
TRIED = set()

@pytest.mark.flaky(reruns=1)
@pytest.mark.parametrize("number", range({count}))
def test_of_a_race(number):
    if number not in TRIED:
        TRIED.add(number)
        raise ValueError(f"first try of {{number}}")
"""


@pytest.mark.parametrize(("count", "status"), [(0, 0), (reruns.ALLOWED, 0), (reruns.ALLOWED + 1, 1)])
def test_a_second_try_is_named_and_many_fail_the_run(tmp_path: Path, count: int, status: int) -> None:
    text = FAILS_ONCE.format(count=count) if count else "def test_of_nothing():\n    pass\n"
    (tmp_path / "test_race.py").write_text(text, encoding="utf-8")
    asked = ["-q", "-p", "reruns", "-p", "no:cacheprovider", "-n", "0", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *asked, str(tmp_path)],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={"PYTHONPATH": str(Path(__file__).parent)},
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    assert (f"tried again: {count}, allowed: {reruns.ALLOWED}" in done.stdout) == (count > 0)
    assert done.stdout.count("ValueError: first try of") == count
