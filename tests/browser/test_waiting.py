"""While an answer is made, the one before is marked as old, and no page shows it next to the new question."""

from __future__ import annotations

from typing import Any, Final

import pytest
from visits import Visit, hold

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LLAMA: Final = "models/meta-llama--Llama-3.1-8B-Instruct/"
OLD: Final = """() => Array.from(document.querySelectorAll("main [data-kv-slot]:not([hidden]), main [data-kv-live], "
  + "main [data-kv-sized], main [data-kv-answer]:not([hidden])"))
  .filter((one) => one.textContent.trim() && one.checkVisibility({ opacityProperty: true }))
  .map((one) => one.outerHTML.slice(0, 160))"""
"""Parts of an answer that a reader sees."""
BUSY: Final = "() => document.querySelectorAll('main [aria-busy=true]').length"

OTHER_ENGINE: Final = ("[name=engine]", "vllm-0.11")
CHANGES: Final = [
    ("", *OTHER_ENGINE, "**/engines/**"),
    (LLAMA, *OTHER_ENGINE, "**/engines/**"),
    ("gpus/h100-sxm-80gb/", *OTHER_ENGINE, "**/explore/**"),
    ("questions/first/", "[name=tp]", "2", "**/models/*.json"),
    ("sizer/", *OTHER_ENGINE, "**/engines/**"),
    ("compare/", *OTHER_ENGINE, "**/engines/**"),
    ("explore/", "[name=engine]", "vllm-0.11", "**/explore/**"),
]
ADDRESSES: Final = (
    "?context=32768", "?ask=llama+70b+2x+h100", f"{LLAMA}?gpu=b200-sxm-180gb", "gpus/h100-sxm-80gb/?context=32768",
    "questions/first/?tp=2",
)  # fmt: skip


@pytest.mark.parametrize(("uri", "field", "value", "files"), CHANGES)
def test_a_change_marks_the_answer_before_it(
    browser: Any, address: str, uri: str, field: str, value: str, files: str
) -> None:
    visit = Visit(browser, address)
    page = visit.go(uri)
    visit.settle()
    assert page.evaluate(OLD), "no answer to begin with"
    held = hold(page, files)
    for summary in page.locator("main details.kv-more-fields > summary").all():
        summary.click()
    page.select_option(f"main {field}", value)
    page.wait_for_function(f"({BUSY})() > 0")
    page.get_by_text("Computing…").wait_for()
    assert page.evaluate(OLD) == []
    while not held:
        page.wait_for_timeout(20)
    held.let_go()
    visit.settle()
    assert page.evaluate(BUSY) == 0
    assert page.evaluate(OLD)
    assert not page.get_by_text("Computing…").count()
    visit.context.close()
    assert not visit.faults


@pytest.mark.parametrize("uri", ADDRESSES)
def test_an_address_never_stands_over_the_printed_answer(browser: Any, address: str, uri: str) -> None:
    visit = Visit(browser, address)
    page = visit.page
    held = hold(page, "**/*.json"), hold(page, "**/kv-*.js")
    page.goto(address + uri, wait_until="domcontentloaded")
    page.get_by_text("Computing…").wait_for()
    assert page.evaluate(OLD) == []
    for one in held:
        one.let_go()
    page.mouse.move(3, 3)
    visit.settle()
    assert page.evaluate(BUSY) == 0
    assert page.evaluate(OLD)
    visit.context.close()
    assert not visit.faults


@pytest.mark.parametrize("files", ["**/explore/facts.json", "**/kv-capacity.js"])
def test_numbers_that_do_not_come_are_told(browser: Any, address: str, files: str) -> None:
    visit = Visit(browser, address)
    page = visit.page
    page.route(files, lambda route: route.abort())
    page.goto(f"{address}{LLAMA}?gpu=b200-sxm-180gb")
    page.get_by_role("alert").get_by_text("could not be loaded").wait_for()
    assert page.evaluate(BUSY) == 0
    visit.context.close()


ROWS_BETWEEN_PAUSES: Final = """
let at = 0, since = 0;
performance.now = () => at += 1000; // every piece of work has taken too long
window.kvMost = 0;
const written = Element.prototype.setAttribute;
Element.prototype.setAttribute = function (name, value) {
  if (name === 'id' && /^o[fn]-/.test(value) && this.matches('tr')) window.kvMost = Math.max(kvMost, since += 1);
  return written.call(this, name, value);
};
const paused = Scheduler.prototype.yield;
Scheduler.prototype.yield = function (...given) {
  since = 0;
  return paused.apply(this, given);
};
"""


@pytest.mark.parametrize("uri", ["gpus/h100-sxm-80gb/", LLAMA])
def test_rows_of_a_long_table_are_made_one_by_one(browser: Any, address: str, uri: str) -> None:
    """All at once, the rows of every model or accelerator blocked a slow phone for half a second."""
    visit = Visit(browser, address)
    visit.page.add_init_script(ROWS_BETWEEN_PAUSES)
    visit.go(f"{uri}?context=32768")
    visit.page.wait_for_function(
        "document.querySelectorAll('#users-table tbody tr[id]').length > 2 && kvMost > 0"
    )
    visit.settle()
    assert visit.page.evaluate("kvMost") == 1
    visit.context.close()
    assert not visit.faults
