"""A partitioned folder holds one matrix: it is resumed, refused or replaced, and never mixed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import faults
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from kvreport.catalog.load import open_catalog
from kvreport.cli import main
from kvreport.dataset import partitions
from kvreport.dataset.grid import Axes, axes
from kvreport.dataset.manifest import MANIFEST
from kvreport.dataset.partitions import write_partitioned
from kvreport.errors import InputError


@pytest.fixture(scope="module")
def chosen() -> Axes:
    return pick("h100-sxm-80gb,rtx-4090")


def pick(gpus: str) -> Axes:
    return axes(
        open_catalog(),
        models="qwen/qwen2.5-7b,openai/gpt-oss-20b",
        gpus=gpus,
        contexts=[2048, 32768],
        kv=["bf16"],
    )


def keys(folder: Path) -> tuple[int, int]:
    """Return rows and distinct keys as DuckDB reads them."""
    key = "model_slug, gpu, tensor_parallel, weight_format, kv_format, context_tokens"
    query = f"SELECT count(*), count(DISTINCT ({key})) FROM read_parquet('{folder}/**/*.parquet')"  # noqa: S608
    found = duckdb.execute(query).fetchone()
    assert found is not None
    return found


def digests(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


@pytest.fixture(scope="module")
def whole(chosen: Axes, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    write_partitioned(chosen, folder)
    return digests(folder)


def test_rows_over_other_gpus_are_refused_and_nothing_changes(chosen: Axes, tmp_path: Path) -> None:
    """What once gave a dataset with every row twice, without a word."""
    rows = write_partitioned(pick("rtx*"), tmp_path)
    before = digests(tmp_path)
    with pytest.raises(
        InputError, match="other accelerators than requested; allowed: an empty folder, the same"
    ):
        write_partitioned(chosen, tmp_path)
    assert digests(tmp_path) == before
    assert keys(tmp_path) == (rows, rows)


def test_the_same_rows_again_compute_nothing(
    chosen: Axes, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = write_partitioned(chosen, tmp_path)
    monkeypatch.setattr(partitions, "cube_of", None)
    assert write_partitioned(chosen, tmp_path) == rows
    assert digests(tmp_path) == whole


def test_other_rows_replace_what_is_there_when_told_to(
    chosen: Axes, whole: dict[str, bytes], tmp_path: Path
) -> None:
    write_partitioned(pick("b200*"), tmp_path)
    (tmp_path / "notes.txt").write_text("of the user")
    write_partitioned(chosen, tmp_path, replace=True)
    assert digests(tmp_path) == {**whole, "notes.txt": b"of the user"}


def test_another_number_of_shards_is_refused(chosen: Axes, tmp_path: Path) -> None:
    write_partitioned(chosen, tmp_path, shard=(1, 3))
    with pytest.raises(InputError, match="3 shards, not 2"):
        write_partitioned(chosen, tmp_path, shard=(1, 2))


def test_rows_of_another_catalog_or_version_are_refused(chosen: Axes, tmp_path: Path) -> None:
    write_partitioned(chosen, tmp_path)
    manifest = tmp_path / MANIFEST
    manifest.write_text(manifest.read_text().replace('"digest": "', '"digest": "0'))
    with pytest.raises(InputError, match="rows of another catalog or version of kvreport"):
        write_partitioned(chosen, tmp_path)
    manifest.write_text("{")
    with pytest.raises(InputError, match="that this version cannot read"):
        write_partitioned(chosen, tmp_path)


def test_rows_without_a_manifest_are_refused(chosen: Axes, whole: dict[str, bytes], tmp_path: Path) -> None:
    write_partitioned(chosen, tmp_path)
    (tmp_path / MANIFEST).unlink()
    with pytest.raises(InputError, match=f"with rows and no {MANIFEST}"):
        write_partitioned(chosen, tmp_path)
    write_partitioned(chosen, tmp_path, replace=True)
    assert digests(tmp_path) == whole


def test_a_published_dataset_and_partitions_do_not_share_a_folder(chosen: Axes, tmp_path: Path) -> None:
    (tmp_path / "capacity.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"with capacity\.parquet"):
        write_partitioned(chosen, tmp_path)
    (tmp_path / "capacity.parquet").unlink()
    write_partitioned(chosen, tmp_path)
    small = ["matrix", "--out", str(tmp_path), "--models", "qwen/qwen2.5-7b", "--gpus", "rtx-4090"]
    assert main(small) == 2


def test_readers_skip_what_is_not_rows(chosen: Axes, tmp_path: Path) -> None:
    rows = write_partitioned(chosen, tmp_path)
    (tmp_path / "model_slug=x").mkdir()
    (tmp_path / "model_slug=x/.h100.parquet.00.part").write_bytes(b"PAR1")
    assert keys(tmp_path) == (rows, rows)
    assert ds.dataset(tmp_path, format="parquet", partitioning="hive").count_rows() == rows


@pytest.mark.parametrize("strike", [faults.full_disk, faults.no_memory])
def test_whichever_change_fails_the_next_run_goes_on(
    chosen: Axes, whole: dict[str, bytes], tmp_path: Path, strike: object
) -> None:
    turn = 0

    def run() -> None:
        write_partitioned(chosen, tmp_path / str(turn))

    def check(_: bool) -> None:
        nonlocal turn
        folder = tmp_path / str(turn)
        for path in folder.rglob("*.parquet"):
            assert pq.read_metadata(path).num_rows
        write_partitioned(chosen, folder)
        assert digests(folder) == whole
        turn += 1

    assert faults.every(run, check, strike) >= 4 * len(whole)


def test_a_damaged_file_is_computed_again(chosen: Axes, whole: dict[str, bytes], tmp_path: Path) -> None:
    write_partitioned(chosen, tmp_path)
    path = next(tmp_path.rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-9])
    write_partitioned(chosen, tmp_path)
    assert digests(tmp_path) == whole


def command(folder: Path) -> list[str]:
    return [
        sys.executable, "-m", "kvreport", "matrix", "--out", str(folder), "--partitioned",
        "--models", "qwen/qwen2.5-*,openai/*", "--gpus", "h100*,rtx*", "--contexts", "1K..64K/1K",
    ]  # fmt: skip


@pytest.mark.slow
def test_killed_runs_go_on_to_the_same_bytes(tmp_path: Path) -> None:
    """Random kills, bounded in number and time; KVREPORT_KILLS says how many."""
    subprocess.run(command(tmp_path / "whole"), check=True, capture_output=True)
    expected = digests(tmp_path / "whole")
    generator = random.Random(21)  # noqa: S311 - moments to kill at, not secrets
    killed = turns = 0
    end = time.monotonic() + 120
    while killed < int(os.environ.get("KVREPORT_KILLS", "3")) and time.monotonic() < end:
        run = subprocess.Popen(
            command(tmp_path / "killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(generator.uniform(0.3, 2.5))
        run.send_signal(generator.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)))
        killed += run.wait() != 0
        turns += 1
        folder = tmp_path / "killed"
        for path in folder.rglob("*.parquet") if folder.is_dir() else ():
            assert path.read_bytes() == expected[path.relative_to(folder).as_posix()]
        if run.returncode == 0:
            subprocess.run(["rm", "-r", str(folder)], check=True)
    assert killed >= 2, turns
    subprocess.run(command(tmp_path / "killed"), check=True, capture_output=True)
    found = {name: text for name, text in digests(tmp_path / "killed").items() if not name.endswith(".part")}
    assert found == expected
