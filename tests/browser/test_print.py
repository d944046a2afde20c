"""Pages on paper, printed before anybody has touched them: whole tables, painted heads, no controls, light colors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from visits import Visit

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGES = (
    "",
    "models/",
    "gpus/",
    "explore/",
    "compare/",
    "sizer/",
    "log/",
    "traffic/",
    "data/",
    "your-model/",
)
CONTROLS = "main :is(button:not(.kv-sort, .kv-whybutton, .kv-link), input, select, textarea)"
SHOWN = "(nodes) => nodes.filter((node) => node.checkVisibility({ visibilityProperty: true })).map((node) => node.outerHTML.slice(0, 90))"


@pytest.fixture
def visit(browser, address) -> Iterator[Visit]:
    made = Visit(browser, address, color_scheme="dark")
    yield made
    made.context.close()
    assert not made.faults


def paper(visit: Visit, uri: str):
    """Open a page and print it as a browser does, without a move of the pointer."""
    page = visit.page
    page.goto(visit.address + uri)
    page.wait_for_selector("html.js")
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    return page


@pytest.mark.parametrize("uri", PAGES)
def test_no_control_is_on_paper_and_nothing_is_cut(visit, uri):
    page = paper(visit, uri)
    assert page.locator("main h1").is_visible()
    assert page.locator(CONTROLS).evaluate_all(SHOWN) == []
    assert page.locator("html").evaluate(
        "(html) => getComputedStyle(html).getPropertyValue('--kv-paper')"
    ) in (
        "#fff",
        "#ffffff",
    )


def test_no_page_is_wider_than_its_paper(visit):
    visit.page.set_viewport_size({"width": 718, "height": 1000})  # A4 less the margins of a browser
    wide = {}
    for uri in (*PAGES, "models/meta-llama--Llama-3.1-8B-Instruct/", "gpus/h100-sxm-80gb/"):
        page = paper(visit, uri)
        visit.settle()
        wide[uri] = page.evaluate("document.scrollingElement.scrollWidth")
    assert set(wide.values()) == {718}, wide


def test_rows_of_a_plain_page_are_read_while_the_printer_waits(visit):
    fetched = []
    visit.page.on("request", lambda request: fetched.append(request.url))
    plain = '<table><tbody class="kv-rest"><tr id="far"><th>Far row</th></tr></tbody></table>'

    def rows(route) -> None:
        route.fulfill(body=plain, content_type="text/html; charset=utf-8")

    def page_with_table(route) -> None:
        html = route.fetch().text()
        table = (
            '<div class="kv-scroll"><table class="kv-table" id="long"><tbody><tr><th>Near row</th></tr></tbody>'
            '<tbody class="kv-rest" data-kv-rows="rows.html"></tbody></table>'
            '<p class="kv-all-rows"><span class="kv-paper">Only the first rows are printed. </span><a href="rows.html">All</a></p></div>'
        )
        route.fulfill(
            body=html.replace("</article>", f"{table}</article>", 1), content_type="text/html; charset=utf-8"
        )

    visit.context.route("**/data/", page_with_table)
    visit.context.route("**/data/rows.html", rows)
    page = paper(visit, "data/")
    assert page.locator("#far").is_visible()
    assert page.locator("#long tr").count() == 2
    assert page.locator(".kv-all-rows").is_hidden()
    visit.context.unroute("**/data/rows.html")
    visit.context.route("**/data/rows.html", lambda route: route.fulfill(status=204))
    page = paper(visit, "data/")
    assert page.locator(".kv-all-rows .kv-paper").is_visible()


def test_a_sheet_states_its_address_and_release(visit):
    page = paper(visit, "gpus/?name=h100")
    line = page.locator(".kv-printed")
    assert line.is_visible()
    assert line.inner_text().startswith("https://example.org/tiny/gpus/?name=h100 · data release 20")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert line.count() == 1
    page.emulate_media(media="screen")
    assert line.is_hidden()


def test_the_head_of_a_sortable_table_has_no_button_boxes(visit):
    """Chromium paints no button where a table's head is repeated on the next sheet."""
    page = paper(visit, "explore/")
    page.wait_for_selector("#explore-table thead .kv-sort", state="attached")
    displays = page.locator("#explore-table thead .kv-sort").evaluate_all(
        "(nodes) => [...new Set(nodes.map((node) => getComputedStyle(node).display))]"
    )
    assert displays == ["contents"]


