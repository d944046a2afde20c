"""The built site in a real browser: it loads, finds, draws, switches, and asks nobody else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

import pytest
from serving import until
from visits import Visit, hold, let_go, unusable

import kvreport
from kvreport import units

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LLAMA = "models/meta-llama--Llama-3.1-8B-Instruct/"
H100 = "gpus/h100-sxm-80gb/"
KINDS = ("", "models/", LLAMA, "gpus/", H100, "explore/", "compare/", "sizer/", "traffic/", "log/", "data/")


@pytest.fixture
def visit(browser, address) -> Iterator[Visit]:
    made = Visit(browser, address, viewport={"width": 1280, "height": 900})
    yield made
    made.context.close()
    assert not made.faults


@pytest.mark.parametrize("uri", KINDS)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_every_kind_of_page_loads_without_a_fault_and_axe_finds_nothing(browser, address, uri, scheme, width):
    """No fault, nobody else asked, no sideways scrolling on a phone, nothing that a screen reader or a hand cannot use."""
    made = Visit(browser, address, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = made.go(uri)
    made.settle()
    assert page.locator("h1").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    faults = unusable(page)
    made.context.close()
    assert not made.faults
    assert not faults, faults


def test_a_wide_drawing_on_a_phone_is_reached_by_keys(browser, address):
    made = Visit(browser, address, viewport={"width": 390, "height": 844})
    page = made.go("data/")
    page.evaluate(
        "() => document.querySelector('main article').insertAdjacentHTML('beforeend',"
        ' \'<figure class="kv-figure" id="wide" style="overflow-x: auto"><div style="width: 900px; height: 9px"></div></figure>'
        '<figure class="kv-figure" id="narrow"><svg width="90" height="20"></svg></figure>'
        '<nav class="md-code__nav"></nav>\')'
    )
    page.locator("#wide[tabindex='0']").wait_for()
    assert page.locator("#narrow").get_attribute("tabindex") is None
    assert page.locator("nav.md-code__nav:not([role=none])").count() == 0
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    assert (
        page.evaluate(
            "axe.run('.md-code__nav', {runOnly: ['aria-allowed-role']}).then(r => r.violations.length)"
        )
        == 0
    )
    made.context.close()
    assert not made.faults


def test_what_is_embedded_says_what_the_page_says(visit):
    embedded = []
    for asked in ("?gpu=b200-sxm-180gb", "?gpu=b200-sxm-180gb&tp=8&context=32768"):
        page = visit.go(LLAMA + asked)
        page.wait_for_function(
            "document.querySelector('[data-kv-shown]')?.dataset.kvShown === location.search"
        )
        page.locator("details.kv-share > summary").click()
        embedded.append(page.locator("#kv-share-embed").input_value())
        said = " ".join(page.locator("[data-kv-slot=headline]").inner_text().split())
    assert embedded[0].startswith("<iframe ")
    assert embedded[1].startswith("<a ")
    assert said in embedded[1]


def test_every_chart_can_be_taken_away_with_its_finding_and_source(visit, tiny_site):
    page = visit.go(LLAMA)
    page.locator("[aria-label='Save this chart as SVG']").first.wait_for(state="attached")
    charts = page.locator("main figure.kv-figure").filter(has=page.locator("svg:not([aria-hidden])"))
    assert charts.count() == page.locator("main figure [aria-label*='copy this chart as HTML']").count() > 2
    unlike = (
        "(all) => all.filter((one) => !one.ariaLabel.toLowerCase().includes(one.textContent.toLowerCase()))"
    )
    assert not page.locator("main .kv-tool").evaluate_all(unlike + ".map((one) => one.ariaLabel)"), (
        "named as they read"
    )
    chart = charts.filter(has=page.locator(".kv-plot"))
    with page.expect_download() as told:
        chart.get_by_role("button", name="Save this chart as SVG").click()
    text = " ".join(re.findall(r">([^<]+)<", told.value.path().read_text(encoding="utf-8")))
    said = " ".join(page.locator("[data-kv-slot=headline]").inner_text().split())
    release = (tiny_site.catalog / "RELEASE").read_text(encoding="utf-8").strip()
    assert said[:40] in text
    assert f"data release {release}" in text
    for drawn in chart.locator(".kv-plot text").all_text_contents():
        assert drawn in text


@pytest.mark.parametrize("width", [390, 1440])
def test_a_chart_taken_away_holds_what_the_page_shows_within_its_frame(visit, width):
    """On a phone, names and letters of axes were cut off, samples of fills were black, and dots and notes were missing."""
    page = visit.page
    page.set_viewport_size({"width": width, "height": 844})
    visit.go(LLAMA)
    page.locator("[aria-label='Save this chart as SVG']").first.wait_for(state="attached")
    charts = page.locator("main figure.kv-figure").filter(
        has=page.get_by_role("button", name="Save this chart as SVG")
    )
    assert charts.count() > 3
    dashes, dots = set(), []
    for chart in charts.all():
        with page.expect_download() as told:
            chart.get_by_role("button", name="Save this chart as SVG").click()
        items = chart.locator(".kv-legend li").all()
        names = [" ".join(one.text_content().split()) for one in items]
        fills = [
            one.evaluate("(one) => getComputedStyle(one).backgroundColor")
            for one in chart.locator(".kv-legend i").all()
        ]
        image = page.context.new_page()
        image.set_viewport_size({"width": 1600, "height": 1200})
        image.set_content(told.value.path().read_text(encoding="utf-8"))
        text = " ".join(image.locator("svg text").all_text_contents())
        assert all(name in text for name in names)
        note = chart.locator("figcaption")
        assert not note.count() or " ".join(note.first.inner_text().split()) in text
        assert fills == [
            one.evaluate("(one) => getComputedStyle(one).fill")
            for one in image.locator("body > svg > rect").all()[1:]
        ]
        outside = """(paper) => [...paper.querySelectorAll("text")].filter((one) => {
          const [own, all] = [one, paper].map((node) => node.getBoundingClientRect());
          return own.width && (own.left < all.left - 1 || own.right > all.right + 1 || own.bottom > all.bottom + 1);
        }).map((one) => one.textContent)"""
        assert not image.locator("body > svg").evaluate(outside)
        dashes |= {one.get_attribute("stroke-dasharray") for one in image.locator("svg svg path").all()}
        dots += [float(one.get_attribute("r").removesuffix("px")) for one in image.locator("circle").all()]
        image.close()
    assert len(dashes) > 3
    assert min(dots) > 3


def test_what_is_far_below_the_window_is_measured_when_it_comes_near(visit):
    """To ask every table for its width laid out all of them, 0.7 seconds at the speed of a phone."""
    page = visit.go("data/")
    visit.settle()
    measured = "(box) => box.matches('.kv-fits, .kv-wide')"
    first, last = page.locator(".kv-scroll").first, page.locator(".kv-scroll").last
    first.scroll_into_view_if_needed()
    page.locator(".kv-scroll.kv-fits, .kv-scroll.kv-wide").first.wait_for()
    assert first.evaluate(measured)
    assert not last.evaluate(measured)
    last.scroll_into_view_if_needed()
    page.wait_for_function("[...document.querySelectorAll('.kv-scroll')].pop().matches('.kv-fits, .kv-wide')")


def test_long_work_is_gone_through_in_slices(visit):
    page = visit.go("")
    work = """async (wanted) => {
      let steps = 0;
      function* work() {
        for (let n = 0; n < 20; n += 1) {
          for (const end = performance.now() + 3; performance.now() < end;);
          steps += 1;
          yield;
        }
        return 7;
      }
      return [await kvreport.inSlices(work(), () => wanted), steps];
    }"""
    assert page.evaluate(work, True) == [7, 20]
    value, steps = page.evaluate(work, False)
    assert value is None
    assert 3 <= steps < 20


def test_the_key_of_the_search_works_before_the_theme_does(visit):
    waiting = hold(visit.context, "**/bundle.*.js")
    page = visit.page
    page.goto(visit.address)
    page.wait_for_selector("html.js")
    page.keyboard.press("/")
    page.keyboard.type("h100")
    assert page.locator(".md-search__input").input_value() == "h100"
    let_go(page, waiting, lambda: None)
    page.locator(".md-search-result__link").first.wait_for()


def test_the_button_of_the_search_works_before_the_theme_does(browser, address):
    made = Visit(browser, address, viewport={"width": 390, "height": 844}, has_touch=True)
    waiting = hold(made.context, "**/bundle.*.js")
    page = made.page
    page.goto(address)
    page.wait_for_selector("html.js")
    page.locator("label.md-header__button[for=__search]").tap()
    page.keyboard.type("h100")
    assert page.locator(".md-search__input").input_value() == "h100"
    let_go(page, waiting, lambda: None)
    page.locator(".md-search-result__link").first.wait_for()
    made.context.close()
    assert not made.faults


def test_the_script_of_the_theme_comes_with_the_first_move(visit):
    asked = []
    visit.page.on("request", lambda request: asked.append(request.url))
    page = visit.page
    page.goto(visit.address + LLAMA)
    page.wait_for_load_state("networkidle")
    assert not [url for url in asked if "/bundle." in url or url.endswith("sitemap.xml")]
    page.mouse.move(200, 200)
    page.wait_for_function("window.document$ !== undefined")
    assert len([url for url in asked if "/bundle." in url]) == 1


@pytest.mark.parametrize("uri", [LLAMA, H100, "", "models/"])
def test_a_page_is_whole_without_scripts(browser, address, uri):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address + uri)
    assert page.locator(".kv-chart svg, .kv-plot svg").first.is_visible()
    assert page.locator("main").inner_text().count("\n") > 20
    context.close()


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ("llama 70b", "models/meta-llama--Llama-3.1-70B-Instruct/"),
        ("h100", H100),
        ("deepseek", "models/deepseek-ai--DeepSeek-V3/"),
        ("gpt-oss", "models/openai--gpt-oss-20b/"),
        ("mi300x", "gpus/mi300x/"),
    ],
)
def test_search_finds_the_right_page_first(visit, asked, first):
    page = visit.go("")
    page.locator(".md-search__input").click()
    page.locator(".md-search__input").press_sequentially(asked)
    page.wait_for_function(
        "(first) => document.querySelector('.md-search-result__link')?.pathname.endsWith(first)", arg=first
    )


def test_the_browser_puts_the_chosen_case_s_figures_where_the_page_has_them(browser, address):
    made = Visit(browser, address, viewport={"width": 1440, "height": 900})
    read = "(text) => ['x', 'y', 'text-anchor'].map((name) => text.getAttribute(name) ?? 'start')"
    page = made.page
    page.goto(made.address)
    printed = page.locator(".kv-chosen-text").locator("visible=true").evaluate(read)
    page = made.go("?context=8K")
    page.wait_for_function("document.querySelector('[data-kv-shown]')?.dataset.kvShown === location.search")
    drawn = page.locator(".kv-chosen-text").evaluate(read)
    made.context.close()
    assert [float(one) for one in drawn[:2]] == pytest.approx([float(one) for one in printed[:2]], abs=0.2)
    assert drawn[2] == printed[2]


def test_a_chart_says_the_figures_of_the_point_under_the_pointer(visit):
    page = visit.go(LLAMA)
    visit.settle()
    plot = page.locator(".kv-plot").first
    plot.scroll_into_view_if_needed()
    # In one call: the chart is drawn again when its numbers have come.
    point = page.wait_for_function(
        "() => { const box = document.querySelector('.kv-plot circle.kv-chosen')?.getBoundingClientRect();"
        " return box?.width ? { x: box.x, y: box.y } : null; }"
    ).json_value()
    page.mouse.move(point["x"] + 4, point["y"] + 4)
    tip = plot.locator(".kv-tip")
    tip.wait_for()
    assert "requests of 8K tokens" in tip.inner_text()
    assert plot.locator(".vega-embed").count() == 0


def test_dark_mode_changes_the_chart_s_colors(browser, address):
    inks = {}
    for scheme in ("light", "dark"):
        made = Visit(browser, address, color_scheme=scheme)
        page = made.go(LLAMA)
        inks[scheme] = page.evaluate(
            "getComputedStyle(document.querySelector('.kv-plot svg .kv-line-1')).stroke"
        )
        made.context.close()
    assert inks["light"] != inks["dark"]
    assert all(ink.startswith("rgb") for ink in inks.values())


def test_an_index_filters_by_text_and_facet_and_keeps_it_in_the_address(visit):
    page = visit.go("models/")
    visible = page.locator("#models-table tbody tr:visible")
    assert visible.count() == 5
    page.locator("input[name=name]").fill("llama 70b")
    page.wait_for_function("document.querySelectorAll('#models-table tbody tr:not([hidden])').length === 1")
    assert visit.query() == {"name": ["llama 70b"]}
    page.locator("input[name=name]").fill("")
    page.wait_for_function("location.search === ''")
    page.locator("fieldset[data-facet=kind] button[value=latent]").click()
    assert visible.count() == 1
    assert visit.query() == {"kind": ["latent"]}
    assert "Attention type: Latent (MLA)" in page.locator(".kv-said").inner_text()
    assert "DeepSeek-V3" in visible.inner_text()
    assert "Latent (MLA)" in visible.inner_text()
    page.go_back()
    page.wait_for_function("document.querySelectorAll('#models-table tbody tr:not([hidden])').length > 1")
    page.go_forward()
    page.wait_for_function("document.querySelectorAll('#models-table tbody tr:not([hidden])').length === 1")


def test_the_index_of_models_is_newest_first_and_sorts_by_what_cells_say(visit):
    page = visit.go("models/")
    column = "(n) => [...document.querySelectorAll(`#models-table tbody tr td:nth-child(${n})`)].map((c) => c.textContent)"
    released = page.evaluate(column, 10)
    assert released == sorted(released, reverse=True)
    page.locator("#models-table thead button", has_text="Parameters").click()
    parameters = [
        float(text[:-1]) * {"B": 1, "T": 1000, "M": 0.001}[text[-1]] for text in page.evaluate(column, 2)
    ]
    assert parameters == sorted(parameters, reverse=True)
    assert visit.query() == {"sort": ["-parameters"]}


def test_clearing_keeps_the_keyboard_s_place(visit):
    page = visit.go("models/?kind=latent")
    page.get_by_role("button", name="Clear filters").click()
    assert page.evaluate("document.activeElement.name") == "name"


def test_a_stale_filter_is_said_and_an_empty_result_explained(visit):
    page = visit.go("models/?kind=latent&flavour=vanilla&maker=Nobody")
    said = page.locator(".kv-said").inner_text()
    assert "flavour=vanilla" in said
    assert "maker=Nobody" in said
    assert page.locator("#models-table tbody tr:visible").count() == 1
    page = visit.go("models/?kind=latent&name=llama")
    assert "Without the filter Name: 1 model." in page.locator(".kv-said").inner_text()


def test_the_tools_say_what_of_an_address_they_ignore_and_what_empties_a_result(visit):
    page = visit.go("explore/?gpu=h100-sxm-80gb&tp=1&kv=fp5&flavour=vanilla&users=many&context=8192&name=zzz")
    page.wait_for_selector(".kv-explore .kv-ignored")
    for ignored in ("kv=fp5", "flavour=vanilla", "requests=many"):
        assert ignored in page.locator(".kv-explore .kv-ignored").inner_text()
    assert "name contains “zzz”" in page.locator(".kv-explore .kv-said").inner_text()
    assert page.locator("#explore-table tbody tr").count() == 0
    page = visit.go("sizer/?context=4K&weights=fp5&flavour=vanilla&gpu=gone")
    page.wait_for_function("document.querySelector('[data-kv-sized]').dataset.kvState === 'sized'")
    told = page.locator("[data-kv-sized] .kv-ignored").inner_text()
    assert all(ignored in told for ignored in ("weights=fp5", "flavour=vanilla", "gpu=gone"))
    assert page.locator("input[name=context]").input_value() == "4K"


def test_a_filter_by_name_survives_a_reload_and_opens_no_search(visit):
    page = visit.go("models/?name=llama+70b")
    visit.settle()
    assert page.locator("#models-table tbody tr:visible").count() == 1
    assert not page.locator("#__search").is_checked()
    assert visit.query() == {"name": ["llama 70b"]}


def test_the_front_page_leads_to_the_pages_that_the_site_has(visit):
    page = visit.go("")
    doors = page.locator(".kv-doors a").all_inner_texts()
    assert doors == ["I have a GPU", "I have a server log", "I have a model"], "no page of home machines here"
    links = page.locator(".kv-links a").all_inner_texts()
    assert links == ["Your model", "Explore", "Compare", "Sizer", "Questions", "Data", "License and citation"]


def test_a_column_sorts_both_ways(visit):
    page = visit.go("models/")
    button = page.locator("#models-table thead th button").nth(1)
    button.click()
    first = page.locator("#models-table tbody th").first
    assert "DeepSeek-V3" in first.inner_text()
    button.click()
    assert "DeepSeek-V3" not in first.inner_text()
    assert page.locator("#models-table thead th").nth(1).get_attribute("aria-sort") == "ascending"


def test_the_form_of_a_model_page_changes_headline_and_table(visit, tiny_site):
    from kvreport import estimate
    from kvreport.catalog.load import load_catalog

    catalog = load_catalog(tiny_site.catalog)
    page = visit.go(LLAMA)
    page.locator(".kv-more-fields summary").click()
    page.locator("#kv-weights").select_option("fp8")
    page.locator("#kv-kv").select_option("fp8")
    page.wait_for_function(
        "document.querySelector('[data-kv-shown]')?.dataset.kvShown === '?weights=fp8&kv=fp8'"
    )
    assert visit.query() == {"weights": ["fp8"], "kv": ["fp8"]}
    shown = page.locator("#on-h100-sxm-80gb td").nth(4).inner_text()
    answer = estimate(
        "meta-llama/Llama-3.1-8B-Instruct",
        gpu="H100",
        context_tokens="8K",
        weights="fp8",
        kv="fp8",
        catalog=catalog,
    )
    assert shown == f"{answer.max_concurrent_requests:,}"
    assert (
        f"{answer.max_concurrent_requests:,} concurrent requests"
        in page.locator("[data-kv-slot=headline]").inner_text()
    )
    page.locator("[data-kv-reset]").click()
    page.wait_for_function("document.querySelector('[data-kv-shown]').dataset.kvShown === 'printed'")
    assert visit.query() == {}


@pytest.mark.parametrize("uri", [LLAMA, "gpus/h100-sxm-80gb/"])
def test_the_tab_and_the_head_say_what_the_headline_says(visit, uri):
    """Both kept the printed case after a change, under a headline with another number."""
    page = visit.go(uri)
    topic = page.locator('[data-md-component="header-topic"] .md-ellipsis')
    printed = page.title()
    assert topic.text_content().strip() in printed
    page.locator("#kv-context").fill("32K")
    page.locator("#kv-context").press("Tab")
    page.wait_for_function("document.querySelector('[data-kv-shown]')?.dataset.kvShown === '?context=32768'")
    headline = " ".join(page.locator("[data-kv-slot=headline]").inner_text().split())
    title = page.title().rpartition(" - ")[0]
    assert title != printed.rpartition(" - ")[0]
    assert "32K tokens" in title
    assert headline.split(". ")[0].rstrip(".") in title
    assert topic.text_content() == title
    page.locator("[data-kv-reset]").click()
    page.wait_for_function("document.querySelector('[data-kv-shown]').dataset.kvShown === 'printed'")
    assert page.title() == printed


@pytest.mark.parametrize("uri", ["", LLAMA, H100])
def test_what_is_being_typed_when_the_numbers_arrive_is_kept(visit, uri):
    """The form was written with the printed case over half a word, and no change followed."""
    held = hold(visit.page, "**/explore/facts.json")
    page = visit.go(uri)
    until(page, "!!(window.kvreport?.stateful || window.kvreport?.gpuPage)")
    let_go(page, held, lambda: page.locator("#kv-context").fill("32K"))
    page.wait_for_function("document.querySelector('[data-kv-shown]')?.dataset.kvShown === 'printed'")
    assert page.locator("#kv-context").input_value() == "32K"
    page.locator("#kv-context").press("Tab")
    page.wait_for_function("document.querySelector('[data-kv-shown]')?.dataset.kvShown === '?context=32768'")


@pytest.mark.parametrize("uri", ["", LLAMA])
def test_the_printed_command_states_the_length_of_the_headline(visit, uri):
    """The headline speaks of 8K; a server that is told more reserves more, and one after a change was told it."""
    page = visit.go(uri)
    command = page.locator("[data-kv-slot=commands] code", has_text="vllm serve").first
    printed = command.inner_text().strip()
    assert printed.endswith("--max-model-len 8192")
    page.locator("#kv-context").fill("8191")
    page.locator("#kv-context").press("Tab")
    page.wait_for_function("document.querySelector('[data-kv-shown]')?.dataset.kvShown === '?context=8191'")
    assert command.inner_text().strip() == printed.replace("8192", "8191")


@pytest.mark.parametrize("uri", ["", LLAMA])
def test_a_command_whose_weights_the_engine_does_not_make_names_what_it_needs(visit, uri):
    """INT4 weights are a checkpoint of their own: the id of the model alone loads it in 16 bits."""
    page = visit.go(f"{uri}?weights=int4")
    page.wait_for_function("document.querySelector('[data-kv-shown]')?.dataset.kvShown === '?weights=int4'")
    told = page.locator("[data-kv-slot=commands]").inner_text()
    assert "vllm serve" in told
    assert "needs a checkpoint of meta-llama/Llama-3.1-8B-Instruct in INT4" in told


@pytest.mark.parametrize(
    ("model", "query", "asked", "option"),
    [
        (
            "openai/gpt-oss-20b",
            "gpu=rtx-4090&tp=2&pp=2",
            {"gpu": "rtx-4090", "tensor_parallel": 2, "pipeline_parallel": 2},
            "PP 2 + TP 2",
        ),
        (
            "deepseek-ai/DeepSeek-V3",
            "gpu=h100-sxm-80gb&tp=16&nodes=2",
            {"gpu": "h100-sxm-80gb", "tensor_parallel": 16, "nodes": 2},
            "TP 16",
        ),
    ],
)
def test_a_layout_that_no_table_has_is_answered(visit, tiny_site, model, query, asked, option):
    """It was said not to be published, although the model's file has it for the sizer."""
    from kvreport import estimate
    from kvreport.catalog.load import load_catalog

    page = visit.go(f"models/{model.replace('/', '--')}/?{query}")
    shown = "document.querySelector('[data-kv-shown]')?.dataset.kvShown === location.search"
    page.wait_for_function(shown)
    answer = estimate(model, context_tokens=8192, catalog=load_catalog(tiny_site.catalog), **asked)
    headline = page.locator("[data-kv-slot=headline]").inner_text()
    assert f"{answer.max_concurrent_requests:,} concurrent requests" in headline
    assert option in page.locator("#kv-layout").evaluate("one => one.selectedOptions[0].text")
    page.goto(page.url.replace("tp=", "pp=7&tp=").replace("&pp=2", ""))
    page.wait_for_function(shown)
    assert "no numbers for PP 7" in page.locator("[data-kv-slot=headline]").inner_text()


