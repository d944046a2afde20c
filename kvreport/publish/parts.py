"""Values made from one model or one page, kept between builds: a changed model costs its own values only.

A group of values is one file. Each value stands under a key that says what decided it, and what a build did not ask
for is dropped, so a group never grows beyond one build.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeVar

from kvreport.build_cache import read_kept, write_beside
from kvreport.catalog.model import Model

T = TypeVar("T")
_SUFFIX: Final = ".parts"


class Group:
    """Values of one kind, by key.

    Attributes:
        made: How many values were computed because none was kept.
    """

    def __init__(self, values: dict[bytes, object]) -> None:
        """Take what is kept."""
        self._kept = values
        self._used: dict[bytes, object] = {}
        self.made = 0

    def get(self, key: bytes, make: Callable[[], T]) -> T:
        """Return the value under a key, computed by ``make`` if it is not kept."""
        if key in self._used:
            return self._used[key]  # type: ignore[return-value] # one kind of value in a group
        if key in self._kept:
            value = self._kept[key]
        else:
            value = make()
            self.made += 1
        self._used[key] = value
        return value  # type: ignore[return-value]

    def find(self, key: bytes) -> object | None:
        """Return the value kept under a key, which is kept on; None if there is none."""
        if key not in self._used:
            if key not in self._kept:
                return None
            self._used[key] = self._kept[key]
        return self._used[key]

    def put(self, key: bytes, value: object) -> None:
        """Keep a value that was computed because none was found."""
        self._used[key] = value
        self.made += 1

    @property
    def used(self) -> dict[bytes, object]:
        """What this build asked for."""
        return self._used

    @property
    def changed(self) -> bool:
        """True if what is kept is not what was asked for."""
        return self.made > 0 or len(self._used) != len(self._kept)


class Parts:
    """Groups of values kept in a folder, under one state of everything that all of them share."""

    def __init__(self, folder: Path | None, state: str = "") -> None:
        """Keep values in ``folder``; None keeps nothing.

        Args:
            folder: The folder.
            state: Digest of the code, the records and the settings that every value depends on.
        """
        self._folder, self._state = folder, state.encode()
        self._records: dict[int, tuple[Model, bytes]] = {}

    @contextmanager
    def group(self, name: str) -> Iterator[Group]:
        """Open a group; what was asked for is kept when the block ends without an error."""
        if self._folder is None:
            yield Group({})
            return
        path = self._folder / f"{name}{_SUFFIX}"
        found = Group(_read(path))
        yield found
        if found.changed:
            write_beside(path, pickle.dumps(found.used, protocol=5))

    def value(self, name: str, key: bytes, make: Callable[[], T]) -> T:
        """Return the one value of a name, computed by ``make`` unless it is kept under this key.

        Args:
            name: What the value is called; its file holds one value at a time.
            key: What decides the value.
            make: Computes it.
        """
        if self._folder is None:
            return make()
        path = self._folder / f"{name}{_SUFFIX}"
        kept = _read(path)
        if key not in kept:
            kept = {key: make()}
            write_beside(path, pickle.dumps(kept, protocol=5))
        return kept[key]  # type: ignore[return-value] # one kind of value in a file

    def key(self, *what: bytes | str) -> bytes:
        """Return the key of a value that depends on the shared state and on these."""
        digest = sha256(self._state)
        for one in what:
            content = one.encode() if isinstance(one, str) else one
            digest.update(len(content).to_bytes(8, "big") + content)
        return digest.digest()

    def of_model(self, model: Model) -> bytes:
        """Return the key of a value that depends on the shared state and on one model's record."""
        if id(model) not in self._records:
            # The record is kept with its digest, so that its identity is not given to another.
            self._records[id(model)] = (model, sha256(model.model_dump_json().encode()).digest())
        return self.key(self._records[id(model)][1])


def _read(path: Path) -> dict[bytes, object]:
    """Return a group's values; none where the file is missing, damaged or of another kind.

    The folder is the build's own cache; nothing from elsewhere is ever read.
    """
    found = read_kept(path)
    return found if isinstance(found, dict) else {}
