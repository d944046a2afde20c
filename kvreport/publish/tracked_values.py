"""Values kept between builds with the model records that they were made from; a change of those recomputes them.

Where :mod:`kvreport.publish.kept_values` keeps what is made from one model, a text or a table may ask for any: what it asked
for is noted while it is made, and kept with it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

from kvreport.build_cache import read_kept, write_sealed
from kvreport.catalog.dependency_notes import Note, noting, replay
from kvreport.catalog.record_digests import Records

T = TypeVar("T")


class Noted:
    """Values in one file, by key."""

    def __init__(self, path: Path, state: str, records: Records) -> None:
        """Take what is kept in a file under a state: the digest of all that every value depends on besides model records."""
        self._path, self._state, self._records = path, state, records
        self._kept: dict[str, tuple[object, frozenset[Note]]] = {}
        self._used: dict[str, tuple[object, frozenset[Note]]] = {}
        self.made = 0
        match read_kept(path):
            case (found, listed, dict(kept)) if found == state:
                changed = records.changed_since(listed)
                self._kept = {key: one for key, one in kept.items() if not records.concern(changed, one[1])}
                self.made += len(kept) - len(self._kept)  # what is outdated is dropped, whoever asks for it

    def get(self, key: str, make: Callable[[], T], keeps: Callable[[T], bool] = lambda _: True) -> T:
        """Return the value under a key."""
        found = self._kept.get(key)
        if found is None:
            with noting() as notes:
                value = make()
            if not keeps(value):
                return value
            self.made += 1
            found = (value, self._records.named(notes))
        else:
            replay(found[1])
        self._used[key] = found
        return found[0]  # type: ignore[return-value] # one kind of value under a key

    def finish(self) -> None:
        """Write what this build asked for, if it is not what is kept."""
        if self.made or len(self._used) != len(self._kept):
            content = (self._state, self._records.listed, self._used)
            write_sealed(self._path, pickle.dumps(content, protocol=5))


_OPEN: ContextVar[Noted | None] = ContextVar("noted", default=None)


@contextmanager
def keeping(noted: Noted) -> Iterator[None]:
    """Let :func:`kept` keep values here while the block runs; they are written if it ends without an error."""
    token = _OPEN.set(noted)
    try:
        yield
        noted.finish()
    finally:
        _OPEN.reset(token)


def kept(key: str, make: Callable[[], T]) -> T:
    """Return a value that this build keeps, or what ``make`` computes where none is kept."""
    noted = _OPEN.get()
    return make() if noted is None else noted.get(key, make)