def test_a_comparison_overlays_two_models(visit):
    page = visit.go("compare/?models=openai--gpt-oss-20b&models=Qwen--Qwen3.6-27B&gpu=mi300x&zap=1")
    page.wait_for_selector("#compare-table tbody tr")
    assert page.locator("#compare-table tbody tr").count() == 2
    assert page.locator(".kv-plot .kv-name").all_text_contents() == ["gpt-oss-20b", "Qwen3.6 27B"]
    assert "zap=1" in page.locator(".kv-said").inner_text()


def test_sizes_switch_between_gib_and_gb(visit):
    page = visit.go(LLAMA)
    cell = page.locator("#weights-table .kv-size").first
    assert cell.inner_text() == "14.96"  # 16,060,522,496 bytes / 2^30
    page.locator("#weights-table .kv-units").click()
    assert cell.inner_text() == "16.06"


def test_instant_navigation_starts_the_next_page_too(visit):
    page = visit.go("models/")
    page.wait_for_function("window.document$")
    visit.settle()
    page.evaluate("window.stayed = true")
    page.locator("#models-table a", has_text="Llama 3.1 8B").first.click()
    page.wait_for_url(f"**/{LLAMA}")
    assert page.evaluate("window.stayed")
    page.locator(".kv-more-fields summary").click()
    page.locator("#kv-weights").select_option("int4")
    page.wait_for_function("document.querySelector('[data-kv-shown]')?.dataset.kvShown === '?weights=int4'")


