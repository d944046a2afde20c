"""The report of old facts: days come from Git and from the command line, never from the clock of a test."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def freshness(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    sys.modules.pop("freshness", None)
    import freshness

    return freshness


def test_a_file_is_as_old_as_the_last_commit_that_changed_it(freshness: Any, tmp_path: Path) -> None:
    def git(day: str, *words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        stamp = f"{day}T12:00:00+00:00"
        env = {
            "GIT_AUTHOR_DATE": stamp,
            "GIT_COMMITTER_DATE": stamp,
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
        }
        subprocess.run(["git", *who, "-C", str(tmp_path), *words], check=True, env=env, capture_output=True)

    data = tmp_path / "data"
    (data / "measurements").mkdir(parents=True)
    git("2026-01-01", "init")
    for day, names in (
        ("2026-01-01", ("a.yaml", "b.yaml", "measurements/e.json")),
        ("2026-03-01", ("b.yaml", "c.yaml")),
    ):
        for name in names:
            (data / name).write_text(day, encoding="ascii")
        git(day, "add", ".")
        git(day, "commit", "-m", "change")
    (data / "c.yaml").unlink()
    days = freshness.checked(data)
    assert days == {
        "a.yaml": date(2026, 1, 1),
        "b.yaml": date(2026, 3, 1),
        "measurements/e.json": date(2026, 1, 1),
    }
    assert freshness.old(days, date(2026, 4, 2), 90) == [(91, "a.yaml")]
    assert freshness.old(days, date(2026, 4, 1), 90) == []
    rows = [("model", "acme/m", "2026-03"), ("release of mlx that was read", "1.0", "")]
    told = freshness.report(rows, days, date(2026, 4, 2), 90)
    assert "| model | acme/m | 2026-03 | 32 |" in told
    assert "| release of mlx that was read | 1.0 | not stated | not known |" in told
    assert told[-2:] == ["1 of 3 files were checked more than 90 days ago.", "- a.yaml: 91 days"]
