"""The built site in a real browser: it loads, finds, draws, switches, and asks nobody else."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from functools import partial
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("tiny-site")]

LLAMA = "models/meta-llama--Llama-3.1-8B-Instruct/"
H100 = "gpus/h100-sxm-80gb/"
KINDS = ("", "models/", LLAMA, "gpus/", H100, "explore/", "compare/", "sizer/", "traffic/", "log/", "data/")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server that says nothing."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(tiny_site) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=str(tiny_site.folder))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser(chromium_path, chromium_flags) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium_path, args=chromium_flags)
        yield started
        started.close()


class Visit:
    """A page, and what went wrong on it."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        # Playwright waits for a condition by running a text in the page, which our policy refuses;
        # that the pages themselves keep to it is looked at in test_policy.py.
        self.context = browser.new_context(bypass_csp=True, **options)
        self.page = self.context.new_page()
        self.address = address
        self.faults: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", self._asked)
        self.page.on(
            "response", lambda r: self.faults.append(f"{r.status} {r.url}") if r.status >= 400 else None
        )

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(message.text)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.faults.append(f"asks {request.url}")

    def go(self, uri: str) -> Any:
        self.page.goto(self.address + uri)
        self.page.wait_for_selector("html.js")
        return self.page

    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.page.url).query)


@pytest.fixture
def visit(browser, address) -> Iterator[Visit]:
    made = Visit(browser, address, viewport={"width": 1280, "height": 900})
    yield made
    made.context.close()
    assert not made.faults


@pytest.mark.parametrize("uri", KINDS)
def test_every_kind_of_page_loads_without_a_fault_and_without_other_hosts(visit, uri):
    page = visit.go(uri)
    page.wait_for_load_state("networkidle")
    assert page.locator("h1").count() == 1


@pytest.mark.parametrize("uri", KINDS)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_axe_finds_nothing_of_ours(browser, address, uri, scheme, width):
    made = Visit(browser, address, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = made.go(uri)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(300)
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run('.md-content')")
    made.context.close()
    faults = [
        (v["id"], v["nodes"][0]["html"][:160], v["nodes"][0]["failureSummary"][:300])
        for v in found["violations"]
    ]
    assert not faults, faults


@pytest.mark.parametrize("uri", KINDS)
def test_a_phone_never_scrolls_sideways(browser, address, uri):
    made = Visit(browser, address, viewport={"width": 390, "height": 844}, has_touch=True)
    page = made.go(uri)
    page.wait_for_load_state("networkidle")
    wide = page.evaluate("document.documentElement.scrollWidth")
    made.context.close()
    assert wide <= 390


@pytest.mark.parametrize("uri", [LLAMA, H100, "", "models/"])
def test_a_page_is_whole_without_scripts(browser, address, uri):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address + uri)
    assert page.locator(".kv-chart svg").first.is_visible()
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
    link = page.locator(".md-search-result__link").first
    link.wait_for(timeout=10_000)
    page.wait_for_timeout(500)
    assert urlsplit(page.locator(".md-search-result__link").first.get_attribute("href")).path.endswith(first)


def test_a_chart_comes_to_life_when_it_is_touched(visit):
    page = visit.go(LLAMA)
    page.mouse.wheel(0, 300)
    page.wait_for_timeout(400)
    assert not page.locator(".kv-live").count()
    if not page.locator(".kv-chart template.kv-spec").count():
        return  # a drawing of ours has nothing to wait for
    page.locator(".kv-chart:has(template.kv-spec)").first.hover()
    page.wait_for_selector(".kv-chart[data-kv-live] svg", timeout=15_000)