@pytest.mark.parametrize("uri", ["", LLAMA, H100])
def test_what_is_chosen_while_the_numbers_are_on_their_way_is_not_lost(visit, uri):
    held = hold(visit.page, "**/explore/facts.json")
    page = visit.go(uri)

    def choose() -> None:
        page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        page.locator("#kv-weights").select_option("int4")
        page.locator("#kv-context").fill("16K")
        page.locator("#kv-context").blur()

    let_go(page, held, choose)
    page.wait_for_url("**weights=int4**")
    page.wait_for_function("document.querySelector('[data-kv-shown*=int4]')")
    assert visit.query()["context"] == ["16384"]
    assert page.locator("#kv-weights").input_value() == "int4"


@pytest.mark.parametrize("uri", ["", "explore/", "compare/", "sizer/", H100, "log/"])
def test_a_page_that_is_opened_as_a_file_says_what_it_cannot_do(browser, tiny_site, uri):
    context = browser.new_context(bypass_csp=True)
    page = context.new_page()
    page.goto((tiny_site.folder / uri / "index.html").as_uri())
    note = page.locator("main .kv-fault")
    note.wait_for()
    assert note.count() == 1
    assert "python -m http.server" in note.inner_text()
    assert page.locator("main >> text=Reading the catalog").locator("visible=true").count() == 0
    assert page.locator("main h1").is_visible()
    context.close()


