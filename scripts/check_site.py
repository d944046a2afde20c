"""Check a built site: what readers see has no internal names, and headline and table of a page agree.

    python scripts/check_site.py site    # 1 and a list of faults if there are any

Read is the visible text of every page, without code. The rules for words are those of `scripts/style_rules.yaml`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import check_style

BROKEN = re.compile(r"\b(undefined|NaN)\b|^None$|\bNone (GiB|GB|tokens|requests|GPUs)\b|\{\{|\}\}|\{%")
"""What a template or a script leaves when a value is missing."""

SKIPPED = ("embed/", "404.html", "about/api/", "data/index.html")
"""A card without a page, the theme's page, and the references, which name values of the API and of the dataset."""
_BIG = re.compile(r'<p class="kv-(?:lead|big)[^"]*"[^>]*>(.*?)</p>', re.S)
_TAGS = re.compile(r"<[^>]+>")
_ANSWER = re.compile(
    r"([\d,]+) (?:concurrent )?(?:requests?|users?) (?:of|at) (\d+[KM]) (?:tokens )?(?:each )?on (?:one|(\d+) ×) ([A-Z][\w ]+)"
)
_NONE = re.compile(r"\bno (?:accelerator|GPU|usual server)\b[^.]*\b(?:serves|holds|fits)\b", re.I)


def faults(html: str) -> Iterator[str]:
    """Yield what is wrong on a page."""
    main = re.search(r"<article.*?</article>", html, re.S) or re.search(r"<main.*?</main>", html, re.S)
    body = main[0] if main else html
    internal, number = check_style.rules().internal, check_style.rules().number
    for _, text in check_style.html(body, attributes=False):
        for pattern, what in (
            (internal, "an internal name"),
            (number, "singular"),
            (BROKEN, "a missing value"),
        ):
            found = pattern.search(text)
            if found:
                yield f"“{found[0]}”: {what}, in “{text[:80]}”"
    yield from disagreements(body)


def disagreements(body: str) -> Iterator[str]:
    """Yield where the headline says something else than the table of accelerators."""
    lead = _BIG.search(body)
    table = re.search(r'<table[^>]*id="users-table".*?</table>', body, re.S)
    if lead is None or table is None:
        return
    said = " ".join(_TAGS.sub("", lead[1]).split())
    cells = [_row(row) for row in re.findall(r"<tr\b.*?</tr>", table[0], re.S)]
    heads = cells[0] if cells else []
    serving = [row for row in cells[1:] if any(re.fullmatch(r"[1-9][\d,]*", cell) for cell in row[2:])]
    if _NONE.search(said) and serving:
        yield f"the headline says that nothing serves, the table has “{serving[0][0]}”: “{said[:90]}”"
    answer = _ANSWER.search(said)
    if not answer or answer[2] not in heads:
        return
    count, place, devices = answer[1], heads.index(answer[2]), answer[3] or "1"
    for row in cells[1:]:
        # The first cell is the name and its maker: "H100 NVIDIA", and not "H100 NVL NVIDIA".
        if (
            re.fullmatch(rf"{re.escape(answer[4].strip())}(?: \w+)?", row[0])
            and len(row) == len(heads)
            and row[1] == devices
        ):
            if row[place] != count:
                yield f"the headline says {count}, the table {row[place]}: “{said[:90]}”"
            return


def _row(html: str) -> list[str]:
    found: list[str] = []
    for attributes, content in re.findall(r"<t[hd]\b([^>]*)>(.*?)</t[hd]>", html, re.S):
        span = re.search(r'colspan="?(\d+)', attributes)
        found += [" ".join(_TAGS.sub("", content).split())] * (int(span[1]) if span else 1)
    return found


def check(folder: Path) -> list[str]:
    """Return the faults of a site, each with its page."""
    found = []
    for path in sorted(folder.rglob("*.html")):
        name = path.relative_to(folder).as_posix()
        if name.startswith(SKIPPED):
            continue
        found += [f"{name}: {fault}" for fault in faults(path.read_text(encoding="utf-8"))]
    return found


if __name__ == "__main__":
    messages = check(Path(sys.argv[1]))
    print("\n".join(messages))
    sys.exit(bool(messages))
