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

from kvreport.publish import long_tables

BROKEN = re.compile(r"\b(undefined|NaN)\b|^None$|\bNone (GiB|GB|tokens|requests|GPUs)\b|\{\{|\}\}|\{%")
"""What a template or a script leaves when a value is missing."""

FIELD = re.compile(r"\b(?:memory|rates)\.[a-z]\w*|\bbytes per s\b")
"""A field of a record, as its file spells it."""
EMPTY = re.compile(r"(?<![\d,.])0\.0+ (?:GiB|GB) (?:short|over|more)\b")
"""A shortfall that is printed as nothing."""

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
            (FIELD, "a field of a record"),
            (EMPTY, "a shortfall of nothing"),
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
    yield from _chart(body, _named(table[0]), heads)
    yield from _served(said, _named(table[0]), heads)
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


_SERVED = re.compile(r"A single GPU serves (\d+) of [\d,]+ models as released at (\d+[KM]) tokens")
_CHOSEN = re.compile(r"<text[^>]*>([\d,]+) at (\d+[KM])</text>")


def _named(table: str) -> dict[tuple[str, str], list[str]]:
    """Return the rows of a table by name, without its maker, and number of devices."""
    found = {}
    for row in re.findall(r"<tr\b.*?</tr>", table, re.S)[1:]:
        cells = _row(re.sub(r"<small>.*?</small>", "", row, flags=re.S))
        if len(cells) > 1:
            found[cells[0], cells[1]] = cells
    return found


def _chart(body: str, rows: dict[tuple[str, str], list[str]], heads: list[str]) -> Iterator[str]:
    """Yield where the chart, or its data as a table, says something else than the table of the page."""
    chart = re.search(r'<figure[^>]*id="boundary-chart".*?</figure>', body, re.S)
    if chart is None:
        return
    lead = _BIG.search(body)
    said = _ANSWER.search(" ".join(_TAGS.sub("", lead[1]).split())) if lead else None
    chosen = _CHOSEN.search(chart[0])
    if said and chosen and said[2] == chosen[2] and said[1] != chosen[1]:
        yield f"the headline says {said[1]}, the chart “{chosen[1]} at {chosen[2]}”"
    data = [_row(row) for row in re.findall(r"<tr\b.*?</tr>", chart[0], re.S)]
    for cells in data[1:]:
        devices, _, name = cells[0].partition(" × ") if " × " in cells[0] else ("", "", cells[0])
        name, _, number = name.partition(" on ")
        row = rows.get((name, devices or number or "1"))
        if row is None:
            continue
        for head, cell in zip(data[0][1:], cells[1:], strict=False):
            if head in heads and len(row) == len(heads) and row[heads.index(head)] != cell:
                yield f"the chart of {cells[0]} says {cell} at {head}, the table {row[heads.index(head)]}"
                break


def _served(said: str, rows: dict[tuple[str, str], list[str]], heads: list[str]) -> Iterator[str]:
    """Yield where an accelerator's headline counts other models than its table has at its context."""
    answer = _SERVED.search(said)
    if answer is None or answer[2] not in heads:
        return
    alone = sum(devices == "1" for _, devices in rows)
    if alone != int(answer[1]):
        yield f"the headline counts {answer[1]} models on a single GPU, the table {alone}"


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
        if path.name.startswith("rows"):
            continue  # read as a part of its page
        html = long_tables.together(path.read_text(encoding="utf-8"), path.parent)
        found += [f"{name}: {fault}" for fault in faults(html)]
    return found


if __name__ == "__main__":
    messages = check(Path(sys.argv[1]))
    print("\n".join(messages))
    sys.exit(bool(messages))
