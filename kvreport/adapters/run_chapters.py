"""Chapters executed while the pages are computed: another process fills mkdocs-jupyter's cache.

MkDocs renders page after page, and a chapter mostly waits for its kernel. So a build of nothing but
the chapters is started beside this one, with the same settings and therefore the same cache keys;
when this build comes to its first chapter it waits for that one and finds them done. Whatever the
other one could not do, a failing cell for instance, is done here as it always was, and told here.
"""

from __future__ import annotations

import atexit
import json
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, Final

from kvreport.atomic.workspace import claim
from kvreport.processes import run_beside

if TYPE_CHECKING:
    import subprocess

    from mkdocs.config.defaults import MkDocsConfig

PLUGIN: Final = "mkdocs-jupyter"
PREFIX: Final = "kvreport-chapters-"
_WORTH_IT: Final = 2
"""Chapters from which on another process is worth starting."""


class Ahead:
    """Another process that executes chapters."""

    def __init__(self, config: MkDocsConfig, chapters: int) -> None:
        """Start it, unless the cache has as many chapters as there are."""
        self.process: subprocess.Popen[bytes] | None = None
        plugin = config.plugins.get(PLUGIN)
        if plugin is None or not plugin.config["cache"] or not plugin.config["execute"]:
            return
        kept = sum(1 for _ in Path(plugin.config["cache_dir"]).glob("*.json"))
        if chapters < _WORTH_IT or chapters - kept < _WORTH_IT:
            return
        self._workspace = claim(Path(gettempdir()), PREFIX)
        root = self._workspace.folder
        settings = root / "mkdocs.yml"
        # JSON is YAML.
        settings.write_text(json.dumps(_settings(config, dict(plugin.config), root)), encoding="utf-8")
        (root / "theme").mkdir()
        (root / "theme" / "main.html").touch()
        self.process = run_beside(
            "mkdocs",
            ["build", "--quiet", "--config-file", str(settings)],
            Path(config.config_file_path or ".").resolve().parent,
        )
        atexit.register(self.stop)  # Ctrl-C ends this build without a word to its plugins

    def wait(self) -> None:
        """Wait until it has done what it can."""
        if self.process is not None:
            self.process.wait()
            self._clear()

    def stop(self) -> None:
        """End it: the build that it worked for has failed."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self._clear()

    def _clear(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        self.process = None
        atexit.unregister(self.stop)
        self._workspace.close()


def _settings(config: MkDocsConfig, options: dict[str, Any], root: Path) -> dict[str, Any]:
    """Settings of a build of the chapters alone, whose pages are empty and therefore not written."""
    return {
        "site_name": "chapters",
        "docs_dir": config.docs_dir,
        "site_dir": str(root / "site"),
        # The theme's name is a part of the cache's keys.
        "theme": {"name": config.theme.name, "custom_dir": str(root / "theme")},
        "exclude_docs": "*\n!/chapters/*.py\n",
        "plugins": [{PLUGIN: {**options, "cache_dir": str(Path(options["cache_dir"]).resolve())}}],
    }
