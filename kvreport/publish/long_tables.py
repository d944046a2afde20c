"""Long tables: a page keeps the first rows, and a plain page next to it has all of them.

A page of four hundred rows takes a phone seconds to load and lay out. ``_table.html`` puts the further rows of a long
table into a body of their own. Where these are large, the finished page leaves them out: its script fetches them from
the plain page when a reader begins to do something, and without scripts a link leads there. A finished page has none of
the end tags that HTML leaves out in the rows of a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape, unescape
from pathlib import Path
from typing import Final

LARGE: Final = 20_000
"""Characters of further rows from which on a page leaves them out: a tenth of a second of a slow phone's connection."""

_CUT: Final = '<span class="kv-paper">Only the first rows are printed. </span>'
_REST: Final = '<tbody class="kv-rest">\n'
_AFTER: Final = "</tbody>\n</table>\n"
_SWITCH: Final = ("<details", "</details>")
_ALL: Final = re.compile(r"<span>Show all (<b>[\d,]+</b> [^<]+)</span>")
_CAPTION: Final = re.compile(r"<caption>(.*?)</caption>", re.DOTALL)
_APART: Final = re.compile(r'<tbody class="kv-rest" data-kv-rows="([^"]+)"></tbody>')
_TAGS: Final = re.compile(r"<[^>]+>")
_ENDS: Final = re.compile(r"</t[dhr]>\s*")
"""End tags that HTML leaves out before the next cell or row: an eighth of a plain page."""
_BODY: Final = re.compile(r"(?s)(<tbody\b[^>]*>)(.*?)</tbody>")
_ROWS: Final = re.compile(r"(?=<tr\b)")
_OPEN: Final = re.compile(r"<(t[dh])\b.*?(?=<t[dh]\b|\Z)", re.DOTALL)
"""A cell without its end tag. No table stands in a cell."""


def apart(html: str, style: str) -> tuple[str, dict[str, str]]:
    """Take the further rows of large tables, and the end tags of the other rows, out of a finished page.

    Returns:
        The page, and the plain pages to write next to it, by file name; none for a page without large tables.
    """
    plain: dict[str, str] = {}
    pieces: list[str] = []
    done = 0
    for at, rows, switch in _long(html):
        name = f"rows-{len(plain) + 1}.html" if plain else "rows.html"
        start = html.rindex("<table", 0, at)
        table = f"{_ENDS.sub('', html[start:at])}{_REST}{_ENDS.sub('', rows)}{_AFTER}".rstrip()
        plain[name] = _plain(html, table, style)
        all_rows = _ALL.search(switch)
        words = _TAGS.sub("", all_rows[1]) if all_rows else "rows"
        pieces += (
            html[done:at],
            f'<tbody class="kv-rest" data-kv-rows="{name}"></tbody>\n</table>\n{switch}\n',
            f'<p class="kv-note kv-all-rows">{_CUT}<a href="{name}">Show all {words} on a plain page</a></p>',
        )
        done = at + len(f"{_REST}{rows}{_AFTER}{switch}")
    return _BODY.sub(_short, "".join([*pieces, html[done:]])), plain


def _short(body: re.Match[str]) -> str:
    return f"{body[1]}{_ENDS.sub('', body[2])}</tbody>"


def _long(html: str) -> Iterator[tuple[int, str, str]]:
    """Yield where the further rows of each large table begin, these rows, and the switch after the table.

    Looking for plain text: a pattern that tries every character of 300 kB takes a hundred times as long.
    """
    at = html.find(_REST)
    while at >= 0:
        first = at + len(_REST)
        after = html.find(_AFTER + _SWITCH[0], first)
        end = html.find(_SWITCH[1], after) + len(_SWITCH[1])
        if after < 0 or end < len(_SWITCH[1]):
            return
        if after - first >= LARGE:
            yield at, html[first:after], html[after + len(_AFTER) : end]
        at = html.find(_REST, end)


def _plain(page: str, table: str, style: str) -> str:
    caption = _CAPTION.search(table)
    title = escape(unescape(_TAGS.sub("", caption[1] if caption else "All rows")))
    canonical = re.search(r'<link rel="canonical"[^>]*>', page)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="robots" content="noindex">\n'
        f'{canonical[0] if canonical else ""}\n<title>{title} · kvreport</title>\n<link rel="stylesheet" href="{style}">\n'
        f'</head>\n<body class="kv-plain" data-md-color-scheme="default">\n<main class="md-content md-typeset">\n'
        f'<p><a href="./">Back to the page</a></p>\n{table}\n</main>\n</body>\n</html>\n'
    )


def together(html: str, folder: Path) -> str:
    """Return a page as written to a folder, with the rows and end tags that :func:`apart` took out of it."""
    html = _APART.sub(lambda found: _rest((folder / found[1]).read_text(encoding="utf-8")), html)
    return _BODY.sub(_whole, html)


def _rest(plain: str) -> str:
    return f"{_REST}{plain.split(_REST, 1)[1].split('</tbody>', 1)[0]}</tbody>"


def _whole(body: re.Match[str]) -> str:
    before, *rows = _ROWS.split(body[2])
    closed = (_OPEN.sub(r"\g<0></\1>", row) + "</tr>\n" for row in rows)
    return f"{body[1]}{before}{''.join(closed)}</tbody>"
