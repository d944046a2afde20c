"""A build in another language: the plugin hands over to the same plugin of a translated copy of the package."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.exceptions import PluginError

from kvreport import resources
from kvreport.errors import InputError
from kvreport.translation import messages, package, shared

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.plugins import BasePlugin

log = logging.getLogger("mkdocs.plugins.kvreport")


def handed_over(plugin: BasePlugin[Any], path: Path, cache: Path, config: MkDocsConfig) -> Any:  # noqa: ANN401
    """Return the plugin of the package in a catalog's language, registered for the events of the given one.

    The copy's modules take the place of the package's in this process, and its folder goes first where processes that
    this one starts look for modules.

    Args:
        plugin: The plugin that the host has made.
        path: The catalog, a ``.po`` file.
        cache: The build's cache.
        config: The host's settings.

    Raises:
        PluginError: The catalog cannot be used; the message says where.
    """
    _first_on_path(package.translated(_read(path), cache))
    for name in [name for name in sys.modules if name == "kvreport" or name.startswith("kvreport.")]:
        del sys.modules[name]
    fresh = getattr(importlib.import_module(type(plugin).__module__), type(plugin).__name__)()
    fresh.__dict__.update(plugin.__dict__)
    for methods in config.plugins.events.values():
        for place, method in enumerate(methods):
            if getattr(method, "__self__", None) is plugin:
                methods[place] = getattr(fresh, method.__name__)
    return fresh


def localize(path: Path, config: MkDocsConfig) -> None:
    """Translate the words of a ``mkdocs.yml``, set the theme's language, and say what the catalog has in vain.

    Args:
        path: The catalog, whose translated copy of the package runs.
        config: The host's settings.

    Raises:
        PluginError: The catalog cannot be used; the message says where.
    """
    translation = _read(path)
    asked = set(json.loads((resources.package_dir().parent / package.ASKED).read_text(encoding="utf-8")))

    def say(message: str, line: int) -> str | None:  # noqa: ARG001 - as a walk calls it
        asked.add(message)
        return translation.said.get(message)

    shared.translate_settings(config, say)
    for message in translation.said.keys() - asked:
        log.warning("%s:%s: no page says “%s” any more", path, translation.lines[message], message[:80])
    done = len(asked & translation.said.keys())
    log.info(
        "kvreport: %s, %d texts translated, %d left in English", translation.language, done, len(asked) - done
    )
    for code in (translation.language, translation.language.partition("-")[0]):
        if any(Path(folder, f"partials/languages/{code}.html").is_file() for folder in config.theme.dirs):
            config.theme["language"] = code
            return
    log.warning("%s: the theme has no words in %s; its own stay English", path, translation.language)


def _read(path: Path) -> messages.Translation:
    try:
        return messages.read(path)
    except InputError as error:
        raise PluginError(f"kvreport: {error}") from error


def _first_on_path(folder: Path) -> None:
    """Let this process and those that it starts find modules in a folder first."""
    place = str(folder.resolve())
    sys.path.insert(0, place)
    given = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{place}{os.pathsep}{given}" if given else place
    os.environ["PYTHONSAFEPATH"] = "1"  # else a checkout in the working folder would go before it
    importlib.invalidate_caches()
