"""The Parquet file of all models: the rows of each model's file, in order, for any reader."""

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from kvreport.catalog.load import open_catalog
from kvreport.dataset import write
from kvreport.dataset.grid import axes


def test_the_file_has_the_row_groups_of_all_models_and_repeats_by_the_byte(tmp_path):
    catalog = open_catalog()
    chosen = axes(catalog, models="Qwen/Qwen2.5-7B,openai/gpt-oss-20b", gpus="h100-sxm-80gb,rtx-4090")
    for name in ("first", "second"):
        write.publish(
            catalog,
            chosen,
            tmp_path / name,
            version="2026.11.21",
            workers=1,
            cache=tmp_path / "cache",
        )
    path = tmp_path / "first/capacity.parquet"
    assert path.read_bytes() == (tmp_path / "second/capacity.parquet").read_bytes()
    parts = [pq.ParquetFile(tmp_path / f"first/models/{model.slug}.parquet") for model in chosen.models]
    whole = pq.ParquetFile(path)
    table = whole.read()
    assert table.equals(pa.concat_tables(part.read() for part in parts))
    assert whole.num_row_groups == sum(part.num_row_groups for part in parts)
    for number in range(whole.num_row_groups):
        model = whole.metadata.row_group(number).column(0).statistics
        assert model.min == model.max  # whoever looks for one model skips the groups of others
    assert pl.read_parquet(path).height == table.num_rows
    found = duckdb.connect().read_parquet(str(path)).filter("model = 'openai/gpt-oss-20b'")
    assert found.aggregate("count(*)").fetchall() == [(parts[-1].metadata.num_rows,)]