def test_dark_mode_changes_the_chart_s_colours(browser, address):
    inks = {}
    for scheme in ("light", "dark"):
        made = Visit(browser, address, color_scheme=scheme)
        page = made.go(LLAMA)
        inks[scheme] = page.evaluate(
            "getComputedStyle(document.querySelector('.kv-chart svg [stroke=\"var(--kv-l1)\"]')).stroke"
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
    page.wait_for_load_state("networkidle")
    assert page.locator("#models-table tbody tr:visible").count() == 1
    assert not page.locator("#__search").is_checked()
    assert visit.query() == {"name": ["llama 70b"]}


def test_the_front_page_leads_to_the_pages_that_the_site_has(visit):
    page = visit.go("")
    doors = page.locator(".kv-doors a").all_inner_texts()
    assert doors == ["Models", "GPUs", "Explore", "Compare", "Sizer", "Log", "Data"]


def test_a_column_sorts_both_ways(visit):
    page = visit.go("models/")
    button = page.locator("#models-table thead th button").nth(1)
    button.click()
    first = page.locator("#models-table tbody th").first
    assert "DeepSeek-V3" in first.inner_text()
    button.click()
    assert "DeepSeek-V3" not in first.inner_text()
    assert page.locator("#models-table thead th").nth(1).get_attribute("aria-sort") == "ascending"


def test_the_switches_of_a_model_page_answer_as_the_package_does(visit, tiny_site):
    from kvreport import estimate
    from kvreport.catalog.load import load_catalogue

    catalogue = load_catalogue(tiny_site.catalogue)
    page = visit.go(LLAMA)
    page.locator("select[name=weights]").select_option("fp8")
    page.locator("select[name=kv]").select_option("fp8")
    page.wait_for_function("document.querySelector('.kv-said').textContent.startsWith('Now')")
    assert visit.query() == {"weights": ["fp8"], "kv": ["fp8"]}
    shown = page.locator("#on-h100-sxm-80gb td").nth(4).inner_text()
    answer = estimate(
        "meta-llama/Llama-3.1-8B-Instruct",
        gpu="H100",
        context_tokens="8K",
        weights="fp8",
        kv="fp8",
        catalog=catalogue,
    )
    assert shown == f"{answer.max_concurrent_requests:,}"


def test_the_front_page_answers_another_question(visit):
    page = visit.go("")
    page.locator("select[name=model]").select_option("Qwen--Qwen3.6-27B")
    page.locator("select[name=gpu]").select_option("b200-sxm-180gb")
    page.wait_for_function("document.querySelector('.kv-big').textContent.includes('Qwen3.6')")
    assert "on one B200" in page.locator(".kv-big").inner_text()
    assert page.locator(".kv-bar rect.kv-fill-state").count() == 1
    again = visit.page.url
    page.goto(again)
    page.wait_for_function("document.querySelector('.kv-big').textContent.includes('Qwen3.6')")


def test_a_comparison_overlays_two_models(visit):
    page = visit.go("compare/?models=openai--gpt-oss-20b&models=Qwen--Qwen3.6-27B&gpu=mi300x&zap=1")
    page.wait_for_selector(".kv-chart .vega-embed svg", timeout=15_000)
    assert page.locator(".kv-compare tbody tr").count() == 2
    assert "zap=1" in page.locator(".kv-said").inner_text()


def test_sizes_switch_between_gib_and_gb(visit):
    page = visit.go(LLAMA)
    cell = page.locator("#weights-table .kv-size").first
    assert cell.inner_text() == "14.96"  # 16,060,522,496 bytes / 2^30
    page.locator("#weights-table .kv-units").click()
    assert cell.inner_text() == "16.06"


def test_instant_navigation_starts_the_next_page_too(visit):
    page = visit.go("models/")
    page.locator("#models-table a", has_text="Llama 3.1 8B").first.click()
    page.wait_for_url(f"**/{LLAMA}")
    page.locator("select[name=weights]").select_option("int4")
    page.wait_for_function("document.querySelector('.kv-said').textContent.startsWith('Now')")


def test_a_table_scrolls_with_the_page_under_its_head(visit):
    page = visit.go(H100)
    page.set_viewport_size({"width": 1280, "height": 500})
    page.wait_for_selector("#users-table")
    place = "document.querySelector('#users-table').closest('.kv-scroll')"
    page.wait_for_function(f"{place}.classList.contains('kv-fits')")
    assert page.evaluate(f"{place}.scrollHeight - {place}.clientHeight") <= 1, "no box inside the page"
    assert not page.evaluate(f"{place}.hasAttribute('tabindex')"), "nothing to scroll, no stop"
    page.evaluate("document.querySelector('#users-table tbody tr:last-child').scrollIntoView({block: 'end'})")
    heads = page.evaluate("document.querySelector('#users-table thead th').getBoundingClientRect().top")
    assert heads >= page.evaluate("document.querySelector('.md-header').getBoundingClientRect().bottom") - 1


@pytest.mark.parametrize("width", [320, 390])
def test_a_wide_table_has_one_scroller_a_hint_and_its_head(browser, address, width):
    made = Visit(browser, address, viewport={"width": width, "height": 700})
    page = made.go(LLAMA)
    page.wait_for_selector(".kv-wide:has(#users-table)")
    page.wait_for_selector(".kv-tool", state="attached")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert "sideways" in page.locator(".kv-sideways").first.inner_text()
    assert page.locator(".kv-wide:has(#users-table)").get_attribute("tabindex") == "0"
    page.evaluate(
        "document.querySelector('#users-table tbody tr:nth-child(4)').scrollIntoView({block: 'start'})"
    )
    page.wait_for_timeout(300)
    edges = page.evaluate("""() => {
      const head = document.querySelector("#users-table thead").getBoundingClientRect();
      const bar = document.querySelector(".md-header").getBoundingClientRect();
      return [head.top, bar.bottom];
    }""")
    made.context.close()
    assert abs(edges[0] - edges[1]) < 3, edges


def test_a_deep_link_shows_the_head(visit):
    page = visit.go(f"{LLAMA}#on-mi300x")
    page.wait_for_timeout(500)
    tops = page.evaluate("""() => ["#users-table thead th", "#on-mi300x"].map(
      (mark) => document.querySelector(mark).getBoundingClientRect())
      .map((place) => [place.top, place.bottom])""")
    bar = page.evaluate("document.querySelector('.md-header').getBoundingClientRect().bottom")
    assert bar - 1 <= tops[0][0] < 900
    assert tops[0][1] <= tops[1][0] + 1, "the row is below the head"


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("sizer/", "Llama"),
        ("compare/", "H100"),
        ("explore/", "Llama"),
        ("models/", "Llama 3.1 8B"),
        ("", "8K"),
    ],
)
def test_print_shows_the_result_and_not_the_form(visit, uri, said):
    page = visit.go(uri)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(500)
    page.emulate_media(media="print")
    text = page.locator("main").inner_text()
    assert said in text
    assert len(text) > 200, text
    for control in ("select", "input", "main button:not(.kv-sort)", ".md-header"):
        assert not [node for node in page.locator(control).all() if node.is_visible()], control


