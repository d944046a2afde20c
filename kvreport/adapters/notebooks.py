"""Executed chapters kept between builds, under the digest of everything that they depend on.

mkdocs-jupyter keeps a chapter under the digest of its own text, believes whatever it finds there, and
writes it in place: a changed formula, a damaged file and a second build beside this one would all be
taken for the truth. So each build gives it a folder of its own, filled with what was kept and is whole,
and takes from it what was executed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Final
from weakref import finalize

from kvreport.adapters.ahead import PREFIX
from kvreport.adapters.book import CHAPTERS
from kvreport.atomic.workspace import claim, sweep
from kvreport.build_cache import digest, forget, read_sealed, write_sealed

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

_PLUGIN: Final = "mkdocs-jupyter"
_SEALED: Final = ".sealed"


class Notebooks:
    """The chapters that one build found kept, and those that it executes.

    Attributes:
        store: Where they are kept, named by what they depend on.
        folder: Where the plugin finds them and writes new ones.
    """

    def __init__(self, root: Path, state: str) -> None:
        """Take from ``root`` what was kept under ``state`` and is whole."""
        self.store = root / state
        temporary = Path(gettempdir())
        sweep(temporary, PREFIX)
        # However the build ends, the folder goes with it; after SIGKILL the next build removes it.
        self._workspace = claim(temporary, PREFIX)
        self.folder = self._workspace.folder
        self._close = finalize(self, self._workspace.close)
        self._kept: set[str] = set()
        for path in sorted(self.store.glob(f"*{_SEALED}")):
            content = read_sealed(path)
            if content is not None:
                (self.folder / f"{path.stem}.json").write_bytes(content)
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
        needed = {path.stem for path in self.folder.glob("*.json")}
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


def notebooks(config: MkDocsConfig, folders: Iterable[Path]) -> Notebooks | None:
    """Point mkdocs-jupyter to a folder that holds nothing outdated or damaged.

    Args:
        config: The site's configuration.
        folders: Folders of code and data that chapters use.

    Returns:
        The chapters; None without the plugin, or if it shall keep nothing.
    """
    plugin = config.plugins.get(_PLUGIN)
    if plugin is None or not plugin.config["cache"]:
        return None
    root = Path(config.config_file_path or ".").parent / ".cache" / _PLUGIN
    made = Notebooks(root, dependencies(folders, Path(config.docs_dir) / CHAPTERS))
    plugin.config["cache_dir"] = str(made.folder)
    return made


def dependencies(folders: Iterable[Path], chapters: Path) -> str:
    """Return a digest of what decides a chapter's numbers besides its own text.

    Every file of the folders counts, and what lies beside the chapters, the interpreter, and every
    installed package: a chapter may import any of them.
    """
    beside = sorted(path for path in chapters.glob("*") if path.is_file() and path.suffix != ".py")
    packages = sorted({f"{one.name} {one.version}" for one in distributions()})
    return digest([*dict.fromkeys(folders), *beside], (), packages, sys.version)
