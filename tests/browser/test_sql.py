"""SQL in the explorer: DuckDB is loaded on a click and answers as pandas does, with and without range requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pytest
from serving import Quiet, is_fault, served

from kvreport.publish import sql_runtime

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "kvreport"
QUERY = "SELECT gpu, count(*) AS n, max(max_concurrent_requests) AS most FROM capacity WHERE verdict = 'fits' GROUP BY gpu ORDER BY gpu;"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(
        not sql_runtime.RUNTIME.found(CACHE),
        reason="scripts/fetch_runtime.py has not fetched DuckDB for the browser",
    ),
]


class Ranges(Quiet):
    """A file server that sends parts of files if it is told to, and keeps account of the Parquet file."""

    ranged = True
    parquet: ClassVar[list[int]] = []

    def do_HEAD(self) -> None:  # noqa: N802 - as http.server calls it
        """Answer a question about a file."""
        self._answer(b"" if self._part() else None)

    def do_GET(self) -> None:  # noqa: N802 - as http.server calls it
        """Answer with a file, or a part of one."""
        self._answer(None)

    def _part(self) -> re.Match[str] | None:
        return re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "") if self.ranged else None

    def _answer(self, body: bytes | None) -> None:
        part = self._part()
        if part is None:
            path = Path(self.translate_path(self.path))
            if path.suffix == ".parquet":
                self.parquet.append(path.stat().st_size)
            super().do_GET() if self.command == "GET" else super().do_HEAD()
            return
        content = Path(self.translate_path(self.path)).read_bytes()
        first, last = int(part[1]), min(int(part[2] or len(content)), len(content) - 1)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        if body is None:
            self.parquet.append(last - first + 1)
            self.wfile.write(content[first : last + 1])


@pytest.fixture
def address(tiny_site: Any) -> Iterator[str]:
    Ranges.parquet.clear()
    with served(tiny_site.folder, Ranges) as root:
        yield root


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    # The page's policy is in force here.
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda said: faults.append(said.text) if is_fault(said) else None)
    opened.on(
        "request",
        lambda one: None if one.url.startswith((address, "blob:", "data:")) else faults.append(one.url),
    )
    opened.goto(address + "explore/")
    opened.locator(".kv-query summary").click()
    opened.locator(".kv-sql textarea").wait_for()
    yield opened
    context.close()
    assert faults == []


def run(page: Any, query: str = "") -> str:
    """Run a query, or the one that stands there; return what is said of it."""
    if query:
        page.locator(".kv-sql textarea").fill(query)
    before = int(page.locator(".kv-sql .kv-said").get_attribute("data-kv-answers") or 0)
    page.locator(".kv-sql .kv-primary").click()
    said = page.locator(f".kv-sql .kv-said[data-kv-answers='{before + 1}']")
    said.wait_for(timeout=60_000)
    return str(said.inner_text())


def table(page: Any) -> list[list[str]]:
    found: list[list[str]] = page.eval_on_selector_all(
        "#sql-table tbody tr", "rows => rows.map((row) => Array.from(row.cells, (cell) => cell.innerText))"
    )
    return found


@pytest.mark.parametrize("ranged", [True, False], ids=["ranges", "whole file"])
def test_a_query_answers_as_pandas_does(
    page: Any, tiny_site: Any, monkeypatch: pytest.MonkeyPatch, *, ranged: bool
) -> None:
    monkeypatch.setattr(Ranges, "ranged", ranged)
    assert run(page, QUERY).endswith("ms.")
    rows = pd.read_parquet(tiny_site.folder / "downloads/capacity.parquet").query("verdict == 'fits'")
    want = rows.groupby("gpu", observed=True)["max_concurrent_requests"].agg(["count", "max"])
    assert table(page) == [[str(gpu), str(n), str(most)] for gpu, n, most in want.itertuples()]


def test_the_filters_are_a_query_and_faults_are_said(page: Any, tiny_site: Any) -> None:
    assert re.match(r"\d+ rows?\. DuckDB ", run(page))
    rows = pd.read_parquet(tiny_site.folder / "downloads/capacity.parquet")
    asked = rows[
        (rows["gpu"] == "h100-sxm-80gb") & (rows["layout"] == "tp1") & (rows["context_tokens"] == 8192)
    ]
    assert {row[0] for row in table(page)} <= set(asked["model"].astype(str))
    assert "Referenced column" in run(page, "SELECT nonsense FROM capacity")
    # What a reader has typed stays when a filter changes.
    page.locator("fieldset[data-facet=tp] .kv-chip[value='2']").click()
    page.locator(".kv-explore[data-kv-shown*='tp=2']").wait_for()
    assert page.locator(".kv-sql textarea").input_value() == "SELECT nonsense FROM capacity"


def test_nothing_is_loaded_before_the_click(page: Any) -> None:
    loaded = page.evaluate("performance.getEntriesByType('resource').map((one) => one.name)")
    assert not [name for name in loaded if "duckdb" in name or name.endswith(".parquet")]
