"""Long tables in a browser: the first rows at once, the others by a click, an address, a search, a filter, on paper."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from visits import Visit

from kvreport.catalog.load import load_catalog
from kvreport.publish import long_tables
from kvreport.site.kit.tables import FIRST_ROWS, Cell, Column, Row, Table
from kvreport.site.kit.templating import render

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
    wait(page, 11)  # 8, and 80 to 89: a number begins where the word does
    assert f"11 of {NUMBER} models" in page.locator(f"{INDEX} .kv-said").inner_text()
    page.locator(f"{INDEX} input[name=name]").fill("")
    wait(page, FIRST_ROWS)
    page.locator("#models-table thead .kv-sort").nth(1).click()
    page.wait_for_function("document.querySelector('#models-table tbody tr').id === 'row-89'")
    assert drawn(page) == FIRST_ROWS


def test_an_address_with_a_filter_sees_all_rows(visit):
    page = visit.go("models/?name=model+8")
    wait(page, 11)


def test_without_scripts_every_row_is_there(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}log/")
    page.locator(".kv-all-rows a").first.click()
    assert page.locator("tbody tr").count() > FIRST_ROWS
    assert page.locator("tbody tr").last.is_visible()
    context.close()


@pytest.mark.parametrize(("system", "scheme"), [("dark", "slate"), ("light", "default")])
def test_a_page_is_painted_in_the_system_s_scheme_before_any_file_of_scripts_runs(
    browser, address, system, scheme
):
    context = browser.new_context(color_scheme=system)
    context.route(re.compile(r"/assets/.*\.js"), lambda route: route.abort())
    page = context.new_page()
    page.goto(f"{address}gpus/")
    assert page.evaluate("document.body.dataset.mdColorScheme") == scheme
    assert page.evaluate("document.documentElement.className") == "js"
    context.close()


def test_the_reader_s_own_scheme_stays(browser, address):
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(f"{address}gpus/")
    chosen = {"color": {"media": "", "scheme": "default", "primary": "custom", "accent": "custom"}}
    page.evaluate("(chosen) => __md_set('__palette', chosen)", chosen)
    page.reload()
    assert page.evaluate("document.body.dataset.mdColorScheme") == "default"
    context.close()


def test_no_style_sheet_is_loaded_a_second_time(browser, address):
    made = Visit(browser, address)
    made.context.add_init_script(
        "window.loads = []; document.addEventListener('load', ({ target }) => target.rel === 'stylesheet' &&"
        " loads.push(target.getAttribute('href').split('/').pop()), true)"
    )
    page = made.page
    page.goto(f"{address}gpus/")
    once = page.evaluate("loads")
    assert len(once) == len(set(once)) > 3
    page.keyboard.press("Shift")  # the theme begins
    page.wait_for_function("window.document$")
    page.wait_for_load_state("networkidle")
    nodes = "[...document.querySelectorAll('link[rel=stylesheet]')]"
    page.evaluate(f"window.sheets = {nodes}.map((node) => node.sheet)")
    page.locator(".md-tabs a[href$='models/']").first.click()
    page.wait_for_url("**/models/")
    page.locator("#models-table").wait_for()
    assert page.evaluate("window.sheets?.length") == len(once)
    assert page.evaluate(f"sheets.every((one) => {nodes}.some((node) => node.sheet === one))")
    assert page.evaluate("loads") == once
    made.context.close()
    assert not made.faults


H100 = "gpus/h100-sxm-80gb/"
FIRST = 2
SHOWN = "document.querySelector('[data-kv-shown]')?.dataset.kvShown === (location.search || 'printed')"
IN_ORDER = "[...document.querySelectorAll('#users-table tbody tr')].map((row) => row.id.slice(3))"


@pytest.fixture
def gpu_page(browser, address, tiny_site, monkeypatch) -> Iterator[tuple[Visit, list[str]]]:
    """An accelerator's page that leaves all rows but two to a plain page, and what was asked of that one."""
    monkeypatch.setattr(long_tables, "LARGE", 1)
    written = (tiny_site.folder / H100 / "index.html").read_text(encoding="utf-8")
    html = long_tables.together(written, tiny_site.folder / H100)
    start = html.index("<tbody>\n", html.index('id="users-table"'))
    end = html.index("</table>\n", start) + len("</table>\n")
    rows = re.findall(r"<tr .*?</tr>\n", html[start:end], re.DOTALL)
    switch = (
        f'<details class="kv-more-rows" data-kv-first="{FIRST}"><summary><span>Show all <b>{len(rows)}</b> models'
        "</span><span>Show fewer models</span></summary></details>"
    )
    bodies = (
        f'<tbody>\n{"".join(rows[:FIRST])}</tbody>\n<tbody class="kv-rest">\n{"".join(rows[FIRST:])}</tbody>'
    )
    html, plain = long_tables.apart(f"{html[:start]}{bodies}\n</table>\n{switch}{html[end:]}", "kvreport.css")
    made = Visit(browser, address, viewport={"width": 1280, "height": 900})
    asked: list[str] = []

    def answer(route) -> None:
        name = route.request.url.partition("?")[0].rpartition("/")[2]
        asked.extend([name] if name else [])
        route.fulfill(body=plain[name] if name else html, content_type="text/html; charset=utf-8")

    made.context.route(re.compile(rf"{re.escape(address + H100)}(rows\.html)?(\?.*)?$"), answer)
    yield made, asked
    made.context.close()
    assert not made.faults


