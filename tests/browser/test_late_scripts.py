"""Scripts that come late, and addresses from anywhere: no key is lost, and no part of a page stops the others."""

from __future__ import annotations

from typing import Any, Final

import pytest
from visits import Visit, hold

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LLAMA: Final = "models/meta-llama--Llama-3.1-8B-Instruct/"
PAGES: Final = (
    "", LLAMA, "gpus/h100-sxm-80gb/", "models/", "gpus/", "questions/first/", "compare/", "sizer/", "traffic/", "your-model/",
)  # fmt: skip
FIELDS: Final = (
    "main :is(input:not([type]), input[type=text], input[type=search], input[type=number], textarea)"
    ":not([readonly], [role=combobox])"
)
TIMEOUT_MS: Final = 10_000
TYPED: Final = "137"
FRAGMENTS: Final = ("#%", "#%E0%A4%A'\"><b>", "#constructor")
STARTED: Final = """() => ({
  buttons: document.querySelectorAll("main button").length,
  rows: document.querySelectorAll("main tr").length,
  fields: document.querySelectorAll("main :is(input, select)").length,
})"""


def names(page: Any) -> list[int]:
    """The places of the fields that a reader can type into, among all of them."""
    return page.eval_on_selector_all(
        FIELDS, "all => all.map((one, n) => one.checkVisibility() ? n : -1).filter(n => n >= 0)"
    )


@pytest.mark.parametrize("uri", PAGES)
def test_what_is_typed_while_the_scripts_come_is_kept(browser: Any, address: str, uri: str) -> None:
    visit = Visit(browser, address)
    visit.page.set_default_timeout(TIMEOUT_MS)
    for number in names(visit.go(uri)):
        held = hold(visit.page, "**/*.json"), hold(visit.page, "**/kv-*.js")
        visit.page.goto(address + uri, wait_until="domcontentloaded")
        visit.page.wait_for_selector("html.js")
        field = visit.page.locator(FIELDS).nth(number)
        field.focus()
        visit.page.keyboard.press("Control+A")
        visit.page.keyboard.type(TYPED[0])
        for one in held:
            one.let_go()
        visit.settle()
        visit.page.keyboard.type(TYPED[1:], delay=60)
        visit.page.wait_for_timeout(150)
        assert field.input_value() == TYPED, (uri, field.get_attribute("name"))
        visit.page.keyboard.press("Tab")
        visit.settle()
        assert field.input_value() == TYPED, (uri, field.get_attribute("name"))
    visit.context.close()
    assert not visit.faults


@pytest.mark.parametrize("uri", ["", LLAMA, "questions/first/"])
def test_a_tap_before_the_scripts_came_is_the_field_s(browser: Any, address: str, uri: str) -> None:
    """The first tap on a field led to the list of models; the second field stood where the first had been."""
    visit = Visit(browser, address)
    visit.page.set_default_timeout(TIMEOUT_MS)
    held = hold(visit.page, "**/kv-*.js")
    visit.page.goto(address + uri, wait_until="domcontentloaded")
    visit.page.wait_for_selector("html.js")
    place = visit.page.locator("a[data-kv-picker]").last
    name, before = place.get_attribute("data-kv-id"), place.bounding_box()
    place.click()
    held.let_go()
    visit.page.wait_for_function("name => document.activeElement?.id === name", arg=name)
    after = visit.page.locator(f"#{name}").bounding_box()
    assert visit.page.url.partition("?")[0] == address + uri
    assert before is not None
    assert after is not None
    assert [after[side] for side in ("x", "width")] == pytest.approx(
        [before[side] for side in ("x", "width")], abs=2
    )
    visit.context.close()
    assert not visit.faults


def test_what_is_typed_over_a_number_of_the_address_stays(browser: Any, address: str) -> None:
    """The number of the address was written over the reader's, who was faster than the numbers of the site."""
    visit = Visit(browser, address)
    visit.page.set_default_timeout(TIMEOUT_MS)
    held = hold(visit.page, "**/kv-*.js")
    visit.page.goto(f"{address}sizer/?concurrent=20", wait_until="domcontentloaded")
    visit.page.wait_for_selector("html.js")
    visit.page.fill("[name=concurrent]", TYPED)
    visit.page.keyboard.press("Tab")
    held.let_go()
    visit.page.wait_for_function("document.querySelector('[data-kv-sized] strong')")
    visit.settle()
    assert visit.page.input_value("[name=concurrent]") == TYPED
    assert "concurrent=137" in visit.page.url
    visit.context.close()
    assert not visit.faults


