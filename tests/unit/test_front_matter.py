"""Every written page's front matter is YAML: a quote or a colon in a description stopped a whole build."""

from __future__ import annotations

from pathlib import Path

import yaml


def test_the_front_matter_of_every_page_is_read(repository: Path) -> None:
    heads = {
        path: text[4:].split("\n---\n")[0]
        for path in sorted((repository / "docs").rglob("*.md"))
        if (text := path.read_text(encoding="utf-8")).startswith("---\n")
    }
    assert len(heads) > 40
    for path, head in heads.items():
        found = yaml.safe_load(head)
        assert isinstance(found, dict), path
        assert isinstance(found.get("description", ""), str), path