def test_a_state_leaves_printed_rows_unread_until_they_are_shown_again(gpu_page, tiny_site):
    visit, asked = gpu_page
    page = visit.go(H100)
    page.wait_for_function("document.querySelectorAll('.kv-rest tr').length > 0")
    printed = page.evaluate(IN_ORDER)
    assert len(printed) > FIRST
    newest = sorted(
        load_catalog(tiny_site.catalog).models.values(),
        key=lambda model: (model.release or "", model.name),
        reverse=True,
    )
    for context in (1 << 10, 32 << 10):
        asked.clear()
        page.goto(f"{visit.address}{H100}?weights=int4&context={context}")
        page.wait_for_function(SHOWN)
        page.mouse.move(3, 3)
        page.wait_for_load_state("networkidle")
        shown = page.evaluate(IN_ORDER)
        assert shown == [model.slug for model in newest if model.slug in shown]
        assert asked == []
    assert len(shown) > len(printed) - 2
    for _ in range(2):  # and again after another change
        page.locator("[data-kv-reset]").click()
        page.wait_for_function(f"{SHOWN} && document.querySelectorAll('.kv-rest tr').length > 0")
        assert page.evaluate(IN_ORDER) == printed
        assert page.locator(".kv-more-rows b").first.inner_text() == str(len(printed))
        page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        page.locator("#kv-kv").select_option("fp8")
        page.wait_for_function(f"location.search === '?kv=fp8' && {SHOWN}")


def test_rows_that_arrive_after_a_change_are_not_put_under_the_changed_ones(gpu_page):
    visit, _ = gpu_page
    held = []
    visit.page.route("**/rows.html", lambda route: held.append(route))  # noqa: PLW0108 - playwright marks the function
    page = visit.go(H100)
    page.locator("[data-kv-reset]").wait_for(state="attached")
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    page.locator("#kv-context").fill("32K")
    page.locator("#kv-context").blur()
    page.wait_for_function(f"location.search && {SHOWN}")
    changed = page.evaluate(IN_ORDER)
    assert held
    for route in held:
        route.fallback()
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(200)
    assert page.evaluate(IN_ORDER) == changed
    visit.page.unroute("**/rows.html")
    page.locator("[data-kv-reset]").click()
    page.wait_for_function(f"{SHOWN} && document.querySelectorAll('.kv-rest tr').length > 0")
    assert len(set(page.evaluate(IN_ORDER))) == len(page.evaluate(IN_ORDER))


