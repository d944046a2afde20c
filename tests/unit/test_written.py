"""Markdown is parsed once: a kept page is what the host would make of it, and a warning is never swallowed."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from mkdocs.config import load_config
from mkdocs.structure.files import get_files
from mkdocs.structure.pages import Page

from kvreport.adapters import written
from kvreport.adapters.written import Written
from kvreport.build_cache import settle

TEXT = "# One\n\nA [link](two.md#there), a term.[^1]\n\n## Second {: #second }\n\n[^1]: A note.\n"
CONFIG = """\
site_name: x
plugins: []
markdown_extensions: [attr_list, footnotes, toc]
validation: {links: {anchors: warn}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/one.md").write_text(TEXT)
    (tmp_path / "docs/two.md").write_text("# Two\n\n## There {: #there }\n")
    (tmp_path / "mkdocs.yml").write_text(CONFIG)
    return tmp_path


def rendered(project: Path, *, kept: bool = True) -> tuple[Page, int]:
    """Render the first page; return it, and how many pages the host rendered itself."""
    config = load_config(str(project / "mkdocs.yml"))
    files = get_files(config)
    file = files.get_file_from_path("one.md")
    page = Page(None, file, config)
    count = 0
    host = page.render

    def render(*arguments: object) -> None:
        nonlocal count
        count += 1
        host(*arguments)

    page.render = render
    made = Written(project / "cache", config, files)
    page.read_source(config)
    if kept:
        made.take(page)
    page.render(config, files)
    made.finish()
    settle()
    return page, count


def told(page: Page) -> tuple[object, ...]:
    links = {file.src_uri: to for file, to in (page.links_to_anchors or {}).items()}
    outline = [(one.title, one.id, one.level, [(c.title, c.id) for c in one.children]) for one in page.toc]
    return page.content, page.title, page.present_anchor_ids, links, outline


def test_a_page_that_has_not_changed_is_what_the_host_made_of_it(project: Path) -> None:
    first, second = rendered(project), rendered(project)
    assert (first[1], second[1]) == (1, 0)
    assert told(first[0]) == told(second[0]) == told(rendered(project, kept=False)[0])
    assert second[0].links_to_anchors


@pytest.mark.parametrize("change", ["text", "a file that is linked", "setting"])
def test_what_decides_a_page_has_it_rendered_again(project: Path, change: str) -> None:
    rendered(project)
    if change == "text":
        (project / "docs/one.md").write_text(f"{TEXT}\nMore.\n")
    elif change == "setting":
        (project / "mkdocs.yml").write_text(f"{CONFIG}use_directory_urls: false\n")
    else:
        (project / "docs/three.md").write_text("# Three\n")
    page, count = rendered(project)
    assert count == 1
    assert told(page) == told(rendered(project, kept=False)[0])


def test_a_dead_link_is_told_in_every_build(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    (project / "docs/two.md").unlink()
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert rendered(project)[1] == 1
        assert "two.md" in caplog.text


def test_an_extension_that_may_read_other_files_keeps_nothing(project: Path) -> None:
    text = CONFIG.replace("toc]", "toc, pymdownx.snippets]")
    (project / "mkdocs.yml").write_text(text)
    assert not written.usable(load_config(str(project / "mkdocs.yml")))
    (project / "mkdocs.yml").write_text(CONFIG)
    assert written.usable(load_config(str(project / "mkdocs.yml")))
