"""Published logs of more than tensor parallelism: how far off they may be at most."""

import math

import pytest
from record_files import validated

import kvreport
from kvreport.evidence.by_layout import Errors, OfLayout, by_layout, kinds
from kvreport.evidence.validation import Validation
from kvreport.site.pages import layout_evidence
from kvreport.units import GIB


@pytest.fixture(scope="module")
def found() -> Validation:
    return validated()


@pytest.fixture(scope="module")
def errors(found: Validation) -> dict[str, OfLayout]:
    return {one.kind: one for one in by_layout(found)}


def test_the_median_over_all_layouts_drafts_and_adapters_is_within_three_percent(
    errors: dict[str, OfLayout],
) -> None:
    every = errors["any"]
    assert every.from_flags.count >= 17
    assert every.from_flags.median < 0.03
    assert every.from_pool.count >= 12
    assert every.from_pool.median < 0.002


@pytest.mark.parametrize(
    ("kind", "count", "median"),
    [
        # Four of the seven are of one image between two releases (brook-011 to -014, 14% to 30%); the others' median is 2.2%.
        ("data", 7, 0.145),
        # 2.32 %, 2.28 before the constants were fitted with 45 more logs; 1.8 before 25 logs of one fork, which has no rules here.
        ("expert", 6, 0.0235),
        # 3.19 %, 3.1 and 2.85 before the constants were fitted again; 0.0 before two starts said that links add once, not per rank.
        ("context", 1, 0.0322),
        ("lora", 3, 0.0215),  # 2.11 %: the constant refit with a log of 0.29 is 2 MB less
        ("draft", 5, 0.046),
    ],
)
def test_no_kind_of_layout_is_worse_than_it_was(
    errors: dict[str, OfLayout], kind: str, count: int, median: float
) -> None:
    assert errors[kind].from_flags.count >= count
    assert errors[kind].from_flags.median < median


def test_every_log_is_in_a_row(found: Validation, errors: dict[str, OfLayout]) -> None:
    assert errors["any"].logs + errors["tensor"].logs == len(found.cases)
    assert sum(bool(list(kinds(case.observation))) for case in found.cases) == errors["any"].logs


def test_the_page_prints_each_row_and_leaves_unknown_errors_empty(found: Validation) -> None:
    (table,) = layout_evidence.tables(found)
    assert len(table.rows) == len(by_layout(found))
    assert all(len(row.cells) == len(table.columns) for row in table.rows)
    assert Errors.of([]).count == 0
    assert math.isnan(Errors.of([math.inf]).median)


@pytest.mark.parametrize(
    ("release", "starts"), [("0.13.0", True), ("0.14.1", False), ("0.16.0", False), ("0.17.1", True)]
)
def test_three_releases_want_a_request_of_all_layers_on_the_fullest_stage(release: str, starts: bool) -> None:
    # A published refusal of GLM-4.7-FP8 in eight stages: 71.16 GiB needed, 28.57 there, 81392 tokens at most.
    answer = kvreport.estimate(
        "zai-org/GLM-4.7-FP8",
        gpu="a100-sxm4-80gb",
        engine=f"vllm@{release}",
        pipeline_parallel=8,
        context_tokens=202_752,
        kv_pool=round(28.57 * GIB),
    )
    assert (answer.max_concurrent_requests > 0) is starts
    if starts:
        assert answer.shortfall_bytes == 0
    else:
        assert answer.verdict == "cache_exceeds_pool"
        assert (answer.shortfall_bytes + round(28.57 * GIB)) / GIB == pytest.approx(71.16, abs=0.005)
        assert answer.max_context_tokens == pytest.approx(81_392, rel=0.0005)
