"""Models whose requests hold no cache: memory limits nothing, and the answers say so with nothing."""

from __future__ import annotations

import pyarrow.compute as pc

import kvreport
from kvreport.catalog.load import open_catalogue
from kvreport.dataset.arrow import capacity_table, faults
from kvreport.dataset.columns import CAPACITY
from kvreport.dataset.grid import axes
from kvreport.dataset.matrix import matrix

POOLING = "BAAI/bge-large-en"
COLUMNS = ("max_concurrent_requests_by_memory", "max_concurrent_requests_ceiling")


def test_json_has_null_where_memory_limits_nothing():
    found = kvreport.estimate(POOLING, gpu="h100-sxm-80gb").to_dict()
    assert found["max_concurrent_requests"] > 0
    rows = [found, *found["by_context"]]
    assert {row[name] for row in rows for name in COLUMNS} == {None}
    assert found["per_rank"]["max_concurrent_requests_by_memory"] is None


def test_rows_are_empty_where_memory_limits_nothing_and_nowhere_else():
    chosen = axes(open_catalogue(), models=f"{POOLING},Qwen/Qwen3-8B", gpus="h100-sxm-80gb,l4")
    for cube in matrix(chosen):
        table = capacity_table(cube)
        assert not faults(table, CAPACITY)
        for name in COLUMNS:
            empty = table.column(name).null_count
            assert empty == (table.num_rows if cube.model.id == POOLING else 0)
        assert pc.max(table.column("max_concurrent_requests")).as_py() <= 1024


def test_sglang_answers_for_a_model_without_caches():
    found = kvreport.estimate(POOLING, gpu="h100-sxm-80gb", engine="sglang").to_dict()
    assert found["max_concurrent_requests_by_memory"] is None
    assert found["verdict"] == "fits"
