"""A browser on the tiny site, for the tests that look at pages: fixtures and a page with what went wrong on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from serving import served


@pytest.fixture(scope="module")
def address(tiny_site) -> Iterator[str]:
    with served(tiny_site.folder) as root:
        yield root


@pytest.fixture(scope="module")
def browser(chromium_path, chromium_flags) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium_path, args=chromium_flags)
        yield started
        started.close()


@pytest.fixture
def page(browser, address) -> Iterator[Any]:
    """A page under our own policy, on which nothing may fail and which may ask nobody else."""
    context = browser.new_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened = context.new_page()
    opened.faults = []
    opened.asked = []
    opened.on("pageerror", lambda error: opened.faults.append(str(error.stack)))
    opened.on("console", lambda said: opened.faults.append(said.text) if said.type == "error" else None)
    opened.on("request", lambda request: opened.asked.append((request.method, request.url)))
    yield opened
    faults, asked = opened.faults, opened.asked
    context.close()
    assert faults == []
    assert all(url.startswith((address, "data:", "blob:")) for _, url in asked)
    assert {method for method, _ in asked} == {"GET"}


def until(page: Any, expression: str) -> None:
    """Wait for an expression to hold; asked from outside, because the page lets nobody evaluate text."""
    for _ in range(400):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(25)
    pytest.fail(f"never came true: {expression}")


def hold(where: Any, pattern: str) -> list[Any]:
    """Hold back what a page, or every page of a context, asks for; returns what is held."""
    held: list[Any] = []
    where.route(pattern, lambda route: held.append(route))  # noqa: PLW0108 - playwright marks the function
    return held


def let_go(page: Any, held: list[Any], act: Callable[[], object]) -> None:
    """Do something while what was asked for is held back, and then let it go."""
    while not held:
        page.wait_for_timeout(20)
    act()
    for route in held:
        route.fallback()


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
        self.page.mouse.move(3, 3)  # scripts of printed pages wait for a reader
        return self.page

    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.page.url).query)