def test_a_result_is_linked_cited_and_embedded_with_its_state(visit):
    page = visit.go(f"{LLAMA}?context=32768")
    page.locator("details.kv-share summary").click()
    texts = {
        name: page.locator(f"#kv-share-{name}").input_value()
        for name in ("link", "markdown", "bibtex", "embed")
    }
    assert texts["link"].endswith(f"{LLAMA}?context=32768")
    assert texts["markdown"].startswith("[Llama 3.1 8B")
    assert "data release" in texts["markdown"]
    assert "url = {" in texts["bibtex"]
    assert texts["embed"].startswith(("<a ", "<iframe "))
    assert page.locator('script[type="application/ld+json"]').count() == 1


def test_a_table_and_a_chart_are_saved(visit):
    page = visit.go(LLAMA)
    page.locator(".kv-tool").first.wait_for(state="attached")
    page.wait_for_timeout(400)
    with page.expect_download() as saved:
        page.locator('.kv-tool[aria-label="Save this chart as SVG"]').first.click()
    drawing = saved.value.path().read_text(encoding="utf-8")
    assert drawing.startswith("<svg")
    assert "data release" in drawing
    with page.expect_download() as saved:
        page.locator(
            '.kv-scroll:has(#users-table) + .kv-tools .kv-tool[aria-label="Save this table as CSV"]'
        ).click()
    lines = saved.value.path().read_text(encoding="utf-8").splitlines()
    assert lines[0].endswith("data_release,source")
    assert any(line.startswith("H100 NVIDIA,1,") for line in lines)
