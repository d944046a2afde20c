"""What of the style sheets reaches a page: the book's own where it is used, and of the theme's what the site uses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from kvreport import resources
from kvreport.publish.pruned_style import Named, Usage, prune
from kvreport.site.build import VEGA

BOOK: Final = "assets/book.css"
SHARED: Final = "assets/kvreport.css"
THEME: Final = "assets/stylesheets"
_LINK: Final = re.compile(r'<link rel="stylesheet" href="[^"]*assets/book\.css">')
_CLASS: Final = re.compile(r"\.(kv-[\w-]+|jp-\w+|jupyter-wrapper)")
_COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)


class Styles:
    """Learns from every finished page what it uses."""

    def __init__(self) -> None:
        book, shared = (
            set(
                _CLASS.findall(
                    _COMMENT.sub("", (resources.assets_dir() / Path(name).name).read_text("utf-8"))
                )
            )
            for name in (BOOK, SHARED)
        )
        self._book = frozenset(book - shared)
        self._usage = Usage()

    @property
    def own(self) -> tuple[str, ...]:
        """The classes that the book alone styles."""
        return tuple(sorted(self._book))

    def applied(self, html: str, named: Named | None = None) -> str:
        """Return a page without the book's style sheet if it has nothing that the book alone styles.

        Args:
            html: The page.
            named: What it names, where that is known.
        """
        named = Named.by(html) if named is None else named
        self.learn(named)
        return html if named.classes & self._book else _LINK.sub("", html, count=1)

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
