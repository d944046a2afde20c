"""Pages as a project for another engine, and a project of one's own."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from kvreport.adapters.export import export
from kvreport.adapters.scaffold import scaffold
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.site.build import build

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scaffolded project."""
    folder = tmp_path_factory.mktemp("init") / "mine"
    scaffold(folder, model="llama 3.1 8b", gpu="H100")
    return folder


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )


def test_a_scaffolded_project_builds_strictly(project: Path) -> None:
    built = run("mkdocs", "build", "--strict", cwd=project)
    assert built.returncode == 0, built.stderr
    page = project / "site/models/meta-llama--Llama-3.1-8B-Instruct/index.html"
    assert "requests" in BeautifulSoup(page.read_text(encoding="utf-8"), "lxml").get_text()


def test_a_template_in_the_overrides_folder_replaces_the_packages(project: Path, tmp_path: Path) -> None:
    (project / "overrides/model").mkdir()
    (project / "overrides/model/serve.html").write_text("<p>Ask the platform team.</p>", encoding="utf-8")
    built = run("mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site"), cwd=project)
    assert built.returncode == 0, built.stderr
    page = tmp_path / "site/models/meta-llama--Llama-3.1-8B-Instruct/index.html"
    assert "Ask the platform team." in page.read_text(encoding="utf-8")


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="allowed: a new or empty folder"):
        scaffold(tmp_path, model="llama 3.1 8b", gpu="H100")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_an_unknown_example_model_is_one_line_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "x"), "--model", "nobody/knows"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_requirements_name_no_package_that_is_not_ours_and_pin_all_by_hash(
    project: Path, tmp_path: Path
) -> None:
    """Whoever registers our name must not run code in the projects that `kvreport init` writes."""
    lines = (project / "requirements.txt").read_text(encoding="utf-8").splitlines()
    named = [line for line in lines if line and line[0] not in " #"]
    assert len(named) > 60
    assert not any(line.startswith("kvreport") for line in named)
    assert sum("--hash=sha256:" in line for line in lines) >= len(named)
    wheel = tmp_path / "kvreport-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    scaffold(tmp_path / "pinned", model="llama 3.1 8b", gpu="H100", wheel=wheel)
    first = (tmp_path / "pinned/requirements.txt").read_text(encoding="utf-8").splitlines()[0]
    digest = hashlib.sha256(b"a wheel").hexdigest()
    assert first == f"./wheels/{wheel.name} --hash=sha256:{digest}"
    assert (tmp_path / "pinned/wheels" / wheel.name).read_bytes() == b"a wheel"
    with pytest.raises(InputError, match="wheel: found"):
        scaffold(tmp_path / "other", model="llama 3.1 8b", gpu="H100", wheel=tmp_path / "x.zip")


def test_an_export_replaces_an_earlier_one_and_repeats_to_the_byte(project: Path, tmp_path: Path) -> None:
    out, again = tmp_path / "out", tmp_path / "again"
    for target in (out, again, out):
        export(build(data=project / "data", cache=tmp_path / "cache", dataset=False), target)
    files = {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert len(files) > 20
    assert files == {
        path.relative_to(again): path.read_bytes() for path in again.rglob("*") if path.is_file()
    }


def test_what_an_export_no_longer_writes_is_one_line_with_the_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in ((["--as", "markdown"], "as: found markdown"), (["--docs", "x"], "docs: found")):
        assert main(["export", "--out", str(tmp_path / "x"), *words]) == 2
        error = capsys.readouterr().err.strip()
        assert said in error
        assert len(error.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
