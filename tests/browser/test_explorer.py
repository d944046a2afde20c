"""The explorer in a real browser: ordinary questions answered as the package answers them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pandas as pd
import pytest
from visits import hold, let_go

from kvreport import estimate
from kvreport.accounting.parallel import Layout
from kvreport.catalog.load import open_catalog
from kvreport.publish.layout_names import ways

pytestmark = [pytest.mark.browser, pytest.mark.slow]

KEYS = ["model", "gpu", "layout", "tensor_parallel", "weight_format", "kv_format", "context_tokens"]
FIRST = "#explore-table tbody tr:first-child"


@pytest.fixture
def page(browser) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, bypass_csp=True)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened = context.new_page()
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    yield opened
    context.close()
    assert faults == []


def answered(page: Any) -> str:
    """The answer's sentence, once the filters that were chosen last are answered."""
    # The explorer says which address its table is of.
    page.wait_for_function("document.querySelector('.kv-explore')?.dataset.kvShown === location.search")
    said: str = page.locator(".kv-explore > .kv-said").inner_text()
    return said


def choose(page: Any, facet: str, value: str) -> None:
    page.locator(f"fieldset[data-facet={facet}] .kv-chip[value='{value}']").click()


def rows(page: Any) -> list[dict[str, str]]:
    """The table's rows, each a cell by its column's title."""
    found: list[dict[str, str]] = page.eval_on_selector_all(
        "#explore-table tbody tr",
        """rows => rows.map((row) => ({Model: row.cells[0].innerText.trim(), Verdict: row.cells[1].className,
            ...Object.fromEntries(Array.from(row.cells).slice(1).map((cell) => [cell.dataset.label, cell.innerText.trim()]))}))""",
    )
    return found


def test_the_answer_of_the_start_is_printed_and_stays_when_the_numbers_come(page, address):
    held = hold(page, "**/explore/models.json")
    page.goto(f"{address}explore/")
    said = page.locator(".kv-explore > .kv-said")
    printed: list[str] = []
    let_go(page, held, lambda: printed.append(said.inner_text()))
    assert re.fullmatch(
        r"\d+ of the \d+ listed configurations fit \(one H100, 8K context, weights as released\)\.",
        printed[0],
    )
    assert answered(page) == printed[0]


def test_a_question_in_the_address_is_never_answered_by_the_printed_start(page, address):
    held = hold(page, "**/explore/models.json")
    page.goto(f"{address}explore/?gpu=rtx-4090&context=32768")
    said = page.locator(".kv-explore > .kv-said")
    let_go(page, held, lambda: said.get_by_text("Reading the catalog").wait_for())
    assert "RTX 4090, 32K context" in answered(page)


def test_from_home_which_models_fit_two_rtx_4090_at_32k_for_four_requests(page, address, tiny_site):
    page.goto(address)
    page.locator(".md-tabs a[href*='explore/']").click()
    answered(page)
    # Five choices, none of which has to be taken back.
    choose(page, "gpu", "rtx-4090")
    choose(page, "tp", "2")
    choose(page, "context", "32768")
    page.fill("input[name=requests]", "4")
    choose(page, "weights", "int4")
    page.wait_for_function("location.search.includes('requests=4') && location.search.includes('int4')")
    said = answered(page)
    assert "2 × RTX 4090, 32K context, weights INT4" in said
    assert "at least 4 requests" in said
    shown = rows(page)
    assert shown
    catalog = open_catalog(tiny_site.catalog)
    names = {model.name: model.id for model in catalog.models.values()}
    for row in shown:
        ours = estimate(
            names[row["Model"]],
            gpu="RTX 4090",
            tensor_parallel=2,
            context_tokens="32K",
            weights="int4",
            catalog=catalog,
        )
        assert row["Concurrent requests"] == f"{ours.max_concurrent_requests:,}"
    fitting = {
        name
        for name, model in names.items()
        if catalog.model(model).context_tokens >= 32768
        and estimate(
            model, gpu="RTX 4090", tensor_parallel=2, context_tokens="32K", weights="int4", catalog=catalog
        ).max_concurrent_requests
        >= 4
    }
    assert {row["Model"] for row in shown} == fitting


