"""Write every text of the interface into one file, to be read as a whole or translated.

    python scripts/interface_words.py interface.pot

Read are the templates, the scripts of the browser, `kvreport/words.json` and the modules that make pages: the same
texts that `scripts/check_style.py` checks. The file is a template of gettext, so translators' tools open it: each text
once, with every place where it is used. The words that Python and the browser share are in `kvreport/words.json`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import check_style

SOURCES = (
    "templates/**/*.html", "docs/assets/*.js", "kvreport/words.json", "kvreport/site/**/*.py", "kvreport/book/*.py",
)  # fmt: skip
NAMES = re.compile(r"use strict|[a-z]+(?: [a-z]+){5,}")
"""Strings of code: a mode of the language, lists of keys."""

QUERY = re.compile(
    r"(?:CREATE|SELECT|ORDER BY|DESCRIBE)\b|[A-Z][a-z]+(?:[A-Z][a-z]+)+$|Arrow|Enter|Escape|Backspace|Tab$|Home$|End$|Page"
)
"""Strings of code that begin as a sentence does: queries, names of classes and keys."""

HEAD = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'


def texts(path: Path) -> Iterator[check_style.Text]:
    """Yield the texts of one file, in its order; computed values are N."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        found = list(check_style.html(source))
    elif path.suffix == ".js":
        found = [*check_style.javascript(source), *_single(source)]
    elif path.suffix == ".json":
        found = list(check_style.structured(json.loads(source), path, source.splitlines()))
    else:
        found = list(check_style.python(source))
    for line, text in sorted(found):
        plain = " ".join(text.split())
        if re.search(r"[A-Za-z]{2}", plain) and not NAMES.fullmatch(plain):
            yield check_style.Text(line, plain)


def _single(source: str) -> Iterator[check_style.Text]:
    """Yield the labels of a script: strings that begin as sentences do, also of one word."""
    plain = re.sub(r"/\*.*?\*/", _blank, source, flags=re.S)
    for found in re.finditer(r'"([A-Z“][^"\\\n]*)"', plain):
        text = found[1]
        if re.search(r"[a-z]{2}", text) and not re.search(r"[_=;{}]", text) and not QUERY.match(text):
            yield check_style.Text(source.count("\n", 0, found.start()) + 1, text)


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def catalog(root: Path) -> dict[str, list[str]]:
    """Return the places where each text of the interface is used."""
    places: dict[str, list[str]] = {}
    for path in sorted({path for pattern in SOURCES for path in root.glob(pattern)}):
        for line, text in texts(path):
            places.setdefault(text, []).append(f"{path.relative_to(root).as_posix()}:{line}")
    return places


def written(places: dict[str, list[str]]) -> str:
    """Return the catalog as a template of gettext."""
    entries = [
        "".join(f"#: {place}\n" for place in found)
        + f'msgid {json.dumps(text, ensure_ascii=False)}\nmsgstr ""\n'
        for text, found in places.items()
    ]
    return "\n".join([HEAD, *entries])


def main(arguments: list[str] | None = None) -> int:
    """Write the file and say how much is in it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("target", type=Path, help="file to write, such as interface.pot")
    target = parser.parse_args(arguments).target
    places = catalog(check_style.ROOT)
    target.write_text(written(places), encoding="utf-8")
    files = {place.rpartition(":")[0] for found in places.values() for place in found}
    print(f"{target}: {len(places):,} texts of {len(files):,} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