def test_names_of_models_take_at_most_two_lines_in_the_explorer(visit):
    visit.page.set_viewport_size({"width": 700, "height": 990})  # A4 less its margins
    page = paper(visit, "explore/")
    page.wait_for_selector("#explore-table tbody tr", state="attached")
    lines = page.locator("#explore-table tbody th").evaluate_all(
        "(cells) => cells.map((cell) => { const range = document.createRange(); range.selectNodeContents(cell);"
        " return new Set([...range.getClientRects()].map((one) => Math.round(one.bottom / 6))).size; })"
    )
    assert lines
    assert max(lines) <= 2


def test_the_explorer_says_how_many_rows_are_on_paper(visit):
    page = paper(visit, "explore/?show=all")
    page.wait_for_selector("#explore-table tbody tr", state="attached")
    drawn = page.locator("#explore-table tbody tr").count()
    note = page.locator(".kv-after .kv-paper")
    if drawn < 50:
        pytest.fail("the query of this test finds too few rows to be cut")
    note.wait_for(state="visible")
    assert note.inner_text().startswith(f"Only the first {drawn} of ")
    assert page.locator(".kv-after button").is_hidden()


def test_no_head_of_a_table_stands_alone_at_the_foot_of_a_sheet(visit):
    """A head is kept with the first rows; the sheet breaks above it."""
    page = paper(visit, "models/")
    breaks = page.evaluate(
        "() => { const of = (selector, name) => getComputedStyle(document.querySelector(selector))[name];"
        " return [of('#models-table thead', 'breakAfter'), of('#models-table tbody tr', 'breakBefore'),"
        " of('#models-table tbody tr + tr', 'breakBefore'), of('#models-table tbody tr:nth-child(3)', 'breakBefore')]; }"
    )
    assert breaks == ["avoid", "avoid", "avoid", "auto"]


def test_on_a_phone_commands_and_meanings_are_read_without_scrolling(browser, address):
    made = Visit(browser, address, viewport={"width": 390, "height": 844})
    page = made.go("models/meta-llama--Llama-3.1-70B-Instruct/")
    page.locator(".kv-command code").first.wait_for()
    over = "(nodes) => nodes.filter((node) => node.scrollWidth > node.clientWidth + 1).map((node) => node.innerText)"
    assert page.locator(".kv-command pre, .kv-command code").evaluate_all(over) == []
    page = made.go("data/")
    page.locator("table.kv-dictionary").first.wait_for()
    rows = page.locator("table.kv-dictionary").first.locator("tbody tr")
    assert rows.first.locator(".kv-words").first.bounding_box()["x"] < 100
    assert rows.locator(".kv-blank:visible").count() == 0
    made.context.close()
    assert not made.faults


def test_on_a_phone_the_letters_of_charts_can_be_read(browser, address):
    made = Visit(browser, address, viewport={"width": 390, "height": 844})
    for uri in ("models/", "models/meta-llama--Llama-3.1-8B-Instruct/"):
        page = made.go(uri)
        made.settle()
        sizes = page.locator("main figure svg text").evaluate_all(
            "(texts) => texts.filter((one) => one.checkVisibility()).map((one) => parseFloat(getComputedStyle(one).fontSize)"
            " * Math.hypot(one.getScreenCTM().a, one.getScreenCTM().b))"
        )
        assert sizes
        assert min(sizes) >= 12.5, uri
        assert page.locator(".kv-speed").evaluate_all(
            "(all) => all.every((one) => one.getBoundingClientRect().right <= innerWidth)"
        )
    made.context.close()
    assert not made.faults


def test_high_figures_go_on_over_the_foot_of_a_sheet_and_low_ones_stay_whole(visit):
    """A figure with its table is higher than a third of a sheet: kept whole it left sheets half empty."""
    page = paper(visit, "models/meta-llama--Llama-3.1-70B-Instruct/")
    page.wait_for_selector("#boundary ~ div figure tr", state="attached")
    inside = (
        "(selector) => [...new Set([...document.querySelectorAll(selector)].map((node) =>"
        " getComputedStyle(node).breakInside))]"
    )
    for high in ("main .kv-figure:has(tr)", "main .kv-steps", "main details.kv-data"):
        assert page.evaluate(inside, high) == ["auto"], high
    for whole in ("main .kv-plot", "main .kv-steps li", "main .kv-table tr"):
        assert page.evaluate(inside, whole) == ["avoid"], whole
    assert page.locator("main details.kv-data > summary, main a.kv-button").evaluate_all(SHOWN) == []
    lasts = page.locator("main .kv-table tbody:last-of-type > tr:last-child").evaluate_all(
        "(rows) => [...new Set(rows.map((row) => getComputedStyle(row).breakBefore))]"
    )
    assert lasts == ["avoid"]


