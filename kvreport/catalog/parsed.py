"""What YAML files hold, kept between builds: the same text is parsed once.

A build reads a thousand files, and parsing strictly takes longer than all that is made of them. :class:`Parsed` keeps
what each text holds in one file, under the digest of the text; outside a build nothing is kept.
"""

from __future__ import annotations

import pickle
from hashlib import sha256
from pathlib import Path
from typing import Any

from kvreport.build_cache import code, read_under, write_sealed


class Parsed:
    """What texts hold, by their digest, each ready to be read again."""

    def __init__(self, path: Path) -> None:
        """Take what is kept in a file."""
        self._path = path
        self._state = code(without=_ABOVE)
        self._kept: dict[bytes, bytes] = {}
        self._used: dict[bytes, bytes] = {}
        found = read_under(path, self._state, 1)
        if found is not None:
            self._kept = found[0]

    def get(self, text: str) -> tuple[bool, Any]:
        """Return whether a text is known, and what it holds."""
        key = sha256(text.encode()).digest()
        found = self._used.get(key) or self._kept.get(key)
        if found is None:
            return False, None
        self._used[key] = found
        return True, pickle.loads(found)  # noqa: S301 (written by us, for us)

    def put(self, text: str, data: object) -> None:
        """Keep what a text holds."""
        self._used[sha256(text.encode()).digest()] = pickle.dumps(data, protocol=5)

    def finish(self) -> None:
        """Write what was read since, if it is not what is kept."""
        if self._used.keys() != self._kept.keys():
            write_sealed(self._path, pickle.dumps((self._state, self._used), protocol=5))


_ABOVE = ("accounting", "adapters", "architectures", "book", "cli", "dataset", "estimation", "evidence", "publish", "report", "site", "startup_log", "traffic")  # fmt: skip
"""Rooms that parsing knows nothing of."""
