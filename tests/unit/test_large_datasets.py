"""The page on larger matrices says only what runs: its queries are taken from it and executed."""

from __future__ import annotations

import re

import duckdb
import pyarrow.dataset as ds
import pytest

from kvreport.accounting.parallel import Layout
from kvreport.catalog.load import open_catalog
from kvreport.dataset.grid import axes
from kvreport.dataset.matrix import matrix
from kvreport.dataset.partitions import write_partitioned


@pytest.fixture(scope="module")
def page(repository):
    return (repository / "docs/about/large-datasets.md").read_text()


@pytest.fixture(scope="module")
def chosen():
    return axes(
        open_catalog(),
        models="qwen/qwen2.5-7b,deepseek-ai/deepseek-v3,openai/gpt-oss-20b",
        gpus="h100-sxm-80gb,rtx-4090,b200*",
        contexts=[2048, 32768],
        kv=["bf16", "fp8"],
    )


@pytest.fixture(scope="module")
def folder(chosen, tmp_path_factory):
    """A matrix written as three shards, as three machines would."""
    place = tmp_path_factory.mktemp("large")
    for number in (1, 2, 3):
        write_partitioned(chosen, place / "matrix", shard=(number, 3))
    return place


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.M | re.S)


def test_duckdb_answers_every_query_of_the_page(page, folder, monkeypatch):
    monkeypatch.chdir(folder)
    cheapest, gain = [duckdb.execute(query).fetchall() for query in blocks(page, "sql")]
    # gpt-oss 20B: 12 windowed and 12 full layers in 16 GiB of weights; one H100 is plenty for 16 requests.
    assert ("openai/gpt-oss-20b", 1) in cheapest
    # DeepSeek-V3 weighs 625 GiB: not on 8 of these, but on 16 with its experts dealt out.
    assert dict(cheapest).get("deepseek-ai/DeepSeek-V3", 16) == 16
    assert gain
    # Never fewer, and twice as many where nothing but keys and values is kept.
    assert all(eight >= sixteen for *_, sixteen, eight in gain)
    plain = [(sixteen, eight) for model, *_, sixteen, eight in gain if model == "Qwen/Qwen2.5-7B"]
    assert all(2 * sixteen <= eight <= 2 * sixteen + 1 for sixteen, eight in plain)


# Dask's own reading of pandas 3 warns here and there; its answers are what is tested.
@pytest.mark.filterwarnings("ignore:.*:FutureWarning:dask.*")
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:dask.*")
def test_dask_answers_the_query_of_the_page(page, folder, chosen, monkeypatch):
    monkeypatch.chdir(folder)
    (program,) = blocks(page, "python")
    names = {}
    exec(compile(program, "large-datasets.md", "exec"), names)  # noqa: S102 - our own page
    best = names["best"]
    for position, gpu in enumerate(device.id for device in chosen.accelerators):
        for context in chosen.contexts:
            expected = max(
                int(
                    cube.values["max_concurrent_requests"][
                        position, cube.layouts.index(Layout(tensor=1)), :, :, chosen.contexts.index(context)
                    ].max()
                )
                for cube in matrix(chosen)
            )
            assert best.get((gpu, context), 0) == expected


def test_partitions_know_their_model_and_their_columns(folder):
    found = ds.dataset(folder / "matrix", partitioning="hive")
    assert "model_slug" in found.schema.names
    assert found.schema.field("kv_pool_bytes_per_gpu").metadata[b"unit"] == b"bytes"
    one = found.to_table(filter=ds.field("model_slug") == "Qwen--Qwen2.5-7B")
    assert set(one.column("model").to_pylist()) == {"Qwen/Qwen2.5-7B"}


def test_the_commands_of_the_page_are_commands(page):
    from kvreport.cli import parser

    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    assert lines
    for line in lines:
        words = line.removeprefix("$ kvreport ").split()
        assert parser().parse_args(words).command == "matrix"
