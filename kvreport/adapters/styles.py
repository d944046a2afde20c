"""Which style sheets a page loads: those that few pages need, where they are used."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from kvreport import resources

BOOK: Final = "assets/book.css"
DATASET: Final = "assets/dataset.css"
FEW: Final = (BOOK, DATASET)
"""Sheets that few pages need."""
SHARED: Final = "assets/kvreport.css"
_LINK: Final = r'<link rel="stylesheet" href="[^"]*%s">'
# The word boundary is checked after the literal; a pattern that begins with a literal is five times as fast.
_NAMED: Final = re.compile(r"""class=(?<=\bclass=)(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_CLASS: Final = re.compile(r"\.(kv-[\w-]+|jp-\w+|jupyter-wrapper)")
_COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)


class Styles:
    """Which sheets of few pages a page loads."""

    def __init__(self) -> None:
        shared = _classes(SHARED)
        self._few = {re.compile(_LINK % re.escape(name)): frozenset(_classes(name) - shared) for name in FEW}

    @property
    def own(self) -> tuple[str, ...]:
        """The classes that only a sheet of few pages styles."""
        return tuple(sorted(frozenset().union(*self._few.values())))

    def applied(self, html: str) -> str:
        """Return a page without the sheets of few pages that style nothing of it."""
        named = {name for groups in _NAMED.findall(html) for name in "".join(groups).split()}
        for link, classes in self._few.items():
            if not named & classes:
                html = link.sub("", html, count=1)
        return html


def _classes(name: str) -> set[str]:
    """The classes of ours that a style sheet names."""
    content = (resources.assets_dir() / Path(name).name).read_text(encoding="utf-8")
    return set(_CLASS.findall(_COMMENT.sub("", content)))
