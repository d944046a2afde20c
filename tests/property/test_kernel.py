"""One source, three evaluations: the kernel, the array code, and the JavaScript made from the kernel."""

from __future__ import annotations

import math
import random
from itertools import product

import numpy as np
import pytest
from fuzzing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from javascript import call
from kernel_calls import agree, calls_of, functions

from kvreport.accounting import capacity, kernel, roofline, sizing
from kvreport.accounting.demand import Demand
from kvreport.accounting.demand import Reach as Seen
from kvreport.accounting.engines.sglang.pools import Division, PoolFlags
from kvreport.accounting.engines.step import EngineStep
from kvreport.accounting.engines.vllm import reserve
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import BlockPlan
from kvreport.accounting.profile import UNBOUNDED, CacheProfile, Term
from kvreport.accounting.roofline import Peaks
from kvreport.publish.browser import script

DEVICE = 1 << 39
"""Bytes of a device larger than any."""

terms = st.lists(
    st.tuples(
        st.integers(0, 1 << 22),
        st.sampled_from([1, 4, 16, 128, 784]),
        st.sampled_from([0, 0, 127, 512, 4096, 131_072]),
    ),
    max_size=5,
)
contexts = st.integers(0, 1 << 24)
pools = st.integers(-(1 << 36), DEVICE)
blocks = st.integers(1, 1 << 24)


def profile(constant: int, of: list[tuple[int, int, int]]) -> CacheProfile:
    """The kernel's terms as the array code's."""
    growing = [Term("full", rate, step, cap or UNBOUNDED) for rate, step, cap in of]
    return CacheProfile((Term("state", constant_bytes=constant), *growing))


def plan(block: int, kept: int, constant: int, of: list[tuple[int, int, int]]) -> BlockPlan:
    return BlockPlan(block, profile(constant, of), kept_blocks=kept)


@settings(max_examples=examples(200))
@given(st.integers(0, 1 << 34), terms, contexts)
def test_a_request_is_what_the_array_code_says(constant, of, context):
    arrays = profile(constant, of)
    assert kernel.request_bytes(constant, of, context) == arrays.request_bytes(context)
    assert kernel.token_bytes(of, context) == np.rint(arrays.marginal_bytes(context))


@settings(max_examples=examples(200))
@given(pools, blocks, st.integers(0, 2), st.integers(0, 1 << 30), terms, contexts, st.integers(1, 1 << 22))
def test_a_pool_holds_what_the_array_code_says(pool, block, kept, constant, of, context, limit):
    laid = plan(block, kept, constant, of)
    request = kernel.request_bytes(constant, of, context)
    free = kernel.free_bytes(pool, block, kept)
    assert free == capacity.free_bytes(pool, laid)
    assert kernel.num_requests(pool, block, kept, request) == capacity.users(pool, laid, context)
    assert kernel.concurrency(pool, block, request) == capacity.concurrency(pool, laid, context)
    assert kernel.printed_tokens(pool, block, request, context) == capacity.printed_tokens(
        pool, laid, context
    )
    longest = kernel.longest_context(min(pool, free), constant, of, limit)
    assert longest == capacity.longest_context(pool, laid, limit)
    for wanted in (1, 7):
        mine = kernel.boundary_context(kernel.Plan(block, kept, constant, of, ()), pool, wanted, limit)
        assert mine == capacity.boundary(pool, laid, wanted, limit)


@settings(max_examples=examples(200))
@given(
    pools, blocks, st.integers(0, 1 << 30), terms, contexts, st.integers(0, DEVICE), st.integers(0, 1 << 34)
)
def test_a_verdict_is_the_array_codes(pool, block, constant, of, context, weights, uncertainty):
    usable, limit = DEVICE // 2, 1 << 20
    laid = plan(block, 1, constant, of)
    mine_laid = kernel.Plan(block, 1, constant, of, ())
    for left in (pool, -pool):
        for wanted in (0, 16):
            mine = kernel.verdict(mine_laid, usable, weights, left, uncertainty, wanted, context, limit)
            theirs = capacity.verdict(
                usable_bytes=usable,
                weight_bytes=weights,
                pool_bytes=left,
                plan=laid,
                context_tokens=context,
                limit_tokens=limit,
                uncertainty_bytes=uncertainty,
                state_slots_wanted=wanted or None,
            )
            assert mine == int(theirs)


