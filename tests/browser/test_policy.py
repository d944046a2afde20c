"""The policy of every page in a real browser: nothing of ours is refused, anything else is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from quiet import Activity
from serving import HEAR, served

from kvreport.adapters.export import export
from kvreport.adapters.policy import Policy, inline
from kvreport.site.build import build

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LLAMA = "models/meta-llama--Llama-3.1-8B-Instruct/"
CARD = Path("embed/index.html")
"""The one page that other sites may frame: it states a stricter policy of its own."""
YOURS = Path("your-model/index.html")
LOG = Path("log/index.html")
CLAIMS = Path("evidence/claims/index.html")
KINDS = (
    "",
    "models/",
    LLAMA,
    "gpus/h100-sxm-80gb/",
    "explore/",
    "compare/",
    "sizer/",
    "traffic/",
    "log/",
    "data/",
    "by-hand/",
)


@pytest.fixture
def page(browser) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    made = context.new_page()
    made.add_init_script(HEAR)
    made.activity = Activity(made)
    yield made
    context.close()


def policy_of(html: str) -> str:
    return re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', html)[1]


def the_one_policy(folder: Path) -> str:
    """Return what every page with scripts but three states.

    The card's policy allows nothing by default. The pages that run Python add what that takes, if the
    build has Python for the browser. A page without scripts states the same without their digests.
    """
    pages = {path.relative_to(folder): path.read_text(encoding="utf-8") for path in folder.rglob("*.html")}
    stated = {path: policy_of(html) for path, html in pages.items()}
    card = stated.pop(CARD)
    parts = dict(part.split(" ", 1) for part in card.split("; "))
    assert parts.pop("default-src") == parts.pop("base-uri") == parts.pop("form-action") == "'none'"
    assert {parts.pop(kind) for kind in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert set(parts) <= {"require-trusted-types-for", "trusted-types"}, parts
    python = {"'wasm-unsafe-eval'", "worker-src", "connect-src"}
    takes = {YOURS: python | {"https://huggingface.co", "https://*.hf.co"}, LOG: python, CLAIMS: python}
    takes |= dict.fromkeys(
        (path for path in stated if path.parts[0] == "refusals" and len(path.parts) > 2), python
    )
    own = {path: stated.pop(path) for path in takes}
    plain = {stated.pop(path) for path in [*stated] if "<script" not in pages[path]}
    (only,) = set(stated.values())
    assert plain <= {re.sub(" 'sha256-[^']+'", "", only)}
    for path, policy in own.items():
        added = set(policy.replace(";", "").split()) - set(only.replace(";", "").split())
        assert not added or added == takes[path], (path, added)
    return only


def test_every_page_states_one_policy_before_its_first_script(tiny_site):
    for path in tiny_site.folder.rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        # The rows of a long table stand in a page without a script.
        assert html.index("Content-Security-Policy") < html.find("<script") % len(html), path
    only = the_one_policy(tiny_site.folder)
    assert "unsafe" not in only
    assert "http" not in only


def test_pages_run_under_their_policy_and_break_no_rule_of_it(page, address):
    for uri in KINDS:
        page.goto(address + uri)
        assert page.activity.settle(30), uri
        assert page.evaluate("window.refused") == [], uri
        assert page.evaluate("typeof __md_scope") == "object", uri


def test_charts_come_to_life_without_eval(page, address):
    page.goto(address + "models/")
    page.locator(".kv-chart").first.scroll_into_view_if_needed()
    page.mouse.move(500, 500)
    page.wait_for_selector(".kv-chart[data-kv-live] .vega-embed svg", timeout=15_000)
    assert page.evaluate("window.refused") == []


def test_search_and_the_way_from_page_to_page_are_allowed(page, address):
    from playwright.sync_api import expect

    page.goto(address)
    page.locator(".md-search__input").click()
    page.locator(".md-search__input").press_sequentially("gpt-oss")
    page.locator(".md-search-result__link").first.wait_for(timeout=10_000)
    page.keyboard.press("Escape")
    page.goto(address + "models/")
    page.locator("#models-table a", has_text="Llama 3.1 8B").first.click()
    page.wait_for_url(f"**/{LLAMA}")
    page.locator(".kv-more-fields summary").click()
    page.locator("#kv-weights").select_option("int4")
    expect(page.locator("[data-kv-slot=conditions]")).to_contain_text("INT4", timeout=15_000)
    assert page.evaluate("window.refused") == []


def test_a_script_that_is_not_the_themes_is_refused_by_the_browser_and_told_by_the_build(
    page, address, tiny_site
):
    html = tiny_site.html(LLAMA).replace("</article>", "<script>window.hit = 1</script></article>")
    other = tiny_site.folder / "spoiled.html"
    other.write_text(html, encoding="utf-8")
    try:
        page.goto(address + "spoiled.html")
        page.wait_for_load_state("networkidle")
        assert page.evaluate("window.refused.length") == 1
        assert page.evaluate("window.hit") is None
    finally:
        other.unlink()
    policy = Policy((tiny_site.folder / "404.html").read_text(encoding="utf-8"))
    assert list(policy.refused(html)) == ["window.hit = 1"]
    assert not list(policy.refused(tiny_site.html(LLAMA)))


def test_a_style_in_a_page_is_refused_by_the_browser_and_told_by_the_build(page, address, tiny_site):
    spoiled = '<p id="hit" style="color: rgb(1, 2, 3)">x</p><style>#hit { opacity: 0 }</style></article>'
    html = tiny_site.html(LLAMA).replace("</article>", spoiled)
    other = tiny_site.folder / "spoiled-style.html"
    other.write_text(html, encoding="utf-8")
    try:
        page.goto(address + "spoiled-style.html")
        look = "(({ color, opacity }) => `${color} ${opacity}`)(getComputedStyle(document.getElementById('hit')))"
        assert "rgb(1, 2, 3)" not in page.evaluate(look)
        assert page.evaluate(look).endswith(" 1")
        assert page.evaluate("window.refused.length") == 2
    finally:
        other.unlink()
    policy = Policy((tiny_site.folder / "404.html").read_text(encoding="utf-8"))
    assert list(policy.unstyled(html)) == ["#hit { opacity: 0 }", "color: rgb(1, 2, 3)"]
    assert not list(policy.unstyled(tiny_site.html(LLAMA)))
    assert not list(policy.unstyled('<a title="a style=&quot;b&quot; of" data-style="c">style="d"</a>'))
    assert list(policy.unstyled("<p\nSTYLE = color:red class=x>")) == ["color:red"]


def test_a_style_of_the_theme_is_allowed_by_its_digest():
    reference = "<head><meta charset=utf-8><style>:root { --font: x }</style></head>"
    policy = Policy(reference)
    assert "style-src 'self' 'sha256-" in policy.tag
    assert not list(policy.unstyled(policy.applied(reference)))


def test_a_table_of_a_hand_written_page_keeps_its_columns_aligned(page, address):
    page.goto(address + "by-hand/")
    aligned = "[...document.querySelectorAll('article td')].map((cell) => getComputedStyle(cell).textAlign)"
    assert [how.removeprefix("-webkit-") for how in page.evaluate(aligned)] == ["left", "right", "center"]


@pytest.fixture(scope="module")
def exported(tiny_site, tmp_path_factory) -> Path:
    """The tiny catalog's pages as files."""
    out = tmp_path_factory.mktemp("exported") / "export"
    cache = tiny_site.config.parent / ".cache/kvreport"
    export(build(data=tiny_site.catalog, cache=cache, dataset=False), out)
    assert "unsafe" not in the_one_policy(out)
    return out


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_exported_pages_run_under_a_policy_and_break_no_rule_of_it(page, exported, scheme):
    with served(exported) if scheme == "http" else nullcontext(f"{exported.as_uri()}/") as root:
        for uri in ("", "models/", LLAMA, "gpus/h100-sxm-80gb/", "explore/", "compare/", "data/"):
            page.goto(f"{root}{uri}index.html")
            assert page.activity.settle(30), uri
            assert page.evaluate("window.refused") == [], uri
            assert page.evaluate("document.documentElement.className") == "js", uri
            assert page.evaluate("getComputedStyle(document.body).fontFamily").startswith('"KV Sans"'), uri


def test_the_preview_states_the_policy_too_and_allows_what_reloads_it():
    page = "<head><meta charset=utf-8></head><script>theme()</script>"
    policy = Policy(page, preview=True)
    (scripts,) = (part for part in policy.tag.split("; ") if part.startswith("script-src "))
    # A digest beside it would take 'unsafe-inline' back.
    assert scripts.startswith("script-src 'self' 'unsafe-inline'\"")
    assert list(policy.refused("<script>mine()</script>")) == ["mine()"]


def test_what_a_browser_would_not_run_is_no_script():
    html = (
        "<script>a()</script><script src='x.js'></script><script type=application/json>{}</script>"
        '<script type="module">b()</script ><SCRIPT>c()</SCRIPT>'
    )
    assert list(inline(html)) == ["a()", "b()", "c()"]