def test_layouts_beyond_tensor_parallelism_are_answered_as_the_package_does(page, address, tiny_site):
    catalog = open_catalog(tiny_site.catalog)
    asked = {
        "dp8-ep": {"data_parallel": 8, "expert_parallel": True},
        "dp16-ep": {"data_parallel": 16, "expert_parallel": True, "nodes": 2},
        "tp8-dcp8": {"tensor_parallel": 8, "decode_context_parallel": 8},
        "pp2-tp8": {"tensor_parallel": 8, "pipeline_parallel": 2, "nodes": 2},
    }
    page.goto(f"{address}explore/")
    answered(page)
    choose(page, "context", "32768")
    for label, options in asked.items():
        choose(page, "tp", label)
        page.wait_for_function(f"location.search.includes('tp={label}')")
        said = answered(page)
        ours = estimate(
            "deepseek-ai/DeepSeek-V3", gpu="H100", context_tokens="32K", catalog=catalog, **options
        )
        devices = 16 if "nodes" in options else 8
        shown = next(row for row in rows(page) if row["Model"] == "DeepSeek-V3")
        assert f"{devices} × H100" in said, label
        assert shown["Layout"] == ways(Layout.named(label))
        assert shown["GPUs"] == str(devices)
        if ours.max_concurrent_requests:
            assert shown["Concurrent requests"] == f"{ours.max_concurrent_requests:,}"
        else:
            assert "more" in shown["Concurrent requests"]
    # The query over the published file asks for the same layout.
    page.locator(".kv-query summary").click()
    page.wait_for_function("document.querySelector('.kv-query code').innerText.includes('pp2-tp8')")


def test_the_largest_model_that_fits_one_h100_is_first_after_one_click(page, address, tiny_site):
    page.goto(f"{address}explore/")
    answered(page)
    page.click("th[data-column=parameters] button")
    assert parse_qs(urlsplit(page.url).query)["sort"] == ["-parameters"]
    answered(page)
    shown = [row for row in rows(page) if row["Verdict"].startswith("kv-u")]
    catalog = open_catalog(tiny_site.catalog)
    from kvreport.accounting.weights import parameters

    serving = [
        model
        for model in catalog.models.values()
        if estimate(model.id, gpu="H100", context_tokens="8K", catalog=catalog).max_concurrent_requests > 0
    ]
    assert shown[0]["Model"] == max(serving, key=parameters).name
    # The focus stays on the head that was pressed, so that a second press turns the order.
    assert page.evaluate("document.activeElement.closest('th')?.dataset.column") == "parameters"
    page.keyboard.press("Enter")
    answered(page)
    assert page.get_attribute("th[data-column=parameters]", "aria-sort") == "ascending"


def test_rows_that_serve_come_first_and_others_say_what_they_lack(page, address, tiny_site):
    page.goto(f"{address}explore/")
    answered(page)
    shown = rows(page)
    serving = [row["Verdict"].startswith("kv-u") for row in shown]
    assert serving == sorted(serving, reverse=True)
    assert not all(serving)
    catalog = open_catalog(tiny_site.catalog)
    large = next(row for row in shown if row["Model"] == "Llama 3.1 70B")
    ours = estimate("meta-llama/Llama-3.1-70B-Instruct", gpu="H100", context_tokens="8K", catalog=catalog)
    assert large["Concurrent requests"] == f"needs {ours.shortfall_bytes / 2**30:.1f} GiB more"


