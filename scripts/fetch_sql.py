"""Bring SQL for the browser into the build's cache: DuckDB compiled to WebAssembly.

    python scripts/fetch_sql.py            fetch what the lock pins; without a registry, say so and go on

Deno brings it as an npm package, from the registry that it is set up for. Nothing of what is fetched is run here. A
file whose digest is not the lock's is refused. To raise the version, edit `requirements/sql.json`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from fetch_runtime import CACHE, run

from kvreport.publish import sql_runtime


def fetch(target: Path) -> str:
    """Fetch what the lock names into a folder; return what went wrong, or ""."""
    lock = sql_runtime.RUNTIME.lock()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "deno.json").write_text("{}", encoding="utf-8")
        deno = Path(sys.executable).with_name("deno")
        package = f"npm:@duckdb/duckdb-wasm@{lock['duckdb_wasm']}"
        fault = run(folder, deno, "cache", "--node-modules-dir=auto", package)
        if fault:
            return fault
        target.mkdir(parents=True, exist_ok=True)
        for name in lock["files"]:
            shutil.copyfile(folder / "node_modules/@duckdb/duckdb-wasm/dist" / name, target / name)
    return ""


def bring(cache: Path) -> int:
    """Fetch what a cache lacks; return 0 whether or not there was a registry: a site without the tool is whole too.

    Args:
        cache: The build's cache.
    """
    if sql_runtime.RUNTIME.found(cache):
        return 0
    fault = fetch(cache / sql_runtime.RUNTIME.kept)
    if fault:
        print(
            f"· DuckDB for the browser could not be fetched ({fault}); the explorer will show queries to copy"
        )
        return 0
    if not sql_runtime.RUNTIME.found(cache):
        print(
            "fetched files are not those that requirements/sql.json pins; they are not used", file=sys.stderr
        )
        shutil.rmtree(cache / sql_runtime.RUNTIME.kept)
        return 1
    print(f"· fetched DuckDB {sql_runtime.RUNTIME.lock()['duckdb']} for the browser")
    return 0


def main() -> int:
    """Return the exit status of :func:`bring`."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--cache", type=Path, default=CACHE, help="cache of the build")
    return bring(options.parse_args().cache)


if __name__ == "__main__":
    sys.exit(main())
