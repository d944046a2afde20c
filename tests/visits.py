"""Pages of the tiny site in a browser, with what went wrong on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest
from quiet import Activity
from serving import is_fault, under_policy

KEEPS_NOTHING: Final = frozenset(
    ("browser", "expect_page", "new_cdp_session", "route", "unroute", "wait_for_event")
)
"""What may be asked of a context that is used again: it leaves nothing that :meth:`Lent.close` does not take away."""
SIZE: Final = {"width": 1280, "height": 720}
MEDIA: Final = ("color_scheme", "reduced_motion")
STORED: Final = "cookies,local_storage,indexeddb,cache_storage,service_workers,websql,file_systems"


class Contexts:
    """A browser whose contexts are used again by the next test with the same options.

    A new context costs two seconds of processor time: a process, and every script of the site compiled again. A test
    gets one with empty storage, no permission, no route and no page; what the server sent before may be in its cache.
    Size and colors are those of a page: contexts that differ in nothing else are the same.
    """

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._free: dict[str, list[Lent]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._browser, name)

    def new_context(self, **options: Any) -> Lent:
        if options.get("accept_downloads"):
            del options["accept_downloads"]  # what a context does anyway
        size = options.pop("viewport", SIZE)
        media = {name: options.pop(name) for name in MEDIA if name in options}
        free = self._free.setdefault(json.dumps(options, sort_keys=True), [])
        lent = free.pop() if free else Lent(self._browser.new_context(**options), free)
        lent.size, lent.media = size, media
        return lent


class Lent:
    """A context that goes back to where it came from when it is closed, unless it would keep a trace of its test."""

    def __init__(self, context: Any, free: list[Lent]) -> None:
        self._context, self._free, self._spoiled = context, free, False
        self._origins: set[str] = set()
        self.size: dict[str, int] = SIZE
        self.media: dict[str, str] = {}
        # A page that stays: without one the process would end, and everything that it has compiled.
        self._blank = context.new_page()
        self._session = context.new_cdp_session(self._blank)

    def __getattr__(self, name: str) -> Any:
        self._spoiled |= name not in KEEPS_NOTHING
        return getattr(self._context, name)

    @property
    def pages(self) -> list[Any]:
        return [page for page in self._context.pages if page != self._blank]

    def grant_permissions(self, permissions: list[str]) -> None:
        self._context.grant_permissions(permissions)

    def new_page(self) -> Any:
        opened = self._context.new_page()
        opened.set_viewport_size(self.size)
        if self.media:
            opened.emulate_media(**self.media)
        opened.on("framenavigated", lambda frame: self._origins.add("/".join(frame.url.split("/")[:3])))
        return opened

    def close(self) -> None:
        if self._spoiled:
            self._context.close()
            return
        self._context.unroute_all(behavior="ignoreErrors")
        for page in self.pages:
            page.close()
        self._context.clear_permissions()
        for origin in self._origins:
            self._session.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": STORED})
        self._free.append(self)


@pytest.fixture
def page(browser, address) -> Iterator[Any]:
    """A page under our own policy, on which nothing may fail and which may ask nobody else."""
    context = browser.new_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened = under_policy(context.new_page())
    opened.activity = Activity(opened)
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


class Held(list[Any]):
    """Requests that are held back until they are let go; what is asked for later passes."""

    passing = False

    def take(self, route: Any) -> None:
        """Hold a request back, or let it pass."""
        if self.passing:
            route.fallback()
        else:
            self.append(route)

    def let_go(self) -> None:
        """Let what is held go, and everything after it: what came a moment later was held for ever."""
        self.passing = True
        for route in self:
            route.fallback()


def hold(where: Any, pattern: str) -> Held:
    """Hold back what a page, or every page of a context, asks for; returns what is held."""
    held = Held()
    where.route(pattern, lambda route: held.take(route))  # noqa: PLW0108 - playwright marks the function
    return held


def let_go(page: Any, held: Held, act: Callable[[], object]) -> None:
    """Do something while what was asked for is held back, and then let it go."""
    while not held:
        page.wait_for_timeout(20)
    act()
    held.let_go()


SMALL_TARGETS: Final = """() => Array.from(document.querySelectorAll("a[href], button, select, summary"))
  .filter((one) => one.checkVisibility({ opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true }))
  .filter((one) => !one.closest("p, figcaption, caption, dd") || !one.matches("a")) // in a sentence
  .map((one) => [one.outerHTML.slice(0, 120), one.getBoundingClientRect()])
  .filter(([, { width, height }]) => width > 1 && (width < 23.9 || height < 23.9))
  .map(([html, { width, height }]) => `${html}: ${width} x ${height}`)"""
"""What a finger has to find that is smaller than 24 px, and not a link within a sentence."""


def unusable(page: Any) -> list[Any]:
    """What a screen reader or a hand cannot use on a page: what axe finds, and targets under 24 px."""
    page.wait_for_function(
        "document.fonts.status === 'loaded' && document.getAnimations().every((one) => !(one.timeline instanceof DocumentTimeline))"
    )
    # axe reads boxes that are not drawn yet as if they stood over what follows them: here all are drawn, as on the way down.
    page.evaluate(
        "for (const box of document.querySelectorAll('.kv-late')) box.style.contentVisibility = 'visible'"
    )
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    # Of what passes, axe would describe every element, which takes as long as all of its rules but that of contrast.
    found = page.evaluate(
        "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],"
        " resultTypes: ['violations']}).then((all) => all.violations)"
    )
    nodes = [(one["id"], one["nodes"][0]) for one in found]
    said = [(name, node["html"][:160], node["failureSummary"][:300]) for name, node in nodes]
    return said + list(page.evaluate(SMALL_TARGETS))


class Visit:
    """A page, and what went wrong on it."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        # Playwright waits for a condition by running a text in the page, which our policy refuses;
        # that the pages themselves keep to it is looked at in test_policy.py.
        self.context = browser.new_context(bypass_csp=True, **options)
        self.page = self.context.new_page()
        self.activity = Activity(self.page)
        self.address = address
        self.faults: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", self._asked)
        self.page.on(
            "response", lambda r: self.faults.append(f"{r.status} {r.url}") if r.status >= 400 else None
        )

    def _heard(self, message: Any) -> None:
        if is_fault(message):
            self.faults.append(message.text)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.faults.append(f"asks {request.url}")

    def go(self, uri: str) -> Any:
        self.page.goto(self.address + uri)
        self.page.wait_for_selector("html.js")
        self.page.mouse.move(3, 3)  # scripts of printed pages wait for a reader
        return self.page

    def settle(self) -> None:
        """Wait until the page has come to rest."""
        assert self.activity.settle(30), "never comes to rest"

    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.page.url).query)
