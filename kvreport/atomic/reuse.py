"""A new folder written beside the one that it will replace: a file that stays as it is becomes a link to it.

Most files of a new site are those of the last one, and a link costs a fifth of writing a file again. A file is linked
only if it still is what an earlier build wrote there: the same file of the file system, of the same length, not
written to since. A linked file is never written to: who writes a name again gets a new file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

Entry = tuple[bytes, int, int, int, int]
"""The digest of what was written to a file; its bytes, its time of change in nanoseconds, its number, its device."""


class Reuse:
    """Writes the files of a new folder.

    Attributes:
        written: What stands in the new folder, by name; the next build is told.
        linked: How many of them are links.
    """

    def __init__(self, standing: Path, new: Path, known: Mapping[str, Entry]) -> None:
        """Write to a new folder.

        Args:
            standing: The folder that it will replace.
            new: The new one, of the same file system if files shall be linked.
            known: What an earlier build wrote to the standing one.
        """
        self._standing, self._new = f"{os.path.abspath(standing)}{os.sep}", f"{os.path.abspath(new)}{os.sep}"
        self._known = known
        self._folders: set[str] = set()
        self.written: dict[str, Entry] = {}
        self.linked = 0

    def write(self, path: Path | str, content: bytes, name: str = "") -> bytes:
        """Write a file of the new folder, or link it.

        Args:
            path: The file, below the new folder.
            content: What it shall hold.
            name: Its name in the folder that stands and in the next one, if it is another one meanwhile.

        Returns:
            The SHA-256 of the content.

        Raises:
            OSError: If the system refuses.
            ValueError: If the file is not below the new folder.
        """
        place = os.path.abspath(path)
        if not place.startswith(self._new):
            raise ValueError(f"{place} is not below {self._new}")
        name = name or place[len(self._new) :]
        folder = os.path.dirname(place)
        if folder not in self._folders:
            os.makedirs(folder, exist_ok=True)
            self._folders.add(folder)
        digest = sha256(content).digest()
        entry = self._known.get(name)
        if entry is None or entry[0] != digest or not self._link(name, place, entry):
            entry = (digest, *_written(place, content))
        self.written[name] = entry
        return digest

    def _link(self, name: str, place: str, entry: Entry) -> bool:
        standing = f"{self._standing}{name}"
        try:
            if _state(os.lstat(standing)) != entry[1:]:
                return False
            with suppress(FileNotFoundError):
                os.unlink(place)
            os.link(standing, place)
        except OSError:  # another file system, none with links, a full one: writing says which
            return False
        self.linked += 1
        return True


def _written(place: str, content: bytes) -> tuple[int, int, int, int]:
    """Write a new file, whatever has its name, and return its state."""
    try:
        file = open(place, "xb")  # noqa: SIM115 - closed below
    except FileExistsError:
        os.unlink(place)
        file = open(place, "xb")  # noqa: SIM115
    with file:
        file.write(content)
        file.flush()
        return _state(os.fstat(file.fileno()))


def _state(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev
