"""Executed chapters kept between builds, under the digest of everything that they depend on.

mkdocs-jupyter keeps a chapter under the digest of its own text, believes whatever it finds there, and
writes it in place: a changed formula, a damaged file and a second build beside this one would all be
taken for the truth. So each build gives it a folder of its own, filled with what was kept and is whole,
and takes from it what was executed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib.metadata import Distribution, distributions
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Final
from weakref import finalize

from kvreport.adapters.book import CHAPTERS
from kvreport.adapters.run_chapters import PREFIX
from kvreport.atomic.workspace import claim, sweep
from kvreport.build_cache import digest, forget, read_sealed, write_sealed
from kvreport.catalog import dependency_notes
from kvreport.catalog.dependency_notes import Note
from kvreport.catalog.record_digests import MODELS, Records

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

_PLUGIN: Final = "mkdocs-jupyter"
_SEALED: Final = ".sealed"
_READS: Final = "records.reads"
_UNKNOWN: Final[frozenset[Note]] = frozenset({("", dependency_notes.EVERYTHING, False)})
"""What is noted of chapters that a killed build kept: they may have read any record."""


class Notebooks:
    """The chapters that one build found kept, and those that it executes."""

    def __init__(self, root: Path, state: str, records: Records | None = None) -> None:
        """Take from ``root`` what was kept under ``state`` and is whole, unless a record that it read has changed."""
        self._records = records or Records({})
        self.store = root / f"{state}-{self._records.digest}"
        temporary = Path(gettempdir())
        sweep(temporary, PREFIX)
        # However the build ends, the folder goes with it; after SIGKILL the next build removes it.
        self._workspace = claim(temporary, PREFIX)
        self.folder = self._workspace.folder
        self._close = finalize(self, self._workspace.close)
        self._kept: set[str] = set()
        self._notes: frozenset[Note] = frozenset()
        self._reads = self.folder / "reads"
        self._reads.mkdir()
        os.environ[dependency_notes.FOLDER] = str(self._reads.resolve())
        self._recall(root, state)

    def _recall(self, root: Path, state: str) -> None:
        """Take what was kept for these records, else for others that differ in none that a chapter read."""
        if any(self.store.glob(f"*{_SEALED}")):
            self._take(self.store)
            noted = self._records.unchanged_since(read_sealed(self.store / _READS))
            self._notes = _UNKNOWN if noted is None else noted
            return
        for store in sorted(root.glob(f"{state}-*"), key=lambda folder: folder.stat().st_mtime, reverse=True):
            noted = self._records.unchanged_since(read_sealed(store / _READS))
            if noted is not None:
                self._take(store)
                self._notes = noted
                return

    def _take(self, store: Path) -> None:
        """Give the plugin what is kept; what another state of the records kept is written for this one, too."""
        for path in sorted(store.glob(f"*{_SEALED}")):
            content = read_sealed(path)
            if content is not None:
                (self.folder / f"{path.stem}.json").write_bytes(content)
                if store == self.store:
                    self._kept.add(path.stem)

    def keep(self) -> None:
        """Keep what has been executed since, and drop what a process that was ended left unfinished."""
        for path in sorted(self.folder.glob("*.json")):
            if path.stem in self._kept:
                continue
            content = path.read_bytes()
            if _whole(content):
                write_sealed(self.store / f"{path.stem}{_SEALED}", content)
                self._kept.add(path.stem)
            else:
                path.unlink()

    def finish(self) -> None:
        """Forget what no chapter of this build needed, and older states."""
        os.environ.pop(dependency_notes.FOLDER, None)
        needed = {path.stem for path in self.folder.glob("*.json")}
        if self._kept:
            write_sealed(
                self.store / _READS, self._records.told(self._notes | dependency_notes.notes(self._reads))
            )
        for path in self.store.glob(f"*{_SEALED}"):
            if path.stem not in needed:
                path.unlink(missing_ok=True)
        if self.store.is_dir():
            self.store.touch()  # the latest states are kept, and this is one, whenever it was made
            forget(self.store.parent)
        self.close()

    def close(self) -> None:
        """Remove the build's own folder."""
        self._close()


def _whole(content: bytes) -> bool:
    try:
        return isinstance(json.loads(content), dict)
    except ValueError:
        return False


def notebooks(
    config: MkDocsConfig,
    folders: Iterable[Path],
    catalogs: Mapping[str, Path],
    records: Records | None = None,
) -> Notebooks | None:
    """Point mkdocs-jupyter to a folder that holds nothing outdated or damaged.

    Returns:
        The chapters; None without the plugin, or if it shall keep nothing.
    """
    plugin = config.plugins.get(_PLUGIN)
    if plugin is None or not plugin.config["cache"]:
        return None
    root = Path(config.config_file_path or ".").parent / ".cache" / _PLUGIN
    shared = [
        path for folder in catalogs.values() for path in sorted(folder.iterdir()) if path.name != MODELS
    ]
    made = Notebooks(
        root,
        dependencies((*folders, *shared), Path(config.docs_dir) / CHAPTERS),
        records or Records(catalogs),
    )
    plugin.config["cache_dir"] = str(made.folder)
    return made


def dependencies(folders: Iterable[Path], chapters: Path) -> str:
    """Return a digest of what decides a chapter's numbers besides its own text.

    Every file counts, and what lies beside the chapters, the interpreter, and every
    installed package: a chapter may import any of them.
    """
    beside = sorted(path for path in chapters.glob("*") if path.is_file() and path.suffix != ".py")
    # Installing and removing a package changes its folder; reading all of them takes a tenth of a second.
    state = tuple((one, Path(one).stat().st_mtime_ns) for one in sys.path if Path(one).is_dir())
    packages = _installed(distributions, state)
    return digest([*dict.fromkeys(folders), *beside], (), packages, sys.version)


@lru_cache(maxsize=4)
def _installed(listed: Callable[[], Iterable[Distribution]], _: tuple[tuple[str, int], ...]) -> list[str]:
    return sorted({f"{one.name} {one.version}" for one in listed()})
