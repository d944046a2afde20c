"""The plugin in somebody else's MkDocs project: its pages, theme and navigation stay as they were."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny
from bs4 import BeautifulSoup
from mkdocs.exceptions import Abort, PluginError

pytestmark = [pytest.mark.slow]

HOME = """\
# Our team's handbook

Prices are {{ 3 * 7 }} and [the rules](rules.md) hold. What fits: [capacity](capacity/index.md).
A KV cache is nothing here.
"""
SETTINGS = """\
site_name: Handbook
site_url: https://handbook.example.org/
docs_dir: docs
site_dir: site
theme: {theme}
extra_css: [ours.css]
nav:
  - Home: index.md
  - Rules: rules.md
{nav}
plugins:
  - search
{plugin}
"""
PLUGIN = """\
  - kvreport:
      catalog: data
      prefix: {prefix}
      models: "{models}"
      gpus: "{gpus}"
"""


def project(
    repository: Path, root: Path, theme: str, plugin: str, nav: str = "  - Capacity: capacity/index.md"
) -> Path:
    (root / "docs").mkdir(parents=True)
    home = HOME if plugin else HOME.replace("[capacity](capacity/index.md)", "capacity")
    (root / "docs/index.md").write_text(home, encoding="utf-8")
    (root / "docs/rules.md").write_text("# Rules\n\nBe kind.\n", encoding="utf-8")
    (root / "docs/ours.css").write_text("body { color: black }\n", encoding="utf-8")
    if plugin:
        tiny.copy_catalog(repository, root / "data")
    config = root / "mkdocs.yml"
    config.write_text(
        SETTINGS.format(theme=theme, plugin=plugin, nav=nav if plugin else ""), encoding="utf-8"
    )
    return config


def build(config: Path, engine: str = "mkdocs") -> str:
    done = subprocess.run(
        [sys.executable, "-m", engine, "build", "--strict", "--config-file", str(config)],
        capture_output=True, text=True, check=False, cwd=config.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def content(page: Path) -> str:
    """Return what a reader sees of a page, without the navigation, which has one entry more."""
    document = BeautifulSoup(page.read_text(encoding="utf-8"), "html5lib")
    found = next(filter(None, (document.select_one(part) for part in ("article", "[role=main]", "main"))))
    return found.decode_contents()


@pytest.mark.parametrize(
    ("engine", "theme", "models", "gpus"),
    [
        ("mkdocs", "material", "meta-llama/*", "*"),
        ("mkdocs", "readthedocs", "openai/*", "h100*"),
        ("properdocs", "material", "openai/*", "rtx*"),
    ],
)
def test_the_projects_own_pages_are_untouched(
    repository: Path, tmp_path: Path, engine: str, theme: str, models: str, gpus: str
) -> None:
    plugin = PLUGIN.format(prefix="capacity", models=models, gpus=gpus)
    with_us = project(repository, tmp_path / "with", theme, plugin)
    said = build(with_us, engine)
    assert not re.search(r"WARNING +-", said)
    site = with_us.parent / "site"
    home = (site / "index.html").read_text(encoding="utf-8")
    assert "{{ 3 * 7 }}" in home
    for trace in ("kvreport", "assets/fonts.css", "Content-Security-Policy", "kv-term"):
        assert trace not in home
    assert re.search(r'href="capacity/"', home)
    pages = sorted((site / "capacity").rglob("index.html"))
    assert len(pages) >= 8
    assert not (site / "models").exists()
    assert not (site / "downloads").exists()
    assert (site / "capacity/downloads/capacity.parquet").is_file()
    alone = project(repository, tmp_path / "alone", theme, "")
    build(alone, engine)
    for name in ("index.html", "rules/index.html"):
        ours, theirs = content(site / name), content(alone.parent / "site" / name)
        plain = ours.replace('<a href="capacity/">capacity</a>', "capacity")
        assert re.sub(r"\s+", " ", plain).partition("footer")[0] == re.sub(r"\s+", " ", theirs).partition(
            "footer"
        )[0] or (theme == "readthedocs" and "Next" in plain)


def links_of(site: Path) -> list[tuple[str, str]]:
    """Return every link within a site that leads nowhere."""
    dead = []
    for page in sorted(site.rglob("*.html")):
        if page.name == "404.html":
            continue
        document = BeautifulSoup(page.read_text(encoding="utf-8"), "html5lib")
        for tag in document.select("a[href], link[href], script[src], img[src]"):
            address = (tag.get("href") or tag.get("src") or "").partition("#")[0].partition("?")[0]
            if not address or re.match(r"[a-z]+:|//", address):
                continue
            target = (site / address.lstrip("/")) if address.startswith("/") else (page.parent / address)
            if target.is_dir():
                target = target / "index.html"
            if not target.resolve().is_file():
                dead.append((page.relative_to(site).as_posix(), address))
    return dead


def test_filtered_pages_have_no_dead_link(repository: Path, tmp_path: Path) -> None:
    plugin = PLUGIN.format(prefix="what/fits", models="openai/*", gpus="h100*")
    config = project(repository, tmp_path / "p", "material", plugin, nav="")
    (config.parent / "docs/index.md").write_text("# Home\n", encoding="utf-8")
    build(config)
    site = config.parent / "site"
    assert (site / "what/fits/models/openai--gpt-oss-20b/index.html").is_file()
    assert not (site / "what/fits/models/meta-llama--Llama-3.1-8B-Instruct").exists()
    assert links_of(site) == []


def test_a_project_with_a_home_page_needs_no_prefix(repository: Path, tmp_path: Path) -> None:
    """What once stopped every existing project: index.md is written by hand and generated."""
    plugin = "  - kvreport:\n      catalog: data\n"
    config = project(repository, tmp_path / "p", "material", plugin)
    build(config)
    assert "handbook" in (config.parent / "site/index.html").read_text(encoding="utf-8")
    assert (config.parent / "site/capacity/index.html").is_file()
    shutil.rmtree(config.parent / "site")
    text = config.read_text(encoding="utf-8")
    for line, sentence in (
        ("catalogue: data", "it is named 'catalog' now; rename it"),
        (
            "catalog: data\n      prefix: ../x",
            "prefix: found '../x'; allowed: a relative address such as 'capacity'",
        ),
    ):
        config.write_text(text.replace("catalog: data", line), encoding="utf-8")
        assert sentence in refused(config)


def refused(config: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config)],
        capture_output=True, text=True, check=False, cwd=config.parent,
    )  # fmt: skip
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def guide(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose prefix a page of its own may hold; what its builds compute is shared."""
    plugin = PLUGIN.format(prefix="guide", models="openai/gpt-oss-20b", gpus="h100-sxm*")
    config = project(repository, tmp_path_factory.mktemp("guide") / "p", "material", plugin, nav="")
    (config.parent / "docs/index.md").write_text("# Home\n", encoding="utf-8")
    return config


