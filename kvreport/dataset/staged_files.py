"""Folders of files that appear whole or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvreport.atomic.files import UNFINISHED
from kvreport.atomic.folders import recover, replace_entries
from kvreport.atomic.workspace import claim, sweep
from kvreport.errors import InputError, shorten

_PREFIX = ".kvreport-files-"


class StagedFiles:
    """Files on their way into a folder.

    Attributes:
        folder: Where they are written for now; on the same file system as their place. Their names there
            end in ``.part``, so that no pattern of a reader (``**/*.parquet``) takes them for finished.
        gone: Names of files that their place shall lose when these come.
    """

    def __init__(self, folder: Path, target: Path) -> None:
        """Write into ``folder`` what shall stand in ``target``."""
        self.folder = folder
        self._target = target
        self.names: list[str] = []
        self._digests: dict[str, tuple[int, str]] = {}
        self.gone: list[str] = []

    def path(self, name: str) -> Path:
        """Return where to write the file that will be called ``name`` (with ``/`` for folders)."""
        path = self._path(name)
        self._digests.pop(name, None)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.names.append(name)
        return path

    def write(self, name: str, content: bytes) -> None:
        """Write one file."""
        self.path(name).write_bytes(content)
        self._digests[name] = len(content), hashlib.sha256(content).hexdigest()

    def digest(self, name: str) -> tuple[int, str]:
        """Return the size and SHA-256 of a file that was written."""
        if name not in self._digests:
            with self._path(name).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256")
            self._digests[name] = self._path(name).stat().st_size, digest.hexdigest()
        return self._digests[name]

    def publish(self) -> None:
        """Put every file in its place, all of them or none."""
        names = tuple(dict.fromkeys(self.names))
        replace_entries(self.folder, self._target, names, self.gone, ending=UNFINISHED)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{UNFINISHED}"


@contextmanager
def staged(target: Path) -> Iterator[StagedFiles]:
    """Collect files for ``target``; they are put there only if nothing fails before the end.

    What a killed run left there is put right or removed first.

    Raises:
        InputError: If ``target`` cannot be a folder.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        recover(target)
        sweep(target, _PREFIX)
        workspace = claim(target, _PREFIX)
    except OSError as error:
        raise InputError(
            f"out: found {shorten(str(target))}, {error.strerror or error}; allowed: a folder that can be written"
        ) from error
    try:
        staging = StagedFiles(workspace.folder, target)
        yield staging
        staging.publish()
    finally:
        workspace.close()


def checksums(staging: StagedFiles) -> bytes:
    """Return ``SHA256SUMS`` over every file so far, as ``sha256sum --check`` reads it."""
    lines = [f"{staging.digest(name)[1]}  {name}\n" for name in sorted(staging.names)]
    return "".join(lines).encode()


def listed(folder: Path, sums: str = "SHA256SUMS") -> tuple[str, ...]:
    """Return the names of files that an earlier run's checksums list, as far as they can be read."""
    try:
        lines = (folder / sums).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ()
    names = (line.partition("  ")[2] for line in lines)
    return tuple(name for name in names if name and not name.startswith("/") and ".." not in name.split("/"))


def available_processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
