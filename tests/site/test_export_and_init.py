"""Pages as a project for another engine, and a project of one's own."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from bs4 import BeautifulSoup

from kvreport.adapters.chapters import page_address
from kvreport.adapters.policy import Policy
from kvreport.adapters.portable import export_project, markdown
from kvreport.adapters.scaffold import scaffold
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.site.kit.page import Page, Section

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scaffolded project."""
    folder = tmp_path_factory.mktemp("init") / "mine"
    scaffold(folder, model="llama 3.1 8b", gpu="H100")
    return folder


@pytest.fixture(scope="module")
def exported(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's pages as plain files, with a hand-written page that states a number."""
    made = tmp_path_factory.mktemp("export")
    docs = made / "docs"
    docs.mkdir()
    (docs / "by-hand.md").write_text(
        '# By hand\n\nOne token takes {{ 131,072 bytes = kv_per_token("llama-3.1-8b") }}.\n', encoding="utf-8"
    )
    export_project(made / "out", data=project / "data", docs=docs, cache=made / "cache", dataset=False)
    return made / "out"


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )


def test_a_scaffolded_project_builds_strictly(project: Path) -> None:
    built = run("mkdocs", "build", "--strict", cwd=project)
    assert built.returncode == 0, built.stderr
    page = project / "site/models/meta-llama--Llama-3.1-8B-Instruct/index.html"
    assert "users" in BeautifulSoup(page.read_text(encoding="utf-8"), "lxml").get_text()


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


def test_another_engine_builds_the_same_pages(exported: Path) -> None:
    pytest.importorskip("properdocs")
    built = run("properdocs", "build", "--strict", cwd=exported)
    assert built.returncode == 0, built.stdout + built.stderr
    policy = Policy((exported / "site/404.html").read_text(encoding="utf-8"))
    for source in sorted((exported / "docs").rglob("index.md")):
        uri = source.parent.relative_to(exported / "docs")
        html = (exported / "site" / uri / "index.html").read_text(encoding="utf-8")
        assert 0 < html.find(policy.tag) < html.index("<script"), uri
        assert not [*policy.refused(html), *policy.unstyled(html)], uri
        page = BeautifulSoup(html, "lxml")
        written = BeautifulSoup(source.read_text(encoding="utf-8").split("---\n", 2)[2], "lxml")
        article = page.select_one("article")
        assert article is not None
        assert [t.get_text() for t in article.select("table caption")] == [
            t.get_text() for t in written.select("table caption")
        ], uri
        assert len(article.select("svg.marks")) == len(written.select("svg.marks")), uri


def test_zensical_builds_the_same_pages(exported: Path) -> None:
    """The successor of the theme builds what is exported, with every page and table of it."""
    pytest.importorskip("zensical")
    site = exported / "site"
    built = run("zensical", "build", "--clean", cwd=exported)
    assert built.returncode == 0, built.stdout + built.stderr
    for source in sorted((exported / "docs").rglob("index.md")):
        uri = source.parent.relative_to(exported / "docs")
        page = BeautifulSoup((site / uri / "index.html").read_text(encoding="utf-8"), "lxml")
        written = BeautifulSoup(source.read_text(encoding="utf-8").split("---\n", 2)[2], "lxml")
        assert [t.get_text() for t in page.select("article table caption")] == [
            t.get_text() for t in written.select("table caption")
        ], uri


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


def test_numbers_in_hand_written_pages_are_computed_on_the_way(exported: Path) -> None:
    text = (exported / "docs/by-hand.md").read_text(encoding="utf-8")
    assert "131,072" in text
    assert "{{" not in text


def test_an_export_replaces_an_earlier_one_and_repeats_to_the_byte(
    project: Path, tmp_path: Path, exported: Path
) -> None:
    out = tmp_path / "out"
    for _ in range(2):
        export_project(out, data=project / "data", cache=tmp_path / "cache", dataset=False)
    for path in sorted(p for p in out.rglob("*") if p.is_file() and p.name != "mkdocs.yml"):
        assert path.read_bytes() == (exported / path.relative_to(out)).read_bytes(), path


def test_the_exported_configuration_names_no_plugin_of_ours(exported: Path) -> None:
    settings = yaml.safe_load((exported / "mkdocs.yml").read_text(encoding="utf-8"))
    assert settings["plugins"] == ["search"]


def test_headings_from_the_catalog_stay_text_in_markdown() -> None:
    page = Page(
        uri="x/",
        kind="tool",
        title="t",
        heading="<b>[a](b) *c* {#d}",
        description="d",
        sections=(Section("s", "`e` | f", "<p>1</p>"),),
    )
    text = markdown(page)
    assert "# &lt;b&gt;\\[a\\](b) \\*c\\* \\{\\#d\\} {#top}" in text
    assert "## \\`e\\` \\| f {#s}" in text


@pytest.mark.parametrize(
    ("source", "address"),
    [
        ("index.md", ""),
        ("about/index.md", "about/"),
        ("about/method.md", "about/method/"),
        ("chapters/02-the-formula.py", "learn/the-formula/"),
        ("downloads/models.csv", "downloads/models.csv"),
    ],
)
def test_sources_have_the_addresses_of_their_pages(source: str, address: str) -> None:
    assert page_address(source) == address
