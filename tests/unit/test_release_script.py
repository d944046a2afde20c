"""Releases: refused until they are ready, and the same bytes from the same commit."""

from __future__ import annotations

import gzip
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from scripts import release


@pytest.fixture(autouse=True)
def address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVREPORT_SITE_URL", "https://capacity.example.org/")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A committed repository that is ready for release 1.2.3."""
    root = tmp_path / "repository"
    (root / "site").mkdir(parents=True)
    (root / "site/index.html").write_text("<p>hello</p>", encoding="utf-8")
    (root / ".gitignore").write_text("/site/\n/dist/\n", encoding="utf-8")
    (root / "kvreport").mkdir()
    (root / "kvreport/__init__.py").write_text('__version__ = "1.2.3"\n', encoding="utf-8")
    (root / "CHANGELOG.md").write_text(
        "## [Unreleased]\n\n## [1.2.3] - 2026-11-21\n\n- A thing.\n", encoding="utf-8"
    )
    git(root, "init", "-q")
    commit(root)
    return root


def git(root: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", "Change something")


def test_a_committed_version_with_its_changes_is_ready(root):
    assert list(release.unready(root)) == []
    git(root, "tag", "v1.2.3")
    assert list(release.unready(root)) == []


def test_what_stands_in_the_way_is_said(root):
    (root / "CHANGELOG.md").write_text(
        "## [Unreleased]\n\n## [1.2.3] - 2026-11-21\n\n## [1.2.2] - 2026-11-20\n- x\n"
    )
    (line,) = [line for line in release.unready(root) if line.startswith("CHANGELOG")]
    assert "no section for 1.2.3" in line
    assert any("changed or unknown files" in line for line in release.unready(root))
    (root / "site/index.html").unlink()
    assert any(line.startswith("site/: found no site") for line in release.unready(root))


def test_a_version_that_was_released_before_is_refused(root):
    git(root, "tag", "v1.2.3")
    commit(root)
    assert list(release.unready(root)) == [
        "version: found 1.2.3 in kvreport/__init__.py, and v1.2.3 is another commit; raise the version"
    ]


def test_a_packed_folder_is_the_same_bytes_whenever_and_whoever_packs_it(tmp_path):
    archives = []
    for number, names in enumerate((["b/two", "a"], ["a", "b/two"])):
        folder = tmp_path / str(number) / "site"
        for name in names:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name, encoding="utf-8")
            path.chmod(0o600 if number else 0o664)
            os.utime(path, (number + 1, number + 1))
        release.pack(folder, tmp_path / str(number) / "kvreport-site-1.tar.gz", 1_700_000_000)
        archives.append((tmp_path / str(number) / "kvreport-site-1.tar.gz").read_bytes())
    assert archives[0] == archives[1]
    assert gzip.decompress(archives[0])
    with tarfile.open(tmp_path / "0/kvreport-site-1.tar.gz") as archive:
        found = [(entry.name, entry.mtime, entry.mode, entry.uname) for entry in archive]
    assert found == [(f"kvreport-site-1/{name}", 1_700_000_000, 0o644, "") for name in ("a", "b/two")]


@pytest.mark.parametrize(
    "found", ["", "http://127.0.0.1:8000/", "https://localhost/", "capacity.example.org"]
)
def test_a_site_without_its_address_is_no_release(root, monkeypatch, found):
    """A release once had canonical links, a sitemap and metadata that name the builder's own machine."""
    monkeypatch.setenv("KVREPORT_SITE_URL", found)
    (line,) = list(release.unready(root))
    assert (
        line == f"KVREPORT_SITE_URL: found {found!r}; allowed: the https:// address that the site will have"
    )


def test_a_site_that_was_built_for_another_address_is_no_release(root):
    sitemap = root / "site/sitemap.xml"
    sitemap.write_text("<url><loc>https://capacity.example.org/</loc></url>", encoding="utf-8")
    assert list(release.unready(root)) == []
    sitemap.write_text("<url><loc>http://127.0.0.1:8000/</loc></url>", encoding="utf-8")
    (line,) = list(release.unready(root))
    assert "was built for another address" in line


def test_a_release_says_under_which_circumstances_its_bytes_are_the_same(root):
    (root / "scripts").mkdir(exist_ok=True)
    script = root / "scripts/variation.py"
    script.write_text(
        "print('abc  as it is: same')\nprint('site of 3 files: sha256 0123')\n", encoding="utf-8"
    )
    assert release.vary(root).split()[-1] == "0123"
    script.write_text("print('abc  clock: 2 files differ')\nraise SystemExit(1)\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="clock: 2 files differ"):
        release.vary(root)
