"""Check a built site: what readers see has no internal names; headline, chart, memory bar and tables of a page agree.

    python scripts/check_site.py site    # 1 and a list of faults if there are any

Read is the visible text of every page, without code. The rules for words are those of `scripts/style_rules.yaml`.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

import check_style

from kvreport.publish import long_tables

BROKEN = re.compile(
    r"\b(undefined|NaN)\b|^None$|\bNone (GiB|GB|tokens|requests|GPUs)\b|\{\{|(?<=\s)\}\}|\{%|\{\w+:\w+\}"
)
"""What a template or a script leaves when a value is missing, or the place of a flag."""

FIELD = re.compile(r"\b(?:memory|rates)\.[a-z]\w*|\bbytes per s\b")
"""A field of a record, as its file spells it."""
EMPTY = re.compile(r"(?<![\d,.])0\.0+ (?:GiB|GB) (?:short|over|more)\b")
"""A shortfall that is printed as nothing."""
TENTH = re.compile(r"\d,\d{3}\.0 (?:bytes|tokens|requests)\b(?!/)")
"""A whole number that is printed with a tenth."""

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
    body = _body(html)
    internal, number = check_style.rules().internal, check_style.rules().number
    for _, text in check_style.html(body, attributes=False):
        for pattern, what in (
            (internal, "an internal name"),
            (number, "singular"),
            (BROKEN, "a missing value"),
            (FIELD, "a field of a record"),
            (EMPTY, "a shortfall of nothing"),
            (TENTH, "a tenth of a whole"),
        ):
            found = pattern.search(text)
            if found:
                yield f"“{found[0]}”: {what}, in “{text[:80]}”"
    yield from disagreements(body)


def _body(html: str) -> str:
    main = re.search(r"<article.*?</article>", html, re.S) or re.search(r"<main.*?</main>", html, re.S)
    return main[0] if main else html


def disagreements(body: str) -> Iterator[str]:
    """Yield where the headline, the chart, the memory bar and the tables of a page say different things."""
    for _, found in comparisons(body):
        yield from found


def comparisons(body: str) -> Iterator[tuple[str, list[str]]]:
    """Yield what of a page was compared with what, and where it differs."""
    lead = _BIG.search(body)
    said = " ".join(_TAGS.sub("", lead[1]).split()) if lead else ""
    answer = _ANSWER.search(said)
    if answer:
        yield from _drawn(body, answer)
    if machine := _MACHINE.search(said):
        yield from _machine(body, machine)
    table = re.search(r'<table[^>]*id="users-table".*?</table>', body, re.S)
    if lead is None or table is None:
        return
    cells = [_row(row) for row in re.findall(r"<tr\b.*?</tr>", table[0], re.S)]
    heads = cells[0] if cells else []
    rows = _named(table[0])
    if '"boundary-chart"' in body:
        yield "chart and table", list(_chart(body, rows, heads))
    served = _SERVED.search(said)
    if served and served[2] in heads:
        yield "headline and rows", list(_served(served, cells))
    yield "headline and table", list(_answered(said, answer, cells))


def _answered(said: str, answer: re.Match[str] | None, cells: list[list[str]]) -> Iterator[str]:
    """Yield where the headline says something else than the table of accelerators."""
    heads = cells[0] if cells else []
    serving = [row for row in cells[1:] if any(re.fullmatch(r"[1-9][\d,]*", cell) for cell in row[2:])]
    if _NONE.search(said) and serving:
        yield f"the headline says that nothing serves, the table has “{serving[0][0]}”: “{said[:90]}”"
    if not answer or answer[2] not in heads:
        return
    count, place, devices = answer[1], heads.index(answer[2]), answer[3] or "1"
    # The first cell is the name and its maker: "H100 NVIDIA", and not "H100 NVL NVIDIA".
    named = re.compile(rf"{re.escape(answer[4].strip())}(?: \w+)?")
    rows = [row for row in cells[1:] if named.fullmatch(row[0]) and len(row) == len(heads)]
    shown = next((row for row in rows if row[1] == devices), None)
    if shown and shown[place] != count:
        yield f"the headline says {count}, the table {shown[place]}: “{said[:90]}”"
    elif rows and not shown:
        yield f"the headline takes {devices}, the table {' and '.join(row[1] for row in rows)}: “{said[:90]}”"


def _drawn(body: str, answer: re.Match[str]) -> Iterator[tuple[str, list[str]]]:
    """Compare the headline with the point in the chart, and with the memory bar; the bar's parts with their sum."""
    chart = re.search(r'<figure[^>]*id="boundary-chart".*?</figure>', body, re.S)
    point = _CHOSEN.search(chart[0]) if chart else None
    if point:
        differs = point[2] == answer[2] and point[1] != answer[1]
        said = f"the headline says {answer[1]}, the chart “{point[1]} at {point[2]}”"
        yield "headline and chart", [said] if differs else []
    bar = _BAR.search(body)
    if bar is None:
        return
    caption = " ".join(_TAGS.sub("", bar[2]).split())
    counted = _IN_BAR.search(caption)
    if counted:
        # One GPU has the requests of its data rank.
        ranks = re.match(r"\s*\([^)]*\bDP (\d+)", answer.string[answer.end() :])
        each = int(answer[1].replace(",", "")) // (int(ranks[1]) if ranks else 1)
        same = (int(counted[1].replace(",", "")), counted[2]) == (each, answer[2])
        said = f"the headline says {answer[1]} at {answer[2]}, the memory bar “{caption[:70]}”"
        yield "headline and bar", [] if same else [said]
    usable = _USABLE.search(caption)
    parts = [float(size.replace(",", "")) for size in re.findall(r"<b>([\d,.]+) GiB</b>", bar[1])]
    if usable and parts:
        total = float(usable[1].replace(",", ""))
        # Each part is rounded to a tenth.
        wrong = abs(sum(parts) - total) > 0.05 * len(parts) + 0.01
        yield "bar and its parts", [f"the bar's parts are {sum(parts):.1f} GiB of {total}"] if wrong else []


