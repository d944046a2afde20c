"""The matrix on a Dask cluster: the same bytes as on one machine, and it goes on where it ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed import Client, LocalCluster

from kvreport.catalog.load import open_catalog
from kvreport.cli import main
from kvreport.dataset import cluster, partitions
from kvreport.dataset.cluster import writer_on
from kvreport.dataset.grid import axes
from kvreport.dataset.partitions import write_partitioned
from kvreport.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore")  # distributed's own, of ports and event loops


@pytest.fixture(scope="module")
def scheduler():
    with LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None, protocol="tcp://"
    ) as running:
        yield running.scheduler_address


@pytest.fixture(scope="module")
def chosen():
    return axes(
        open_catalog(), models="qwen/qwen2.5-7b,openai/gpt-oss-20b,openai/gpt-oss-120b", gpus="h100*,rtx*",
        contexts=[2048, 32768], kv=["bf16"],
    )  # fmt: skip


def digests(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def test_a_cluster_writes_the_same_bytes_and_goes_on(scheduler, chosen, tmp_path, monkeypatch):
    monkeypatch.setattr("kvreport.dataset.grid.PIECE_ROWS", 60)  # many small files
    rows = write_partitioned(chosen, tmp_path / "here")
    here = digests(tmp_path / "here")
    assert len(here) > 6
    with writer_on(scheduler) as write:
        assert write_partitioned(chosen, tmp_path / "there", write=write) == rows
    assert digests(tmp_path / "there") == here
    gone = [path for path in sorted((tmp_path / "there").rglob("*.parquet"))[::2] if path.unlink() is None]
    computed = []
    real = partitions.cube_of
    monkeypatch.setattr(partitions, "cube_of", lambda *given: computed.append(1) or real(*given))
    with writer_on(scheduler) as write:
        assert write_partitioned(chosen, tmp_path / "there", write=write) == rows
    assert digests(tmp_path / "there") == here
    assert len(computed) == len(gone)


def test_the_command_takes_an_address(scheduler, tmp_path, capsys):
    command = ["matrix", "--out", str(tmp_path / "m"), "--models", "qwen/qwen2.5-7b", "--gpus", "h100*",
               "--contexts", "8K", "--scheduler", scheduler]  # fmt: skip
    assert main(command) == 2
    assert main([*command, "--partitioned"]) == 0
    assert "rows in" in capsys.readouterr().out


def test_a_scheduler_that_does_not_answer_is_a_sentence(monkeypatch):
    monkeypatch.setattr(cluster, "_SECONDS", 1)
    with pytest.raises(InputError, match=r"scheduler: found 'tcp://127\.0\.0\.1:9'"):
        cluster.connected("tcp://127.0.0.1:9")
    with pytest.raises(InputError, match="allowed: the address of a running Dask scheduler"):
        cluster.connected("not an address")


def test_a_cluster_without_workers_is_a_sentence():
    with LocalCluster(n_workers=0, processes=False, dashboard_address=None, protocol="tcp://") as empty:
        assert isinstance(empty.scheduler_address, str)
        with pytest.raises(InputError, match="without a worker"):
            cluster.connected(empty.scheduler_address)
    assert Client is not None
