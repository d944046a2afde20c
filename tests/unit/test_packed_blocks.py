"""How vLLM's releases pack pages of unequal sizes, and count requests in the line of concurrency: published starts."""

from __future__ import annotations

from typing import Any

import pytest
from record_files import observation

from kvreport import estimate
from kvreport.catalog.load import open_catalog
from kvreport.evidence.judgment import judge

CATALOG = open_catalog()


def judged(name: str) -> tuple[dict[str, float], list[Any]]:
    found = judge(CATALOG, [observation(name)])
    return {row["quantity"]: row["error"] for row in found["comparisons"]}, found["not_compared"]


@pytest.mark.parametrize(
    ("name", "within"),
    [
        ("rill-001", 1e-5),  # 0.23.0 at 4,096 tokens: pages of states are half of a request
        ("brook-015", 1e-5),  # 0.30.0: blocks are counted
        ("held-010", 0.001),  # 0.25.0
        (
            "wren-015",
            0.005,
        ),  # 0.20.0 with a packed cache: blocks of one group, in the tokens of the smallest (4)
    ],
)
def test_tokens_of_a_pool_are_those_that_the_release_prints(name, within):
    errors, _ = judged(name)
    assert abs(errors["tokens given pool"]) <= within


@pytest.mark.parametrize(
    ("name", "counted"),
    [
        ("rill-001", True),
        ("fresh-002", False),  # tokens of the smallest rank, beside a pool 5.5 % larger
        ("obs-034", True),  # 64 % fewer: a draft that the source does not name, and no other rank's
    ],
)
def test_a_pool_is_left_out_for_another_rank_s_alone(name, counted):
    errors, left = judged(name)
    assert ("pool" in errors) == counted
    assert ("to different ranks" in repr(left)) != counted


def test_a_stage_without_layers_of_a_group_counts_the_pages_of_the_whole_model():
    """vLLM 0.23.0, ``v1/core/kv_cache_utils.py::_project_kv_cache_groups_to_worker``: an empty group keeps its spec."""
    answer = estimate(
        "deepseek-ai/DeepSeek-V4.1-Flash",
        gpu="h200-sxm-141gb",
        engine="vllm-0.23",
        context_tokens=475,
        tensor_parallel=4,
        pipeline_parallel=4,
    )
    deployment = answer.deployment
    stages = [one.plan for one in (deployment, *deployment.others)]
    assert any(not group.layers for plan in stages for group in plan.groups)
    assert all(plan.first_page_bytes > 0 for plan in stages)
