"""One file, written whole or not at all."""

from __future__ import annotations

import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

UNFINISHED: Final = ".part"
"""Ending of every file on its way: no reader's pattern (``*.parquet``, ``*.json``) matches it."""

_ABANDONED_SECONDS: Final = 24 * 3600


def write_whole(path: Path, content: bytes, *, before: bytes = b"", durable: bool = False) -> None:
    """Write a file in one step; a reader sees the old one or the new one, never a part.

    A file that already has this content is left alone.

    Args:
        path: The file; its folder is made if missing.
        content: What it shall hold.
        before: What stands before that: joined with it, a large content would be copied.
        durable: Whether it shall be on the disk before it takes its place, so that not even a power cut
            leaves an empty file under its name.

    Raises:
        OSError: If the system refuses; the old file is then as it was.
    """
    if (
        path.is_file()
        and path.stat().st_size == len(before) + len(content)
        and path.read_bytes() == before + content
    ):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not the process id alone: builds in two containers that share a volume may have the same one.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}{UNFINISHED}")
    try:
        with temporary.open("wb") as file:
            for part in filter(None, (before, content)):
                file.write(part)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def sweep_unfinished(folder: Path, *, seconds: float = _ABANDONED_SECONDS) -> int:
    """Remove files that :func:`write_whole` began and a killed process never finished.

    Args:
        folder: Where to look; folders in it are looked through too.
        seconds: Age from which a file counts as abandoned.

    Returns:
        How many were removed.
    """
    before, removed = time.time() - seconds, 0
    for path in folder.rglob(f".*{UNFINISHED}"):
        with suppress(OSError):
            if path.is_file() and path.stat().st_mtime <= before:
                path.unlink()
                removed += 1
    return removed
