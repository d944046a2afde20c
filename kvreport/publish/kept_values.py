"""Values made from one model or one page, kept between builds: a changed model costs its own values only.

A group of values is a file. Each value stands under a key that says what decided it, and what a build did not ask
for is dropped, so a group never grows beyond one build.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeVar

from kvreport.build_cache import read_kept, write_sealed
from kvreport.catalog.model import Model

T = TypeVar("T")
_SUFFIX: Final = ".parts"


class PartGroup:
    """Values of one kind, by key."""

    def __init__(self, path: Path | None, ahead: Mapping[bytes, object] | None = None) -> None:
        """Keep values in a file; None keeps nothing."""
        self._path, self._ahead = path, ahead or {}
        self._kept = {} if path is None else _read(path)
        self.used: dict[bytes, object] = {}

    def get(self, key: bytes, make: Callable[[], T]) -> T:
        """Return the value under a key, computed by ``make`` if it is not kept."""
        if key not in self.used:
            kept = self._kept if key in self._kept else self._ahead
            self.used[key] = kept[key] if key in kept else make()
        return self.used[key]  # type: ignore[return-value] # one kind of value in a group

    def find(self, key: bytes) -> object | None:
        """Return the value kept under a key, which is kept on; None if there is none."""
        if key not in self.used and key in self._kept:
            self.used[key] = self._kept[key]
        return self.used.get(key)

    def put(self, key: bytes, value: object) -> None:
        """Keep a value in the place of one that is outdated."""
        self._kept.pop(key, None)
        self.used[key] = value

    def has(self, key: bytes) -> bool:
        """Return whether a value is kept under a key."""
        return key in self._kept

    def finish(self) -> None:
        """Keep what was asked for, and nothing else."""
        if self._path is not None and self.used.keys() != self._kept.keys():
            write_sealed(self._path, pickle.dumps(self.used, protocol=5))


class Parts:
    """Groups of values kept in a folder, under one state of everything that all of them share."""

    def __init__(self, folder: Path | None, state: str = "") -> None:
        """Keep values in ``folder``, or nowhere; ``state`` is the digest of the code, records and settings that all depend on."""
        self._folder, self.state = folder, state
        self._records: dict[int, tuple[Model, bytes]] = {}
        self._ahead: dict[str, dict[bytes, object]] = {}

    @contextmanager
    def group(self, name: str) -> Iterator[PartGroup]:
        """Open a group; what was asked for is kept when the block ends without an error."""
        found = self._open(name)
        yield found
        found.finish()

    def each(
        self, name: str, models: Iterable[Model], make: Callable[[Model], T], *further: bytes | str
    ) -> Iterator[tuple[Model, T]]:
        """Yield each model with its value in a group, computed by ``make`` unless it is kept; ``further`` decides values, too."""
        with self.group(name) as kept:
            for model in models:
                key = self.of_model(model)
                yield model, kept.get(self.key(key, *further) if further else key, partial(make, model))

    def missing(self, name: str, keys: Iterable[bytes]) -> list[int]:
        """Return the places of the keys under which a group keeps no value; a build without a cache keeps none."""
        group = self._open(name)
        return [place for place, key in enumerate(keys) if not group.has(key)]

    def give(self, values: Mapping[str, Mapping[bytes, object]]) -> None:
        """Take values that were computed before they are asked for, by group and key."""
        for name, many in values.items():
            self._ahead.setdefault(name, {}).update(many)

    def _open(self, name: str) -> PartGroup:
        return PartGroup(
            None if self._folder is None else self._folder / f"{name}{_SUFFIX}", self._ahead.get(name)
        )

    def value(self, name: str, key: bytes, make: Callable[[], T]) -> T:
        """Return the one value of a name, computed by ``make`` unless it is kept under this key."""
        if self._folder is None:
            return make()
        path = self._folder / f"{name}{_SUFFIX}"
        kept = _read(path)
        if key not in kept:
            kept = {key: make()}
            write_sealed(path, pickle.dumps(kept, protocol=5))
        return kept[key]  # type: ignore[return-value] # one kind of value in a file

    def key(self, *what: bytes | str) -> bytes:
        """Return the key of a value that depends on the shared state and on these."""
        digest = sha256(self.state.encode())
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


class Collected(Parts):
    """Groups that keep nothing, whose values are taken together."""

    def __init__(self, state: str) -> None:
        """Take the state of the parts that the values are for."""
        super().__init__(None, state)
        self._made: dict[str, dict[bytes, object]] = {}

    @contextmanager
    def group(self, name: str) -> Iterator[PartGroup]:
        """Open a group; what was asked for is collected."""
        found = PartGroup(None)
        yield found
        self._made.setdefault(name, {}).update(found.used)

    def taken(self) -> dict[str, dict[bytes, object]]:
        """Return what was asked for since the last time, by group and key."""
        made, self._made = self._made, {}
        return made


def _read(path: Path) -> dict[bytes, object]:
    """Return a group's values; none where the file is missing, damaged or of another kind.

    The folder is the build's own cache; nothing from elsewhere is ever read.
    """
    found = read_kept(path)
    return found if isinstance(found, dict) else {}
