"""Rows of a page's Markdown twin, which are read cell by cell, are what the parser makes of them."""

from __future__ import annotations

import re
from html import escape

import pytest
from markupsafe import Markup

from kvreport.site.kit import markdown
from kvreport.site.kit.page import Page, Section

ROWS = [
    '<tr><th scope="col">Context</th><th scope="col">BF16 | FP8</th></tr>',
    '<tr id="of-a"><th scope="row"><a href="../a/">A &amp; B</a> <small>Acme</small></th><td class="kv-no">-</td></tr>',
    "<tr>\n  <td>8,192  tokens</td>\n  <td><code>fp8</code> or <b>bf16</b></td>\n</tr>",
    "<tr><td>seen</td><td hidden>unseen</td></tr>",
    "<tr hidden><td>unseen</td></tr>",
    "<tr><td><svg><text>drawn</text></svg>1 GiB &lt; 2 GiB</td><td><br>two</td></tr>",
    '<tr><td colspan="2">alone</td></tr>',
    "<tr><td>open<p>paragraph</td><td><button>press</button>last</td></tr>",
]
AROUND = [
    "<p>Before</p><table><tbody>{}</tbody></table><p>after</p>",
    "<form><table>{}</table></form>text that {} follows",
    "text <div hidden><table>{}</table></div> and more",
    "<table>{}</table>",
]


def parsed(html: str) -> str:
    """What the parser alone makes of some HTML."""
    writer = markdown._Writer("")
    writer.feed(html)
    writer.close()
    return "\n".join(line.strip() for line in "".join(writer.parts).splitlines() if line.strip())


def lines(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line)


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_what_the_parser_makes_of_it(row: str, around: str) -> None:
    html = around.replace("{}", f"{ROWS[0]}{row}{ROWS[1]}")
    assert lines(markdown.to_markdown(html)) == parsed(html)


def test_all_rows_of_one_table_are() -> None:
    html = AROUND[0].replace("{}", "".join(ROWS))
    assert lines(markdown.to_markdown(html)) == parsed(html)
    assert lines(markdown.to_markdown(html)).count("\n|") >= len(ROWS) - 2


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<!--",
    "</p><svg/onload=alert(1)>",
    "[a](javascript:alert(1))",
    "`<script>alert(1)</script>`",
    "```\n<script>alert(1)</script>",
]
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize(
    "around",
    [
        "<p>{}</p>",
        "<h2>{}</h2>",
        "<ul><li>{}</li></ul>",
        "<table><tr><th>{}</th><td>{}</td></tr></table>",
        "<table><tr><td><b>{}</b></td><td><code>{}</code></td></tr></table>",
        "<p>Run <code>{}</code> now</p>",
        "<pre><code>{}</code></pre>",
        '<p><a href="../a/">{}</a></p>',
    ],
)
def test_a_name_stays_text_in_every_place(name: str, around: str) -> None:
    text = CODE.sub("", markdown.to_markdown(around.replace("{}", escape(name)), "https://example.org/b/"))
    assert not re.search(r"<[A-Za-z/!?]", text)
    assert "](javascript:" not in text


def test_a_name_stays_text_in_headings_and_in_the_list_of_pages() -> None:
    page = Page(
        uri="models/a/", kind="model", title="a", heading=HOSTILE[0], description=HOSTILE[1],
        sections=(Section("a", HOSTILE[3], "<p>less: 1 &lt; 2</p>"),),
    )  # fmt: skip
    for _, content in markdown.files([page], "https://example.org/"):
        text = content.decode().replace("<https://example.org/models/a/>", "")
        assert not re.search(r"<[A-Za-z/!?]", text)
    assert "less: 1 < 2" in markdown.twin(page)


def test_a_text_of_a_template_is_read_as_a_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[type] = []
    monkeypatch.setattr(markdown._Writer, "feed", lambda _self, piece: fed.append(type(piece)))
    markdown.to_markdown(Markup("<p>A page</p>"))
    assert set(fed) == {str}
