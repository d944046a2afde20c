"""Requests to the Hugging Face Hub: within a budget, to its own hosts, with a token for them alone."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from http.client import HTTPException, HTTPMessage
from threading import Thread
from time import monotonic
from typing import IO, Any, Final, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from kvreport.budgets import HUB, HUB_LISTING
from kvreport.errors import InputError, shorten

MAX_BYTES: Final = HUB.bytes
TIMEOUT_SECONDS: Final = 30
"""Longest silence of a connection; :data:`kvreport.budgets.HUB` bounds all of them together."""
SHA: Final = re.compile(r"[0-9a-f]{7,64}")
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_T = TypeVar("_T")


class NoConnectionError(InputError):
    """The Hub could not be asked; what was fetched before may do."""


class HubClient:
    """One repository on one Hub."""

    def __init__(self, name: str, endpoint: str) -> None:
        self.name = name
        self.endpoint = endpoint.rstrip("/")
        parts = urlsplit(self.endpoint)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
            raise InputError(f"HF_ENDPOINT: found {shorten(endpoint)}; allowed: an https address")
        self._open = build_opener(_SameHostToken).open
        self._ends = monotonic() + HUB.seconds

    def listing(self, revision: str) -> tuple[str, frozenset[str]]:
        """Return the commit that a revision is, and the names of its files."""
        path = f"/api/models/{self.name}/revision/{quote(revision, safe='')}"
        content = self.read(path, most=HUB_LISTING.bytes)
        try:
            data: Any = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise self._fault("an answer that is not JSON", "the Hub's own") from error
        commit = data.get("sha") if isinstance(data, dict) else None
        siblings = data.get("siblings") if isinstance(data, dict) else None
        if not isinstance(commit, str) or not SHA.fullmatch(commit) or not isinstance(siblings, list):
            raise self._fault("an answer without commit and files", "the Hub's own")
        if len(siblings) > HUB_LISTING.rows:
            raise self._fault(f"{len(siblings):,} files", f"at most {HUB_LISTING.rows:,}")
        names = [entry.get("rfilename") for entry in siblings if isinstance(entry, dict)]
        return commit, frozenset(name for name in names if isinstance(name, str))

    def file(self, commit: str, name: str, *, first: int | None = None, start: int = 0) -> bytes:
        """Return a file, or ``first`` bytes of it from ``start``."""
        return self.read(f"/{self.name}/resolve/{commit}/{quote(name)}", start=start, first=first)

    def read(self, path: str, *, most: int = MAX_BYTES, start: int = 0, first: int | None = None) -> bytes:
        """Get one address, or ``first`` bytes of it from ``start``.

        The whole may have ``most`` bytes; a part has ``first`` bytes from ``start``, or fewer at the end.

        Raises:
            InputError: If the Hub refuses or cannot be reached, the answer is cut or too long, or the time for all
                answers is over.
        """
        headers = {"User-Agent": "kvreport"}
        token = os.environ.get("HF_TOKEN", "").strip()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if first is not None:
            headers["Range"] = f"bytes={start}-{start + first - 1}"
        asked = Request(f"{self.endpoint}{path}", headers=headers)  # noqa: S310 - https, or loopback
        try:
            return self._in_time(lambda: self._answer(asked, most, start, first))
        except HTTPError as error:
            error.close()
            raise self._refused(error.code) from error
        except InputError:
            raise
        except (URLError, HTTPException, TimeoutError, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise self._unreachable(shorten(str(reason))) from error

    def _answer(self, asked: Request, most: int, start: int, first: int | None) -> bytes:
        """Read one answer, piece by piece, so that time and length are looked at between two of them."""
        wanted = most if first is None else first
        with self._open(asked, timeout=TIMEOUT_SECONDS) as answer:
            if start and answer.status != 206:
                raise self._fault("a whole file in place of the requested part", "a Hub that answers ranges")
            stated = answer.headers.get("Content-Length")
            length = int(stated) if stated is not None and stated.isascii() and stated.isdigit() else None
            if first is None and length is not None and length > most:
                raise self._too_long(most)
            pieces, size = [], 0
            while size <= wanted and (piece := answer.read1(min(1 << 16, wanted + 1 - size))):
                pieces.append(piece)
                size += len(piece)
                if monotonic() > self._ends:
                    raise TimeoutError
        if first is None and size > most:
            raise self._too_long(most)
        # A connection that ends early looks like the end of a file.
        if length is not None and size < min(length, wanted):
            raise self._unreachable(f"{size:,} of {length:,} bytes came")
        return b"".join(pieces)[:wanted]

    def _in_time(self, work: Callable[[], _T]) -> _T:
        """Do something in a thread that is left alone when the time for the whole fetch is over.

        A time limit of a socket bounds one silence only: a byte a second, in a body or a header, goes on for ever.
        """
        results: list[_T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(work())
            except BaseException as error:  # noqa: BLE001 - raised again where the result is awaited
                errors.append(error)

        thread = Thread(target=run, daemon=True)
        thread.start()
        thread.join(max(0.0, self._ends - monotonic()))
        late = thread.is_alive() or any(isinstance(error, TimeoutError) for error in errors)
        if late and monotonic() >= self._ends:
            raise self._unreachable(f"no whole answer within {HUB.seconds:.0f} seconds")
        if errors:
            raise errors[0]
        return results[0]

    def _too_long(self, most: int) -> InputError:
        return self._fault(f"more than {most:,} bytes", "a listing, a config or an index")

    def _unreachable(self, reason: str) -> NoConnectionError:
        return NoConnectionError(
            f"model {self.name}: found no connection to {self.endpoint} ({reason}); allowed: a"
            " connection, a repository fetched before, or the path of a config.json"
        )

    def _refused(self, status: int) -> InputError:
        if status in (401, 403):
            return self._fault(
                "a repository that is gated, private or missing",
                "one that is open, or an HF_TOKEN that may read it, or the path of its config.json",
            )
        if status == 404:
            return self._fault("no such repository, revision or file", "org/name as the Hub writes it")
        if status == 429:
            return self._fault("too many requests for now", "the same question later")
        return self._fault(f"status {status} from {self.endpoint}", "the same question later")

    def _fault(self, found: str, allowed: str) -> InputError:
        return InputError(f"model {self.name}: found {found}; allowed: {allowed}")


class _SameHostToken(HTTPRedirectHandler):
    """Follows redirects over https only, never from a Hub to this machine, and sends the token to no other host."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        here = old.hostname in _LOOPBACK
        if new.scheme != "https" and not (here and new.scheme == "http" and new.hostname in _LOOPBACK):
            fp.close()
            raise URLError(f"a redirect to {new.scheme}")
        if new.hostname in _LOOPBACK and not here:
            fp.close()
            raise URLError("a redirect to this machine")
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and new.netloc != old.netloc:
            following.remove_header("Authorization")
        return following
