"""A site that is replaced whole: built beside its place, and moved there when nothing went wrong.

MkDocs empties the site's folder before it begins. A full disk, Ctrl-C or a fault in a page would
leave half a site where a good one stood.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from pathlib import Path
from typing import Final

from mkdocs.utils import CountHandler

from kvreport.atomic.folders import make_readable, recover, replace_folder
from kvreport.atomic.workspace import Workspace, claim, sweep

log = logging.getLogger("mkdocs.plugins.kvreport")

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})
"""What a system answers to a write only."""


class Staging:
    """Where a site is built before it takes its place."""

    def __init__(self, place: Path, workspace: Workspace) -> None:
        """Build in a workspace what shall stand in ``place``."""
        self.place = place
        self._workspace = workspace

    @property
    def folder(self) -> Path:
        """The folder that the site is built in, on the same file system."""
        return self._workspace.folder

    def publish(self) -> None:
        """Put the site in its place, readable for a web server; what stood there is removed after.

        Raises:
            OSError: If the system refuses; the place then holds the last good site.
        """
        try:
            make_readable(self.folder)
            replace_folder(self.folder, self.place)
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove what was built and not published."""
        self._workspace.close()


def stage(place: Path) -> Staging | None:
    """Return a new folder beside ``place``, or None if there can be none.

    Whatever an earlier build left when it was killed is put right first: a site that was moved aside
    returns, and folders whose build is gone are removed.
    """
    prefix = f".{place.name}-building-"
    try:
        if recover(place):
            log.info("the last good site is back: a build ended while it was being replaced")
        sweep(place.parent, prefix)
        return Staging(place, claim(place.parent, prefix))
    except OSError as error:
        log.info("the site is built in place: %s", error)
        return None


def refusal(error: BaseException, place: Path) -> str | None:
    """Say in a sentence that the system refuses to write a site; None if the error is of another kind."""
    if isinstance(error, shutil.Error):
        # copytree collects (source, target, text) of every file that it could not copy.
        first = error.args[0][0] if error.args and isinstance(error.args[0], list) else error.args
        reason = str(first[-1]) if first else "files cannot be copied"
    elif isinstance(error, OSError) and (
        error.errno in _FULL or (error.errno in (errno.EACCES, errno.EPERM) and not _writable(place))
    ):
        reason = f"{os.strerror(error.errno or 0)}{f': {error.filename}' if error.filename else ''}"
    else:
        return None
    return f"site_dir: found {place}, which cannot be written ({reason}); allowed: a folder with room that can be"


def _writable(place: Path) -> bool:
    """Whether a folder, or what it would be made in, can be written."""
    found = next(folder for folder in (place, *place.absolute().parents) if folder.exists())
    return os.access(found, os.W_OK)


def warned() -> bool:
    """Say whether the host has counted warnings that will stop a strict build."""
    counters = (h for h in logging.getLogger("mkdocs").handlers if isinstance(h, CountHandler))
    return any(counter.get_counts() for counter in counters)
