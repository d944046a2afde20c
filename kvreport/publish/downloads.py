"""The dataset beside the pages: written once per state of the catalog and the code, then linked."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import gettempdir
from threading import Thread
from typing import Final

from kvreport import resources
from kvreport.atomic.files import write_whole
from kvreport.atomic.workspace import claim, sweep
from kvreport.build_cache import cannot_keep, digest, forget, read_sealed, sealed
from kvreport.catalog.load import Catalog
from kvreport.dataset.data_version import data_version
from kvreport.dataset.grid import axes
from kvreport.dataset.kept import CODE
from kvreport.dataset.write import publish
from kvreport.errors import InputError

FOLDER: Final = "downloads"
_INDEX: Final = "index.sealed"
_UNFINISHED: Final = ".kvreport-dataset-"
_TEMPORARY: Final = "kvreport-dataset-"
SUMS: Final = "SHA256SUMS"


@dataclass(frozen=True, slots=True)
class Downloads:
    """The published files, as they lie in the cache."""

    folder: Path
    # (name, bytes) of each, by name; empty if the dataset is not published.
    files: tuple[tuple[str, int], ...]
    rows: int

    def names(self) -> tuple[str, ...]:
        """Return their addresses in the site."""
        return tuple(f"{FOLDER}/{name}" for name, _ in self.files)

    def size(self, name: str) -> int | None:
        """Return a file's bytes, or None if it is not published."""
        return dict(self.files).get(name)

    def complete(self) -> bool:
        """Say whether every file is still there and as it was written.

        The site's files may be links to these, so that whoever edits one there has edited it here.
        """
        if not self.files:
            return True
        try:
            lines = (self.folder / SUMS).read_text(encoding="utf-8").splitlines()
            stated = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
            names = {name for name, _ in self.files}
            return names == {*stated, SUMS} and all(
                _digest(self.folder / name) == digest for name, digest in stated.items()
            )
        except (OSError, ValueError):
            return False

    def place(self, target: Path) -> None:
        """Put the files into a folder: as links to the cache where that is possible, else as copies."""
        for name, size in self.files:
            source, place = self.folder / name, target / name
            if place.is_file() and place.stat().st_size == size and place.samefile(source):
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(source, place)


def link_or_copy(source: Path, place: Path) -> None:
    """Put a file in a place: as a link where that is possible, else as a copy."""
    place.unlink(missing_ok=True)
    try:
        os.link(source, place)
    except OSError:
        shutil.copyfile(source, place)


NOTHING: Final = Downloads(Path(), (), 0)
"""A site without its dataset."""


def prepare(
    catalog: Catalog,
    cache: Path,
    *,
    models: str = "*",
    gpus: str = "*",
    site_url: str = "",
    progress: Callable[[str], None] = lambda _: None,
) -> Downloads:
    """Return the published files, written into the cache if this state has not been written before."""
    package, version = resources.package_dir(), data_version(catalog.folder)
    roots = (catalog.folder, *(package / name for name in CODE))
    state = digest(roots, ("numpy", "pyarrow"), models, gpus, version, site_url)
    folder = cache / "dataset" / state
    index = folder / _INDEX
    known = _read(index)
    if known is None or not known.complete():
        progress("dataset: computing and writing every row")

        def write(written: Path) -> None:
            publish(
                catalog,
                axes(catalog, models=models, gpus=gpus),
                written,
                version=version,
                site_url=site_url,
                cache=cache / "rows",
                progress=_thinned(progress),
            )

        try:
            known = _kept(folder, write)
        except (OSError, InputError) as error:
            reason = error if isinstance(error, OSError) else error.__cause__
            if not isinstance(reason, OSError):
                raise
            cannot_keep(reason)
            return _uncached(write)
        # Removing a thousand files takes a while, in which the other processor has nothing to do.
        Thread(target=forget, args=(folder.parent,)).start()
    with suppress(OSError):
        os.utime(folder)
    return known


def _uncached(publish_into: Callable[[Path], object]) -> Downloads:
    """Write the files where temporary files go, for this build alone."""
    sweep(Path(gettempdir()), _TEMPORARY)
    written = claim(Path(gettempdir()), _TEMPORARY).folder / "files"
    publish_into(written)
    return _listed(written)


def _listed(written: Path) -> Downloads:
    found = sorted(path for path in written.rglob("*") if path.is_file())
    files = tuple((path.relative_to(written).as_posix(), path.stat().st_size) for path in found)
    return Downloads(written, files, _rows(written / "capacity.parquet"))


def _kept(folder: Path, publish_into: Callable[[Path], object]) -> Downloads:
    """Write the files beside their folder and put them there whole: another build may do the same."""
    sweep(folder.parent, _UNFINISHED)
    workspace = claim(folder.parent, _UNFINISHED)
    try:
        written = workspace.folder / "files"
        publish_into(written)
        made = _listed(written)
        index = json.dumps({"files": made.files, "rows": made.rows}).encode()
        write_whole(workspace.folder / _INDEX, sealed(index))
        there = _read(folder / _INDEX)
        if there is None or not there.complete():
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # unless the other build was faster
                workspace.folder.rename(folder)
    finally:
        workspace.close()
    return replace(made, folder=folder / "files")


def _read(index: Path) -> Downloads | None:
    try:
        found = json.loads(read_sealed(index) or b"")
        files = tuple((str(name), int(size)) for name, size in found["files"])
        return Downloads(index.parent / "files", files, int(found["rows"]))
    except (ValueError, KeyError, TypeError):
        return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _rows(path: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.ParquetFile(path).metadata.num_rows)


def _thinned(progress: Callable[[str], None], every: int = 40) -> Callable[[str], None]:
    """Pass on one message of many."""
    count = 0

    def tell(message: str) -> None:
        nonlocal count
        count += 1
        if count % every == 0:
            progress(f"dataset: {message}")

    return tell
