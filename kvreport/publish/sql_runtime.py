"""SQL in the browser: DuckDB as WebAssembly, which the explorer loads on a click to query the published Parquet file.

``scripts/fetch_runtime.py`` brings the files into the build's cache and ``requirements/sql.json`` pins them by SHA-256.
The pinned release reads Parquet by itself; later ones fetch that part from a server of their makers while a page
runs. A build whose cache is empty publishes queries to copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kvreport.publish import vendored_files

FOLDER: Final = "assets/duckdb"
RUNTIME: Final = vendored_files.Runtime("sql.json", "sql")
WORKER: Final = "duckdb-browser-eh.worker.js"
"""Started by its address: a policy that allows scripts of this site only allows no other."""


def files(cache: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of every file that the explorer loads; nothing where they were not fetched."""
    kept = RUNTIME.found(cache)
    if kept:
        version = RUNTIME.lock()["duckdb"]
        yield from vendored_files.publish(
            FOLDER, kept, cache, plain=(WORKER,), worker=WORKER, version=version
        )
