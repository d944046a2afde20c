"""The list of what the sources teach: complete, and each place is there."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(
    r"^\| (?P<item>[^|]+) \| \[[^\]]+\]\((?P<link>[^)]+)\) \| (?:`(?P<piece>[^`]+)`)? ?\|$", re.MULTILINE
)
ITEMS = [23, 15, 27, 15, 16]


def words(path: Path) -> str:
    """A chapter's text on one line, comment marks and quotes of wrapped strings taken out."""
    return " ".join(
        re.sub(r'"\s*\n\s*f?"', "", path.read_text(encoding="utf-8")).replace("\n# ", " ").split()
    )


def test_every_item_of_the_five_sources_has_a_place():
    text = (DOCS / "about" / "sources.md").read_text(encoding="utf-8")
    parts = text.split("\n## ")[1:]
    assert [len(ROW.findall(part)) for part in parts] == ITEMS
    missing = []
    for row in ROW.finditer(text):
        target = (DOCS / "about" / row["link"]).resolve()
        if target.suffix == ".py":
            assert target.is_file(), row["link"]
            if row["piece"] not in words(target):
                missing.append(f"{row['item']}: {row['piece']!r} in {target.name}")
        else:
            assert row["link"] in ("../gpus/index.md", "../evidence/measured/index.md")
    assert missing == []