def test_the_speed_bound_is_the_packages(page, address, tiny_site):
    page.goto(
        f"{address}explore/?gpu=h100-sxm-80gb&tp=1&context=8192&weights=released&kv=own&name=llama+3.1+8b"
    )
    answered(page)
    page.mouse.move(300, 300)
    page.wait_for_function(
        "document.querySelector('#explore-table td[data-label=\"Maximum speed under load\"]').innerText !== '–'"
    )
    whole = pd.read_parquet(tiny_site.folder / "downloads/capacity.parquet")
    row = whole[
        (whole["model"] == "meta-llama/Llama-3.1-8B-Instruct")
        & (whole["gpu"] == "h100-sxm-80gb")
        & (whole["layout"] == "tp1")
        & (whole["weight_format"] == "released")
        & (whole["kv_format"] == "bf16")
        & (whole["context_tokens"] == 8192)
    ].iloc[0]
    # The dataset rounds its milliseconds down to three digits.
    least = float(row["decode_ms_lower_bound"])
    assert int(1000 / (least + 0.1)) <= int(rows(page)[0]["Maximum speed under load"]) <= 1000 / least


def test_a_wide_choice_is_answered_and_clear_leads_back_to_the_start(page, address, tiny_site):
    page.goto(f"{address}explore/")
    start = answered(page)
    for facet in ("gpu", "tp", "context", "weights", "kv"):
        page.locator(f"fieldset[data-facet={facet}] .kv-chip[value='']").click()
    page.wait_for_function("location.search === '?show=all'")
    page.wait_for_function("!document.querySelector('.kv-said').innerText.includes('Reading')")
    said = answered(page)
    fit, total = (int(text.replace(",", "")) for text in re.findall(r"[\d,]+", said)[:2])
    whole = pd.read_parquet(tiny_site.folder / "downloads/capacity.parquet")
    asked = whole[~whole["verdict"].isin(["format_not_supported", "engine_does_not_run"])]
    assert total == len(asked)
    assert fit == int(asked["verdict"].isin(["fits", "tight"]).sum())
    assert page.locator("#explore-table tbody tr").count() == 50
    page.get_by_role("button", name="Clear filters").click()
    page.wait_for_function("location.search.includes('gpu=h100')")
    assert answered(page) == start


def test_counts_stand_next_to_each_value(page, address, tiny_site):
    page.goto(f"{address}explore/")
    answered(page)
    page.mouse.move(300, 300)
    page.wait_for_function(
        "document.querySelector('fieldset[data-facet=verdict] .kv-chip[value=fits] small').innerText !== ''"
    )
    counts = page.eval_on_selector_all(
        "fieldset[data-facet=gpu] .kv-chip[value]:not([value=''])",
        "chips => chips.map((chip) => [chip.value, chip.querySelector('small').innerText])",
    )
    whole = pd.read_parquet(tiny_site.folder / "downloads/capacity.parquet")
    here = whole[
        (whole["layout"] == "tp1")
        & (whole["weight_format"] == "released")
        & (whole["kv_format"] == "bf16")
        & (whole["context_tokens"] == 8192)
        & whole["verdict"].isin(["fits", "tight"])
    ]
    for gpu, shown in counts:
        assert int(shown) == int((here["gpu"] == gpu).sum()), gpu
    # What leaves nothing is marked.
    marks = page.eval_on_selector_all(
        ".kv-chips .kv-chip[value]:not([value=''])",
        "chips => chips.filter((chip) => chip.querySelector('small')?.innerText)"
        ".map((chip) => [chip.querySelector('small').innerText === '0', chip.classList.contains('kv-empty')])",
    )
    assert any(empty for empty, _ in marks)
    assert all(empty == marked for empty, marked in marks)


def test_what_is_typed_is_never_lost(page, address):
    page.goto(f"{address}explore/")
    answered(page)
    # The click comes before the text field's own pause is over.
    page.evaluate(
        """() => {
          const name = document.querySelector("input[name=name]");
          name.value = "llama";
          name.dispatchEvent(new Event("input"));
          document.querySelector("fieldset[data-facet=context] .kv-chip[value='16384']").click();
        }"""
    )
    page.wait_for_function("location.search.includes('name=llama') && location.search.includes('16384')")
    assert page.input_value("input[name=name]") == "llama"
    answered(page)
    assert {row["Model"].split()[0] for row in rows(page)} == {"Llama"}


