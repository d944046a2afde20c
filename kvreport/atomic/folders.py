"""One folder in place of another: exchanged in one step where the system can, restorable where it cannot.

Linux exchanges two names with ``renameat2(RENAME_EXCHANGE)``, macOS with ``renamex_np(RENAME_SWAP)``. Where
neither works, the old folder is moved aside, and back if the new one cannot follow. A mount point cannot
be moved at all: the new content is first written completely beside the old, inside the mount, and then
each entry changes places with its predecessor; whatever fails, the entries go back. A process that dies
in between leaves the old entries where :func:`recover` finds them.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from kvreport.atomic.files import UNFINISHED

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2  # <linux/fs.h>; RENAME_SWAP of macOS' <sys/stdio.h> has the same value
_UNSUPPORTED: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM})

_OLD: Final = ".kvreport-old"
_MAKING: Final = ".kvreport-old-making"
_NEW: Final = ".kvreport-new"
_LOCK: Final = ".kvreport-lock"
_JOURNAL: Final = ".journal"
"""Inside the folder of old entries: which entries had a predecessor, and which had none."""


def exchange(one: Path, other: Path) -> bool:
    """Let two existing names change places in one step.

    Returns:
        False where the system or the file system has no such step; then nothing has changed.

    Raises:
        OSError: If it has, and refuses (a mount point, a missing name).
    """
    library = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
    first, second = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin" and library is not None and hasattr(library, "renamex_np"):
        status = library.renamex_np(first, second, _RENAME_EXCHANGE)
    elif library is not None and hasattr(library, "renameat2"):
        status = library.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _RENAME_EXCHANGE)
    else:
        return False
    if status == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))


def replace_folder(new: Path, place: Path) -> None:
    """Put a folder in a place; what stood there is gone when this returns, and back if it fails.

    Args:
        new: A complete folder on the same file system as the place's parent; it is moved or copied.
        place: Where it shall stand: missing, a folder, or a mount point.

    Raises:
        OSError: If the system refuses; the place then holds what it held before.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    with _locked(_beside(place, "lock")):
        _recover(place)
        if not place.exists():
            new.rename(place)
            return
        if not _is_mount(place) and new.stat().st_dev == place.stat().st_dev and _exchanged(new, place):
            return
    _replace_content(new, place)


def _exchanged(new: Path, place: Path) -> bool:
    """Exchange two folders in one step or in two; False if the place is a mount of the same file system."""
    try:
        if exchange(new, place):
            return True
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.EXDEV, errno.EACCES):
            return False
        raise
    before = _beside(place, "before")
    place.rename(before)
    try:
        new.rename(place)
    except BaseException:
        before.rename(place)
        raise
    remove(before)
    return True


def recover(place: Path) -> bool:
    """Bring back what a process left half replaced when it died.

    Returns:
        Whether there was anything to bring back.
    """
    if not place.parent.is_dir():
        return False
    with _locked(_beside(place, "lock")):
        if _recover(place):
            return True
    if not any((place / name).exists() for name in (_OLD, _MAKING, _NEW, _LOCK)):
        return False
    with _locked(place / _LOCK):
        return _put_back(place)


def _recover(place: Path) -> bool:
    before = _beside(place, "before")
    if not before.is_dir():
        return False
    if place.exists():
        remove(before)  # the new folder stands; its predecessor was about to be removed
        return False
    before.rename(place)
    return True