@pytest.mark.parametrize("uri", ["", "sizer/"])
def test_enter_takes_a_name_that_was_typed_before_the_names_came(
    browser: Any, address: str, uri: str
) -> None:
    """Enter did nothing as long as no list was there, and the printed model's answer stayed."""
    visit = Visit(browser, address)
    visit.page.set_default_timeout(TIMEOUT_MS)
    held = hold(visit.page, "**/picker.json")
    visit.page.goto(address + uri, wait_until="domcontentloaded")
    visit.page.locator("[data-kv-picker=models], input[name=model]").first.click()
    field = visit.page.locator("input[name=model]")
    field.wait_for()
    field.focus()
    visit.page.keyboard.press("Control+A")
    visit.page.keyboard.type("gpt-oss")
    visit.page.keyboard.press("Enter")
    while not held:
        visit.page.wait_for_timeout(20)
    held.let_go()
    visit.page.wait_for_function("location.search.includes('model=openai--gpt-oss-20b')")
    assert field.input_value() == "gpt-oss-20b"
    visit.context.close()
    assert not visit.faults


def test_a_field_that_was_changed_and_left_before_the_scripts_came_is_answered(
    browser: Any, address: str
) -> None:
    visit = Visit(browser, address)
    visit.page.set_default_timeout(TIMEOUT_MS)
    held = hold(visit.page, "**/*.json")
    visit.page.goto(address + "questions/first/", wait_until="domcontentloaded")
    visit.page.fill("[name=requests]", TYPED)
    visit.page.keyboard.press("Tab")
    while not held:
        visit.page.wait_for_timeout(20)
    held.let_go()
    visit.page.wait_for_function("location.search.includes('requests=137')")
    assert visit.page.input_value("[name=requests]") == TYPED
    visit.context.close()
    assert not visit.faults


@pytest.mark.parametrize("uri", [LLAMA, "gpus/h100-sxm-80gb/", "explore/", "models/"])
def test_no_fragment_stops_a_page(browser: Any, address: str, uri: str) -> None:
    visit = Visit(browser, address)
    visit.page.set_default_timeout(TIMEOUT_MS)
    page = visit.page

    def opened(fragment: str) -> Any:
        page.goto("about:blank")
        page.goto(address + uri + fragment)
        page.mouse.move(3, 3)
        page.wait_for_selector("html.js")
        visit.settle()
        page.wait_for_timeout(50)
        return page.evaluate(STARTED)

    whole = opened("")
    for fragment in FRAGMENTS:
        assert opened(fragment) == whole, fragment
    visit.context.close()
    assert not visit.faults


def test_a_part_that_fails_stops_no_other(browser: Any, address: str) -> None:
    visit = Visit(browser, address)
    visit.page.set_default_timeout(TIMEOUT_MS)
    visit.page.goto(address + "explore/")
    visit.page.wait_for_load_state("networkidle")
    rows = visit.page.evaluate(STARTED)
    visit.page.add_init_script("globalThis.MutationObserver = function () { throw new Error('made up'); };")
    visit.page.goto(address + "explore/")
    visit.page.wait_for_load_state("networkidle")
    assert visit.page.evaluate(STARTED) == rows
    assert any("made up" in fault for fault in visit.faults)
    visit.context.close()


def test_a_gpu_page_with_a_state_takes_no_script_of_a_page_of_one_answer(browser: Any, address: str) -> None:
    """It loads the numbers of every model already: with what a model's page runs it was over its budget."""
    visit = Visit(browser, address)
    loaded: list[str] = []
    visit.page.on("response", lambda answer: loaded.append(answer.url.rpartition("/")[2]))
    page = visit.go("gpus/h100-sxm-80gb/?context=32768")
    page.wait_for_function("document.querySelector('[data-kv-shown]')?.dataset.kvShown === location.search")
    assert {"kv-form.js", "kv-rows.js", "kv-result.js", "kv-gpu.js"} <= set(loaded)
    assert not {"kv-answers.js", "kv-pages.js", "kv-show.js", "kv-picker.js"} & set(loaded)
    visit.context.close()
    assert not visit.faults
