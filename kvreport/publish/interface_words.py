"""Every text of the interface in one file of gettext, for readers and translators, published with the site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kvreport import resources
from kvreport.build_cache import code, digest, keep, recall
from kvreport.translation.package import collect

FILE: Final = "downloads/interface.pot"


def files(cache: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the file; a site in another language has none, because its words are no longer the original ones.

    Args:
        cache: The build's cache, which keeps the file until a text may have changed.
    """
    if resources.language() is not None:
        return
    state = digest((resources.templates_dir(), resources.assets_dir()), (), code())
    found = recall(cache / "interface", state)
    if found is None:
        found = collect().template().encode()
        keep(cache / "interface", state, found)
    yield FILE, found
