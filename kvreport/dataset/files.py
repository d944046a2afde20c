"""Folders of files that appear whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvreport.errors import InputError, shorten


class Staging:
    """Files on their way into a folder.

    Attributes:
        folder: Where they are written for now; on the same file system as their place.
    """

    def __init__(self, folder: Path, target: Path) -> None:
        """Write into ``folder`` what shall stand in ``target``."""
        self.folder = folder
        self._target = target
        self.names: list[str] = []

    def path(self, name: str) -> Path:
        """Return where to write the file that will be called ``name`` (with ``/`` for folders)."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self.names.append(name)
        return path

    def write(self, name: str, content: bytes) -> None:
        """Write one file."""
        self.path(name).write_bytes(content)

    def digest(self, name: str) -> tuple[int, str]:
        """Return the size and SHA-256 of a file that was written."""
        with (self.folder / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
        return (self.folder / name).stat().st_size, digest.hexdigest()

    def publish(self) -> None:
        """Put every file in its place; each replaces its predecessor at once."""
        for name in self.names:
            place = self._target / name
            place.parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).replace(place)


@contextmanager
def staged(target: Path) -> Iterator[Staging]:
    """Collect files for ``target``; they are put there only if nothing fails before the end.

    Raises:
        InputError: If ``target`` cannot be a folder.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".kvreport-", dir=target))
    except OSError as error:
        raise InputError(
            f"out: found {shorten(str(target))}, {error.strerror or error}; allowed: a folder that can be written"
        ) from error
    try:
        staging = Staging(folder, target)
        yield staging
        staging.publish()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def checksums(staging: Staging) -> bytes:
    """Return ``SHA256SUMS`` over every file so far, as ``sha256sum --check`` reads it."""
    lines = [f"{staging.digest(name)[1]}  {name}\n" for name in sorted(staging.names)]
    return "".join(lines).encode()


def available_processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
