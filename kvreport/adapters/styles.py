"""What of the style sheets reaches a page: those of few pages where they are used, and of the theme's what the site uses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from kvreport import resources
from kvreport.publish.pruned_style import Named, Usage, prune
from kvreport.site.build import VEGA

BOOK: Final = "assets/book.css"
DATASET: Final = "assets/dataset.css"
FEW: Final = (BOOK, DATASET)
"""Sheets that few pages need."""
SHARED: Final = "assets/kvreport.css"
THEME: Final = "assets/stylesheets"
_LINK: Final = r'<link rel="stylesheet" href="[^"]*%s">'
_CLASS: Final = re.compile(r"\.(kv-[\w-]+|jp-\w+|jupyter-wrapper)")
_COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)


class Styles:
    """Learns from every finished page what it uses."""

    def __init__(self) -> None:
        shared = _classes(SHARED)
        self._few = {re.compile(_LINK % re.escape(name)): frozenset(_classes(name) - shared) for name in FEW}
        self._usage = Usage()

    @property
    def own(self) -> tuple[str, ...]:
        """The classes that only a sheet of few pages styles."""
        return tuple(sorted(frozenset().union(*self._few.values())))

    def applied(self, html: str, named: Named | None = None) -> str:
        """Return a page without the sheets of few pages that style nothing of it.

        Args:
            html: The page.
            named: What it names, where that is known.
        """
        named = Named.by(html) if named is None else named
        self.learn(named)
        for link, classes in self._few.items():
            if not named.classes & classes:
                html = link.sub("", html, count=1)
        return html

    def learn(self, named: Named) -> None:
        """Take in what a page is known to name."""
        self._usage.add(named)

    def prune_theme(self, site: Path) -> None:
        """Leave out of the theme's style sheets what no page of a finished site uses."""
        for script in (site / "assets").rglob("*.js"):
            if script.name != Path(VEGA).name and "python" not in script.parts:
                self._usage.script(script.read_text(encoding="utf-8"))
        for sheet in (site / "assets").glob("*.css"):
            self._usage.style(sheet.read_text(encoding="utf-8"))
        sheets = [
            (sheet, sheet.read_text(encoding="utf-8")) for sheet in sorted((site / THEME).glob("*.css"))
        ]
        kept = prune(((str(sheet), content) for sheet, content in sheets), self._usage)
        for name, content in kept:
            Path(name).write_text(content, encoding="utf-8")


def _classes(name: str) -> set[str]:
    """The classes of ours that a style sheet names."""
    content = (resources.assets_dir() / Path(name).name).read_text(encoding="utf-8")
    return set(_CLASS.findall(_COMMENT.sub("", content)))
