"""A wrong number is reported: at the site's address where one is set, else with the text that the page prepared."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from serving import until
from visits import page

from kvreport.publish.embeds import UNKNOWN_SITE

__all__ = ["page"]  # a fixture

pytestmark = [pytest.mark.browser, pytest.mark.slow]

OPEN = ".kv-share > summary"


def test_without_an_address_the_page_says_what_to_do_with_the_report(page: Any, address: str) -> None:
    page.goto(f"{address}models/meta-llama--Llama-3.1-8B-Instruct/")
    page.click(OPEN)
    note = page.locator("[data-kv-report]")
    assert note.inner_text() == (
        "Press Copy next to the report above, or open it as an email, and add the number that you expect and its source. This site has no address for "
        "reports, so send the text to whoever published the site or sent you the link. With a start-up log, check each number first."
    )
    text = page.input_value("#kv-share-report")
    assert text.startswith("Page: https://example.org/tiny/models/meta-llama--Llama-3.1-8B-Instruct/")
    assert "Data release: 20" in text
    mail = note.locator("a", has_text="email").get_attribute("href")
    assert mail.startswith("mailto:?subject=Wrong%20number%3A%20Llama%203.1%208B")
    assert parse_qs(urlsplit(mail).query)["body"] == [text]
    # The note follows the text that it speaks of.
    above = page.locator("#kv-share-report").bounding_box()
    assert 0 < note.bounding_box()["y"] - above["y"] < 200
    assert page.locator(".kv-share a", has_text="Report a wrong number").count() == 0


def test_a_build_without_an_address_is_cited_where_it_was_opened(page: Any, address: str) -> None:
    """BibTeX, embeds and badges had `https://YOUR-SITE/`."""

    def unknown(route: Any) -> None:
        answer = route.fetch()
        text = answer.text()
        for write in (str, partial(quote, safe="")):
            known = write("https://example.org/tiny/")
            assert known in text
            text = text.replace(known, write(UNKNOWN_SITE))
        route.fulfill(response=answer, body=text)

    page.route("**/models/meta-llama--Llama-3.1-8B-Instruct/", unknown)
    page.goto(f"{address}models/meta-llama--Llama-3.1-8B-Instruct/")
    page.click(OPEN)
    for name in ("link", "markdown", "bibtex", "embed", "report"):
        text = page.input_value(f"#kv-share-{name}")
        assert "YOUR-SITE" not in text, name
        assert address in text, name
    assert "YOUR-SITE" not in page.inner_text("main")
    assert (
        page.locator("#badge code, code", has_text="img.shields.io").first.inner_text().count("127.0.0.1")
        == 2
    )


def test_the_badge_is_that_of_the_gpu_that_the_page_shows(page: Any, address: str) -> None:
    """It named the page's example, whatever was chosen."""
    code = page.locator("code", has_text="img.shields.io").first
    page.goto(f"{address}models/meta-llama--Llama-3.1-8B-Instruct/?gpu=rtx-4090")
    until(page, "document.querySelector('#__kv_badge').textContent.includes('RTX 4090')")
    text = code.inner_text()
    label = re.match(r"\[!\[(.*?)\]", text)[1]
    asked = parse_qs(urlsplit(text.partition("](")[2].partition(")")[0]).query)
    assert asked["label"] == [label] == ["Llama 3.1 8B on one RTX 4090"]
    assert asked["query"] == ["$.gpus['rtx-4090'].message"]
    page.goto(f"{address}models/meta-llama--Llama-3.1-8B-Instruct/")
    assert "RTX 4090" not in code.inner_text()


def test_the_tools_of_charts_are_there_before_anybody_moves(page: Any, address: str) -> None:
    page.goto(f"{address}models/meta-llama--Llama-3.1-8B-Instruct/")
    page.locator(".kv-figure .kv-tools", has_text="PNG").first.wait_for(timeout=8000)
    assert page.locator(".kv-figure .kv-tools").first.is_visible()


def test_with_an_address_the_report_opens_there(page: Any, address: str) -> None:
    def with_address(route: Any) -> None:
        answer = route.fetch()
        text = answer.text().replace(
            "</head>", '<meta name="kv-issues" content="https://example.org/kv/issues/new"></head>'
        )
        route.fulfill(response=answer, body=text)

    page.route("**/models/meta-llama--Llama-3.1-8B-Instruct/", with_address)
    page.goto(f"{address}models/meta-llama--Llama-3.1-8B-Instruct/")
    page.click(OPEN)
    link = page.locator(".kv-share a", has_text="Report a wrong number")
    href = urlsplit(link.get_attribute("href"))
    assert (href.netloc, href.path) == ("example.org", "/kv/issues/new")
    assert parse_qs(href.query)["body"] == [page.input_value("#kv-share-report")]
    assert page.locator("[data-kv-report]").count() == 0


def test_the_printed_release_names_its_tables(tiny_site: Any) -> None:
    home, data = tiny_site.html(""), tiny_site.html("data/")
    label = home.split("<dt>Data release</dt><dd>")[1].split("<")[0]
    version, digest = label.split("+")
    assert len(digest) == 7
    assert f"data release {label}. CC BY 4.0." in data
    assert (tiny_site.folder / "data" / "releases" / version / "SHA256SUMS").is_file()


def test_what_is_copied_names_the_published_site(page: Any, address: str) -> None:
    """The frame of a card had the address of the machine that served the page."""
    page.goto(f"{address}models/meta-llama--Llama-3.1-8B-Instruct/?gpu=h100-sxm-80gb")
    page.click(OPEN)
    root = "https://example.org/tiny/"
    assert page.input_value("#kv-share-embed").startswith(
        f'<iframe src="{root}embed/?model=meta-llama--Llama-3.1-8B-Instruct&gpu=h100-sxm-80gb"'
    )
    assert urlsplit(address).netloc not in page.inner_text("main") + page.input_value("#kv-share-report")


def test_a_model_offers_the_line_of_its_badge(tiny_site: Any) -> None:
    slug = "meta-llama--Llama-3.1-8B-Instruct"
    text = (tiny_site.folder / "models" / slug / "index.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^\[!\[.*$", text, re.MULTILINE)
    picture, page = re.fullmatch(r"\[!\[[^\]]+\]\((\S+)\)\]\((\S+)\)", line).groups()
    assert page == f"https://example.org/tiny/models/{slug}/"
    asked = {name: values[0] for name, values in parse_qs(urlsplit(picture).query).items()}
    assert asked["url"] == f"https://example.org/tiny/badge/{slug}.json"
    badges = json.loads((tiny_site.folder / "badge" / f"{slug}.json").read_text(encoding="utf-8"))["gpus"]
    gpu = re.fullmatch(r"\$\.gpus\['([^']+)'\]\.message", asked["query"])[1]
    assert badges[gpu]["label"] == asked["label"]
    assert "requests" in badges[gpu]["message"]


def test_the_way_to_report_a_number_is_named_before_the_box_is_open(browser: Any, address: str) -> None:
    """Who found a wrong number had to open "Share, cite, print" to see where to report it."""
    page = browser.new_page(viewport={"width": 390, "height": 844})
    for uri in (
        "",
        "models/meta-llama--Llama-3.1-8B-Instruct/",
        "gpus/rtx-4090/",
        "questions/first/",
        "sizer/",
        "log/",
    ):
        page.goto(f"{address}{uri}")
        page.locator("summary", has_text="Report a wrong number").wait_for()
    page.close()
