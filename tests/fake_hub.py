"""A Hub on this machine: the few addresses that fetching a config needs."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote

SHA = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """Repositories by id, and what was asked for.

    Attributes:
        files: Content by repository and name.
        gated: Repositories that refuse without the token ``open-sesame``.
        moved: Paths answered with a redirect.
        cut: Paths whose answer announces everything and ends after so many bytes.
        slow: Paths whose answer comes byte by byte, ``pause`` seconds between.
        lies: Paths answered with these bytes, whatever is asked.
        asked: Every path that was asked for, in order.
        tokens: The Authorization header of every request.
        endpoint: Its address.
        commit: What every branch points to.
    """

    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    moved: dict[str, str] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)
    slow: set[str] = field(default_factory=set)
    lies: dict[str, bytes] = field(default_factory=dict)
    pause: float = 0.02
    asked: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    endpoint: str = ""
    commit: str = SHA

    def respond(self, path: str, token: str | None, span: str | None) -> tuple[int, bytes]:
        """Answer one request."""
        listing = re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path)
        content = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        found = listing or content
        if found is None or found[1] not in self.files:
            return 404, b"{}"
        if found[1] in self.gated and token != "Bearer open-sesame":
            return 401, b"{}"
        files = self.files[found[1]]
        if listing is not None:
            if unquote(listing[2]) not in ("main", "v2", self.commit):
                return 404, b"{}"
            names = [{"rfilename": name} for name in files]
            return 200, json.dumps({"sha": self.commit, "siblings": names}).encode()
        assert content is not None
        if content[3] not in files or content[2] != self.commit:
            return 404, b"{}"
        data = files[content[3]]
        if span is None:
            return 200, data
        first, last = span.removeprefix("bytes=").split("-")
        return 206, data[int(first) : int(last) + 1]


@contextmanager
def serve(hub: FakeHub) -> Iterator[FakeHub]:
    """Serve a Hub on a free port of the loopback device."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hub.asked.append(self.path)
            hub.tokens.append(self.headers["Authorization"])
            if self.path in hub.moved:
                self.send_response(302)
                self.send_header("Location", hub.moved[self.path])
                self.end_headers()
                return
            status, body = hub.respond(self.path, self.headers["Authorization"], self.headers["Range"])
            if self.path in hub.lies:
                status, body = 200, hub.lies[self.path]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.path in hub.slow:
                with suppress(OSError):
                    for at in range(len(body)):
                        self.wfile.write(body[at : at + 1])
                        time.sleep(hub.pause)
            else:
                self.wfile.write(body[: hub.cut.get(self.path)])

        def log_message(self, *_args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
