"""The site in a pseudo-language that brackets every text: pages work, and nothing of the interface stands outside."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from serving import served
from untranslated import GATHER, Left, left, names
from visits import Visit, browser

__all__ = ["browser"]  # a fixture

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SETTINGS: Final = """\
INHERIT: {repository}/mkdocs.yml
docs_dir: {repository}/docs
site_dir: {site}
site_url: https://example.org/
plugins:
  search: {{}}
  mkdocs-jupyter: {{include: ["chapters/01-*.py"], execute: true, include_source: false, ignore_h1_titles: false, no_prompt: true, remove_tag_config: {{remove_input_tags: [hide]}}}}
  kvreport:
    models: "meta-llama/llama-3.1-8b-instruct,deepseek-ai/deepseek-v3,qwen/qwen3.6-27b"
    gpus: "h100-sxm-80gb,rtx-4090,b200-sxm*"
    translation: {catalog}
"""

HAND: Final = r"^(?!.*(?:kv-entry|kv-chip|kv-controls|button|summary|legend|label|md-nav|md-footer))"
"""Everything but controls, which are the interface also on pages that are written by hand."""

CONTENT: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "every page": (
        (r"md-copyright", "the theme's own line"),
        (r"md-button__button>img|header__button>img|md-nav__button>img", "the theme's logo"),
        (r"span\.md-ellipsis$|nav__item>a", "titles of pages written by hand"),
        (r"ul\.kv-sources>li", "titles and notes of sources, as the catalog has them"),
        (r"kv-words>a", "addresses of sources"),
        (r"kv-q$", "expressions of a page, and counted values of content"),
    ),
    "evidence/": (
        (r"tr>t[hd]", "models, devices, flags and reasons of published logs, as the records have them"),
        (r"tr>th>small", "flags of a log"),
        (r"th\.kv-num$", "what another tool was asked, as its record says"),
    ),
    "evidence/logs/": ((r"tbody>tr>t[hd]", "engines and reasons, as the records have them"),),
    "evidence/comparisons/": (
        (r"tr>t[hd]", "keys of configs and published quantities, as the records have them"),
    ),
    "evidence/claims/": ((r"", "claims and how each was recomputed are texts of the catalog"),),
    "evidence/measured/": (
        (r"kv-key$|tbody>tr>th|tr>th>small", "cases of experiments, as their records name them"),
    ),
    "glossary/": ((r"kv-glossary", "definitions are texts of the catalog"),),
    "data/": (
        (r"kv-links>li>a", "names of files"),
        (r"div\.md-content>article|tbody>tr>t[dh]|kv-dictionary", "the dictionary is a part of the dataset"),
    ),
    "traffic/": ((r"ul>li", "descriptions of published traces"),),
    "learn/what-fills-a-gpu/": (
        (
            r"kv-radio|kv-slider|details\.kv-fold>summary",
            "answers, sliders and exercises that the chapter states",
        ),
        (HAND, "a chapter's prose and tables"),
    ),
    "questions/users-on-this-gpu/": ((HAND, "a page written by hand"),),
}
"""Texts outside of the brackets that are no words of the interface, by page and place, with the reason."""


def is_content(one: Left) -> bool:
    """Whether a text is content of the catalog or of a page that is written by hand."""
    rules = [*CONTENT["every page"], *CONTENT.get(one.page.partition("?")[0], ())]
    return any(re.search(place, one.where) for place, _ in rules)


@pytest.fixture(scope="module")
def address(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("pseudo")
    for name in ("runtime", "sql"):
        fetched = repository / ".cache" / "kvreport" / name
        if fetched.is_dir():
            shutil.copytree(fetched, root / ".cache" / "kvreport" / name)
    catalog, site, config = root / "pseudo.po", root / "site", root / "mkdocs.yml"
    environment = os.environ | {"PYTHONPATH": str(repository), "PYTHONUTF8": "1", "NO_MKDOCS_2_WARNING": "1"}
    script = repository / "scripts/interface_words.py"
    run = {"cwd": repository, "env": environment, "capture_output": True, "text": True, "encoding": "utf-8"}
    subprocess.run([sys.executable, script, "--pseudo", catalog], check=True, **run)
    config.write_text(SETTINGS.format(repository=repository, site=site, catalog=catalog), encoding="utf-8")
    built = subprocess.run([sys.executable, "-m", "mkdocs", "build", "-f", config], check=False, **run)
    assert built.returncode == 0, built.stderr[-3000:]
    assert "no page says" not in built.stderr
    assert " 0 left in English" in built.stderr
    with served(site) as address:
        yield address


@pytest.fixture
def visit(browser, address) -> Iterator[Visit]:
    made = Visit(browser, address, viewport={"width": 1280, "height": 900})
    yield made
    made.context.close()


def outside(page: Any, name: str) -> list[Left]:
    """What a page shows that is neither translated nor content."""
    return [one for one in left(name, page.evaluate(GATHER), names()) if not is_content(one)]


PAGES: Final = (
    "",
    "models/",
    "models/meta-llama--Llama-3.1-8B-Instruct/",
    "models/deepseek-ai--DeepSeek-V3/",
    "models/Qwen--Qwen3.6-27B/",
    "gpus/",
    "gpus/h100-sxm-80gb/",
    "compare/",
    "sizer/",
    "explore/",
    "log/",
    "your-model/",
    "traffic/",
    "evidence/",
    "evidence/logs/",
    "evidence/comparisons/",
    "evidence/claims/",
    "evidence/measured/",
    "data/",
    "local/",
    "glossary/",
    "404.html",
    "learn/what-fills-a-gpu/",
    "questions/users-on-this-gpu/",
)


@pytest.mark.parametrize("uri", PAGES)
def test_every_text_of_a_page_is_translated(visit, uri):
    page = visit.go(uri)
    page.wait_for_load_state("networkidle")
    assert page.locator("html").get_attribute("lang") == "de"
    assert "⟦" in page.inner_text("body")
    assert outside(page, uri) == []


def test_an_english_page_would_be_told(visit):
    page = visit.go("")
    page.evaluate("document.querySelector('.kv-big').append('Nobody translated this')")
    assert [one.text for one in outside(page, "")] == ["Nobody translated this"]


def ask(page: Any) -> None:
    page.fill("#kv-asked", "deepseek v3 rtx 4090 32k fp8 nonsense")
    page.press("#kv-asked", "Enter")
    page.wait_for_function("location.search.includes('context=32768')")
    page.wait_for_function("document.querySelector('[data-kv-slot=headline]').textContent.includes('4090')")


def open_a_waterfall(page: Any) -> None:
    page.locator(".kv-more-fields summary").first.click()
    page.locator("button:has-text('GíB'), .kv-no button").first.click()
    page.wait_for_selector("dialog[open], .kv-why svg")


def filter_and_sort(page: Any) -> None:
    page.locator("#models-table .kv-sort").nth(2).click()
    page.fill("input[name=name]", "nothing of this name")
    page.wait_for_function("document.querySelector('.kv-index-tools .kv-said').textContent.includes('0')")


def answer_and_mistake(page: Any) -> None:
    page.locator("[data-preset]").first.click()
    page.wait_for_selector("[data-kv-sized] .kv-big, .kv-sized .kv-big, p.kv-big")
    page.fill("input[name=prompt]", "many")
    page.wait_for_function("document.querySelector('.md-content').textContent.includes('“many”')")


def explore_nothing(page: Any) -> None:
    page.wait_for_selector("#explore-table tbody tr")
    page.fill("input[name=requests]", "99999999")
    page.wait_for_function(
        "!document.querySelector('#explore-table tbody tr') || location.search.includes('99999999')"
    )
    page.wait_for_load_state("networkidle")


def compare_more(page: Any) -> None:
    page.wait_for_selector("#compare-table tbody tr")
    page.fill("#kv-prices", "h100=2.5, moon=3")
    page.press("#kv-prices", "Enter")
    page.wait_for_function("document.querySelector('.md-content').textContent.includes('moon')")
    page.select_option("#kv-per", "gpu")
    page.wait_for_function("location.search.includes('per=gpu')")


def read_the_example(page: Any) -> None:
    page.click("[data-kv-example]")
    page.wait_for_selector("article .kv-big")
    assert page.locator("article .kv-big").inner_text() != ""


def refuse_an_id(page: Any) -> None:
    if not page.locator("[name=hub]").count():
        pytest.skip("this checkout has no Python for the browser")
    page.fill("[name=hub]", "no-id")
    page.click("[name=fetch]")
    page.wait_for_function("document.querySelector('.md-content').textContent.includes('“no-id”')")


def share(page: Any) -> None:
    page.locator(".kv-share > summary").first.click()
    page.wait_for_selector(".kv-share[open] button")


ACTS: Final = {
    "ask in one's own words": ("", ask),
    "a case that does not fit": ("models/deepseek-ai--DeepSeek-V3/", open_a_waterfall),
    "an index without a row": ("models/", filter_and_sort),
    "the sizer's answer and a mistake": ("sizer/", answer_and_mistake),
    "the explorer without a row": ("explore/", explore_nothing),
    "prices and an unknown GPU": ("compare/", compare_more),
    "the example of a log": ("log/", read_the_example),
    "an id that is none": ("your-model/", refuse_an_id),
    "share, cite, print": ("models/meta-llama--Llama-3.1-8B-Instruct/", share),
}


@pytest.mark.parametrize("name", ACTS)
def test_what_a_page_says_after_an_act_is_translated(visit, name):
    uri, act = ACTS[name]
    page = visit.go(uri)
    page.wait_for_load_state("networkidle")
    act(page)
    page.wait_for_load_state("networkidle")
    assert outside(page, uri) == []
