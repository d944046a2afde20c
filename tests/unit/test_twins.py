"""Models that differ in name only share what is computed for them."""

from __future__ import annotations

import gzip
import io
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from kvreport import processes
from kvreport.dataset import write
from kvreport.dataset.grid import axes, twins

MODEL = "Qwen/Qwen2.5-7B"


@pytest.fixture(scope="module")
def chosen(catalog):
    """Two models, the first one's twin, and one that differs from it in a single number."""
    few = axes(
        catalog, models=f"{MODEL},openai/gpt-oss-20b", gpus="h100-sxm-80gb,rtx-4090", contexts=[8192, 32768]
    )
    first, other = few.models
    twin = first.model_copy(update={"id": "somebody/Twin-7B", "name": "Twin 7B", "maker": "Somebody"})
    longer = first.model_copy(update={"id": "somebody/Longer-7B", "context_tokens": first.context_tokens * 2})
    return replace(few, models=(first, other, twin, longer))


def test_only_names_are_left_out_of_what_decides_rows(chosen):
    assert twins(chosen.models, range(4)) == [(0, 2), (1,), (3,)]
    assert twins(chosen.models, [2, 3]) == [(2,), (3,)]
    copied = chosen.models[0].model_copy(update={"id": "somebody/Copy", "quantized_from": MODEL})
    assert len(twins((chosen.models[0], copied), range(2))) == 2


def test_twins_are_computed_once_and_written_in_their_place(chosen, monkeypatch):
    computed = []
    matrix = write.matrix
    monkeypatch.setattr(
        write, "matrix", lambda one: computed.append([m.id for m in one.models]) or matrix(one)
    )
    found = list(write._computed(chosen, 1, range(4)))
    assert computed == [[MODEL], ["openai/gpt-oss-20b"], ["somebody/Longer-7B"]]
    assert [files.slug for files in found] == [model.slug for model in chosen.models]
    for files, model in zip(found, chosen.models, strict=True):
        (alone,) = write.model_files(replace(chosen, models=(model,)))
        assert alone == files
        assert set(pq.read_table(io.BytesIO(files.parquet)).column("model").to_pylist()) == {model.id}
        assert {line.split(",")[0] for line in gzip.decompress(files.csv_body).decode().splitlines()} == {
            model.id
        }


def test_every_pair_of_twins_in_the_catalog_has_the_same_rows(catalog):
    everything = axes(catalog, gpus="h100-sxm-80gb,mi300x", contexts=[8192, 131072])
    groups = [group for group in twins(everything.models, range(len(everything.models))) if len(group) > 1]
    assert groups
    for group in groups[::8]:
        rows = []
        for position in group:
            (files,) = write.model_files(replace(everything, models=(everything.models[position],)))
            rows.append(pq.read_table(io.BytesIO(files.parquet)).drop_columns("model"))
        assert all(one.equals(rows[0]) for one in rows)


def test_a_text_never_has_the_sign_that_stands_for_a_comma(chosen):
    (files, *_) = write.model_files(chosen)
    names = write.CAPACITY.names
    assert {line.count(",") for line in gzip.decompress(files.csv_body).decode().splitlines()} == {
        len(names) - 1
    }
    assert write.arrow.JOINT not in gzip.decompress(files.csv_body)


def test_this_process_computes_while_another_is_busy_and_files_come_in_order(chosen):
    groups = [(position,) for position in range(4)] * 5
    here = threading.current_thread()
    computed, others = [], threading.Event()

    def counting(part):
        mine = threading.current_thread() is here
        computed.append(mine)
        if mine:
            others.set()
        else:
            assert others.wait(30)  # the other one is busy until this one has computed something
        return [part.models[0].id]

    def compute(group):
        return counting(write._some(chosen, group))

    with ThreadPoolExecutor(1) as pool:
        found = list(processes.shared_out(groups, pool, 1, compute, compute))
    assert found == [[chosen.models[position].id] for (position,) in groups]
    assert set(computed) == {True, False}