@pytest.fixture
def visit_gpu(browser, address) -> Iterator[Visit]:
    made = Visit(browser, address, viewport={"width": 1280, "height": 900})
    yield made
    made.context.close()
    assert not made.faults


def test_a_name_filter_stays_beside_the_state_of_a_gpu_page(visit_gpu):
    page = visit_gpu.go(f"{H100}?context=32768")
    page.wait_for_function(SHOWN)
    visible = "[...document.querySelectorAll('#users-table tbody tr')].filter((row) => !row.hidden).length"
    every = page.evaluate(visible)
    page.locator("#users-table").hover()
    field = page.locator("[data-kv-filter=users-table] input[name=name]")
    field.fill("llama")
    page.wait_for_function("location.search === '?context=32768&name=llama'")
    few = page.evaluate(visible)
    assert 0 < few < every
    assert "Ignored" not in page.locator("main").inner_text()
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    page.locator("#kv-kv").select_option("fp8")
    page.wait_for_function(f"location.search === '?kv=fp8&context=32768&name=llama' && {SHOWN}")
    page.wait_for_function(f"{visible} === {few}")
    page = visit_gpu.go(f"{H100}?kv=fp8&context=32768&name=llama")
    page.wait_for_function(f"{SHOWN} && {visible} === {few}")
    page.locator("[data-kv-filter=users-table] input[name=name]").fill("")
    page.wait_for_function(f"location.search === '?kv=fp8&context=32768' && {visible} === {every}")


def test_what_is_typed_before_the_filter_s_script_is_there_counts(visit_gpu):
    held = []
    visit_gpu.page.route("**/kv-index.js", lambda route: held.append(route))  # noqa: PLW0108 - playwright marks the function
    page = visit_gpu.page
    page.goto(visit_gpu.address + H100)
    page.wait_for_selector("html.js")
    page.wait_for_load_state("networkidle")
    assert held == []  # a printed page is read, not filtered
    page.locator("[data-kv-filter=users-table] input[name=name]").fill("llama")
    for _ in range(100):
        if held:
            break
        page.wait_for_timeout(50)
    for route in held:
        route.continue_()
    page.wait_for_function("location.search === '?name=llama'")
    assert page.locator("#users-table tbody tr:visible").count() > 0
    assert page.locator("#users-table tbody tr:not(:visible)").count() > 0


@pytest.mark.parametrize("visit", [True], indirect=True, ids=["apart"])
def test_rows_of_a_plain_page_wait_for_a_reader(visit: Visit) -> None:
    """Nobody who only looks pays for rows that are not shown; after six seconds every page fetched and laid them out."""
    page = visit.page
    page.clock.install()
    page.goto(f"{visit.address}models/")
    page.clock.run_for(20_000)
    page.locator(".kv-sort").first.wait_for()
    page.wait_for_load_state("networkidle")
    assert page.locator(".kv-rest > tr").count() == 0
    page.mouse.move(9, 9)
    page.wait_for_function("document.querySelectorAll('.kv-rest > tr').length > 50")


def test_a_wide_table_of_a_written_page_is_scrolled_by_keys(browser, address):
    """The theme's box around it was no stop for the keyboard where no cell has a link."""
    visit = Visit(browser, address, viewport={"width": 390, "height": 800})
    page = visit.go("questions/first/")
    boxed = """([name, words]) => {
      const box = document.createElement("div");
      box.id = name;
      box.className = "md-typeset__scrollwrap";
      box.innerHTML = `<div class="md-typeset__table"><table><tbody><tr><td>${words}</td></tr></tbody></table></div>`;
      document.querySelector("main article").append(box);
    }"""
    page.evaluate(boxed, ["wide", "W" * 200])
    page.evaluate(boxed, ["narrow", "W"])
    page.wait_for_function("document.querySelector('#wide').tabIndex === 0")
    assert page.locator("#narrow").evaluate("(box) => box.tabIndex") == -1
    visit.context.close()
    assert not visit.faults