def test_a_page_of_a_server_does_not_speak_of_files(visit):
    page = visit.go("explore/")
    page.wait_for_selector("#explore-table tbody tr")
    assert page.locator("main .kv-fault").count() == 0


def test_the_browser_says_lengths_as_the_page_does(visit):
    """The longest request was 144K on one page and 148,224 tokens on another."""
    lengths = [448, 4095, 4096, 83 * 1024 + 5, 1 << 20, (2 << 20) - 1, 1_150_000, 10 << 20]
    said = visit.go("").evaluate("(all) => all.map(kvreport.tokens)", lengths)
    assert said == [units.human_tokens(tokens) for tokens in lengths]


def test_the_figures_of_a_model_are_those_of_the_state(visit):
    def figures(page) -> dict[str, str]:
        dl = page.locator("dl.kv-facts > div:visible")
        return {
            each.locator("dt").inner_text(): " ".join(each.locator("dd").inner_text().split())
            for each in dl.all()
        }

    printed = figures(visit.go(LLAMA))
    page = visit.go(LLAMA + "?gpu=b200-sxm-180gb&tp=8&context=32768&kv=fp8")
    page.wait_for_function("document.querySelector('[data-kv-shown]')?.dataset.kvShown === location.search")
    found = kvreport.estimate(
        "meta-llama/Llama-3.1-8B-Instruct",
        gpu="b200-sxm-180gb",
        tensor_parallel=8,
        context_tokens=32768,
        kv="fp8",
    )
    weights = f"{units.gib(found.weight_bytes_per_gpu)} GiB per GPU, on 8 GPUs"
    # By hand: keys and values of 32 layers with 8 heads of 128 in one byte, and a head of each on a GPU.
    assert found.kv_bytes_per_token_per_gpu == 2 * 32 * 128 == 8 * 1024
    token = "64 KiB at 32K tokens; 8 KiB per GPU, on 8 GPUs"
    assert figures(page) == printed | {"Weights as released": weights, "KV cache per token": token}
    page.locator("[data-kv-reset]").click()
    page.wait_for_function("document.querySelector('[data-kv-shown]').dataset.kvShown === 'printed'")
    assert figures(page) == printed


