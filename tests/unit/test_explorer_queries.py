"""The explorer's queries find the rows that its table counts: none of combinations that the engine refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
from page_states import run

from kvreport import resources
from kvreport.estimation.why_not import REFUSED

WRITE = """
const { address, state } = JSON.parse(await new Response(Deno.stdin.readable).text());
const site = { engine: { name: "vllm" }, layouts: [{ label: "tp1" }] };
const filters = kvQueries.conditions(state, { models: [{ id: "a/a", kv: "bf16" }], sizes: [0] }, site);
console.log(JSON.stringify({
  sql: kvQueries.sql(address, filters, 0), pandas: kvQueries.pandas(address, filters, 0), refused: kvMatrix.REFUSED,
}));
"""
VERDICTS = ("fits", "weights_exceed_memory", *REFUSED)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """One row for each verdict, with the columns that a query prints."""
    path = tmp_path / "capacity.parquet"
    frame = pd.DataFrame({"verdict": VERDICTS}).assign(
        model="a/a", gpu="h100", engine="vllm", layout="tp1", weight_format="released", kv_format="bf16",
        context_tokens=8192, max_concurrent_requests=1, decode_ms_lower_bound=1.0, kv_pool_bytes_per_gpu=1,
    )  # fmt: skip
    frame.to_parquet(path)
    return path


def test_a_query_finds_the_rows_that_the_table_counts(rows: Path) -> None:
    own = "".join(
        (resources.assets_dir() / name).read_text(encoding="utf-8")
        for name in ("kv-matrix.js", "kv-queries.js")
    )
    found = run(
        own + WRITE, {"address": str(rows), "state": {"gpu": ["h100"], "context": ["8192"], "kv": ["own"]}}
    )
    assert tuple(found["refused"]) == REFUSED
    names: dict[str, Any] = {}
    exec(found["pandas"], names)  # noqa: S102 - the code that the page offers
    for verdicts in (
        {row[-1] for row in duckdb.execute(found["sql"].rstrip(";")).fetchall()},
        set(names["rows"]["verdict"]),
    ):
        assert verdicts == {"fits", "weights_exceed_memory"}
