"""A site that is replaced whole: built beside its place, and moved there when nothing went wrong.

MkDocs empties the site's folder before it begins. A full disk, Ctrl-C or a fault in a page would
leave half a site where a good one stood.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
from pathlib import Path

from mkdocs.utils import CountHandler

log = logging.getLogger("mkdocs.plugins.kvreport")


class Staging:
    """Where a site is built before it takes its place.

    Attributes:
        place: The site's folder.
        folder: The folder that it is built in, on the same file system.
    """

    def __init__(self, place: Path, folder: Path) -> None:
        """Build in ``folder`` what shall stand in ``place``."""
        self.place = place
        self.folder = folder

    def publish(self) -> None:
        """Put the site in its place; what stood there is removed after."""
        before = self.folder.with_name(f"{self.folder.name}-before")
        try:
            if self.place.exists():
                self.place.rename(before)
            self.folder.rename(self.place)
        except OSError:
            # The place is a mount point, say: it cannot be moved, but what lies in it can be replaced.
            self.place.mkdir(parents=True, exist_ok=True)
            for old in self.place.iterdir():
                _remove(old)
            for new in self.folder.iterdir():
                shutil.move(new, self.place)
        _remove(before)
        self.discard()

    def discard(self) -> None:
        """Remove what was built and not published."""
        _remove(self.folder)
        atexit.unregister(self.discard)


def stage(place: Path) -> Staging | None:
    """Return a new folder beside ``place``, or None if there can be none."""
    for left in place.parent.glob(f".{place.name}-building-*"):
        if not _alive(left.name.split("-building-")[-1].split("-")[0]):
            _remove(left)
    folder = place.with_name(f".{place.name}-building-{os.getpid()}")
    try:
        _remove(folder)
        folder.mkdir(parents=True)
    except OSError as error:
        log.info("the site is built in place: %s", error)
        return None
    made = Staging(place, folder)
    atexit.register(made.discard)
    return made


def warned() -> bool:
    """Say whether the host has counted warnings that will stop a strict build."""
    counters = (h for h in logging.getLogger("mkdocs").handlers if isinstance(h, CountHandler))
    return any(counter.get_counts() for counter in counters)


def _alive(number: str) -> bool:
    if not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