def test_a_latent_cache_is_that_of_the_whole_model_on_each_gpu(visit, tiny_site):
    """By hand: DeepSeek-V3 keeps 512 + 64 values of 2 bytes in each of 61 layers, and divides none of them."""
    page = visit.go("models/deepseek-ai--DeepSeek-V3/?gpu=b200-sxm-180gb&tp=8&context=8192")
    assert 61 * (512 + 64) * 2 == 70_272
    want = "68.6 KiB at 8K tokens; a copy on each of 8 GPUs"
    assert want in re.sub(r"\s*<[^>]+>\s*", " ", tiny_site.html("models/deepseek-ai--DeepSeek-V3"))
    page.wait_for_function("document.querySelector('[data-kv-shown]')?.dataset.kvShown === location.search")
    fact = page.locator("dl.kv-facts [data-kv-slot=token] dd")
    assert " ".join(fact.inner_text().split()) == want
    visit.go("models/deepseek-ai--DeepSeek-V3/?gpu=b200-sxm-180gb&tp=1&dp=8&ep=1&context=8192")
    page.wait_for_function("document.querySelector('[data-kv-shown]')?.dataset.kvShown === location.search")
    assert " ".join(fact.inner_text().split()) == "68.6 KiB at 8K tokens; each request on one GPU"