def test_the_csv_and_the_queries_give_the_rows_that_are_shown(page, address, tiny_site):
    page.goto(
        f"{address}explore/?gpu=h100-sxm-80gb&gpu=mi300x&tp=2&context=8192&kind=full&kv=own&verdict=fits"
    )
    said = answered(page)
    whole = pd.read_parquet(tiny_site.folder / "downloads/capacity.parquet")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download as CSV").click()
    assert waiting.value.suggested_filename.startswith("kvreport-h100-sxm-80gb-mi300x-8192-")
    selection = pd.read_csv(waiting.value.path())
    assert len(selection) == int(said.split(" ")[0].replace(",", ""))
    both = selection.merge(
        whole.astype({key: selection[key].dtype for key in KEYS}), on=KEYS, suffixes=("", "_published")
    )
    assert len(both) == len(selection)
    for name in selection.columns.difference(KEYS):
        assert (both[name].astype(str) == both[f"{name}_published"].astype(str)).all(), name

    page.locator(".kv-query summary").click()
    page.wait_for_function(
        "document.querySelectorAll('.kv-query code')[1].innerText.includes('read_parquet')"
    )
    sql, python = page.eval_on_selector_all(".kv-query code", "codes => codes.map((code) => code.innerText)")
    published = f"{address}downloads/capacity.parquet"
    assert f"FROM '{published}'" in sql
    assert "gpu IN ('h100-sxm-80gb', 'mi300x')" in sql
    found: dict[str, Any] = {}
    # The page's own text is run, over the same file on disk.
    exec(python.replace(published, str(tiny_site.folder / "downloads/capacity.parquet")), found)  # noqa: S102
    shown = set(map(tuple, selection[KEYS].astype(str).to_numpy()))
    assert set(map(tuple, found["rows"][KEYS].astype(str).to_numpy())) == shown


