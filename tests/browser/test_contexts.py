"""A browser's contexts that are used again: the next test finds nothing of the last one."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.browser]

LEFT = """async () => [
  localStorage.length, sessionStorage.length, document.cookie, (await indexedDB.databases()).length,
  (await caches.keys()).length, (await navigator.permissions.query({name: "clipboard-read"})).state,
  (await fetch("models/")).status]"""


def test_a_context_is_used_again_and_has_nothing_of_the_last_test(browser, address):
    first = browser.new_context()
    first.grant_permissions(["clipboard-read"])
    page = first.new_page()
    page.goto(address)
    empty = page.evaluate(LEFT)
    first.route("**/models/", lambda route: route.fulfill(status=418))
    page.evaluate(
        """async () => {
          localStorage.a = 1; sessionStorage.a = 1; document.cookie = "a=1"; await caches.open("a");
          await new Promise((done) => { indexedDB.open("a").onsuccess = done; });
          addEventListener("pagehide", () => { localStorage.b = 1; });
        }"""
    )
    assert page.evaluate(LEFT) == [1, 1, "a=1", 1, 1, "granted", 418]
    first.new_page()
    assert len(first.pages) == 2
    first.close()

    second = browser.new_context()
    assert second is first
    assert second.pages == []
    page = second.new_page()
    page.goto(address)
    assert page.evaluate(LEFT) == [0, 0, "", 0, 0, "prompt", 200]
    assert empty == [0, 0, "", 0, 0, "granted", 200]
    second.close()


def test_a_context_with_other_options_or_a_trace_is_not_used_again(browser):
    first = browser.new_context()
    first.add_init_script("window.left = 1")
    first.close()
    second = browser.new_context()
    assert second is not first
    second.close()
    third = browser.new_context(has_touch=True)
    assert third is not second
    third.close()


def test_a_page_has_the_size_and_colors_of_its_own_test(browser):
    seen = "[innerWidth, innerHeight, matchMedia('(prefers-color-scheme: dark)').matches, matchMedia('(prefers-reduced-motion)').matches]"
    small, plain = {"width": 390, "height": 844}, (1280, 720, False, False)
    dark = browser.new_context(
        viewport=small, color_scheme="dark", reduced_motion="reduce", accept_downloads=True
    )
    assert dark.new_page().evaluate(seen) == [390, 844, True, True]
    dark.close()
    light = browser.new_context()
    assert light is dark
    assert light.new_page().evaluate(seen) == list(plain)
    light.close()