def test_the_chart_of_a_layout_compares_it_with_the_same_layout_elsewhere(visit):
    """The requests of DP 8 on one GPU stood beside those of TP 8 on another, and nothing said so."""
    asked = "gpu=mi300x&dp=8&ep=1&context=8192"
    page = visit.go(f"models/deepseek-ai--DeepSeek-V3/?{asked}")
    page.wait_for_function("document.querySelector('[data-kv-shown]')?.dataset.kvShown === location.search")
    said = page.locator(".kv-finding").first.inner_text()
    how = {"data_parallel": 8, "expert_parallel": True, "context_tokens": 8192}
    same = kvreport.estimate("deepseek-ai/DeepSeek-V3", gpu="b200-sxm-180gb", **how).max_concurrent_requests
    assert f"{same:,} (8 × B200 (DP 8 attention + expert parallel))" in said


LARGE = "models/meta-llama--Llama-3.1-70B-Instruct/"
FEWEST = "the fewest GPUs that serve the model"


def numbers(page, name: str) -> dict[str, list[str]]:
    """The cells of a table, by the id of their row."""
    return {
        row.get_attribute("id"): [cell.inner_text() for cell in row.locator("td").all()]
        for row in page.locator(f"#{name} tbody tr").all()
    }


@pytest.mark.parametrize(
    ("uri", "layout"), [(LARGE, "tp8"), (H100, "tp2")], ids=["a model's page", "an accelerator's page"]
)
def test_a_table_says_on_how_many_gpus_its_numbers_are(visit, uri, layout):
    """A change of something else keeps the fewest GPUs; a layout counts for every row, and the caption says so."""
    page = visit.go(uri)
    visit.settle()
    printed = numbers(page, "users-table")
    assert FEWEST in page.locator("#users-table caption").inner_text()

    page = visit.go(uri + "?share=0.93")
    page.wait_for_function("document.querySelector('[data-kv-shown]')?.dataset.kvShown === location.search")
    changed = numbers(page, "users-table")
    assert {place: cells[0] for place, cells in changed.items()} == {
        place: cells[0] for place, cells in printed.items()
    }
    assert FEWEST in page.locator("#users-table caption").inner_text()

    number = layout.removeprefix("tp")
    page.goto(page.url.split("?")[0] + f"?tp={number}")
    page.wait_for_function("document.querySelector('[data-kv-shown]')?.dataset.kvShown === location.search")
    assert {cells[0] for cells in numbers(page, "users-table").values()} == {number}
    assert f"on {number} GPUs" in page.locator("#users-table caption").inner_text()
    assert f"on {number} GPUs" in page.locator("[role=region]:has(> #users-table)").get_attribute(
        "aria-label"
    )

    page.locator("[data-kv-reset]").click()
    page.wait_for_function("document.querySelector('[data-kv-shown]').dataset.kvShown === 'printed'")
    assert numbers(page, "users-table") == printed
    assert FEWEST in page.locator("#users-table caption").inner_text()


