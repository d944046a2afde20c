"""The published files: the same rows in every form, described by what is beside them."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import duckdb
import faults
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvreport.dataset import arrow, write
from kvreport.dataset.columns import ACCELERATORS, CAPACITY, MODELS, TABLES, DatasetColumn, DatasetTable
from kvreport.dataset.data_version import data_version
from kvreport.dataset.grid import axes
from kvreport.dataset.matrix import matrix
from kvreport.dataset.partitions import write_partitioned
from kvreport.dataset.staged_files import staged
from kvreport.errors import InputError

MODEL = "Qwen/Qwen2.5-7B"


@pytest.fixture(scope="module")
def chosen(catalog):
    return axes(
        catalog,
        models=f"{MODEL},deepseek-ai/DeepSeek-V3",
        gpus="h100-sxm-80gb,h200-sxm-141gb,rtx-4090",
        contexts=[8192, 131072, 262144],
    )


@pytest.fixture(scope="module")
def folder(catalog, chosen, tmp_path_factory):
    out = tmp_path_factory.mktemp("published")
    write.publish(catalog, chosen, out, version=data_version(catalog.folder), workers=1)
    return out


def _csv(path):
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_every_promised_file_is_there(folder):
    assert {path.name for path in folder.iterdir()} == {
        "SHA256SUMS",
        "accelerators.csv",
        "capacity.csv.gz",
        "capacity.parquet",
        "croissant.json",
        "datapackage.json",
        "models",
        "models.csv",
    }
    assert {path.name for path in (folder / "models").iterdir()} == {
        "Qwen--Qwen2.5-7B.csv.gz",
        "Qwen--Qwen2.5-7B.parquet",
        "deepseek-ai--DeepSeek-V3.csv.gz",
        "deepseek-ai--DeepSeek-V3.parquet",
    }


def test_parquet_and_csv_hold_the_same_rows(folder, chosen):
    parquet = pq.read_table(folder / "capacity.parquet")
    # The CSV goes by size before accelerator; told again in the order of the key, it is the Parquet.
    rows = sorted(_csv(folder / "capacity.csv.gz"), key=lambda row: (row["model"], row["gpu"]))
    assert parquet.num_rows == len(rows) == sum(cube.rows for cube in matrix(chosen))
    assert list(rows[0]) == list(CAPACITY.names)
    for column in CAPACITY.columns:
        name = column.name
        texts = [row[name] for row in rows]
        values = parquet.column(name).to_pylist()
        if column.type == "string":
            assert texts == values
        elif column.type.startswith("float"):
            assert [text == "" for text in texts] == [value is None for value in values]
            read = [float(text) for text in texts if text]
            assert read == pytest.approx([value for value in values if value is not None], rel=1e-6)
        elif column.type == "boolean":
            assert [text == "true" for text in texts] == values
        else:
            assert [int(text) for text in texts] == values


def test_statistics_let_a_reader_skip_models_and_accelerators(folder):
    group = pq.read_metadata(folder / "capacity.parquet").row_group(0)
    told = {
        group.column(place).path_in_schema: group.column(place).statistics
        for place in range(group.num_columns)
        if group.column(place).is_stats_set
    }
    assert set(told) == {"model", "gpu"}
    assert told["model"].min == told["model"].max


def test_the_models_files_are_parts_of_the_whole(folder):
    whole = _csv(folder / "capacity.csv.gz")
    parts = [row for path in sorted((folder / "models").glob("*.csv.gz")) for row in _csv(path)]
    assert parts == whole
    one = pq.read_table(folder / "models" / "Qwen--Qwen2.5-7B.parquet")
    assert one.num_rows == sum(row["model"] == MODEL for row in whole)


def test_csv_rows_go_by_model_and_size_first_and_each_key_is_there_once(folder):
    rows = _csv(folder / "capacity.csv.gz")
    keys = [
        (
            r["model"],
            r["layout"],
            r["gpu"],
            r["weight_format"],
            r["kv_format"],
            int(r["context_tokens"]),
        )
        for r in rows
    ]
    assert keys == sorted(set(keys))


def test_infeasible_combinations_are_rows_with_a_verdict(folder):
    rows = _csv(folder / "capacity.csv.gz")
    small = [
        r
        for r in rows
        if r["model"].startswith("deepseek") and r["gpu"] == "rtx-4090" and r["tensor_parallel"] == "1"
    ]
    assert {row["verdict"] for row in small} == {"weights_exceed_memory", "context_exceeds_model"}
    assert {row["layout"] for row in small} >= {"tp1"}
    assert {row["max_concurrent_requests"] for row in small} == {"0"}
    assert {row["decode_ms_lower_bound"] for row in small} == {""}


def test_other_engines_read_it(folder):
    path = str(folder / "capacity.parquet")
    query = f"SELECT max_concurrent_requests FROM '{path}' WHERE model = ? AND gpu = 'h100-sxm-80gb' AND tensor_parallel = 1 AND weight_format = 'released' AND kv_format = 'bf16' AND context_tokens = 8192"  # noqa: S608
    found = duckdb.execute(query, [MODEL]).fetchall()
    frame = pl.read_parquet(path).filter(
        (pl.col("model") == MODEL)
        & (pl.col("gpu") == "h100-sxm-80gb")
        & (pl.col("tensor_parallel") == 1)
        & (pl.col("weight_format") == "released")
        & (pl.col("kv_format") == "bf16")
        & (pl.col("context_tokens") == 8192)
    )
    assert len(found) == 1
    assert frame["max_concurrent_requests"].to_list() == [found[0][0]]


def test_the_checksums_are_right_and_cover_every_file(folder):
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    named = dict(line.split("  ", 1)[::-1] for line in lines)
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - {"SHA256SUMS"}
    assert set(named) == there
    for name, digest in named.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_the_data_package_describes_every_column(catalog, folder):
    package = json.loads((folder / "datapackage.json").read_text())
    assert package["version"] == data_version(catalog.folder)
    described = {resource["name"]: resource for resource in package["resources"]}
    for table in TABLES:
        resource = described[table.name]
        header = list(_csv(folder / resource["path"])[0])
        assert [field["name"] for field in resource["schema"]["fields"]] == header == list(table.names)
        assert all(field["description"] for field in resource["schema"]["fields"])
        assert resource["schema"]["primaryKey"] == list(table.key)
        assert (
            resource["hash"].removeprefix("sha256:")
            == hashlib.sha256((folder / resource["path"]).read_bytes()).hexdigest()
        )


def test_croissant_names_every_field_and_its_source(folder):
    described = json.loads((folder / "croissant.json").read_text())
    assert described["conformsTo"] == "http://mlcommons.org/croissant/1.0"
    files = {file["@id"] for file in described["distribution"]}
    for found, table in zip(described["recordSet"], TABLES, strict=True):
        assert [field["name"] for field in found["field"]] == list(table.names)
        assert {field["source"]["fileObject"]["@id"] for field in found["field"]} <= files
        assert all(field["dataType"].startswith("sc:") for field in found["field"])


def test_the_small_tables_carry_the_catalogs_facts(folder):
    models = {row["model"]: row for row in _csv(folder / "models.csv")}
    assert models[MODEL]["parameters"] == "7615616512"
    assert models[MODEL]["kv_bytes_per_token_8k"] == "57344"
    assert models["deepseek-ai/DeepSeek-V3"]["cache_kinds"] == "latent"
    devices = {row["gpu"]: row for row in _csv(folder / "accelerators.csv")}
    assert int(devices["h100-sxm-80gb"]["usable_bytes"]) <= int(
        devices["h100-sxm-80gb"]["driver_visible_bytes"]
    )
    assert all(row["usable_evidence"] for row in devices.values())


def test_any_number_of_processes_writes_the_same_bytes(catalog, chosen, folder, tmp_path):
    write.publish(catalog, chosen, tmp_path, version=data_version(catalog.folder), workers=2)
    assert (tmp_path / "SHA256SUMS").read_bytes() == (folder / "SHA256SUMS").read_bytes()


def test_a_large_csv_is_published_in_parts(catalog, chosen, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(write, "CSV_FILE_BYTES", 1000)
    (tmp_path / "capacity.csv.gz").write_bytes(b"of an earlier release")
    release = write.publish(catalog, chosen, tmp_path, version="2026.11.21", workers=1)
    names = [
        file.name for file in release.files if file.name.startswith("capacity") and file.name.endswith("gz")
    ]
    assert names == ["capacity-001.csv.gz", "capacity-002.csv.gz"]
    assert not (tmp_path / "capacity.csv.gz").exists()
    assert [row for name in names for row in _csv(tmp_path / name)] == _csv(folder / "capacity.csv.gz")
    package = json.loads((tmp_path / "datapackage.json").read_text())
    assert package["resources"][0]["path"] == names


def test_a_failure_leaves_what_was_there(catalog, chosen, tmp_path, monkeypatch):
    (tmp_path / "capacity.parquet").write_bytes(b"the last good one")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write, "datapackage", full)
    with pytest.raises(OSError, match="No space"):
        write.publish(catalog, chosen, tmp_path, version="2026.11.21", workers=1)
    assert [path.name for path in tmp_path.iterdir()] == ["capacity.parquet"]
    assert (tmp_path / "capacity.parquet").read_bytes() == b"the last good one"


def test_a_place_that_is_no_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="out: found"), staged(tmp_path / "file"):
        pass


def test_shards_write_one_partitioned_dataset(chosen, folder, tmp_path):
    rows = sum(write_partitioned(chosen, tmp_path, shard=(number, 4)) for number in (3, 1, 4, 2))
    whole = pq.read_table(folder / "capacity.parquet")
    assert rows == whole.num_rows
    query = f"SELECT count(*), sum(max_concurrent_requests), count(DISTINCT model_slug) FROM '{tmp_path}/**/*.parquet'"  # noqa: S608
    assert duckdb.execute(query).fetchone() == (
        whole.num_rows,
        sum(whole.column("max_concurrent_requests").to_pylist()),
        2,
    )


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_text_that_a_spreadsheet_would_run_is_disarmed(text):
    table = DatasetTable("t", "T", "", (DatasetColumn("a", "string", ""), DatasetColumn("n", "int64", "")))
    content = write.csv_text(table, [{"a": text, "n": -1}]).decode()
    (row,) = csv.DictReader(io.StringIO(content, newline=""))
    assert row == {"a": "'" + text.replace("\t", " ").replace("\r", " "), "n": "-1"}


def test_every_catalog_text_survives_csv(folder, catalog):
    names = {row["model"]: row["name"] for row in _csv(folder / "models.csv")}
    assert names[MODEL] == catalog.model(MODEL).name


@pytest.mark.parametrize("table", [CAPACITY, MODELS, ACCELERATORS], ids=lambda table: table.name)
def test_every_column_is_described(table):
    assert len(set(table.names)) == len(table.names)
    assert table.key == table.names[: len(table.key)]
    for column in table.columns:
        assert column.meaning.endswith((".", ")")), column.name
        assert (column.minimum is not None) == (column.type not in ("string", "boolean")), column.name
        if "bytes" in column.name and column.type != "string":
            assert column.unit.startswith("bytes"), column.name


def test_the_check_finds_what_contradicts_the_description(chosen):
    (cube, *_) = matrix(chosen)
    table = arrow.capacity_table(cube)
    assert arrow.faults(table, CAPACITY) == []
    assert arrow.faults(table.drop_columns(["verdict"]), CAPACITY)
    assert "more than once" in arrow.faults(table.take([0, 0]), CAPACITY)[0]
    assert "not sorted" in arrow.faults(table.take([1, 0]), CAPACITY)[0]
    place = CAPACITY.names.index("kv_bytes_per_request_per_gpu")
    negative = table.set_column(place, table.schema.field(place), pa.array([-1] * table.num_rows, "int64"))
    assert "below 0" in arrow.faults(negative, CAPACITY)[0]


def test_the_version_is_never_the_clocks(tmp_path, monkeypatch, catalog):
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    (tmp_path / "RELEASE").write_text("2026.01.31\n")
    assert data_version(tmp_path) == "2026.01.31"
    assert data_version(catalog.folder)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")  # 2023-11-14T22:13:20Z
    assert data_version(tmp_path) == "2023.11.14"
    for wrong in ("soon", "-1", "99999999999"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", wrong)
        with pytest.raises(InputError, match="SOURCE_DATE_EPOCH"):
            data_version(tmp_path)
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    (tmp_path / "RELEASE").unlink()
    with pytest.raises(InputError, match="RELEASE"):
        data_version(tmp_path)


def test_place_time_zone_and_locale_leave_no_trace(folder, tmp_path):
    """Another process, folder, time zone and locale; the same bytes."""
    environment = {**os.environ, "TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "7"}
    environment.pop("SOURCE_DATE_EPOCH", None)
    kvreport = Path(sys.executable).with_name("kvreport")
    subprocess.run(
        [
            kvreport, "matrix", "--out", tmp_path / "elsewhere", "--models", f"{MODEL},deepseek-ai/DeepSeek-V3",
            "--gpus", "h100-sxm-80gb,h200-sxm-141gb,rtx-4090", "--contexts", "8K,128K,256K",
        ],
        check=True, env=environment, cwd=tmp_path, capture_output=True,
    )  # fmt: skip
    there = (tmp_path / "elsewhere/SHA256SUMS").read_text().splitlines()
    here = (folder / "SHA256SUMS").read_text().splitlines()
    assert there == here


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt_leaves_what_was_there(catalog, chosen, tmp_path, workers):
    (tmp_path / "capacity.parquet").write_bytes(b"the last good one")

    def interrupted(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write.publish(catalog, chosen, tmp_path, version="2026.11.21", workers=workers, progress=interrupted)
    assert [path.name for path in tmp_path.iterdir()] == ["capacity.parquet"]
    assert (tmp_path / "capacity.parquet").read_bytes() == b"the last good one"


def test_a_model_that_is_gone_leaves_the_dataset(catalog, chosen, tmp_path):
    write.publish(catalog, chosen, tmp_path, version="2026.11.21", workers=1)
    first = {path.stem for path in (tmp_path / "models").glob("*.parquet")}
    (tmp_path / "models/notes.parquet").write_bytes(b"of the user")
    fewer = replace(chosen, models=chosen.models[:1])
    write.publish(catalog, fewer, tmp_path, version="2026.11.21", workers=1)
    left = {path.stem for path in (tmp_path / "models").glob("*.parquet")}
    assert len(first) > 1
    assert left == {fewer.models[0].slug, "notes"}
    listed = (tmp_path / "SHA256SUMS").read_text().splitlines()
    assert len(listed) == sum(path.is_file() for path in tmp_path.rglob("*")) - 2  # itself, and the user's


@pytest.mark.parametrize("strike", [faults.full_disk, faults.no_memory])
def test_whichever_change_fails_the_last_dataset_stands(catalog, chosen, tmp_path, strike, monkeypatch):
    axes = replace(chosen, models=chosen.models[:1])
    made = list(write._all_models(axes, 1, None))
    monkeypatch.setattr(write, "_all_models", lambda *_: iter(made))

    def publish(version: str) -> None:
        write.publish(catalog, axes, tmp_path, version=version, workers=1)

    def digests() -> dict[str, bytes]:
        return {
            p.relative_to(tmp_path).as_posix(): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()
        }

    publish("2026.11.21")
    first = digests()
    publish("2026.11.22")
    second = digests()
    publish("2026.11.21")

    def check(well: bool) -> None:
        assert digests() == (second if well else first)
        publish("2026.11.22")
        assert digests() == second
        publish("2026.11.21")

    assert faults.every(lambda: publish("2026.11.22"), check, strike) > 20


def test_records_become_a_table_without_pandas(catalog):
    """Arrow's own way from records loads pandas, which takes longer than the small tables."""
    rows = write.small_tables.accelerator_rows(catalog.accelerators.values())
    names = [{name: row[name] for name in ACCELERATORS.names} for row in rows]
    assert arrow.record_table(ACCELERATORS, rows).equals(
        pa.Table.from_pylist(names, arrow.schema(ACCELERATORS))
    )
    code = (
        "import sys\nfrom kvreport.catalog.load import open_catalog\nfrom kvreport.dataset import arrow, small_tables\n"
        "from kvreport.dataset.columns import ACCELERATORS\n"
        "arrow.record_table(ACCELERATORS, small_tables.accelerator_rows(open_catalog().accelerators.values()))\n"
        "sys.exit('pandas' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_models_files_are_written_without_pandas():
    """Loading it takes every process as long as a dozen models."""
    code = (
        "import sys\nfrom kvreport.catalog.load import open_catalog\nfrom kvreport.dataset import grid, write\n"
        f"write.model_files(grid.axes(open_catalog(), models={MODEL!r}, gpus='h100-sxm-80gb'))\n"
        "sys.exit('pandas' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
