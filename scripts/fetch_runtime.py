"""Bring Python for the browser into the build's cache: Pyodide, and pydantic's core compiled for it.

    python scripts/fetch_runtime.py            fetch what the lock pins; without a registry, say so and go on
    python scripts/fetch_runtime.py --pin      fetch the versions that the lock names and write their digests

Deno brings Pyodide as an npm package, pip brings the wheel; each asks the registry that it is set up for. Nothing of
what is fetched is run here. A file whose digest is not the lock's is refused.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

from kvreport.publish import python_runtime

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


def fetch(lock: dict[str, object], target: Path) -> str:
    """Fetch what the lock names into a folder; return what went wrong, or ""."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "deno.json").write_text("{}", encoding="utf-8")
        deno = Path(sys.executable).with_name("deno")
        package = f"npm:pyodide@{lock['pyodide']}"
        fault = run(folder, deno, "cache", "--node-modules-dir=auto", package)
        if fault:
            return f"pyodide: {fault}"
        for name in (*FROM_PYODIDE, DESCRIPTION):
            shutil.copyfile(folder / "node_modules" / "pyodide" / name, target / name)
        python = str(lock["python"])
        fault = run(
            folder, sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
            "--python-version", python, "--implementation", "cp", "--abi", f"cp{python.replace('.', '')}",
            "--platform", f"{lock['platform']}_wasm32", "--dest", folder, f"pydantic-core=={lock['pydantic_core']}",
        )  # fmt: skip
        wheels = list(folder.glob("pydantic_core-*.whl"))
        if fault or not wheels:
            return f"pydantic-core: {fault or 'no wheel'}"
        shutil.copyfile(wheels[0], target / "pydantic_core.whl")
    return ""


def bring(cache: Path, *, pin: bool = False) -> int:
    """Fetch what a cache lacks; return 0 whether or not there was a registry: a site without the tool is whole too.

    Args:
        cache: The build's cache.
        pin: Whether to write the digests of what was fetched into the lock.
    """
    if not pin and python_runtime.RUNTIME.found(cache):
        return 0
    lock = json.loads(LOCK.read_text(encoding="utf-8"))
    target = cache / python_runtime.RUNTIME.kept
    fault = fetch(lock, target)
    if fault:
        print(
            f"· Python for the browser could not be fetched ({fault}); the page 'Your model' will name the command"
        )
        return 0
    if pin:
        names = [*FROM_PYODIDE, "pydantic_core.whl"]
        described = json.loads((target / DESCRIPTION).read_text(encoding="utf-8"))
        lock["info"] = described["info"]
        lock["files"] = {name: sha256((target / name).read_bytes()).hexdigest() for name in names}
        LOCK.write_text(json.dumps(lock, indent=2) + "\n", encoding="utf-8")
        return 0
    if not python_runtime.RUNTIME.found(cache):
        print(
            "fetched files are not those that requirements/browser.json pins; they are not used",
            file=sys.stderr,
        )
        shutil.rmtree(target)
        return 1
    print(f"· fetched Python {lock['python']} for the browser (Pyodide {lock['pyodide']})")
    return 0


def main() -> int:
    """Return the exit status of :func:`bring`."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument(
        "--pin", action="store_true", help="write the digests of what was fetched into the lock"
    )
    options.add_argument("--cache", type=Path, default=CACHE, help="cache of the build")
    asked = options.parse_args()
    return bring(asked.cache, pin=asked.pin)


if __name__ == "__main__":
    sys.exit(main())