@pytest.mark.parametrize("width", [390, 1440])
def test_the_head_of_a_table_covers_no_row_without_a_script(browser, address, width):
    """It stood over the first row of compare's and the sizer's printed tables."""
    context = browser.new_context(java_script_enabled=False, viewport={"width": width, "height": 900})
    page = context.new_page()
    covered = []
    for uri in (LLAMA, "compare/", "sizer/"):
        page.goto(address + uri)
        covered += page.locator("main .kv-scroll:visible").evaluate_all(
            """(boxes) => boxes.filter((box) => {
              const [head, row] = ['thead', 'tbody > tr'].map((one) => box.querySelector(`${one} th, ${one} td`)?.getBoundingClientRect());
              return head && row && head.height && Math.abs(row.top - head.bottom) > 2;
            }).map((box) => box.ariaLabel)"""
        )
    context.close()
    assert covered == []


def test_the_page_for_unknown_addresses_has_the_site_s_typeface(tiny_site):
    html = (tiny_site.folder / "404.html").read_text(encoding="utf-8")
    faces = re.findall(r'<link rel="?preload"? href="?/tiny/([^" >]+\.woff2)', html)
    assert len(faces) == 2
    assert all((tiny_site.folder / face).is_file() for face in faces)


def test_a_table_wider_than_a_phone_says_so_until_its_last_column_is_seen(browser, address):
    """Colored cells covered the shadow at its edge."""
    context = browser.new_context(viewport={"width": 390, "height": 844}, bypass_csp=True)
    page = context.new_page()
    page.goto(address + LLAMA)
    table = page.locator(".kv-scroll:has(#users-table)")
    table.scroll_into_view_if_needed()
    page.locator(".kv-scroll.kv-wide:has(#users-table)").wait_for()
    hint = table.locator("xpath=preceding-sibling::p[1]").inner_text()
    first = table.locator("tbody th").first
    shadow = (
        "(box) => getComputedStyle(box).boxShadow.match(/[\\d.]+px/g).some((one) => parseFloat(one) > 0.5)"
    )
    before, left = table.evaluate(shadow), first.bounding_box()["x"]
    table.evaluate("(box) => { box.scrollLeft = box.scrollWidth; }")
    page.wait_for_function(f"!({shadow})(document.querySelector('.kv-scroll:has(#users-table)'))")
    after = first.bounding_box()["x"]
    context.close()
    assert hint.startswith("Scroll sideways")
    assert before
    assert abs(after - left) < 1, "the names stay"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_card_in_a_frame_has_a_mark_its_answer_and_a_chart(browser, address, scheme):
    context = browser.new_context(viewport={"width": 420, "height": 300}, color_scheme=scheme)
    page = context.new_page()
    faults = []
    page.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
    page.goto(f"{address}embed/?model=meta-llama--Llama-3.1-8B-Instruct&gpu=h100-sxm-80gb")
    page.wait_for_selector(".kv-embed-chart")
    marks = page.locator(".kv-embed-mark, .kv-embed-state, .kv-embed-point").count()
    high = page.evaluate("document.documentElement.scrollHeight")
    letters = page.locator(".kv-embed-chart text").first.evaluate(
        "(one) => parseFloat(getComputedStyle(one).fontSize) * one.getScreenCTM().a"
    )
    page.set_viewport_size({"width": 360, "height": 120})
    hidden = page.locator(".kv-embed-chart").is_hidden()
    short = page.evaluate("document.documentElement.scrollHeight")
    context.close()
    assert marks == 3
    assert high <= 300
    assert 11.5 <= letters <= 15
    assert hidden
    assert short <= 120
    assert not faults


LETTERS = """() => [...document.querySelectorAll('main .kv-plot text')].filter((one) =>
  one.textContent.trim() && one.checkVisibility()).map((one) =>
  parseFloat(getComputedStyle(one).fontSize) * Math.hypot(one.getScreenCTM().a, one.getScreenCTM().b))"""


@pytest.mark.parametrize("scripts", [True, False])
def test_letters_of_the_boundary_chart_are_13_px_on_a_phone(browser, address, scripts):
    """Without scripts they were 5.4 px: the drawing of a desk shrank to the screen."""
    context = browser.new_context(
        java_script_enabled=scripts, bypass_csp=True, viewport={"width": 390, "height": 844}
    )
    page = context.new_page()
    page.goto(address + LLAMA)
    page.mouse.move(3, 3)
    page.wait_for_load_state("networkidle")
    found = page.evaluate(LETTERS)
    wide = page.evaluate("document.documentElement.scrollWidth")
    context.close()
    assert len(found) > 8
    assert min(found) >= 12.9
    assert wide == 390


