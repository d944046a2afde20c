"""Long tables in a browser: the first rows at once, the others by a click, an address, a search, a filter, on paper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from visits import Visit, address, browser

from kvreport.publish import long_tables
from kvreport.site.kit.tables import FIRST_ROWS, Cell, Column, Row, Table
from kvreport.site.kit.templating import render

__all__ = ["address", "browser"]  # fixtures

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NUMBER = 90
INDEX = '[data-kv-index="models-table"]'


def long_index(tiny_site: Path, large: bool) -> tuple[str, dict[str, str]]:
    """Return the index of models with ninety rows, and the plain page of all of them if they are large."""
    html = (tiny_site / "models/index.html").read_text(encoding="utf-8")
    rows = tuple(
        Row(
            Cell(f"Model {n}", href=f"models/{n}/"),
            tuple(Cell(str(n * 10), "kv-num", value=n * 10) for _ in range(9)),
            anchor=f"row-{n}",
            keys=(("size", "under 4B"), ("maker", "Meta"), ("kind", "full"), ("year", "2024")),
            search=f"model {n}",
        )
        for n in range(NUMBER)
    )
    columns = tuple(Column(f"Column {n}") for n in range(9))
    made = Table(
        "Many models", Column("Model"), columns, rows, name="models-table", noun="models", sortable=True
    )
    start = html.rindex('<div class="kv-scroll"', 0, html.index('id="models-table"'))
    end = html.index("</div>", html.index("</table>", start)) + len("</div>")
    html = html[:start] + str.__str__(render("_only_table.html", "models/", {"table": made})) + html[end:]
    html = html.replace('data-kv-number="', f'data-kv-number="{NUMBER}" data-was="', 1)
    return long_tables.apart(html, "../assets/kvreport.css") if large else (html, {})


@pytest.fixture(params=[False, True], ids=["in the page", "apart"])
def visit(browser, address, tiny_site, request, monkeypatch) -> Iterator[Visit]:
    monkeypatch.setattr(long_tables, "LARGE", 1000)
    html, plain = long_index(tiny_site.folder, request.param)
    assert bool(plain) is request.param
    made = Visit(browser, address, viewport={"width": 390, "height": 844})

    def answer(route) -> None:
        name = route.request.url.partition("?")[0].rpartition("/")[2]
        route.fulfill(body=plain[name] if name else html, content_type="text/html; charset=utf-8")

    made.context.route(lambda url: url.startswith(f"{address}models/"), answer)
    yield made
    made.context.close()
    assert not made.faults


def drawn(page) -> int:
    return page.evaluate(
        "[...document.querySelectorAll('#models-table tbody tr')].filter((row) => row.checkVisibility()).length"
    )


def wait(page, number: int) -> None:
    page.wait_for_function(
        "(number) => [...document.querySelectorAll('#models-table tbody tr')].filter((row) => row.checkVisibility()).length === number",
        arg=number,
    )


def test_the_other_rows_come_on_a_click_and_go_on_another(visit):
    page = visit.go("models/")
    assert drawn(page) == FIRST_ROWS
    switch = page.locator(".kv-more-rows summary")
    assert switch.inner_text() == f"Show all {NUMBER} models"
    switch.click()
    wait(page, NUMBER)
    assert switch.inner_text() == "Show fewer models"
    switch.click()
    wait(page, FIRST_ROWS)


def test_an_address_leads_to_a_row_that_is_not_drawn(visit):
    page = visit.go("models/#row-80")
    page.wait_for_function(
        "() => { const row = document.getElementById('row-80'); const top = row?.getBoundingClientRect().top; return top > 0 && top < innerHeight; }"
    )
    assert page.locator(".kv-more-rows").get_attribute("open") is not None
    shadow = page.locator("#row-80 th").evaluate("(cell) => getComputedStyle(cell).boxShadow")
    assert "inset" in shadow


def test_a_search_in_the_page_and_paper_have_all_rows(visit):
    page = visit.go("models/")
    page.keyboard.press("Shift")
    page.wait_for_function("document.querySelectorAll('.kv-rest tr').length > 0")
    assert page.locator(".kv-rest").get_attribute("hidden") == "until-found"
    page.emulate_media(media="print")
    assert drawn(page) == NUMBER
    page.emulate_media(media="screen")
    page.locator(".kv-rest").dispatch_event("beforematch")
    wait(page, NUMBER)


def test_a_filter_and_a_sort_see_all_rows(visit):
    page = visit.go("models/")
    assert f"All {NUMBER} models." in page.locator(f"{INDEX} .kv-said").inner_text()
    page.locator(f"{INDEX} input[name=name]").fill("model 8")
    wait(page, 18)  # 8, 18 to 78, and 80 to 89
    assert f"18 of {NUMBER} models" in page.locator(f"{INDEX} .kv-said").inner_text()
    page.locator(f"{INDEX} input[name=name]").fill("")
    wait(page, FIRST_ROWS)
    page.locator("#models-table thead .kv-sort").nth(1).click()
    page.wait_for_function("document.querySelector('#models-table tbody tr').id === 'row-89'")
    assert drawn(page) == FIRST_ROWS


def test_an_address_with_a_filter_sees_all_rows(visit):
    page = visit.go("models/?name=model+8")
    wait(page, 18)


def test_without_scripts_every_row_is_there(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}log/")
    rows = page.locator("table:has(.kv-rest) tbody tr")
    assert rows.count() > FIRST_ROWS
    assert rows.last.is_visible()
    assert not page.locator(".kv-more-rows").first.is_visible()
    context.close()


def test_a_dark_system_has_its_scheme_before_the_theme_runs(browser, address):
    context = browser.new_context(color_scheme="dark")
    context.route("**/javascripts/bundle.*", lambda route: route.abort())
    page = context.new_page()
    page.goto(f"{address}gpus/")
    page.wait_for_selector("html.js")
    assert page.evaluate("document.body.dataset.mdColorScheme") == "slate"
    context.close()
