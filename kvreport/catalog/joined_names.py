"""Names written without the hyphen between a word and its number: ``gemma4 31b`` for Gemma 4 31B.

Only hyphens between a letter and a digit are left out: ``gemma-2-2b`` and ``gemma-22b`` stay two names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kvreport.catalog.shelf import spoken

_BETWEEN: Final = re.compile(r"(?<=[a-z])-(?=\d)")
_ALIASES: Final = re.compile(r"^aliases: \[(.*)\]$", re.MULTILINE)
_HEAD: Final = 2_000
"""Characters of a record in which its aliases stand."""


def joined(name: str) -> str:
    """Return a name without the hyphens that stand between a letter and a digit.

    >>> joined("Gemma 4-31B")
    'gemma4-31b'
    """
    return _BETWEEN.sub("", spoken(name))


def files_by_joined_name(files: Mapping[str, Path]) -> Mapping[str, frozenset[str]]:
    """Return the stems (``org--name``) of the records that each joined name means, by last part of the id and aliases."""
    found: dict[str, set[str]] = defaultdict(set)
    for stem, path in files.items():
        try:
            with path.open(encoding="utf-8") as file:
                stated = _ALIASES.search(file.read(_HEAD))
        except (OSError, UnicodeDecodeError):
            continue
        for name in (stem.rpartition("--")[2], *(stated[1].split(",") if stated else ())):
            found[joined(name.strip().strip("\"'"))].add(stem)
    return {name: frozenset(stems) for name, stems in found.items()}
