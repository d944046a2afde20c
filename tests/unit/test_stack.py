"""Many plans as one: every row has what its own plan says."""

import random
from dataclasses import replace

import numpy as np
import pytest

from kvreport.accounting.case import Alike, Groups
from kvreport.accounting.deployment import bound_of, lay_out
from kvreport.accounting.parallel import Layout
from kvreport.accounting.profile import UNBOUNDED, CacheProfile, Term
from kvreport.accounting.stack import Profiles, Rows
from kvreport.dataset import matrix as of_matrix
from kvreport.dataset.grid import axes
from kvreport.errors import InputError


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
        assert np.broadcast_to(together.holds_nothing, (len(rows), 1))[place, 0] == own.holds_nothing


@pytest.mark.parametrize(
    ("name", "gpus", "engine"),
    [
        # Windows: plans differ by scheduler sizes.
        ("google/gemma-3-27b-it", "h100-sxm-80gb,b200*,mi300x,rtx-4090", "vllm"),
        # Plans differ by kernels, and not all devices have all layouts.
        ("deepseek-ai/DeepSeek-V3.2", "h100-sxm-80gb,b200*,mi300x,l40s", "vllm"),
        ("Qwen/Qwen3-Embedding-8B", "h100-sxm-80gb,t4", "vllm"),
        # Pools of states and windows, and pipeline stages that hold different parts of a hybrid model.
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "h100-sxm-80gb,b200*,mi300x", "sglang"),
        ("openai/gpt-oss-120b", "h100-sxm-80gb,b200*,mi300x", "sglang"),
        # An older release checks at start that every stage holds a request of the whole model.
        ("meta-llama/Llama-3.1-70B-Instruct", "h100-sxm-80gb,mi300x", "vllm@0.11.0"),
    ],
)
def test_a_stack_has_the_rows_of_each_device_laid_out_alone(
    catalog, monkeypatch, name: str, gpus: str, engine: str
) -> None:
    staged = [Layout(pipeline=2), Layout(tensor=2, pipeline=3), Layout(tensor=8)]
    chosen = axes(catalog, models=name, gpus=gpus, engine=engine, layouts=staged, weights=["released"])
    (model,) = chosen.models
    together = of_matrix.cube_of(model, chosen)

    def alone(cases, ceiling, contexts, memo):
        del memo
        for place, case in cases:
            for group in case.alike:
                for position in group.places:
                    device = (case.accelerators[position],)
                    one = replace(case, accelerators=device, alike=None, serving=group.serving)
                    try:
                        laid = lay_out(one)
                    except InputError:
                        continue
                    at, ranks = np.array([place * len(case.accelerators) + position]), case.layout.data
                    yield Rows(at, laid, bound_of(laid, ceiling, contexts), ranks)
                    # Which stage is the fullest may differ between lengths.
                    follows = laid.others and any(rank.lengths for rank in (laid, *laid.others))
                    for n, tokens in enumerate(contexts.tolist() if follows else []):
                        told = replace(
                            one,
                            alike=Groups([Alike((0,), group.serving, None)]),
                            context_tokens=min(tokens, model.context_tokens),
                        )
                        at_length = lay_out(told)
                        yield Rows(at, at_length, bound_of(at_length, ceiling, contexts[n : n + 1]), ranks, n)

    monkeypatch.setattr(of_matrix, "lay_out_rows", alone)
    each = of_matrix.cube_of(model, chosen)
    assert together.possible.tolist() == each.possible.tolist()
    assert together.possible.any()
    for column, values in each.values.items():
        assert np.array_equal(together.values[column], values, equal_nan=values.dtype.kind == "f"), column
