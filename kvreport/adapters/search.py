"""The theme's search, fetched when a reader opens it and not with every page.

Material starts its search on every page: an engine and an index, together more than half of a
page's first load. Opened from local files it waits until the search is opened; :func:`wait` asks
for the same over HTTP, in the one condition of the theme's script that decides it, and puts
``kv-search.js`` before the engine. A theme that has changed is left as it is: its pages are then
heavier, and nothing else; a test of the first load says so.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File

from kvreport import resources

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

log = logging.getLogger("mkdocs.plugins.kvreport")

OURS: Final = "kv-search.js"
_BUNDLE: Final = re.compile(r"assets/javascripts/bundle\.[0-9a-f]+\.min\.js")
_WORKER: Final = re.compile(r"assets/javascripts/workers/search\.[0-9a-f]+\.min\.js")
_AT_ONCE: Final = '(location.protocol!=="file:")'
_WHEN_OPENED: Final = "(!1)"


def wait(files: Files, config: MkDocsConfig) -> None:
    """Make the theme's search wait until it is opened, where the theme is one that we know.

    Args:
        files: The site's files, the theme's among them.
        config: The site's configuration.
    """
    found = {file.src_uri: file for file in files}
    bundle = next((file for uri, file in found.items() if _BUNDLE.fullmatch(uri)), None)
    engine = next((file for uri, file in found.items() if _WORKER.fullmatch(uri)), None)
    if bundle is None or engine is None or bundle.abs_src_path is None or engine.abs_src_path is None:
        return
    script = Path(bundle.abs_src_path).read_text(encoding="utf-8")
    if script.count(_AT_ONCE) != 1:
        log.info("the theme's search is not the one that is known: its index comes with every page")
        return
    ours = (resources.assets_dir() / OURS).read_text(encoding="utf-8")
    beside = re.sub(r"\.js$", ".engine.js", engine.src_uri)
    for old, new in (
        (bundle, File.generated(config, bundle.src_uri, content=script.replace(_AT_ONCE, _WHEN_OPENED))),
        (engine, File.generated(config, engine.src_uri, content=ours)),
        (None, File.generated(config, beside, abs_src_path=engine.abs_src_path)),
    ):
        if old is not None:
            files.remove(old)
        files.append(new)
