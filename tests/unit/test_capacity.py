"""How many requests fit, how long a context, and the verdict."""

import numpy as np
import pytest

from kvreport.accounting import capacity
from kvreport.accounting.capacity import Verdict
from kvreport.accounting.plan import BlockPlan
from kvreport.accounting.profile import CacheProfile, Term

# Blocks of 100 bytes hold 16 tokens; one block is the engine's own. A pool of 10,050 bytes is 100
# blocks; a request of 160 tokens takes 10 of them.
PLAN = BlockPlan(100, CacheProfile((Term("full", 100, step_tokens=16),)), kept_blocks=1)


def test_the_printed_concurrency_counts_the_block_that_the_engine_keeps() -> None:
    assert float(capacity.concurrency(10_050, PLAN, 160)) == 10.0


def test_whole_users_are_the_printed_figure_rounded_down() -> None:
    assert capacity.users(10_050, PLAN, [160, 176]).tolist() == [10, 9]


def test_nobody_fits_where_the_engine_refuses_to_start() -> None:
    # 100 blocks hold 1,600 tokens, but one block is the engine's own: 1,585 tokens need the 100th.
    assert capacity.users(10_050, PLAN, [1584, 1585]).tolist() == [1, 0]


def test_the_longest_context_fills_every_free_block() -> None:
    assert int(capacity.longest_context(10_050, PLAN, 1 << 20)) == 99 * 16


def test_the_boundary_for_one_user_is_the_longest_context_and_falls_with_users() -> None:
    lengths = capacity.boundary(10_050, PLAN, [1, 3, 99, 100], 1 << 20)
    assert lengths.tolist() == [99 * 16, 33 * 16, 16, 16]


def test_everything_broadcasts_over_pools_and_contexts() -> None:
    users = capacity.users(np.array([[0], [10_050], [100_000]]), PLAN, np.array([16, 160]))
    assert users.tolist() == [[0, 0], [100, 10], [1000, 100]]


def test_a_request_that_holds_nothing_is_never_limited() -> None:
    plan = BlockPlan(1, CacheProfile(()))
    assert int(capacity.users(1000, plan, 4096)) == capacity.UNLIMITED_USERS
    assert float(capacity.concurrency(1000, plan, 4096)) == float("inf")


@pytest.mark.parametrize(
    ("weights", "context", "pool", "uncertainty", "slots", "expected"),
    [
        (101, 999, 0, 0, 0, Verdict.CONTEXT_EXCEEDS_MODEL),
        (101, 160, 0, 0, 0, Verdict.WEIGHTS_EXCEED_MEMORY),
        (100, 160, 1_000, 0, 0, Verdict.CACHE_EXCEEDS_POOL),
        (100, 160, 1_000, 99, 0, Verdict.CACHE_EXCEEDS_POOL),
        (100, 160, 1_000, 100, 0, Verdict.MAY_FIT),
        (100, 160, 1_100, 1, 0, Verdict.TIGHT),
        (100, 160, 1_100, 0, 0, Verdict.FITS),
        (100, 160, -5, 0, 0, Verdict.CACHE_EXCEEDS_POOL),
        # Blocks of 100 bytes, one for each of 50 sequences: 5,000 bytes, though one request takes a fifth of that.
        (0, 160, 4_900, 99, 50, Verdict.MAX_SEQS_EXCEEDS_STATES),
        (0, 160, 4_900, 100, 50, Verdict.MAY_FIT),
        (0, 160, 5_000, 100, 50, Verdict.TIGHT),
        (0, 160, 5_000, 0, 50, Verdict.FITS),
    ],
)
def test_the_worst_reason_is_the_verdict(
    weights: int, context: int, pool: int, uncertainty: int, slots: int, expected: Verdict
) -> None:
    code = capacity.verdict(
        usable_bytes=100,
        weight_bytes=weights,
        pool_bytes=pool,
        plan=PLAN,
        context_tokens=context,
        limit_tokens=512,
        uncertainty_bytes=uncertainty,
        state_slots_wanted=slots,
    )
    assert Verdict(int(code)) is expected
    if slots:
        assert int(capacity.shortfall(pool, PLAN, context, slots)) == max(5_000 - pool, 0)


def test_verdicts_are_named_as_in_the_dataset() -> None:
    assert [v.label for v in Verdict] == [
        "fits",
        "tight",
        "may_fit",
        "max_seqs_exceeds_states",
        "cache_exceeds_pool",
        "weights_exceed_memory",
        "context_exceeds_model",
        "format_not_supported",
        "engine_does_not_run",
    ]
