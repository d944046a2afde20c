"""Temporary folders that are swept once their owner is gone.

A folder's name ends in a random word, and beside it lies a file that its owner keeps locked. The system
releases the lock when the process ends, however it ends, so whoever comes later can tell an abandoned folder
from one in use, also when both run in containers that share a volume and have the same process ids.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from kvreport.atomic.folders import remove

if sys.platform == "win32":  # a file that is open cannot be removed there, which serves as well
    LOCK_EX = LOCK_NB = 0

    def flock(fd: object, operation: int, /) -> None:
        """Lock nothing."""

else:
    from fcntl import LOCK_EX, LOCK_NB, flock

_LOCK: Final = ".lock"


class Workspace:
    """A temporary folder with an owner."""

    def __init__(self, folder: Path, lock: IO[bytes]) -> None:
        """Own a folder whose lock is held; use :func:`claim`."""
        self.folder = folder
        self._lock = lock
        self._owner = os.getpid()
        atexit.register(self.close)

    def close(self) -> None:
        """Remove the folder with everything in it."""
        if os.getpid() != self._owner:  # a forked child leaves its parent's folder alone
            return
        remove(self.folder)
        _drop(_lock_of(self.folder), self._lock)
        atexit.unregister(self.close)


def claim(parent: Path, prefix: str, *, make: bool = True) -> Workspace:
    """Make a folder that nobody else has.

    Args:
        parent: Where; made if missing.
        prefix: What its name begins with; :func:`sweep` finds it by that.
        make: Whether to make the folder itself; False reserves its name.

    Raises:
        OSError: If the parent cannot be written.
    """
    parent.mkdir(parents=True, exist_ok=True)
    while True:
        folder = parent / f"{prefix}{secrets.token_hex(6)}"
        lock = _lock_of(folder).open("xb")
        try:
            # Between its making and its locking a sweep may have taken the file for an abandoned one.
            if _try_lock(lock) and _same(lock, _lock_of(folder)):
                if make:
                    folder.mkdir()
                return Workspace(folder, lock)
        except BaseException:
            _drop(_lock_of(folder), lock)
            raise
        lock.close()


def sweep(parent: Path, prefix: str) -> int:
    """Remove folders whose owner is gone.

    Returns:
        How many were removed.
    """
    removed = 0
    for folder in _folders(parent, prefix):
        path = _lock_of(folder)
        try:
            lock = path.open("rb")
        except FileNotFoundError:
            remove(folder)  # the lock comes first and goes last: without it nobody owns the folder
            removed += 1
            continue
        except OSError:
            continue
        if not _try_lock(lock):
            lock.close()
            continue
        remove(folder)
        _drop(path, lock)
        removed += 1
    return removed


def _folders(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield the folders there are, and those of which only the lock is left."""
    names = (
        {path.name.removesuffix(_LOCK) for path in parent.glob(f"{prefix}*")} if parent.is_dir() else set()
    )
    yield from (parent / name for name in sorted(names))


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{_LOCK}")


def _try_lock(file: IO[bytes]) -> bool:
    try:
        flock(file, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # A file system without locks: nothing can be told, so nothing counts as abandoned.
        return file.writable()
    return True


def _same(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.sameopenfile(file.fileno(), file.fileno()) and os.path.samestat(
            os.fstat(file.fileno()), path.stat()
        )
    except OSError:
        return False


def _drop(path: Path, file: IO[bytes]) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        file.close()