@pytest.mark.parametrize(
    ("prefix", "name"),
    [
        ("guide", "guide.md"),  # the address of a page of ours
        ("guide", "guide/index.md"),
        ("guide", "guide/rules-of-the-house.md"),  # below the prefix
        ("a/guide", "a/guide/models/README.md"),
        ("guide", "guide/llms-full.txt"),  # no page, and written by us after the build
    ],
)
def test_a_prefix_that_holds_pages_of_the_project_is_refused(
    guide: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    build_site: Callable[[Path], None],
    prefix: str,
    name: str,
) -> None:
    """A page of theirs was replaced without a word: its source has another name, its address is ours."""
    monkeypatch.chdir(guide.parent)
    text = guide.read_text(encoding="utf-8")
    page = guide.parent / "docs" / name
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("# Theirs\n", encoding="utf-8")
    guide.write_text(text.replace("prefix: guide", f"prefix: {prefix}"), encoding="utf-8")
    try:
        with pytest.raises((PluginError, Abort)) as caught:
            build_site(guide)
    finally:
        page.unlink()
        guide.write_text(text, encoding="utf-8")
    said = f"{caplog.text}{caught.value}"
    assert f"{name} is written by hand and its address is one of the generated pages" in said
    assert not (guide.parent / "site").exists()


def test_a_page_next_to_the_prefix_stays(
    guide: Path, monkeypatch: pytest.MonkeyPatch, build_site: Callable[[Path], None]
) -> None:
    monkeypatch.chdir(guide.parent)
    (guide.parent / "docs/guidelines.md").write_text("# Theirs\n", encoding="utf-8")
    build_site(guide)
    site = guide.parent / "site"
    assert "Theirs" in (site / "guidelines/index.html").read_text(encoding="utf-8")
    assert (site / "guide/index.html").is_file()
    shutil.rmtree(site)