BROKEN = """(codes) => codes.flatMap((code) => {
  const walk = document.createTreeWalker(code, NodeFilter.SHOW_TEXT), range = document.createRange(), bad = [];
  const room = code.clientWidth - parseFloat(getComputedStyle(code).paddingLeft) * 2;
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    for (const word of node.data.matchAll(/\\S+/g)) {
      range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
      if (lines.size > 1 && word[0].length * parseFloat(getComputedStyle(code).fontSize) * 0.6 < room * 0.8) bad.push(word[0]);
    }
  }
  return bad;
})"""


@pytest.mark.parametrize("uri", ["", "sizer/", "models/meta-llama--Llama-3.1-70B-Instruct/"])
def test_commands_break_at_spaces_alone_and_are_copied_as_they_are(browser, address, uri):
    made = Visit(browser, address, viewport={"width": 390, "height": 844})
    page = made.go(uri)
    codes = page.locator(".kv-command code")
    codes.first.wait_for()
    assert codes.evaluate_all(BROKEN) == []
    copied = codes.first.evaluate(
        "(code) => { const chosen = getSelection(); chosen.selectAllChildren(code);"
        " return [chosen.toString(), code.textContent]; }"
    )
    assert "--" in copied[1] or "-" in copied[1]
    assert copied[0].strip() == copied[1].strip()
    made.context.close()


def test_on_a_phone_names_in_tables_stay_whole_and_an_empty_head_is_not_shown(browser, address):
    made = Visit(browser, address, viewport={"width": 390, "height": 844})
    page = made.go("gpus/")
    page.locator("table.kv-table td a, table.kv-table th a").first.wait_for()
    breaks = page.evaluate(
        "() => { const table = document.createElement('table');"
        " table.innerHTML = '<thead><tr><th></th></tr></thead><tbody><tr><td><code>cache_exceeds_pool</code></td></tr></tbody>';"
        " document.querySelector('main article').append(table);"
        " return [getComputedStyle(document.querySelector('main table a')).wordBreak,"
        " getComputedStyle(table.querySelector('code')).wordBreak, getComputedStyle(table.tHead).display,"
        " getComputedStyle(document.querySelector('main table.kv-table thead')).display]; }"
    )
    assert breaks[:3] == ["normal", "normal", "none"]
    assert breaks[3] != "none"
    made.context.close()


def test_on_a_tablet_five_facts_are_one_row_and_empty_cells_have_no_frame(browser, address):
    made = Visit(browser, address, viewport={"width": 820, "height": 1180})
    page = made.go("models/meta-llama--Llama-3.1-70B-Instruct/")
    page.locator("dl.kv-facts > div").first.wait_for()
    tops = page.locator("dl.kv-facts > div").evaluate_all(
        "(facts) => facts.map((fact) => Math.round(fact.getBoundingClientRect().top))"
    )
    assert len(tops) == 5
    assert len(set(tops)) == 1
    page = made.go("data/")
    page.locator("table.kv-dictionary td.kv-blank").first.wait_for()
    frames = page.locator("table.kv-dictionary td.kv-blank").evaluate_all(
        "(cells) => [...new Set(cells.map((cell) => getComputedStyle(cell).borderLeftWidth))]"
    )
    assert frames == ["0px"]
    made.context.close()


def test_narrow_windows_keep_no_room_for_an_empty_column(browser, address):
    made = Visit(browser, address, viewport={"width": 820, "height": 1180})
    page = made.go("gpus/")
    page.locator("table.kv-table td").first.wait_for()
    widths = page.evaluate(
        "() => { const table = document.createElement('table'); table.className = 'kv-table';"
        " table.innerHTML = '<tbody><tr><th>case</th><td>1</td><td></td></tr>"
        "<tr><th>case</th><td>1</td><td>words</td></tr><tr><th>case</th><td>words that wrap</td></tr></tbody>';"
        " document.querySelector('main article').append(table);"
        " return [...table.querySelectorAll('td:last-child')].map((cell) => parseFloat(getComputedStyle(cell).minWidth) || 0); }"
    )
    assert widths[0] == 0
    assert widths[1] > 200
    assert widths[2] == 0  # two columns need no scrolling: the words wrap
    made.context.close()
