"""Rows of a page's Markdown twin, which are read cell by cell, are what the parser makes of them."""

from __future__ import annotations

import pytest
from markupsafe import Markup

from kvreport.site.kit import markdown

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
    assert lines(markdown.to_markdown(html)).count("\n| ") >= len(ROWS) - 2


def test_a_text_of_a_template_is_read_as_a_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[type] = []
    monkeypatch.setattr(markdown._Writer, "feed", lambda _self, piece: fed.append(type(piece)))
    markdown.to_markdown(Markup("<p>A page</p>"))
    assert set(fed) == {str}
