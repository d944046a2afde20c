"""Our scripts, styles and drawings among the host's files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File

from kvreport import resources
from kvreport.adapters.styles import FEW, SHARED
from kvreport.publish.compact import compact_script, compact_style

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

    from kvreport.adapters.url_prefix import Mount
    from kvreport.publish.kept_values import PartGroup

STYLES: Final = ("assets/fonts.css", SHARED, *FEW)
SCRIPTS: Final = ("assets/kvreport.js",)
_COMPACT: Final[dict[str, Callable[[str], str]]] = {".js": compact_script, ".css": compact_style}
_SOURCE_MAP: Final = re.compile(r"assets/(?:javascripts|stylesheets)/.*\.map")


def announce(config: MkDocsConfig) -> None:
    """Let every page load our styles and script."""
    for place, style in enumerate(STYLES):
        if style not in config.extra_css:
            config.extra_css.insert(place, style)
    present = {str(script) for script in config.extra_javascript}
    config.extra_javascript[:0] = [script for script in SCRIPTS if script not in present]


def take(
    files: Files, config: MkDocsConfig, mount: Mount, kept: PartGroup, key: Callable[..., bytes]
) -> None:
    """Add our assets to the site's files, scripts and styles without comments; a project's own file goes first."""
    for path in sorted(resources.assets_dir().rglob("*")):
        if path.is_file():
            _take(path, files, config, mount, kept, key)
    if not mount.foreign:
        for file in [file for file in files if _SOURCE_MAP.fullmatch(file.src_uri)]:
            files.remove(file)  # for whoever develops the theme; more than a megabyte


def _take(
    path: Path, files: Files, config: MkDocsConfig, mount: Mount, kept: PartGroup, key: Callable[..., bytes]
) -> None:
    uri = mount.at(f"assets/{path.relative_to(resources.assets_dir()).as_posix()}")
    known = files.get_file_from_path(uri)
    if known is not None and (known.abs_src_path is None or not path.samefile(known.abs_src_path)):
        return
    shorten = _COMPACT.get(path.suffix)
    if shorten is None:
        if known is None:
            files.append(File.generated(config, uri, abs_src_path=str(path)))
        return
    if known is not None:
        files.remove(known)
    text = path.read_text(encoding="utf-8")
    content = kept.get(key(path.suffix, text), lambda: shorten(text))
    files.append(File.generated(config, uri, content=content))
