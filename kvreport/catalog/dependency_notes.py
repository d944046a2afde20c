"""Which model records something was made from: what was made without a record does not change with it.

Inside a process, :func:`noting` collects what is read. For a notebook's kernel, the build names a folder in
``KVREPORT_READS``, and kernels append notes to a file there. A note is written at once, because a kernel may be ended
without a word. No other process writes one.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

FOLDER: Final = "KVREPORT_READS"
"""The environment variable that names the folder of notes."""

EVERYTHING: Final = "*"
"""Stands for a look at all records."""

_KERNEL: Final = "ipykernel_launcher"
_SUFFIX: Final = ".reads"

Note = tuple[str, str, bool]
"""The catalog's folder, a name that was looked up or a file's stem that was read, and whether it is a file's."""


_collecting: list[set[Note]] = []


@contextmanager
def noting() -> Iterator[set[Note]]:
    """Collect what is read while the block runs, in this process and thread."""
    found: set[Note] = set()
    _collecting.append(found)
    try:
        yield found
    finally:
        _collecting.pop()


@cache
def _resolved(catalog: Path) -> str:
    return str(catalog.resolve())


def replay(notes: Iterable[Note]) -> None:
    """Note what something that was kept had read when it was made."""
    for notes_of_block in _collecting:
        notes_of_block.update(notes)


def again(catalog: Path, stem: str) -> None:
    """Note that a record was used which was read before; only :func:`noting` asks for it."""
    for notes_of_block in _collecting:
        notes_of_block.add((_resolved(catalog), stem, True))


def note(catalog: Path, name: str, *, read: bool = False) -> None:
    """Note that a name was looked up or a file read.

    The ``name`` may be a file's stem, or :data:`EVERYTHING`; a file was ``read``.
    """
    for notes_of_block in _collecting:
        notes_of_block.add((_resolved(catalog), name, read))
    folder = os.environ.get(FOLDER)
    if not folder or Path(sys.argv[0]).stem != _KERNEL or not Path(folder).is_dir():
        return  # nobody reads notes, or the build that did has ended
    with Path(folder, f"{os.getpid()}{_SUFFIX}").open("a", encoding="utf-8") as notes:
        notes.write(json.dumps([str(catalog.resolve()), name, read]) + "\n")


def notes(folder: Path) -> frozenset[Note]:
    """Return what all kernels noted in a folder."""
    return frozenset(
        (str(catalog), str(name), bool(read))
        for path in sorted(folder.glob(f"*{_SUFFIX}"))
        for catalog, name, read in map(json.loads, path.read_text(encoding="utf-8").splitlines())
    )