def _beside(place: Path, role: str) -> Path:
    return place.with_name(f".{place.name}-{role}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait until nobody else replaces the same folder, in this container or another.

    Where files cannot be locked, nobody waits: one build at a time is then the owner's affair.
    """
    file = None
    if fcntl is not None:
        with suppress(OSError):
            while True:
                file = path.open("ab")
                fcntl.flock(file, fcntl.LOCK_EX)
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                        break
                file.close()
    try:
        yield
    finally:
        if file is not None:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            file.close()


def remove(path: Path) -> None:
    """Remove a file, a link or a folder, as far as that is possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def make_readable(folder: Path) -> None:
    """Let everybody read a folder and what is in it, as a web server of another user has to.

    A build under ``umask 077`` makes files that only its own user can read. Nobody but the owner may write.
    """
    _let_read(folder, folder.stat())
    folders = [os.fspath(folder)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    continue
                _let_read(entry, entry.stat())
                if entry.is_dir():
                    folders.append(entry.path)


def _let_read(path: os.PathLike[str], found: os.stat_result) -> None:
    mode = stat.S_IMODE(found.st_mode)
    wanted = (mode & ~0o022) | (0o755 if stat.S_ISDIR(found.st_mode) else 0o644)
    if mode != wanted:
        Path(path).chmod(wanted)


def _is_mount(place: Path) -> bool:
    return os.path.ismount(place) or place.is_symlink()


def _replace_content(new: Path, place: Path) -> None:
    """Replace what lies in a folder that cannot itself be moved."""
    staged = place / _NEW
    with _locked(place / _LOCK):
        _put_back(place)
        try:
            # Everything that may run out of space comes first, while the old entries still stand.
            shutil.copytree(new, staged, symlinks=True)
            names = sorted(path.name for path in staged.iterdir())
            ours = (_NEW, _OLD, _LOCK)
            gone = [path.name for path in place.iterdir() if path.name not in (*names, *ours)]
            _replace(staged, place, names, gone, "")
        finally:
            remove(staged)


def replace_entries(
    staged: Path, place: Path, names: Sequence[str], gone: Sequence[str] = (), *, ending: str = ""
) -> None:
    """Put files or folders in the places of their predecessors, all of them or none.

    Args:
        staged: Where they are, on the same file system.
        place: The folder that they go to; what is not named there stays.
        names: Relative paths of the entries, ``/`` between.
        gone: Entries of the place to remove at the same time.
        ending: What their names end in where they are staged.

    Raises:
        OSError: If the system refuses; the place then holds what it held before.
    """
    with _locked(place / _LOCK):
        _put_back(place)
        _replace(staged, place, names, [name for name in gone if (place / name).exists()], ending)


def _replace(staged: Path, place: Path, names: Sequence[str], gone: Sequence[str], ending: str) -> None:
    old, making = place / _OLD, place / _MAKING
    replaced = [*(name for name in names if os.path.lexists(place / name)), *gone]
    wanted = frozenset(names)
    journal = {"added": sorted({*names} - {*replaced}), "replaced": replaced}
    try:
        remove(making)
        making.mkdir()
        (making / _JOURNAL).write_text(json.dumps(journal), encoding="utf-8")
        making.rename(old)
        for name in replaced:
            # No reader's pattern matches what waits: it is there only until all are replaced, or for good
            # if this process is killed and nobody builds again.
            _move(place / name, old / f"{name}{UNFINISHED}")
            if name in wanted:
                _move(staged / f"{name}{ending}", place / name)
        for name in journal["added"]:
            _move(staged / f"{name}{ending}", place / name)
        # From here on the new entries are the good ones: without the journal nothing is put back.
        (old / _JOURNAL).unlink()
    except BaseException:
        remove(making)
        _put_back(place)
        raise
    remove(old)


def _move(source: Path, target: Path) -> None:
    if not target.parent.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)


def _put_back(place: Path) -> bool:
    """Undo :func:`_replace`, from whatever point it came to; return whether there was something to undo."""
    old = place / _OLD
    journal = old / _JOURNAL
    undone = journal.is_file()
    if undone:
        listed = json.loads(journal.read_text(encoding="utf-8"))
        for name in listed["added"]:
            remove(place / name)
        for name in listed["replaced"]:
            waiting = old / f"{name}{UNFINISHED}"
            if os.path.lexists(waiting):
                remove(place / name)
                waiting.rename(place / name)
        journal.unlink()
    # Without a journal the replacement was complete, and the old entries were being removed.
    for left in (old, place / _MAKING, place / _NEW):
        remove(left)
    return undone
