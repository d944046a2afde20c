"""The plain-files adapter: the same pages without a site engine.

It proves that the seam holds (ADR 0001) and is the way out when the engine goes. The folder can be
served as it stands, or given to another engine as HTML fragments.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kvreport import resources
from kvreport.adapters.policy import Policy
from kvreport.dataset.staged_files import staged
from kvreport.site.build import Report
from kvreport.site.kit.page import Page
from kvreport.site.kit.templating import render

STYLES: Final = (
    "assets/fonts.css",
    "assets/kvreport.css",
    "assets/book.css",
    "assets/dataset.css",
    "assets/plain.css",
)
SCRIPTS: Final = ("assets/kvreport.js",)
NAV: Final = (
    ("Models", "models/"),
    ("GPUs", "gpus/"),
    ("Explore", "explore/"),
    ("Compare", "compare/"),
    ("Data", "data/"),
)


def export(report: Report, out: Path) -> None:
    """Write every generated page and the files beside them as plain files.

    Raises:
        InputError: If the folder cannot be written.
    """
    with staged(out) as staging:
        for page in report.pages:
            staging.write(f"{page.uri}index.html", document(report, page).encode())
        for address, content in report.assets:
            staging.write(address, content)
        for path in sorted(resources.assets_dir().rglob("*")):
            if path.is_file():
                name = path.relative_to(resources.assets_dir()).as_posix()
                staging.write(f"assets/{name}", path.read_bytes())
    report.write_files(out)


def document(report: Report, page: Page) -> str:
    """Return a page as a whole HTML document; its scripts and styles are files beside it."""
    known = {one.uri for one in report.pages}
    names = {
        "page": page,
        "styles": STYLES,
        "scripts": SCRIPTS,
        "nav": [(title, uri) for title, uri in NAV if uri in known],
    }
    return Policy().applied(f"{render('plain_page.html', page.uri, names)}\n")
