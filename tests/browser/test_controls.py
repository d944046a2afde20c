"""Every kind of control of every kind of page of the tiny site is pressed; no press leads to a wrong or an empty page.

The kinds of pages that the tiny site does not have are pressed on the whole one (test_whole_site.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from brought import CONFIG, HUBS
from controls import Presser, Report, given
from serving import until
from visits import Visit

from kvreport.publish import python_runtime
from kvreport.site.pages.brought_model import EXAMPLE

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "kvreport"
LLAMA = "models/meta-llama--Llama-3.1-8B-Instruct/"
KINDS = {
    "home": "",
    "models": "models/",
    "model": LLAMA,
    "gpus": "gpus/",
    "gpu": "gpus/h100-sxm-80gb/",
    "explorer": "explore/",
    "compare": "compare/",
    "sizer": "sizer/",
    "traffic": "traffic/",
    "log": "log/",
    "data": "data/",
    "question": "questions/first/",
    "your model": "your-model/",
}
FEWEST = {
    "home": 20, "models": 12, "model": 20, "gpus": 10, "gpu": 18, "explorer": 28, "compare": 15, "sizer": 28,
    "traffic": 9, "log": 12, "data": 5, "question": 8, "your model": 15,
}  # fmt: skip
"""So many kinds of controls a page has at least: a search for controls that misses them is seen."""
ELSEWHERE = ("learn/", "questions/", "evidence/", "about/", "local/")
"""Where scripts lead that the tiny site does not have; the whole site has them."""


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, ...]]:
    """What fields are filled with."""
    return given(tmp_path_factory.mktemp("files")) | {"hub": ("acme/open",), "config": (json.dumps(EXAMPLE),)}


def press(browser: Any, address: str, site: Any, filled: Any, kind: str, **how: Any) -> Report:
    """Press a page's controls; all of them must have been pressed, and nothing wrong been found."""
    presser = Presser(browser, address, site.folder, filled, elsewhere=ELSEWHERE, hubs=HUBS, **how)
    report = presser.run(KINDS[kind])
    presser.context.close()
    assert len(report.found) >= FEWEST[kind], (kind, len(report.found), sorted(report.found))
    assert not report.faults, f"{len(report.faults)} faults:\n" + "\n".join(report.faults)
    assert report.pressed == set(report.found)
    return report


def runs_here(kind: str) -> None:
    """Skip what needs the browser's Python where no registry gave it."""
    if kind in ("log", "your model") and not python_runtime.RUNTIME.found(CACHE):
        pytest.skip("scripts/fetch_runtime.py has not fetched Python for the browser")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_control_is_pressed(
    browser: Any,
    address: str,
    tiny_site: Any,
    filled: Any,
    kind: str,
    record_property: Any,
    monkeypatch: Any,
    tmp_path: Path,
) -> None:
    runs_here(kind)
    # What a page says of a reader's own file, or of a repository, is run in a folder that has it.
    for folder, config in ((tmp_path, EXAMPLE), (tmp_path / "acme/open", CONFIG)):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    report = press(browser, address, tiny_site, filled, kind)
    record_property("controls", len(report.found))
    record_property("presses", report.presses)


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("404.html", "main"),
        ("embed/", "body"),
        ("embed/?model=openai--gpt-oss-20b&gpu=h100-sxm-80gb", "body"),
    ],
)
def test_a_page_without_controls_leads_on(
    browser: Any, address: str, tiny_site: Any, filled: Any, uri: str, place: str
) -> None:
    """A card and the page of a missing address have links alone; each of them is a page, and nothing fails to load."""
    how = {"place": place, "elsewhere": ELSEWHERE, "under": "tiny/"}
    presser = Presser(browser, address, tiny_site.folder, filled, **how)
    report = presser.run(uri)
    links = presser.state()["links"]
    presser.context.close()
    assert not report.faults, report.faults
    assert not report.found
    assert [one for one in links if one.startswith(address)]


def test_the_header_searches_switches_its_colors_and_opens_the_menu(browser: Any, address: str) -> None:
    visit = Visit(browser, address)
    page = visit.go("questions/first/")
    page.set_viewport_size({"width": 400, "height": 800})
    body = page.locator("body")
    before = body.get_attribute("data-md-color-scheme")
    page.locator(".md-header label[for^=__palette]:visible").click()
    until(page, f"document.body.dataset.mdColorScheme !== '{before}'")
    page.reload()
    until(page, f"document.body.dataset.mdColorScheme !== '{before}'")
    page.locator(".md-header label[for=__drawer]").click()
    menu = page.locator(".md-nav--primary a[href]:visible")
    until(page, "document.querySelector('#__drawer').checked")
    assert menu.count() >= 5
    page.locator(".md-overlay").click(position={"x": 390, "y": 700})
    until(page, "!document.querySelector('#__drawer').checked")
    page.locator(".md-header label[for=__search]").first.click()
    page.locator(".md-search__input").press_sequentially("llama")
    found = page.locator(".md-search-result__link")
    found.first.wait_for()
    led = str(found.first.get_attribute("href"))
    found.first.click()
    until(page, "location.pathname.length > 1 && !document.querySelector('#__search').checked")
    assert page.locator("main h1").inner_text()
    assert led
    visit.context.close()
    assert not visit.faults


@pytest.mark.parametrize("uri", [LLAMA, "gpus/h100-sxm-80gb/", "explore/"])
def test_the_menu_of_a_generated_page_opens_in_a_narrow_window(browser: Any, address: str, uri: str) -> None:
    """It darkened the page and showed nothing: the page hides its navigation, which is the menu of a phone."""
    visit = Visit(browser, address, viewport={"width": 390, "height": 800})
    page = visit.go(uri)
    page.locator(".md-header label[for=__drawer]").click()
    until(page, "document.querySelector('.md-nav--primary').getBoundingClientRect().left === 0")
    # The first that a finger reaches: the list of a page's section lies over that of the doors.
    link = page.evaluate_handle(
        "[...document.querySelectorAll('.md-nav--primary a[href]')].find((node) => {"
        " const box = node.getBoundingClientRect();"
        " return node.contains(document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2)); })"
    ).as_element()
    led = link.evaluate("(node) => node.pathname")
    link.click()
    until(page, f"location.pathname === {json.dumps(led)}")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(address + uri)
    assert not page.locator(".md-sidebar--primary").is_visible()
    visit.context.close()
    assert not visit.faults


def test_an_open_box_of_citations_follows_the_answer(browser: Any, address: str) -> None:
    """Link, citation and report were of the answer that stood there when the box was opened."""
    visit = Visit(browser, address)
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = visit.go(LLAMA)
    page.locator(".kv-share > summary").click()
    page.fill("#kv-context", "16K")
    page.press("#kv-context", "Enter")
    page.wait_for_function("document.querySelector('#kv-share-link').value.includes('context=16384')")
    page.wait_for_function("document.querySelector('#kv-share-bibtex').value.includes('16K tokens')")
    button = page.locator("[aria-label='Copy Link']")
    button.click()
    button.click()
    page.wait_for_function("document.querySelector('[aria-label=\"Copy Link\"]').textContent === 'Copied'")
    page.wait_for_function("document.querySelector('[aria-label=\"Copy Link\"]').textContent === 'Copy'")
    visit.context.close()
    assert not visit.faults
