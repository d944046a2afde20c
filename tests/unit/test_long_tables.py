"""Long tables: the first rows in the page, all of them in the page next to it."""

from __future__ import annotations

import re

from bs4 import BeautifulSoup

from kvreport.publish import long_tables
from kvreport.site.kit.tables import FIRST_ROWS, Cell, Column, Row, Table
from kvreport.site.kit.templating import render

MANY = 300


def table(number: int, text: str = "17 requests") -> str:
    rows = tuple(Row(Cell(f"Model {n}"), (Cell(text),), anchor=f"row-{n}") for n in range(number))
    made = Table("Requests <by> model", Column("Model"), (Column("Requests"),), rows, noun="models")
    return render("_only_table.html", "", {"table": made})


FEWER = 200
"""Rows of a table whose further rows stay in the page."""


def page(body: str) -> str:
    return f'<html><head><link rel="canonical" href="https://example.org/gpus/"></head><body>{body}</body></html>'


def ids(html: str) -> list[str]:
    return [str(row["id"]) for row in BeautifulSoup(html, "html.parser").select("tbody tr")]


def test_a_long_table_has_its_further_rows_in_a_body_of_their_own():
    soup = BeautifulSoup(table(MANY), "html.parser")
    first, rest = soup.select("tbody")
    assert (len(first.select("tr")), len(rest.select("tr"))) == (FIRST_ROWS, MANY - FIRST_ROWS)
    assert (
        soup.select_one("details.kv-more-rows summary").get_text() == "Show all 300 modelsShow fewer models"
    )
    assert not BeautifulSoup(table(FIRST_ROWS + 16), "html.parser").select("details, .kv-rest")


def test_a_large_table_leaves_its_further_rows_to_a_plain_page(tmp_path):
    whole = page(table(MANY, "x" * 300) + table(FEWER) + table(MANY, "y" * 300))
    short, plain = long_tables.apart(whole, "../assets/kvreport.css")
    assert list(plain) == ["rows.html", "rows-2.html"]
    assert len(short) < len(whole) / 3
    soup = BeautifulSoup(short, "html.parser")
    assert [link.get_text() for link in soup.select(".kv-all-rows a")] == [
        "Show all 300 models on a plain page"
    ] * 2
    assert [len(body.select("tr")) for body in soup.select(".kv-rest")] == [0, FEWER - FIRST_ROWS, 0]
    for name, text in plain.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert len(ids(text)) == MANY
        assert not re.search("</t[dhr]>", text)
        assert "<title>Requests &lt;by&gt; model · kvreport</title>" in text
        assert '<link rel="canonical" href="https://example.org/gpus/">' in text
        assert '<meta name="robots" content="noindex">' in text
    again = BeautifulSoup(long_tables.together(short, tmp_path), "html.parser")
    assert again.select("tbody tr") == BeautifulSoup(whole, "html.parser").select("tbody tr")


def test_a_page_without_large_tables_loses_the_end_tags_of_its_rows_alone():
    """They were a fifteenth of a model's page."""
    whole = page(table(FEWER) + "<p>between</p>" + table(3))
    short, plain = long_tables.apart(whole, "a.css")
    assert plain == {}
    assert not re.search("</t[dhr]>", short.rpartition("<tbody>")[2])
    assert len(short) < len(whole) - 4 * 2 * FEWER
    assert long_tables.together(short, None) == whole
    before, after = (BeautifulSoup(text, "html5lib").find_all(["td", "th", "tr"]) for text in (whole, short))
    assert [one.get_text(strip=True) for one in before] == [one.get_text(strip=True) for one in after]
