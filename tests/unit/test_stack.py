"""Many plans as one: every row has what its own plan says."""

import random

import numpy as np
import pytest

from kvreport.accounting.deployment import bound_of
from kvreport.accounting.fleet import lay_out_fleet
from kvreport.accounting.profile import UNBOUNDED, CacheProfile, Term
from kvreport.accounting.stack import Profiles, Rows
from kvreport.catalog.load import open_catalog
from kvreport.dataset import matrix as of_matrix
from kvreport.dataset.grid import axes


@pytest.fixture(scope="module")
def catalog():
    return open_catalog()


def _drawn(draw: random.Random) -> CacheProfile:
    """Full caches, windows, states and mixtures of steps."""
    return CacheProfile.of(
        Term(
            draw.choice(["full", "sliding", "state", "ring"]),
            draw.choice([0, 1, 7, 160, 4096]),
            draw.choice([1, 1, 16, 64]),
            draw.choice([UNBOUNDED, UNBOUNDED, 3, 17, 64, 128, 5000]),
            draw.choice([0, 0, 0, 100]),
        )
        for _ in range(draw.randint(0, 4))
    )


def _pools(draw: random.Random, profile: CacheProfile, limit: int) -> list[int]:
    """Pools around what some contexts take, and those of nobody."""
    taken = [int(profile.request_bytes(draw.randint(0, limit))) + draw.choice([-1, 0, 1]) for _ in range(6)]
    return [-5, 0, int(profile.request_bytes(limit)), 10**14, *taken]


@pytest.mark.parametrize("seed", range(40))
def test_the_longest_context_fits_and_one_more_token_does_not(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - a spread of cases, no secret
    limit = draw.choice([1, 2, 15, 64, 100, 128, 1000, 8192, 1 << 20])
    each = [_drawn(draw) for _ in range(5)]
    pools = np.array([_pools(draw, one, limit) for one in each])
    together = Profiles(each, np.arange(5)).longest_context(pools[..., None], limit)[..., 0]
    for profile, own, stacked in zip(each, pools, together, strict=True):
        found = profile.longest_context(own, limit)
        assert found.tolist() == stacked.tolist()
        assert found.tolist() == [profile.longest_context(int(pool), limit) for pool in own]
        for pool, tokens in zip(own.tolist(), found.tolist(), strict=True):
            assert tokens == 0 or profile.request_bytes(tokens) <= pool
            assert tokens == limit or profile.request_bytes(tokens + 1) > pool


@pytest.mark.parametrize("seed", range(20))
def test_each_row_has_the_bytes_of_its_own_profile(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - a spread of cases, no secret
    each = [_drawn(draw) for _ in range(4)]
    rows = np.array([3, 0, 0, 2, 1])
    contexts = np.array([0, 1, 16, 17, 63, 64, 5000, 1 << 20])
    together = Profiles(each, rows)
    for place, number in enumerate(rows.tolist()):
        own = each[number]
        assert together.request_bytes(contexts)[place, 0].tolist() == own.request_bytes(contexts).tolist()
        assert together.marginal_bytes(contexts)[place, 0].tolist() == own.marginal_bytes(contexts).tolist()
        assert together.state_bytes[place, 0] == own.state_bytes
    assert together.holds_nothing == all(one.holds_nothing for one in each)


@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        (
            "google/gemma-3-27b-it",
            "h100-sxm-80gb,b200*,mi300x,rtx-4090",
        ),  # windows: plans differ by scheduler sizes
        (
            "deepseek-ai/DeepSeek-V3.2",
            "h100-sxm-80gb,b200*,mi300x,l40s",
        ),  # by kernels, and layouts that not all have
        ("Qwen/Qwen3-Embedding-8B", "h100-sxm-80gb,t4"),
    ],
)
def test_a_stack_has_the_rows_of_its_deployments(catalog, monkeypatch, name: str, gpus: str) -> None:
    chosen = axes(catalog, models=name, gpus=gpus)
    (model,) = chosen.models
    together = of_matrix.cube_of(model, chosen)

    def alone(cases, ceiling, contexts, memo):
        for place, case in cases:
            for members, laid in lay_out_fleet(case, memo):
                places = np.array(members) + place * len(case.accelerators)
                bound = bound_of(laid, ceiling, contexts, memo)
                yield Rows(places, laid, bound, case.layout.data)

    monkeypatch.setattr(of_matrix, "lay_out_rows", alone)
    each = of_matrix.cube_of(model, chosen)
    assert together.possible.tolist() == each.possible.tolist()
    assert together.possible.any()
    for column, values in each.values.items():
        assert np.array_equal(together.values[column], values, equal_nan=values.dtype.kind == "f"), column
