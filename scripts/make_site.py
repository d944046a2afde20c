"""Make the site: bring what runs in the browser, and build, unless the site is what a build would make.

    python scripts/make_site.py            what `make site` runs; anything after it goes to `mkdocs build --strict`

A build records what the site was made from (every file of the project, the packages, the settings of the environment)
and what it left (name, bytes and time of change of every file of the site). Where neither differs from now, there is
nothing to do, and nothing of the site's machinery is loaded to find that out.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Iterator
from hashlib import sha256
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType

import fetch_runtime
import fetch_sql

from kvreport import resources
from kvreport.build_cache import read_sealed, write_sealed
from kvreport.publish import python_runtime, sql_runtime

ROOT = Path(__file__).resolve().parents[1]
PLACE = "site"
CONFIG = "mkdocs.yml"
RECORD = Path(".cache", "kvreport", "site.record")
MADE = ("site", "build", "dist")
"""Folders of the project that nothing is made from, beside those whose names begin with a full stop."""
SETTINGS = ("SOURCE_DATE_EPOCH", "NO_MKDOCS_2_WARNING")
LATER = ("jupytext", "mkdocs_jupyter.convert")
"""Modules that are needed where a chapter is executed, and take half a second."""


def state(root: Path) -> str:
    """Return a digest of everything that decides the site of a project."""
    found = sha256()
    for path in inputs(root):
        found.update(path.relative_to(root).as_posix().encode() + b"\0" + sha256(path.read_bytes()).digest())
    config = (root / CONFIG).read_text(encoding="utf-8")
    named = re.findall(r"[A-Z][A-Z0-9_]+", " ".join(re.findall(r"!ENV\s*(\[[^\]]*\]|\S+)", config)))
    settings = {name for name in os.environ if name.startswith("KVREPORT_")}.union(named, SETTINGS)
    cache = root / RECORD.parent
    told = (
        sorted((name, os.environ.get(name)) for name in settings),
        sorted({f"{one.name} {one.version}" for one in distributions()}),
        sys.version,
        str(resources.package_dir()),
        python_runtime.state(cache),
        sql_runtime.state(cache),
        sys.argv[1:],
    )
    found.update(repr(told).encode())
    return found.hexdigest()


def inputs(root: Path) -> Iterator[Path]:
    """Yield every file of a project that a site may be made from."""
    for path in sorted(root.iterdir()):
        if path.name.startswith(".") or path.name in MADE:
            continue
        yield from [path] if path.is_file() else _below(path)


def _below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if path.name != "__pycache__":
                yield from _below(path)
        elif path.is_file():
            yield path


def listing(site: Path) -> str:
    """Return a digest of what lies in a site: each file's name, number, bytes and time of change."""
    found: list[tuple[object, ...]] = []
    folders = [str(site)] if site.is_dir() else []
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                told = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                    found.append((entry.path, told.st_mode))
                else:
                    found.append((entry.path, told.st_mode, told.st_size, told.st_mtime_ns, told.st_ino))
    return sha256(repr(sorted(found)).encode()).hexdigest() if found else ""


def record(now: str, there: str) -> bytes:
    """Return what is kept of a build: what it was made from and what it left."""
    return f"{now} {there}".encode()


def build(arguments: list[str]) -> int:
    """Build with MkDocs; return its exit status."""
    for name in LATER:
        load_when_used(name)
    from mkdocs.__main__ import cli

    try:
        cli(["build", "--strict", *arguments], prog_name="mkdocs")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


class Later(ModuleType):
    """Stands for a module until something of it is used, and hands on to it from then on."""

    def __getattr__(self, name: str) -> object:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def load_when_used(name: str) -> None:
    """Let an import of a module cost nothing; one that is missing is told where it is imported."""
    spec = importlib.util.find_spec(name)
    if spec is not None and name not in sys.modules:
        sys.modules[name] = module = Later(name)
        module.__spec__ = spec  # an import looks into it


def make(root: Path, arguments: list[str]) -> int:
    """Build a project's site if it is not what a build would make; return the exit status."""
    now, kept = state(root), root / RECORD
    there = listing(root / PLACE)
    if there and read_sealed(kept) == record(now, there):
        print(f"· {PLACE}/ is up to date: nothing that it is made from has changed since it was built")
        return 0
    kept.unlink(missing_ok=True)
    status = build(arguments)
    # What changed while it was built differs from `now`, so that the next time it is built again.
    there = listing(root / PLACE) if status == 0 else ""
    if there:
        write_sealed(kept, record(now, there))
    return status


def main() -> int:
    """Return the exit status of the build."""
    os.chdir(ROOT)
    fetched = fetch_runtime.bring(ROOT / RECORD.parent) or fetch_sql.bring(ROOT / RECORD.parent)
    return fetched or make(ROOT, sys.argv[1:])


def leave(status: int) -> None:
    """End this process at once: to take a million values apart one by one takes as long as writing a site."""
    for thread in threading.enumerate():
        if (
            thread is not threading.main_thread()
            and not thread.daemon
            and "kvreport-cache" not in thread.name
        ):
            return
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    gc.set_threshold(1_000_000)  # a build keeps what it makes: five collections found little and cost 0.45 s
    done = main()
    if done == 0:
        leave(done)
    sys.exit(done)
