"""A built site on this machine, and a script that hears what its policy refuses."""

from __future__ import annotations

import http.server
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Error as PlaywrightError

HEAR = """
window.refused = [];
document.addEventListener("securitypolicyviolation", (e) => window.refused.push(`${e.violatedDirective} ${e.blockedURI} ${e.sample}`));
"""


def map_of(folder: Path, root: str) -> bytes:
    """A site's map with the addresses that its pages have here.

    With the published addresses, the theme would load each page instead of changing the one that is shown.
    """
    content = (folder / "sitemap.xml").read_text("utf-8")
    home = min(re.findall("<loc>(.*?)</loc>", content), key=len)
    return content.replace(home, root).encode()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server that says nothing, and whose map of the site has its own addresses."""

    def do_GET(self) -> None:
        """Answer with the file."""
        if self.path != "/sitemap.xml" or not Path(self.directory, "sitemap.xml").is_file():
            super().do_GET()
            return
        content = map_of(Path(self.directory), f"http://{self.headers['Host']}/")
        self.send_response(200)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Server(http.server.ThreadingHTTPServer):
    """A server on which a browser's burst of connections does not overflow the queue.

    The standard library's queue holds five. Linux drops what comes on top, and the browser waits for seconds, or until
    a test gives up.
    """

    request_queue_size = 128


@contextmanager
def served(folder: Path, handler: type[Quiet] = Quiet) -> Iterator[str]:
    """Serve a folder while the block runs, and yield its address."""
    server = Server(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def under_policy(page: Any) -> Any:
    """A page whose policy holds in tests, too: none of them waits by a text that the page would have to evaluate.

    Playwright's own waiting evaluates its text in the page. The debugger lets the first try pass and the policy refuses
    every later one, so that a test passed where the condition held at once and failed with an ``EvalError`` where it did not.
    """

    def refused(*_: object, **__: object) -> None:
        pytest.fail("wait with until(): the policy of this page refuses what wait_for_function evaluates")

    page.wait_for_function = refused
    return page


def is_fault(message: Any) -> bool:
    """Whether the console tells a fault. That a preloaded font was used seconds later is the pace of a busy machine."""
    return message.type in ("error", "warning") and "was preloaded using link preload" not in message.text


def _holds(page: Any, expression: str) -> bool:
    try:
        return bool(page.evaluate(expression))
    except PlaywrightError:  # the page is on its way to another one
        return False


def until(page: Any, expression: str, seconds: float = 30) -> None:
    """Wait for an expression to hold; asked from outside, because the page lets nobody evaluate text."""
    ends = time.monotonic() + seconds
    while not _holds(page, expression):
        if time.monotonic() > ends:
            pytest.fail(f"never came true: {expression}")
        page.wait_for_timeout(25)


@contextmanager
def phone(
    browser: Any,
    folder: Path,
    uri: str,
    routes: Mapping[str, Callable[[Any], None]] | None = None,
) -> Iterator[Any]:
    """A page of a built site on a phone: ``asked`` lists what it requested, ``root`` is the site's address.

    Args:
        browser: What opens it.
        folder: The site.
        uri: The page's address in it.
        routes: What answers requests of other addresses.
    """
    with served(folder) as root:
        opened = under_policy(browser.new_page(viewport={"width": 390, "height": 844}))
        opened.add_init_script(HEAR)
        asked: list[str] = []
        opened.on("request", lambda request: asked.append(request.url))
        for pattern, answer in (routes or {}).items():
            opened.route(pattern, answer)
        opened.goto(root + uri)
        opened.asked, opened.root = asked, root
        yield opened
        opened.close()
