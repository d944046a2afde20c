"""SQL in the browser: DuckDB as WebAssembly, which the explorer loads on a click to query the published Parquet file.

``scripts/fetch_sql.py`` brings the files into the build's cache and ``requirements/sql.json`` pins them by SHA-256.
The pinned release reads Parquet by itself; later ones fetch that part from a server of their makers while a page
runs. A build whose cache is empty publishes queries to copy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from kvreport import resources
from kvreport.publish import pinned

FOLDER: Final = "assets/duckdb"
LOCK: Final = "sql.json"
KEPT: Final = "sql"
"""Folder of the cache that holds the fetched files."""

WORKER: Final = "duckdb-browser-eh.worker.js"
"""Started by its address: a policy that allows scripts of this site only allows no other."""


@lru_cache(maxsize=1)
def lock() -> Mapping[str, Any]:
    """Return the pins: the version, and each file's digest."""
    loaded: Mapping[str, Any] = json.loads((resources.requirements_dir() / LOCK).read_text(encoding="utf-8"))
    return loaded


def found(cache: Path) -> dict[str, bytes]:
    """Return the files that a cache holds; none unless all are those of the lock."""
    return pinned.read(cache / KEPT, lock()["files"])


def state(cache: Path) -> str:
    """Return what of these files a build depends on."""
    return sha256(json.dumps(lock()["files"]).encode()).hexdigest() if found(cache) else ""


def files(cache: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of every file that the explorer loads; nothing where they were not fetched."""
    kept = found(cache)
    if kept:
        yield from pinned.publish(
            FOLDER, kept, cache, plain=(WORKER,), worker=WORKER, version=lock()["duckdb"]
        )