def _machine(body: str, said: re.Match[str]) -> Iterator[tuple[str, list[str]]]:
    """Compare the models that a page of a machine at home begins with, and the first row of each use."""
    table = re.search(r"<table.*?</table>", body, re.S)
    rows = [_row(row) for row in re.findall(r"<tr\b.*?</tr>", table[0], re.S)] if table else []
    if not rows or rows[0][1:2] != ["For"]:
        return
    first: dict[str, list[str]] = {}
    for row in rows[1:]:
        first.setdefault(row[1].lower(), row)
    faults = []
    for name, mix, uses in re.findall(r"([^;]+?) \((\w+)[^)]*\) for ([^;]+)", said[1]):
        for use in re.split(r", | and ", uses):
            row = first.pop(use, ["", "", "", ""])
            if not row[0].startswith(name.strip()) or row[3] != mix:
                faults.append(
                    f"the first line says {name.strip()} in {mix} for {use}, the table “{row[0]}” in {row[3]}"
                )
    yield "conclusion and table", faults + [f"the first line has nothing for {use}" for use in first]


_COUNT = re.compile(r"[1-9][\d,]*")
_SERVED = re.compile(r"A single GPU serves ([\d,]+) of [\d,]+ models as released, at (\d+[KM]) tokens")
_CHOSEN = re.compile(r"<text[^>]*>([\d,]+) at (\d+[KM])</text>")
_BAR = re.compile(r'<figure class="kv-figure kv-barfigure"[^>]*>(.*?)<figcaption>(.*?)</figcaption>', re.S)
_IN_BAR = re.compile(r"with ([\d,]+) concurrent requests? of (\d+[KM]) tokens")
_USABLE = re.compile(r"process can use ([\d,.]+) GiB")
_MACHINE = re.compile(r"^Models to run: (.+)\.$")


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


def _served(answer: re.Match[str], cells: list[list[str]]) -> Iterator[str]:
    """Yield where an accelerator's headline counts other models than its table has, as released, at its context."""
    place = cells[0].index(answer[2])
    alone = sum(
        row[1] == "1" and "weights assumed" not in row[0] and bool(_COUNT.fullmatch(row[place]))
        for row in cells[1:]
        if len(row) == len(cells[0])
    )
    if alone != int(answer[1].replace(",", "")):
        yield f"the headline counts {answer[1]} models on a single GPU, the table {alone}"


def _row(html: str) -> list[str]:
    found: list[str] = []
    for attributes, content in re.findall(r"<t[hd]\b([^>]*)>(.*?)</t[hd]>", html, re.S):
        span = re.search(r'colspan="?(\d+)', attributes)
        found += [" ".join(_TAGS.sub("", content).split())] * (int(span[1]) if span else 1)
    return found


def check(folder: Path) -> tuple[list[str], Counter[str]]:
    """Return the faults of a site, each with its page, and on how many pages what was compared."""
    found: list[str] = []
    compared: Counter[str] = Counter()
    for path in sorted(folder.rglob("*.html")):
        name = path.relative_to(folder).as_posix()
        if name.startswith(SKIPPED):
            continue
        if path.name.startswith("rows"):
            continue  # read as a part of its page
        html = long_tables.together(path.read_text(encoding="utf-8"), path.parent)
        found += [f"{name}: {fault}" for fault in faults(html)]
        compared.update(what for what, _ in comparisons(_body(html)))
    return found, compared


if __name__ == "__main__":
    messages, counts = check(Path(sys.argv[1]))
    print("\n".join(messages))
    print(*(f"{what}: {count} pages" for what, count in sorted(counts.items())), sep="\n", file=sys.stderr)
    sys.exit(bool(messages))
