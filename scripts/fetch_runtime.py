"""Bring Python and SQL for the browser into the build's cache: Pyodide with pydantic's core, and DuckDB.

    python scripts/fetch_runtime.py            fetch what the locks pin; without a registry, say so and go on
    python scripts/fetch_runtime.py --pin      fetch the versions of Python's lock and write their digests

Deno brings npm packages, pip brings the wheel; each asks the registry that it is set up for. Nothing of what is fetched
is run here. A file whose digest is not the lock's is refused. To raise DuckDB's version, edit `requirements/sql.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from kvreport.publish import python_runtime, sql_runtime
from kvreport.publish.vendored_files import Runtime

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements" / python_runtime.RUNTIME.pins
CACHE = ROOT / ".cache" / "kvreport"
TIMEOUT_SECONDS = 300
FROM_PYODIDE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
DESCRIPTION = "pyodide-lock.json"


def run(folder: Path, *command: str | Path) -> str:
    """Run one fetching program in a folder; return what went wrong, or ""."""
    environment = {
        **os.environ,
        "DENO_NO_UPDATE_CHECK": "1",
        "NO_COLOR": "1",
        "DENO_DIR": str(folder / "deno"),
    }
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
    return next((line for line in lines if line.lower().startswith("error")), lines[-1])


def package(folder: Path, name: str) -> tuple[Path, str]:
    """Let Deno bring an npm package into a folder; return where its files are, and what went wrong, or ""."""
    (folder / "deno.json").write_text("{}", encoding="utf-8")
    deno = Path(sys.executable).with_name("deno")
    fault = run(folder, deno, "cache", "--node-modules-dir=auto", f"npm:{name}")
    return folder / "node_modules" / name.rpartition("@")[0], fault


def fetch_python(target: Path) -> str:
    """Fetch Pyodide and pydantic's core into a folder; return what went wrong, or ""."""
    lock = python_runtime.RUNTIME.lock()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        pyodide, fault = package(folder, f"pyodide@{lock['pyodide']}")
        if fault:
            return f"pyodide: {fault}"
        python = str(lock["python"])
        fault = run(
            folder, sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
            "--python-version", python, "--implementation", "cp", "--abi", f"cp{python.replace('.', '')}",
            "--platform", f"{lock['platform']}_wasm32", "--dest", folder, f"pydantic-core=={lock['pydantic_core']}",
        )  # fmt: skip
        wheels = list(folder.glob("pydantic_core-*.whl"))
        if fault or not wheels:
            return f"pydantic-core: {fault or 'no wheel'}"
        target.mkdir(parents=True, exist_ok=True)
        for name in (*FROM_PYODIDE, DESCRIPTION):
            shutil.copyfile(pyodide / name, target / name)
        shutil.copyfile(wheels[0], target / "pydantic_core.whl")
    return ""


def fetch_sql(target: Path) -> str:
    """Fetch DuckDB into a folder; return what went wrong, or ""."""
    lock = sql_runtime.RUNTIME.lock()
    with tempfile.TemporaryDirectory() as temporary:
        duckdb, fault = package(Path(temporary), f"@duckdb/duckdb-wasm@{lock['duckdb_wasm']}")
        if fault:
            return fault
        target.mkdir(parents=True, exist_ok=True)
        for name in lock["files"]:
            shutil.copyfile(duckdb / "dist" / name, target / name)
    return ""


RUNTIMES = (
    (python_runtime.RUNTIME, fetch_python, "Python", "the page 'Your model' will name the command"),
    (sql_runtime.RUNTIME, fetch_sql, "DuckDB", "the explorer will show queries to copy"),
)
"""What is fetched, how, its name, and what a site without it has instead."""


def bring(cache: Path, runtime: Runtime, fetch: Callable[[Path], str], name: str, instead: str) -> int:
    """Fetch what a cache lacks; return 0 whether or not there was a registry: a site without the tool is whole too.

    Args:
        cache: The build's cache.
        runtime: The files.
        fetch: Fetches them into a folder, and returns what went wrong.
        name: What they are.
        instead: What a site without them has.
    """
    if runtime.found(cache):
        return 0
    target = cache / runtime.kept
    fault = fetch(target)
    if fault:
        print(f"· {name} for the browser could not be fetched ({fault}); {instead}")
        return 0
    if not runtime.found(cache):
        print(
            f"fetched files are not those that requirements/{runtime.pins} pins; they are not used",
            file=sys.stderr,
        )
        shutil.rmtree(target)
        return 1
    print(f"· fetched {name} for the browser")
    return 0


def pin(cache: Path) -> int:
    """Fetch the versions that Python's lock names, and write the digests of what was fetched into it."""
    target = cache / python_runtime.RUNTIME.kept
    fault = fetch_python(target)
    if fault:
        print(f"nothing is pinned: {fault}", file=sys.stderr)
        return 1
    lock = dict(python_runtime.RUNTIME.lock())
    described = json.loads((target / DESCRIPTION).read_text(encoding="utf-8"))
    lock["info"] = described["info"]
    names = [*FROM_PYODIDE, "pydantic_core.whl"]
    lock["files"] = {name: sha256((target / name).read_bytes()).hexdigest() for name in names}
    LOCK.write_text(json.dumps(lock, indent=2) + "\n", encoding="utf-8")
    return 0


def main() -> int:
    """Return 1 if something that was fetched is not what a lock pins."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument(
        "--pin", action="store_true", help="write the digests of what was fetched into Python's lock"
    )
    options.add_argument("--cache", type=Path, default=CACHE, help="cache of the build")
    asked = options.parse_args()
    if asked.pin:
        return pin(asked.cache)
    return max([bring(asked.cache, *one) for one in RUNTIMES])


if __name__ == "__main__":
    sys.exit(main())