@settings(max_examples=examples(200))
@given(
    st.integers(1, 1 << 20),
    st.integers(0, 2),
    st.integers(0, 1 << 24),
    terms,
    contexts,
    st.integers(0, 1 << 24),
    st.sampled_from([0, 0, 16]),
)
def test_a_verdict_turns_where_its_band_does(block, kept, constant, of, context, error, wanted):
    """At every edge of the band: of one number, of an array, and as the verdicts without a band say it."""
    laid, limit = plan(block, kept, constant, of), 1 << 24
    request = kernel.request_bytes(constant, of, context)
    least = max((-(-request // block) + kept) * block if request else 0, wanted * block)
    edges = sorted({least + sign * error + step for sign in (-1, 0, 1) for step in (-block, -1, 0, 1, block)})

    def array(left, band):
        return capacity.verdict(
            usable_bytes=DEVICE,
            weight_bytes=0,
            pool_bytes=left,
            plan=laid,
            context_tokens=context,
            limit_tokens=limit,
            uncertainty_bytes=band,
            state_slots_wanted=wanted or None,
        )

    def serves(left):
        return int(array(left, 0)) == capacity.Verdict.FITS

    codes = array(np.asarray(edges), error)
    for left, code in zip(edges, codes.tolist(), strict=True):
        assert code == int(array(left, error))
        mine = kernel.verdict(
            kernel.Plan(block, kept, constant, of, ()), DEVICE, 0, left, error, wanted, context, limit
        )
        assert code == mine
        if request and left <= 0:
            assert code > kernel.MAY_FIT
        elif serves(left):
            assert code == (kernel.FITS if serves(left - error) else kernel.TIGHT)
        else:
            assert (code == kernel.MAY_FIT) == serves(left + error)


@settings(max_examples=examples(100))
@given(st.integers(0, 1 << 36), st.integers(0, 1 << 30))
def test_a_start_turns_where_its_band_does(asked, error):
    """What is asked beyond what is free, at every edge: of one number and of an array."""
    shorts = [sign * error + step for sign in (-1, 0, 1) for step in (-1, 0, 1)]
    codes = capacity.start_verdict(np.asarray(shorts), error).tolist()
    for short, code in zip(shorts, codes, strict=True):
        assert code == int(capacity.start_verdict(short, error))
        assert code == kernel.start_verdict(asked, asked - short, error)
        surely, at_all = short + error <= 0, short <= 0
        assert (code == kernel.FITS, code <= kernel.TIGHT) == (surely, at_all)


pool_rules = st.builds(
    Division,
    st.builds(
        PoolFlags,
        st.just(2.0),
        context_ranks=st.sampled_from([1, 1, 2, 8]),
        page_tokens=st.sampled_from([1, 16, 64, 256]),
        window_share=st.sampled_from([0.8, 0.1, 1.0]),
        state_share=st.sampled_from([0.9, 0.5]),
        states_per_request=st.sampled_from([1, 3, 5]),
        spare_states=st.sampled_from([1, 1, 0]),
    ),
    st.one_of(st.integers(1, 1 << 22), st.floats(1, 1 << 22)),
    fixed_bytes=st.sampled_from([0, 0, 123_456_789]),
    window=st.sampled_from([None, 128, 4096, 131_072]),
    shared_window=st.booleans(),
    state_bytes=st.sampled_from([0, 1 << 20, 75_497_472, 1_234_567]),
)
"""Budgets divided as SGLang does, with its defaults for what the browser does not know."""


@settings(max_examples=examples(400))
@given(pool_rules, pools, st.integers(0, 1 << 32), contexts, st.integers(0, 1 << 36), st.integers(1, 4096))
def test_pools_of_states_and_windows_are_the_array_codes(rule, pool, error, context, weights, wanted):
    of = rule.divided
    page = rule.flags.page_tokens * rule.turns
    block = math.ceil(rule.cell_bytes * page)
    term = (block, page, 0)
    arrays = BlockPlan(block, profile(0, [term]), pool=rule)
    laid = kernel.Plan(block, 0, 0, [term], [of])
    request = kernel.request_bytes(0, [term], context)
    budget = max(pool, 0)
    assert kernel.pool_pages(of, budget) == rule.blocks(budget)
    beside = capacity.beside(pool, arrays, context)
    assert kernel.requests_beside(of, pool, context) == (
        kernel.UNLIMITED_REQUESTS if beside is None else beside
    )
    if request:
        assert kernel.plan_requests(laid, pool, context) == capacity.users(pool, arrays, context)
        assert kernel.shortfall(laid, pool, 0, context) == capacity.shortfall(pool, arrays, context)
    limit = 1 << 20
    assert kernel.verdict(laid, DEVICE, weights, pool, error, 0, context, limit) == capacity.verdict(
        usable_bytes=DEVICE,
        weight_bytes=weights,
        pool_bytes=pool,
        plan=arrays,
        context_tokens=context,
        limit_tokens=limit,
        uncertainty_bytes=error,
    )
    longest = kernel.boundary_context(laid, pool, wanted, limit)
    assert longest == capacity.boundary(pool, arrays, wanted, limit)
    assert longest == capacity.boundary(np.asarray([pool]), arrays, wanted, limit)[0]
    for tokens, serves in ((longest, True), (longest + 1, False)):
        if 0 < tokens <= limit:
            assert (kernel.plan_requests(laid, pool, tokens) >= wanted) == serves
    mean = max(context // 2, 1)
    assert kernel.replica_requests(laid, pool, mean, max(context, 1), 0) == sizing.replica_users(
        pool, arrays, mean, max(context, 1)
    )
    least = sizing.pool_for(arrays, wanted, mean, max(context, 1))
    if least < kernel.MOST_MISSING:
        assert kernel.pool_for(laid, wanted, mean, max(context, 1), 0) == least


def test_verdicts_have_one_order():
    from kvreport.words import VERDICTS

    assert [one.label for one in capacity.Verdict] == list(VERDICTS)
    for one in capacity.Verdict:
        assert getattr(kernel, one.name) == one


@settings(max_examples=examples(200))
@given(
    pools,
    blocks,
    st.integers(0, 1 << 30),
    terms,
    st.integers(1, 1 << 20),
    st.integers(1, 1 << 20),
    st.integers(0, 1 << 12),
    st.integers(1, 5000),
)
def test_sizing_is_the_array_codes(pool, block, constant, of, mean, more, prefix, requests):
    laid, longest, prefix = plan(block, 1, constant, of), mean + more, min(prefix, mean)
    given_plan = kernel.Plan(block, 1, constant, of, ())
    assert kernel.shared_bytes(of, prefix) == sizing.shared_bytes(laid.profile, prefix)
    held = kernel.replica_requests(given_plan, pool, mean, longest, prefix)
    assert held == sizing.replica_users(pool, laid, mean, longest, prefix)
    wanted = kernel.pool_for(given_plan, requests, mean, longest, prefix)
    assert wanted == sizing.pool_for(laid, requests, mean, longest, prefix)
    request = kernel.request_bytes(constant, of, mean)
    for fast, limit in ((held, 10), (held // 2, 1 << 20), (held + 1, 1 << 20)):
        mine = kernel.what_limits(request, constant, held, fast, limit)
        assert mine == sizing.what_binds(laid, mean, held=held, fast=fast, limit=limit)


@settings(max_examples=examples(200))
@given(st.integers(1, DEVICE), st.integers(0, DEVICE), st.integers(0, DEVICE), st.integers(0, DEVICE))
def test_the_smallest_shares_leave_the_pool(total, pool, weights, kept):
    needed = kernel.utilization_for(pool, weights, kept, total)
    assert total * needed >= (pool + weights + kept) * (1 - 1e-12)
    assert total * (needed - 0.001) <= (pool + weights + kept) * (1 + 1e-12)
    lowest = kernel.lowest_static_fraction(pool, weights, kept, total)
    assert lowest == needed
    own = kernel.own_static_fraction(total, kept, 0, total)
    assert total * own <= total - kept + total * 1e-8 or kept > total


def test_a_reserve_is_the_package_s_own():
    from kvreport.catalog.load import open_catalog

    catalog = open_catalog()
    engine = catalog.engine("vllm")
    draw = random.Random(5)  # noqa: S311 - a spread of cases, no secret
    for name in ("meta-llama/Llama-3.1-70B-Instruct", "deepseek-ai/DeepSeek-V3", "google/gemma-3-27b-it"):
        model = catalog.model(name)
        for own, (vendor, handles) in product((False, True), (("NVIDIA", False), ("INTEL", True))):
            rates = reserve.read_rates(model, engine, reserve.Told(tensor_parallel=4))
            multicast, splits, partial = (draw.random() < 0.5 for _ in range(3))
            tokens, rows, eager = draw.choice([2048, 8192]), draw.choice([1, 256, 1024]), draw.random() < 0.5
            device = reserve.OnDevice(vendor, "server", own, splits, partial, multicast)
            step = EngineStep(tokens, rows, Layout(tensor=4), eager=eager, context_tokens=32_768)
            whole = reserve.reserve(model, engine, device, step)
            asked = reserve.kernel_step(device, step, 32_768)
            found = kernel.reserve_bytes(rates, asked, multicast, 0, handles)
            assert found == whole.total


# --- time ------------------------------------------------------------------------------------------

rates = st.sampled_from([math.nan, 3.35e12, 9.89e14, 1.979e15])
reaches = st.lists(
    st.tuples(
        st.floats(0, 1e6),
        st.floats(0, 1e7),
        st.floats(0, 1e7),
        st.sampled_from([0, -1, 512, 4096]),
        st.sampled_from([1, 4, 128]),
        st.sampled_from([0, 1]),
        st.sampled_from([0, 1601]),
    ).map(lambda one: one if one[3] > 0 else (*one[:5], 0, one[6])),
    max_size=4,
)
steps = st.builds(
    kernel.Step,
    ranks=st.sampled_from([1, 2, 8]),
    dense_bytes=st.integers(1, 1 << 37),
    expert_bytes=st.integers(0, 1 << 39),
    experts=st.sampled_from([0, 8, 256]),
    experts_per_token=st.sampled_from([1, 8]),
    body=st.tuples(st.floats(0, 1e12), rates).map(lambda one: (one,)),
    head=st.tuples(st.floats(0, 1e10), rates).map(lambda one: (one,)),
    reaches=reaches,
    attention_rate=rates,
    state_bytes=st.integers(0, 1 << 28),
    reduced_bytes=st.integers(0, 1 << 22),
    bytes_rate=rates,
    link_rate=st.sampled_from([math.nan, 4.5e11]),
)


def as_demand(step: kernel.Step) -> tuple[Demand, Peaks]:
    """The kernel's step as the array code's demand and peaks."""
    made = Demand(
        tensor_parallel=step.ranks,
        dense_bytes=step.dense_bytes,
        expert_bytes=step.expert_bytes,
        experts=step.experts,
        experts_per_token=step.experts_per_token,
        operations_per_token={"bf16": step.body[0][0]},
        head_operations={"fp8": step.head[0][0]},
        reaches=tuple(
            Seen(a, b, c, UNBOUNDED if cap == 0 else max(cap, 0), each, chunked == 1, constant)
            for a, b, c, cap, each, chunked, constant in step.reaches
        ),
        attention_multiplies="int8",
        state_bytes_touched=step.state_bytes,
        reduced_bytes_per_token=step.reduced_bytes,
    )
    rate = {"bf16": step.body[0][1], "fp8": step.head[0][1], "int8": step.attention_rate, "fp4": math.nan}
    return made, Peaks(step.bytes_rate, rate, step.link_rate)


@settings(max_examples=examples(150))
@given(steps, st.integers(1, 1 << 14), st.integers(1, 1 << 20), st.integers(0, 1 << 16))
def test_a_step_takes_what_the_array_code_says(step, batch, context, cached):
    asked, peaks = as_demand(step)
    cached = min(cached, context)
    mine = kernel.decode_seconds(step, batch, context)
    assert mine == pytest.approx(
        roofline.decode(asked, peaks, batch, context).seconds, rel=1e-12, nan_ok=True
    )
    first = kernel.prefill_seconds(step, context, cached)
    theirs = roofline.prefill(asked, peaks, context, cached_tokens=cached).seconds
    assert first == pytest.approx(theirs, rel=1e-12, nan_ok=True)


# --- JavaScript ------------------------------------------------------------------------------------


def test_javascript_answers_as_the_kernel_it_was_made_from():
    assert len(functions()) > 35
    draw = random.Random(20261122)  # noqa: S311 - the same
    calls = [call for function in functions() for call in calls_of(function, draw, examples(60))]
    for made, answer in zip(calls, call(script(), calls), strict=True):
        agree(*made, answer)
