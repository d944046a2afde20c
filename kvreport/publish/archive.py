"""Data releases at their own address: whole datasets that stay where they were published.

A site has its present dataset in ``downloads/`` and once more under ``data/releases/<version>/``, where later sites keep
it: a build is given the folder of the releases published before (``releases:``), checks every file against the
``SHA256SUMS`` next to it, and puts the files into the new site unchanged. What a version holds never changes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvreport.atomic.files import write_whole
from kvreport.errors import InputError, shorten
from kvreport.publish.downloads import SUMS, Downloads, link_or_copy

FOLDER: Final = "data/releases"
FILES: Final = ("capacity.parquet", "models.csv", "accelerators.csv")
"""A release's tables: every row is in the Parquet file, with the meaning of each column."""

_VERSION: Final = re.compile(r"20[0-9]{2}\.[0-9]{2}\.[0-9]{2}", re.ASCII)
_LINE: Final = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9][A-Za-z0-9._-]*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class ArchivedRelease:
    """A whole dataset under its version."""

    version: str  # The release, ``2026.11.21``.
    folder: Path
    files: tuple[tuple[str, int, str], ...]  # (name, bytes, SHA-256) of each.

    @property
    def sums(self) -> str:
        """The content of its ``SHA256SUMS``."""
        return "".join(f"{digest}  {name}\n" for name, _, digest in self.files)

    @property
    def label(self) -> str:
        """Its version and a digest of its tables: two builds have one label only if their numbers are equal."""
        return f"{self.version}+{hashlib.sha256(self.sums.encode()).hexdigest()[:7]}"

    @property
    def names(self) -> tuple[str, ...]:
        """Addresses of its files in the site."""
        return tuple(f"{FOLDER}/{self.version}/{name}" for name in (*(one[0] for one in self.files), SUMS))

    def place(self, site: Path) -> None:
        """Put its files into a site: as links where that is possible, else as copies."""
        target = site / FOLDER / self.version
        target.mkdir(parents=True, exist_ok=True)
        for name, _, _ in self.files:
            link_or_copy(self.folder / name, target / name)
        write_whole(target / SUMS, self.sums.encode())


def present(downloads: Downloads, version: str) -> tuple[ArchivedRelease, ...]:
    """Return the release that a site publishes now; none without its dataset."""
    if not downloads.files:
        return ()
    sums = dict(_sums((downloads.folder / SUMS).read_text(encoding="utf-8")))
    kept = ((name, downloads.size(name), sums.get(name)) for name in FILES)
    return (
        ArchivedRelease(
            version, downloads.folder, tuple((n, s, d) for n, s, d in kept if s is not None and d)
        ),
    )


def published(folder: Path | None) -> tuple[ArchivedRelease, ...]:
    """Return the releases of a folder, the oldest first, each file checked against its digest.

    The folder has one per version, as ``data/releases/`` of a published site; without one there is no release.

    Raises:
        InputError: If a release lacks a file, has one too many, or a file is not what its ``SHA256SUMS`` states.
    """
    if folder is None:
        return ()
    if not folder.is_dir():
        raise InputError(
            f"releases: found {shorten(str(folder))}; allowed: a folder with a folder per release"
        )
    found = sorted(path for path in folder.iterdir() if path.is_dir() and _VERSION.fullmatch(path.name))
    return tuple(_read(path) for path in found)


def joined(
    before: tuple[ArchivedRelease, ...], now: tuple[ArchivedRelease, ...]
) -> tuple[ArchivedRelease, ...]:
    """Return the releases of a site, the latest first.

    Raises:
        InputError: If this site's release was published before with other content.
    """
    known = {one.version: one for one in before}
    for one in now:
        if one.version in known and known[one.version].sums != one.sums:
            raise InputError(
                f"releases: data release {one.version} was published with other content; raise the version in "
                "RELEASE, or publish from the same data and code"
            )
        known.setdefault(one.version, one)
    return tuple(known[version] for version in sorted(known, reverse=True))


def _read(folder: Path) -> ArchivedRelease:
    where = f"releases: {folder.name}"
    try:
        text = (folder / SUMS).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{where}: {SUMS} cannot be read") from error
    stated = dict(_sums(text))
    if len(stated) != len(text.splitlines()) or not stated:
        raise InputError(f"{where}: {SUMS} has a line that is not a digest and a file name")
    there = {path.name for path in folder.iterdir()} - {SUMS}
    if odd := sorted(there ^ set(stated)):
        raise InputError(
            f"{where}: {shorten(odd[0])} is {'missing' if odd[0] in stated else f'not in {SUMS}'}"
        )
    files = []
    for name, digest in stated.items():
        path = folder / name
        if path.is_symlink() or not path.is_file():
            raise InputError(f"{where}: {shorten(name)} is not a plain file")
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise InputError(f"{where}: {shorten(name)} is not what {SUMS} states")
        files.append((name, path.stat().st_size, digest))
    return ArchivedRelease(folder.name, folder, tuple(files))


def _sums(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if stated := _LINE.fullmatch(line):
            yield stated[2], stated[1]
