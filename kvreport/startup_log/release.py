"""The release of a log that does not name it: by where in the source its lines were written.

``[kv_cache_utils.py:1711]`` stands before a line of 0.20.0 and of no other release; ``data/log_lines.yaml`` has
the places of every release that was read. A build between releases has places of its own and is not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from kvreport.catalog.engine import version_number
from kvreport.catalog.shelf import read_yaml
from kvreport.resources import data_dir

_PLACE: Final = re.compile(r"[\[ ]([a-z_]{3,40}\.py):(\d{1,5})[\]) ]")


def places(lines: Iterable[str]) -> frozenset[str]:
    """Files and line numbers that the lines of a log begin with, such as ``gpu_worker.py:440``."""
    return frozenset(f"{name}:{number}" for line in lines for name, number in _PLACE.findall(line[:200]))


def release_of_places(found: frozenset[str]) -> str | None:
    """The one release that most of the places belong to; None if none, or several equally, do.

    Args:
        found: From :func:`places`.
    """
    counts = {release: len(found & known) for release, known in _known().items()}
    most = max(counts.values(), default=0)
    best = [release for release, count in counts.items() if count == most]
    if most == 0:
        return None
    # Patch releases of one minor release behave alike where their places are the same.
    return best[-1] if len({version_number(release)[:2] for release in best}) == 1 else None


@cache
def _known() -> dict[str, frozenset[str]]:
    path: Path = data_dir() / "log_lines.yaml"
    content = read_yaml(path, path.name) if path.is_file() else {}
    releases = content.get("releases", {}) if isinstance(content, dict) else {}
    return {str(release): frozenset(map(str, listed)) for release, listed in releases.items()}