@pytest.mark.parametrize("width", [320, 390, 620, 768, 1440])
def test_the_printed_boundary_chart_is_read_at_every_width_without_a_script(browser, address, width):
    """Its letters were 5.4 px on a phone until the reader did something; now they are about 13, and nothing scrolls."""
    context = browser.new_context(
        java_script_enabled=False, bypass_csp=True, viewport={"width": width, "height": 844}
    )
    page = context.new_page()
    page.goto(address + LLAMA)
    found = page.evaluate(LETTERS)
    plot = page.locator(".kv-plot")
    names = plot.locator("ul.kv-lines li").locator("visible=true")
    listed, drawn = names.count(), plot.locator(".kv-name").locator("visible=true").count()
    scrolls = plot.evaluate("(one) => one.scrollWidth > one.clientWidth")
    page.emulate_media(media="print")
    printed = plot.locator("svg.kv-svg").locator("visible=true").count()
    context.close()
    assert len(found) > 8
    assert 11 <= min(found) <= max(found) <= 16
    assert max(listed, drawn) > 1
    assert min(listed, drawn) == 0
    assert not scrolls
    assert printed == 1


@pytest.mark.parametrize(
    ("text", "query", "found"),
    [
        ("geforce rtx 3090 rtx-3090 24gb", "rtx 3090 24 gb", True),
        ("geforce rtx 3090 rtx-3090 24gb", "24 GiB", True),
        ("geforce rtx 3090 rtx-3090 24gb", "4 GB", False),
        ("m4 pro 48gb m4-pro-48", "8gb", False),
        ("m4 pro 24gb m4-pro-24 mac mini", "mac mini M4 pro 24gib", True),
        ("llama 3.1 70b llama3.1:70b", "llama3.1 70b", True),
    ],
)
def test_a_filter_reads_memory_sizes_as_people_write_them(visit, text, query, found):
    page = visit.go("models/")
    assert page.evaluate("([text, query]) => kvreport.matches(text, query)", [text, query]) is found


def test_what_follows_no_state_says_that_it_is_an_example(visit):
    """A reader chose 64K and FP8, and read the arithmetic of 8K and 16 bits under it."""
    page = visit.go("models/meta-llama--Llama-3.1-8B-Instruct/")
    visit.settle()
    assert page.locator("[data-kv-example]").count() >= 2
    assert not page.locator("[data-kv-example]:visible").count()
    page.goto(f"{page.url}?context=64K&weights=fp8")
    page.wait_for_selector("[data-kv-example]:visible")
    for note in page.locator("[data-kv-example]").all_inner_texts():
        assert "shows the default example of this page (one" in note
        assert ", 8K tokens" in note
    page.click("[data-kv-reset]")
    page.wait_for_selector("[data-kv-example]", state="hidden")


def test_activations_of_experts_over_data_ranks_are_explained(visit, tiny_site):
    """DeepSeek-V3 on 16 GPUs showed 44.3 GiB of activations, libraries and graphs without a word."""
    from kvreport import estimate
    from kvreport.catalog.load import load_catalog

    page = visit.go("models/deepseek-ai--DeepSeek-V3/?gpu=b200-sxm-180gb&dp=16&ep=1")
    caption = page.locator(".kv-barfigure figcaption", has_text="data-parallel ranks")
    caption.wait_for()
    asked = {"gpu": "b200-sxm-180gb", "data_parallel": 16, "expert_parallel": True, "nodes": 2}
    known = load_catalog(tiny_site.catalog)

    def activations(**more):
        found = estimate("deepseek-ai/DeepSeek-V3", context_tokens=8192, catalog=known, **asked, **more)
        return found.budget.activations

    text = caption.inner_text()
    assert f"Activations take {units.gib(activations())} GiB" in text
    assert "all 16 data-parallel ranks" in text
    # Each of the two flags that the page names does what it says.
    assert activations(max_batched_tokens=2048) < 0.6 * activations()
    assert activations(all2all_backend="deepep_high_throughput") < 0.6 * activations()
    visit.go("models/deepseek-ai--DeepSeek-V3/?gpu=b200-sxm-180gb&tp=8")
    page.wait_for_function("document.querySelector('[data-kv-shown]')?.dataset.kvShown === location.search")
    assert "data-parallel ranks" not in page.locator(".kv-barfigure figcaption").first.inner_text()


@pytest.mark.parametrize("uri", ["", "models/", LLAMA, "log/"])
def test_every_control_of_the_head_shows_that_it_has_the_focus(visit, uri):
    """The logo had no outline until a script of the theme had seen a key."""
    visit.page.route("**/bundle*.js", lambda route: route.fulfill(body="", content_type="text/javascript"))
    page = visit.go(uri)
    outlined = """() => {
      const one = document.activeElement;
      if (!one.closest(".md-header, .md-tabs")) return null;
      const seen = one.matches(".md-option") ? one.nextElementSibling : one;
      const { outlineStyle, outlineWidth } = getComputedStyle(seen);
      return [one.outerHTML.slice(0, 80), outlineStyle !== "none" && parseFloat(outlineWidth) >= 2];
    }"""
    stops = []
    for _ in range(6):
        page.keyboard.press("Tab")
        stops.append(page.evaluate(outlined))
    named = [stop for stop in stops if stop]
    assert len(named) >= 2
    assert [stop for stop in named if not stop[1]] == []
