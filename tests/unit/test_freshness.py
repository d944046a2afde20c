"""The report of old facts: days come from Git and from the command line, never from the clock of a test."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from kvreport.catalog.freshness import Freshness, Newest, newest
from kvreport.catalog.load import open_catalog
from kvreport.resources import data_dir


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
    rows = [Newest("model", "M", "2026-03"), Newest("release whose source we read", "1.0", family="mlx")]
    found = freshness.facts({"mlx": "1.1"}, days, date(2026, 4, 2))
    assert [(one.name, one.files, one.oldest) for one in found.data] == [
        ("a.yaml", 1, "2026-01-01"),
        ("b.yaml", 1, "2026-03-01"),
        ("measurements", 1, "2026-01-01"),
    ]
    told = freshness.report(found, rows, days, 90)
    assert "| model | M | - | 2026-03 | 32 |" in told
    assert "| release of mlx whose source we read | 1.0 | 1.1 | not stated | not known |" in told
    assert told[-2:] == ["1 of 3 files were checked more than 90 days ago.", "- a.yaml: 91 days"]


def test_the_file_is_what_the_script_writes(freshness: Any) -> None:
    """It has a folder of every kind, and days that the check does not precede."""
    found = Freshness.read(data_dir())
    assert found is not None
    assert {"models", "accelerators", "observations", "engines"} <= {one.name for one in found.data}
    assert all(one.oldest <= one.newest <= found.checked for one in found.data)
    assert set(found.published) == set(freshness.DISTRIBUTIONS)


def test_the_newest_of_a_catalog_has_its_day() -> None:
    rows = {one.kind: one for one in newest(open_catalog(data_dir()))}
    assert {"release whose source we read", "model", "accelerator", "start-up log"} == set(rows)
    assert all(one.day >= "2026-09" for kind, one in rows.items() if kind != "release whose source we read")
