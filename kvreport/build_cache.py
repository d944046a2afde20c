"""The state that something was made from, as a digest; and what is kept under it between builds."""

from __future__ import annotations

import json
import logging
import pickle
import shutil
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from kvreport.atomic.files import sweep_unfinished, write_whole
from kvreport.resources import package_dir

log = logging.getLogger("kvreport.cache")

_KEPT: Final = 2
_SEAL_BYTES: Final = 32
_SKIPPED: Final = {"__pycache__"}


def digest(roots: Iterable[Path], packages: Iterable[str], *values: object) -> str:
    """Return a digest of files, of installed packages' versions and of plain values."""
    found = sha256(json.dumps([[*values], [version(name) for name in packages]]).encode())
    for root in roots:
        paths = [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.is_file())
        for path in paths:
            if _SKIPPED.isdisjoint(path.parts):
                found.update(path.relative_to(root.parent).as_posix().encode() + b"\0")
                found.update(sha256(path.read_bytes()).digest())
    return found.hexdigest()[:20]


def code(without: Iterable[str] = ()) -> str:
    """Return a digest of the package's code."""
    return _code(frozenset(without))


@cache
def _code(without: frozenset[str]) -> str:
    package, found = package_dir(), sha256()
    for path in sorted((*package.rglob("*.py"), *package.glob("*.json"))):
        name = path.relative_to(package)
        if name.parts[0] not in without:
            found.update(name.as_posix().encode() + b"\0" + sha256(path.read_bytes()).digest())
    return found.hexdigest()[:20]


def recall(folder: Path, state: str) -> Any:  # noqa: ANN401 (whatever was kept)
    """Return what was kept under a state, or None.

    The folder is the build's own cache; nothing from elsewhere is ever read.
    """
    return read_kept(folder / f"{state}.pickle")


def read_kept(path: Path) -> Any:  # noqa: ANN401 (whatever was kept)
    """Return the value in a file of the build's own cache; None where it is missing, damaged or of other code."""
    content = read_sealed(path)
    if content is None:
        return None
    try:
        return pickle.loads(content)  # noqa: S301 (written by us, for us)
    except (pickle.UnpicklingError, AttributeError, EOFError, ImportError, IndexError, TypeError, ValueError):
        return None


def keep(folder: Path, state: str, value: object) -> None:
    """Keep a value under a state, and forget all but the latest others."""
    write_sealed(folder / f"{state}.pickle", pickle.dumps(value, protocol=5))
    forget(folder)


def write_sealed(path: Path, content: bytes) -> bool:
    """Keep content with its own digest in front, so that a damaged file is known for one.

    A cache is a convenience: where it cannot be written, that is said once and the build goes on.

    Returns:
        Whether the content is kept.
    """
    try:
        write_whole(path, content, before=sha256(content).digest())
    except OSError as error:
        cannot_keep(error)
        return False
    return True


def sealed(content: bytes) -> bytes:
    """Return content with its digest in front."""
    return sha256(content).digest() + content


@cache
def _told(reason: str) -> None:
    log.warning("the cache cannot be written (%s); the build goes on without it", reason)


def cannot_keep(error: OSError) -> None:
    """Warn that a cache cannot be written, once for each reason."""
    _told(error.strerror or str(error))


def read_sealed(path: Path) -> bytes | None:
    """Return what :func:`write_sealed` kept; None if there is nothing, or not all of it."""
    try:
        with path.open("rb") as file:  # read in two: cut out of one, the content would be copied
            digest, content = file.read(_SEAL_BYTES), file.read()
    except OSError:
        return None
    return content if digest == sha256(content).digest() else None


def forget(folder: Path) -> None:
    """Remove all but the latest entries of a folder of states."""
    if not folder.is_dir():
        return
    # Another build may write or forget in the same folder: its unfinished files are its own for a day.
    sweep_unfinished(folder)
    entries = [path for path in folder.iterdir() if not path.name.startswith(".")]
    for old in sorted(entries, key=_age, reverse=True)[_KEPT:]:
        if old.is_dir():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.unlink(missing_ok=True)


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
