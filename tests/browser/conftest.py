"""What every test in a real browser shares: the browser, a second try, and a slow machine where it is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import served
from visits import Contexts

# `KVREPORT_SLOW_BROWSER=6 make test PYTEST_ARGS=tests/browser` shows which tests read a page too early: scripts run
# at a sixth of their speed, and every answer comes LATENCY_MS later.
SLOWDOWN = float(os.environ.get("KVREPORT_SLOW_BROWSER", "1"))
LATENCY_MS = 150
TIMEOUT_MS = 30_000.0


def slowed(page: Any) -> Any:
    """The page, with the processor and the network of a busy machine."""
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setCPUThrottlingRate", {"rate": SLOWDOWN})
    session.send("Network.enable")
    session.send(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": LATENCY_MS, "downloadThroughput": -1, "uploadThroughput": -1},
    )
    page.set_default_timeout(TIMEOUT_MS * SLOWDOWN)
    page.set_default_timeout = lambda _: None  # shorter ones that a test sets are for full speed
    return page


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Try a test again, once, that failed at full speed: a busy machine is no fault of a page, two failures are one.

    ``tests/reruns.py`` names those that needed it at the end, and fails a run in which many did.

    What fails when slowed is not tried again: that run is to find what waits for nothing.
    """
    if SLOWDOWN > 1:
        return
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(scope="session", autouse=True)
def slow_pages() -> Any:
    """Slow every page that a test opens, where it is asked for."""
    if SLOWDOWN <= 1:
        yield
        return
    from playwright.sync_api import Browser, BrowserContext

    with pytest.MonkeyPatch.context() as patch:
        for kind in (Browser, BrowserContext):
            opened = kind.new_page
            patch.setattr(kind, "new_page", lambda self, *a, _open=opened, **k: slowed(_open(self, *a, **k)))
        yield


@pytest.fixture(scope="package")
def browser(chromium_path: str, chromium_flags: list[str]) -> Iterator[Contexts]:
    """The one browser of a worker: starting it and compiling the site's scripts again cost seconds a file.

    It ends with this folder's tests: while it runs, nothing else in its process may start an event loop.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium_path, args=chromium_flags)
        yield Contexts(started)
        started.close()


@pytest.fixture(scope="package")
def address(tiny_site: Any) -> Iterator[str]:
    """Where the tiny site is served."""
    with served(tiny_site.folder) as root:
        yield root
