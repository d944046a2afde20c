"""`make site` builds what a build would change, and nothing else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def make_site(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    import make_site

    return make_site


@pytest.fixture
def project(make_site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A project, and a build that copies its page; returns the folder and the builds so far."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/model.yaml").write_text("layers: 2\n")
    (tmp_path / "mkdocs.yml").write_text("site_url: !ENV [PAGES_URL, KVREPORT_SITE_URL, here]\n")
    builds: list[int] = []
    status = [0]

    def build(_: list[str]) -> int:
        builds.append(len(builds))
        site = tmp_path / "site"
        (site / "models").mkdir(parents=True, exist_ok=True)
        (site / "models/index.html").write_text((tmp_path / "data/model.yaml").read_text())
        return status[0]

    monkeypatch.setattr(make_site, "build", build)
    monkeypatch.setattr(sys, "argv", ["make_site.py"])
    return tmp_path, builds, status


def test_nothing_changed_builds_nothing(make_site, project, capsys) -> None:
    root, builds, _ = project
    assert make_site.make(root, []) == 0
    (root / "data/__pycache__").mkdir()
    (root / "data/__pycache__/x.pyc").write_bytes(b"")
    os.utime(root / "data/model.yaml")
    assert make_site.make(root, []) == 0
    assert len(builds) == 1
    assert "up to date" in capsys.readouterr().out


@pytest.mark.parametrize(
    "change",
    ["content", "new file", "renamed file", "named setting", "our setting", "clock", "argument"],
)
def test_whatever_decides_a_site_builds_it_again(make_site, project, monkeypatch, change) -> None:
    root, builds, _ = project
    make_site.make(root, [])
    if change == "content":
        (root / "data/model.yaml").write_text("layers: 3\n")
    elif change == "new file":
        (root / "data/other.yaml").touch()
    elif change == "renamed file":
        (root / "data/model.yaml").rename(root / "data/model2.yaml")
        (root / "data/model.yaml").symlink_to("model2.yaml")
    elif change == "argument":
        monkeypatch.setattr(sys, "argv", ["make_site.py", "--no-directory-urls"])
    else:
        name = {"named setting": "PAGES_URL", "our setting": "KVREPORT_X", "clock": "SOURCE_DATE_EPOCH"}[
            change
        ]
        monkeypatch.setenv(name, "1")
    make_site.make(root, [])
    assert len(builds) == 2
    make_site.make(root, [])
    assert len(builds) == 2


@pytest.mark.parametrize("harm", ["edited", "removed", "added", "folder added", "closed", "gone"])
def test_a_site_that_is_not_what_was_built_is_built_again(make_site, project, harm) -> None:
    root, builds, _ = project
    make_site.make(root, [])
    page = root / "site/models/index.html"
    if harm == "edited":
        before = page.stat()
        page.write_text("layers: 9\n")
        os.utime(page, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    elif harm == "removed":
        page.unlink()
    elif harm == "added":
        (root / "site/stray.html").touch()
    elif harm == "folder added":
        (root / "site/stray").mkdir()
    elif harm == "closed":
        page.chmod(0o600)
    else:
        page.unlink()
        page.parent.rmdir()
        page.parent.parent.rmdir()
    make_site.make(root, [])
    assert len(builds) == 2


def test_a_build_that_failed_is_tried_again(make_site, project) -> None:
    root, builds, status = project
    status[0] = 1
    assert make_site.make(root, []) == 1
    assert make_site.make(root, []) == 1
    assert len(builds) == 2
    status[0] = 0
    assert make_site.make(root, []) == 0
    assert make_site.make(root, []) == 0
    assert len(builds) == 3


def test_a_change_while_it_is_built_builds_it_again(make_site, project, monkeypatch) -> None:
    root, builds, _ = project
    build = make_site.build

    def slow(arguments: list[str]) -> int:
        status = build(arguments)
        (root / "data/model.yaml").write_text("layers: 3\n")
        return status

    monkeypatch.setattr(make_site, "build", slow)
    make_site.make(root, [])
    make_site.make(root, [])
    assert (root / "site/models/index.html").read_text() == "layers: 3\n"
    make_site.make(root, [])
    assert len(builds) == 2


def test_a_module_loaded_when_used_is_whole(make_site, tmp_path, monkeypatch) -> None:
    (tmp_path / "kv_heavy.py").write_text("import os\nVALUE = 7\nos.environ['KV_HEAVY'] = 'loaded'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("KV_HEAVY", "")
    make_site.load_when_used("kv_heavy")
    import kv_heavy

    assert not os.environ["KV_HEAVY"]
    assert kv_heavy.VALUE == 7
    assert os.environ["KV_HEAVY"] == "loaded"
    make_site.load_when_used("kv_no_such_module")