def test_a_phone_gets_cards_with_the_answer_before_the_filters(browser, address):
    context = browser.new_context(viewport={"width": 360, "height": 740}, has_touch=True, bypass_csp=True)
    page = context.new_page()
    page.goto(f"{address}explore/")
    answered(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert not page.locator("fieldset[data-facet=gpu]").is_visible()
    assert page.locator(".kv-said").bounding_box()["y"] < 740
    card = page.locator(FIRST)
    assert card.bounding_box()["width"] <= 360
    page.locator(".kv-filters summary").click()
    assert page.locator("fieldset[data-facet=gpu]").is_visible()
    context.close()


def test_the_answer_is_printed(page, address):
    page.goto(f"{address}explore/")
    answered(page)
    reason = page.locator("#explore-table .kv-whybutton").first
    assert reason.inner_text().startswith("needs ")
    page.emulate_media(media="print")
    assert page.locator(".kv-said").is_visible()
    assert page.locator(FIRST).is_visible()
    assert reason.is_visible()
    assert not page.locator(".kv-facets").is_visible()


def test_sizes_switch_to_gb(page, address):
    page.goto(f"{address}explore/?name=llama+70b&gpu=h100-sxm-80gb&context=8192&tp=4&weights=released&kv=own")
    cell = page.locator("#explore-table tbody td.kv-size").first
    cell.wait_for()
    before = float(cell.inner_text())
    page.locator("#explore-table .kv-units").click()
    assert float(cell.inner_text()) == pytest.approx(before * 2**30 / 1e9, abs=0.01)
    assert "GB" in page.locator("#explore-table thead").inner_text()


@pytest.mark.parametrize(
    ("uri", "table"),
    [("explore/", "#explore-table"), ("compare/", "#compare-table")],
    ids=["explore", "compare"],
)
def test_on_a_phone_nothing_moves_while_a_page_answers(browser, address, uri, table):
    context = browser.new_context(viewport={"width": 390, "height": 844}, bypass_csp=True)
    page = context.new_page()
    page.add_init_script(
        "window.moved = 0; window.what = []; new PerformanceObserver((list) => list.getEntries().forEach((one) => {"
        " if (!one.hadRecentInput) { window.moved += one.value; window.what.push(...one.sources.map((s) => `${s.node?.className || s.node?.nodeName} ${s.previousRect.top}>${s.currentRect.top}`)); } })).observe({ type: 'layout-shift', buffered: true })"
    )
    page.goto(address + uri)
    page.wait_for_selector(f"{table} tbody tr")
    page.wait_for_timeout(500)
    assert page.evaluate("window.moved") < 0.1, page.evaluate("window.what")
    context.close()


def test_a_press_is_a_click_though_the_rows_are_drawn_again_meanwhile(page, address):
    """The first move of a reader brings speeds and upper bounds, and with them the rows are drawn again."""
    page.goto(f"{address}explore/?gpu=h100-sxm-80gb&tp=1&context=8192&weights=released&kv=own")
    answered(page)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download as CSV").click(delay=700)
    assert waiting.value.suggested_filename.endswith(".csv")
    page.reload()
    answered(page)
    page.get_by_role("button", name=re.compile("^needs ")).first.click(delay=700)
    page.locator("dialog[open]").wait_for()


def test_nothing_moves_when_a_reader_begins_to_scroll(page, address):
    """The theme hides its tabs once the page is scrolled; their place stays."""
    place = "document.querySelector('h1').getBoundingClientRect().top + scrollY"
    page.goto(f"{address}explore/")
    answered(page)
    before = page.evaluate(place)
    page.mouse.wheel(0, 28)
    page.wait_for_function("document.querySelector('.md-tabs').hidden")
    assert page.evaluate(f"[{place}, scrollY]") == [before, 28]
    page.mouse.wheel(0, -28)
    page.wait_for_function("!document.querySelector('.md-tabs').hidden")
    assert page.locator(".md-tabs a").first.is_visible()


def test_a_first_key_does_not_lose_the_focus(page, address):
    page.goto(f"{address}explore/")
    answered(page)
    page.get_by_role("button", name="Copy link").evaluate("(button) => button.focus()")
    page.wait_for_function(
        "document.querySelector('#explore-table td[data-label=\"Maximum speed under load\"]').innerText !== '–'"
    )
    assert page.evaluate("document.activeElement.textContent") == "Copy link"


def test_the_open_queries_follow_the_filters(page, address):
    page.goto(f"{address}explore/")
    answered(page)
    page.locator(".kv-query summary").click()
    query = "Array.from(document.querySelectorAll('.kv-query pre code'), (code) => code.innerText).join(' ')"
    page.wait_for_function(f"{query}.includes('8192')")
    choose(page, "context", "32768")
    answered(page)
    assert "32768" in page.evaluate(query)
    assert "8192" not in page.evaluate(query)


def test_columns_that_the_sentence_states_are_left_out(page, address):
    """One accelerator, layout, context and weight format: no column says them again; another choice brings them back."""
    page.goto(f"{address}explore/?gpu=h100-sxm-80gb&tp=1&context=8192&weights=released")
    answered(page)
    shown = page.locator("#explore-table thead th:visible").evaluate_all(
        "all => all.map((one) => one.dataset.column)"
    )
    assert "model" in shown
    assert not {"gpu", "tp", "layout", "context", "weights"} & set(shown)
    assert page.locator(FIRST).locator("td:visible").count() == len(shown) - 1
    # What is left out is said, and is still in the row for its CSV file.
    assert "one H100, 8K context" in answered(page)
    assert rows(page)[0]["GPU"] == "H100"
    page.goto(f"{address}explore/?tp=1&context=8192&weights=released")
    answered(page)
    assert page.locator('#explore-table thead th[data-column="gpu"]').is_visible()


def test_a_card_on_a_phone_has_units(page, address):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}explore/?gpu=h100-sxm-80gb&tp=1&context=8192&weights=released")
    answered(page)
    labels = (
        page.locator(FIRST)
        .locator("td:visible")
        .evaluate_all("all => all.map((one) => getComputedStyle(one, '::before').content)")
    )
    said = " ".join(labels)
    assert ", tokens/s" in said
    assert said.count("GiB") == 3
    heights = page.locator("#explore-table thead .kv-sort:visible").evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect().height)"
    )
    assert min(heights) >= 24


