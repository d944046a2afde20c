"""Find figures in pages and chapters that no expression computes and no entry allows; `make check` runs it.

The site's build stops at the same faults, minutes later.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kvreport.adapters.book import is_chapter
from kvreport.book import prose

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def main() -> int:
    """Print the faults; the status is 1 if there are any."""
    written = (
        (path.relative_to(DOCS).as_posix(), path) for path in sorted(DOCS.rglob("*")) if path.is_file()
    )
    pages = [
        (where, prose.markdown_of(path))
        for where, path in written
        if where.endswith(".md") or is_chapter(where)
    ]
    faults = prose.naked(pages, prose.load_allowed(ROOT / "data" / "prose-allow.yaml"))
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
