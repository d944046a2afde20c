"""Where the generated pages stand: a site of their own, or one folder of somebody else's.

In a foreign project everything generated lies under one prefix: pages, assets, downloads. The project's own
pages are left entirely alone: no style, script, policy, link or expression of ours reaches them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from kvreport.adapters.skeleton import address
from kvreport.errors import InputError, shorten
from kvreport.site.kit import links
from kvreport.site.kit.page import link

DEFAULT: Final = "capacity/"
"""The prefix in a project that has a home page and names none."""

_PREFIX: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,60}(?:/[A-Za-z0-9][\w.-]{0,60}){0,4}", re.ASCII)


def usual_prefix(docs: Path) -> str:
    """Return the prefix in a project that names none: no prefix, unless it has a home page of its own."""
    return DEFAULT if any((docs / name).is_file() for name in ("index.md", "README.md")) else ""


class Mount:
    """A place for generated pages."""

    def __init__(self, prefix: str = "") -> None:
        """Stand at a prefix, written with or without slashes around it.

        Raises:
            InputError: If it is no plain relative address.
        """
        inner = prefix.strip().strip("/")
        if inner and not _PREFIX.fullmatch(inner):
            raise InputError(
                f"prefix: found {shorten(prefix)}; allowed: a relative address such as 'capacity'"
            )
        # ``""`` for a site of their own, else the folder's address.
        self.prefix = f"{inner}/" if inner else ""

    @property
    def foreign(self) -> bool:
        """Whether the project has pages of its own, which are left alone."""
        return bool(self.prefix)

    def at(self, address: str) -> str:
        """Return where something generated stands in the whole site."""
        return f"{self.prefix}{address}"

    def dressed(self, html: str, url: str, styles: Sequence[str], scripts: Sequence[str]) -> str:
        """Return a page with our styles and scripts, which a foreign project does not have on every page."""
        here = address(url)
        head = "".join(f'<link rel="stylesheet" href="{link(here, self.at(style))}">' for style in styles)
        body = "".join(f'<script src="{link(here, self.at(script))}"></script>' for script in scripts)
        return html.replace("</head>", f"{head}</head>", 1).replace("</body>", f"{body}</body>", 1)

    def closed(self, html: str, url: str, known: Collection[str]) -> str:
        """Return a page whose links to pages that are not published are plain text."""
        return links.unlinked(address(url), html, known)