def test_columns_that_all_rows_share_are_one_sentence_and_nothing_scrolls_sideways(browser, address):
    context = browser.new_context(viewport={"width": 1440, "height": 900}, bypass_csp=True)
    page = context.new_page()
    page.goto(f"{address}explore/")
    answered(page)
    heads = "#explore-table thead th:visible"
    titles = page.eval_on_selector_all(heads, "cells => cells.map((cell) => cell.dataset.column)")
    assert not {"gpu", "tp", "layout", "context", "weights"} & set(titles)
    assert "parameters" in titles
    caption = page.locator("#explore-table caption").inner_text()
    assert "In every row: H100, 1 GPU, 8K context, weights as released" in caption
    assert (
        page.evaluate(
            "(({scrollWidth, clientWidth}) => scrollWidth - clientWidth)"
            "(document.querySelector('#explore-table').parentElement)"
        )
        <= 0
    )
    choose(page, "gpu", "")
    answered(page)
    assert page.locator("#explore-table th[data-column=gpu]").is_visible()
    assert "H100" not in page.locator("#explore-table caption").inner_text()
    assert page.locator(f"{FIRST} td[data-label=GPU]").is_visible()
    context.close()


def test_the_explorer_says_which_layouts_it_has_and_what_has_the_others(page, address):
    page.goto(f"{address}explore/")
    answered(page)
    said = page.locator("fieldset[data-facet=tp]").inner_text()
    assert "The dataset covers these layouts." in said
    assert "kvreport estimate" in said


def test_the_table_is_offered_as_csv_once(page, address):
    page.goto(f"{address}explore/")
    answered(page)
    page.locator(".kv-explore .kv-tool", has_text="Copy as Markdown").wait_for()
    assert page.locator(".kv-explore button:visible", has_text="CSV").count() == 1


def test_sort_buttons_on_a_phone_are_24_pixels_apart(browser, address):
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, bypass_csp=True)
    page = context.new_page()
    page.goto(f"{address}explore/")
    answered(page)
    boxes = page.eval_on_selector_all(
        "#explore-table .kv-sort",
        "list => list.map((one) => one.getBoundingClientRect()).filter((box) => box.width)"
        ".map(({x, y, width, height}) => [x, y, width, height])",
    )
    assert len(boxes) > 5
    assert all(width >= 24 and height >= 24 for _, _, width, height in boxes)
    for n, (x, y, width, height) in enumerate(boxes):
        for left, top, wide, high in boxes[n + 1 :]:
            assert x + width <= left or left + wide <= x or y + height <= top or top + high <= y
    context.close()


def test_the_first_text_is_the_largest(browser, address):
    """What comes late, the table's caption, is no larger text than the page's first sentence: that is when a page is there."""
    context = browser.new_context(viewport={"width": 412, "height": 823}, bypass_csp=True)
    page = context.new_page()
    page.add_init_script(
        "window.largest = []; new PerformanceObserver((list) => window.largest.push(...list.getEntries()"
        ".map((one) => one.element?.className))).observe({type: 'largest-contentful-paint', buffered: true})"
    )
    page.goto(f"{address}explore/")
    answered(page)
    page.wait_for_timeout(500)
    assert page.evaluate("window.largest.at(-1)") == "kv-lead"
    context.close()
