"""The figures of start-up logs: filters leave rows, and the page sums up how far off those are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from visits import Visit

from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.site.kit.templating import render
from kvreport.site.pages.index import facet_values

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ERRORS = (-0.04, 0.01, 0.02, 0.03, 0.0)


@pytest.fixture
def visit(browser, address, tiny_site) -> Iterator[Visit]:
    rows = tuple(
        Row(
            Cell(f"Model {n}"),
            (Cell("H200" if n % 2 else "H100"), Cell(f"{error:+.0%}", value=error)),
            keys=(("quantity", "pool" if n < 4 else "tokens"), ("format", "FP8" if n else "BF16")),
        )
        for n, error in enumerate(ERRORS)
    )
    columns = (Column("Device", numeric=False), Column("Error"))
    table = Table("Figures", Column("Model"), columns, rows, name="models-table", noun="figures")
    names = {
        "table": table,
        "facets": (("quantity", "Quantity"), ("format", "Weight format")),
        "noun": "figure|figures",
        "example": "h200",
        "index_help": "Words of a row",
        "summary": "quantity",
    }
    made = render("validation/logs_table.html", "models/", {**names, "facet_values": facet_values(names)})
    html = (tiny_site.folder / "models/index.html").read_text(encoding="utf-8")
    start = html.index('<div class="kv-js kv-index-tools"')
    end = html.index("</div>", html.index("</table>", start)) + len("</div>")
    body = html[:start] + str.__str__(made) + html[end:]
    visit = Visit(browser, address, viewport={"width": 1280, "height": 900})
    visit.context.route(
        lambda url: url.startswith(f"{address}models/"),
        lambda route: route.fulfill(body=body, content_type="text/html; charset=utf-8"),
    )
    yield visit
    visit.context.close()


def test_the_errors_of_what_filters_leave_are_summed_up_by_quantity(visit: Visit) -> None:
    page = visit.go("models/?format=FP8")
    table = page.locator(".kv-index-tools table")
    table.wait_for()
    told = [row.inner_text().split("\t") for row in table.locator("tbody tr").all()]
    # Of 1, 2 and 3%, the 90th percentile is 2.8%.
    assert told == [["pool", "3", "2.0%", "2.8%"], ["tokens", "1", "0.00%", "0.00%"]]
    page.fill("input[name=name]", "h200")
    page.wait_for_function("document.querySelectorAll('.kv-index-tools tbody tr').length === 1")
    # Words of any column are found. Errors count in either direction.
    assert table.locator("tbody tr").inner_text().split("\t") == ["pool", "2", "2.0%", "2.8%"]
    page.get_by_role("button", name="Clear filters").click()
    assert table.count() == 0
