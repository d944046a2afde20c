"""Compiled templates kept between builds, ours and the theme's: a hundred of them take longer than they are used for."""

from __future__ import annotations

import pickle
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import BytecodeCache

from kvreport.build_cache import code, read_under, write_sealed

if TYPE_CHECKING:
    from jinja2.bccache import Bucket


class Bytecode(BytecodeCache):
    """Compiled templates in one file; the host's code and ours, which decide how they are compiled, belong to its state."""

    def __init__(self, path: Path) -> None:
        """Take what is kept in a file."""
        self._path = path
        self._state = (code(), *(version(name) for name in ("jinja2", "mkdocs", "mkdocs-material")))
        self._kept: dict[tuple[str, str], bytes] = {}
        self._used: dict[tuple[str, str], bytes] = {}
        found = read_under(path, self._state, 1)
        if found is not None:
            self._kept = found[0]

    def load_bytecode(self, bucket: Bucket) -> None:
        """Give a template its code, if it is kept for this text."""
        key = (bucket.key, bucket.checksum)
        found = self._used.get(key) or self._kept.get(key)
        if found is not None:
            self._used[key] = found
            bucket.bytecode_from_string(found)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep a template's code."""
        self._used[bucket.key, bucket.checksum] = bucket.bytecode_to_string()

    def finish(self) -> None:
        """Write what this build used, if it is not what is kept."""
        if self._used.keys() != self._kept.keys():
            write_sealed(self._path, pickle.dumps((self._state, self._used), protocol=5))
