"""Python for the browser: the runtime that a build was given, and this package's own code as one archive.

The pages "Your model", the log reader and the claims ledger run the library itself. It needs a Python interpreter (Pyodide), pydantic's compiled core
for it, and the pure Python of this package and what it imports. ``scripts/fetch_runtime.py`` brings interpreter and
core into a folder of the build's cache; ``requirements/browser.json`` pins both, file by file, by SHA-256. The rest comes from the
environment that builds the site, whose packages the lock pins. A build whose folder is empty publishes the page
without the tool: nothing is fetched while a site is built.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from kvreport import resources
from kvreport.build_cache import digest, keep, recall
from kvreport.catalog.strict_files import read_yaml
from kvreport.publish import vendored_files

FOLDER: Final = "assets/python"
RUNTIME: Final = vendored_files.Runtime("browser.json", "runtime")
ARCHIVE: Final = "kvreport.zip"
MANIFEST: Final = vendored_files.MANIFEST

_ROOMS: Final = ("accounting", "architectures", "catalog", "cli", "deployments", "estimation", "startup_log")
_ALONE: Final = (
    "book/__init__.py", "book/expressions.py", "book/mistakes.py", "book/prose.py", "book/quantities.py", "book/reader_case.py",
    "evidence/__init__.py", "evidence/claim_check.py", "evidence/claim_sentences.py", "evidence/claims.py",
)  # fmt: skip
"""What judging a claim needs of rooms that are otherwise for pages."""
_DISTRIBUTIONS: Final = ("pydantic", "annotated-types", "typing-extensions", "typing-inspection", "PyYAML")
_FOR_PAGES: Final = frozenset({
    "claims", "measurements", "observations", "releases", "traffic", "class_check.yaml", "forecasts.yaml", "freshness.yaml", "glossary.yaml",
    "left_out.yaml", "log_searches.yaml", "peers.yaml", "planner_check.yaml", "planner_check_sglang.yaml", "prose-allow.yaml", "recipes_check.yaml", "starts.yaml", "trials.yaml",
})  # fmt: skip
"""Files and folders of the data that only pages and reports read. Every other file is in the archive, so a file that an
estimate begins to read needs no entry; ``tests/unit/test_python_bundle.py`` compares what the archive answers."""

_UNUSED: Final = frozenset({"..", "v1", "mypy.py"})
"""Parts of paths that are left out: scripts outside the package, pydantic's first version, a plug-in of mypy."""

_LEAST_DATE: Final = (1980, 1, 1, 0, 0, 0)
"""The oldest date that a ZIP archive can state, so that archives do not depend on the clock."""


def files(cache: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of every file that the page loads; nothing without a runtime."""
    runtime = RUNTIME.found(cache)
    if not runtime:
        return
    runtime[ARCHIVE] = kept_archive(cache / "archive")
    yield from vendored_files.publish(FOLDER, runtime, cache, info=RUNTIME.lock()["info"])


def kept_archive(folder: Path) -> bytes:
    """Return the archive, made again where something in it has changed."""
    package, data = resources.package_dir(), resources.data_dir()
    own = (*_modules(package), *(package / name for name in (*_ROOMS, *_ALONE)))
    state = digest((*own, *_facts(data)), _DISTRIBUTIONS, zlib.ZLIB_RUNTIME_VERSION)
    made = recall(folder, state)
    if not isinstance(made, bytes):
        made = archive()
        keep(folder, state, made)
    return made


def archive() -> bytes:
    """Return a ZIP of everything that Python imports and reads in the browser."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as target:
        for name, content in sorted([*_own(), *_imported(), *_data()]):
            target.writestr(zipfile.ZipInfo(name, _LEAST_DATE), content, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _modules(package: Path) -> list[Path]:
    """Every file at the top of the package: what all rooms share."""
    return sorted(path for path in package.iterdir() if path.suffix in (".py", ".json"))


def _facts(data: Path) -> list[Path]:
    """The YAML files of the data but those that only pages read."""
    return [
        path for path in sorted(data.rglob("*.yaml")) if path.relative_to(data).parts[0] not in _FOR_PAGES
    ]


def _own() -> Iterator[tuple[str, bytes]]:
    package = resources.package_dir()
    for path in (*_modules(package), *(package / name for name in _ALONE)):
        yield f"kvreport/{path.relative_to(package).as_posix()}", path.read_bytes()
    for room in _ROOMS:
        for path in (package / room).rglob("*"):
            if path.suffix in (".py", ".txt", ".json"):
                yield f"kvreport/{path.relative_to(package).as_posix()}", path.read_bytes()


def _imported() -> Iterator[tuple[str, bytes]]:
    """The pure Python of the packages that those modules import."""
    for name in _DISTRIBUTIONS:
        for path in metadata.files(name) or ():
            if path.suffix == ".py" and not _UNUSED.intersection(path.parts):
                yield path.as_posix(), Path(str(path.locate())).read_bytes()


def _data() -> Iterator[tuple[str, bytes]]:
    """The facts that estimates need, as JSON, which the reader of YAML reads faster."""
    folder = resources.data_dir()
    for file in _facts(folder):
        where = file.relative_to(folder).as_posix()
        yield f"kvreport/_data/{where}", json.dumps(read_yaml(file, where), separators=(",", ":")).encode()
