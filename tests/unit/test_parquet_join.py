"""Parquet files joined by their bytes: the rows of all of them, in order, for any reader."""

import io

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvreport.dataset.parquet import Joined, part_of


def part(first: int, rows: int, groups: int = 1, **options: object) -> bytes:
    """A file with numbers, texts from a dictionary, and gaps."""
    table = pa.table(
        {
            "n": pa.array(range(first, first + rows), pa.int64()),
            "name": pa.array([f"name-{n % 7}" for n in range(first, first + rows)]).dictionary_encode(),
            "maybe": pa.array(
                [None if n % 3 == 0 else n / 4 for n in range(first, first + rows)], pa.float32()
            ),
        }
    )
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=max(1, rows // groups), compression="zstd", **options)
    return out.getvalue()


def joined(*parts: bytes) -> bytes:
    out = io.BytesIO()
    whole = Joined(out)
    for one in parts:
        whole.add(one, part_of(one))
    whole.close()
    return out.getvalue()


def test_rows_are_those_of_all_parts_in_order(tmp_path):
    parts = [part(0, 1000), part(1000, 17), part(1017, 5000, groups=20)]
    path = tmp_path / "all.parquet"
    path.write_bytes(joined(*parts))
    expected = pa.concat_tables(pq.read_table(pa.BufferReader(one)) for one in parts)
    assert pq.read_table(path).equals(expected)
    assert pq.read_metadata(path).num_rows == 6017
    assert pq.read_metadata(path).num_row_groups == 22
    assert pl.read_parquet(path)["n"].to_list() == list(range(6017))
    rows = duckdb.connect().read_parquet(str(path)).filter("name = 'name-3'")
    found = rows.aggregate("count(*), sum(n), count(maybe)").fetchall()
    whole = [n for n in range(6017) if n % 7 == 3]
    assert found == [(len(whole), sum(whole), sum(n % 3 != 0 for n in whole))]


def test_one_part_is_that_part():
    whole = joined(part(0, 300))
    assert pq.read_table(pa.BufferReader(whole)).equals(pq.read_table(pa.BufferReader(part(0, 300))))


def test_statistics_and_page_indexes_are_found_where_they_are(tmp_path):
    path = tmp_path / "all.parquet"
    path.write_bytes(joined(*(part(n * 100, 100, write_page_index=True) for n in range(3))))
    found = pq.ParquetFile(path)
    for number in range(3):
        column = found.metadata.row_group(number).column(0)
        assert (column.statistics.min, column.statistics.max) == (number * 100, number * 100 + 99)
        assert column.has_column_index
        assert found.read_row_group(number)["n"].to_pylist() == list(range(number * 100, number * 100 + 100))
    assert pq.read_table(path, filters=[("n", "=", 250)]).num_rows == 1


def test_what_cannot_be_joined_is_refused():
    with pytest.raises(ValueError, match="no Parquet file"):
        joined(b"PAR1 and no more")
    other = io.BytesIO()
    pq.write_table(pa.table({"m": [1]}), other)
    with pytest.raises(ValueError, match="another schema"):
        joined(part(0, 10), other.getvalue())
    with pytest.raises(ValueError, match="at least one"):
        joined()
