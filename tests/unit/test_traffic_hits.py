"""Hit-rate curves, against another simulator, published figures, closed forms and plain simulations."""

from collections import OrderedDict
from itertools import pairwise

import pytest

from kvreport.errors import InputError
from kvreport.traffic.generate import Workload, generate
from kvreport.traffic.hits import DEFINITIONS, hit_counts
from kvreport.traffic.reuse import reuse
from kvreport.traffic.shipped import open_trace, published_checks, shipped_traces
from kvreport.traffic.trace import TracedRequest, build

CHECKS = published_checks()
RUNS = CHECKS["simulator"]["runs"]


@pytest.fixture(scope="module")
def runs_of():
    return {key: reuse(open_trace(key)) for key in shipped_traces()}


def trace_of(paths, tokens=10):
    requests = (TracedRequest(float(i), len(path) * tokens, 1, path) for i, path in enumerate(paths))
    return build(requests, name="by hand", block_tokens=tokens)


@pytest.mark.parametrize("run", RUNS, ids=[run["trace"] for run in RUNS])
def test_hit_tokens_equal_those_of_kvcache_simulator(run, runs_of):
    reused = runs_of[run["trace"]]
    sizes = [blocks for blocks, _, _ in run["points"]]
    assert len(sizes) == 24
    lru = [hit_counts(reused, size, warmup=0.5) for size in sizes]
    assert [one.hit_tokens for one in lru] == [hits for _, hits, _ in run["points"]]
    some = run["points"][::4]
    best = [hit_counts(reused, blocks, policy="best", warmup=0.5) for blocks, _, _ in some]
    assert [one.hit_tokens for one in best] == [hits for _, _, hits in some]
    without = hit_counts(reused, None, warmup=0.5)
    assert (without.hit_tokens, without.prompt_tokens) == (run["unlimited"], run["prompt_tokens"])


@pytest.mark.parametrize("check", CHECKS["published"], ids=[one["key"] for one in CHECKS["published"]])
def test_published_figures_and_the_difference_to_them(check, runs_of):
    reused = runs_of[check["trace"]]
    rate = hit_counts(reused, check.get("capacity_blocks")).rate(check["definition"])
    if "capacity_blocks" in check:
        rate /= hit_counts(reused, None).rate(check["definition"])
    assert 100 * rate == pytest.approx(check["found"], abs=0.1)
    assert check["agrees"] == (abs(check["found"] - check["published"]) <= 1)
    assert check["agrees"] or check["why"]


def test_definitions_differ_on_one_trace(runs_of):
    reused = runs_of["mooncake-synthetic"]
    everything, half = hit_counts(reused, None), hit_counts(reused, None, warmup=0.5)
    found = {name: round(100 * everything.rate(name), 1) for name in DEFINITIONS}
    assert found == {
        "tokens": 65.1,
        "blocks": 64.0,
        "full_blocks": 66.1,
        "strict_full_blocks": 65.9,
        "per_request": 42.3,
    }
    assert round(100 * half.rate("tokens"), 1) == 86.3


def leaf_lru(paths, capacity):
    """Hit blocks of a cache of prefix blocks that evicts the least recently used leaf, by brute force."""
    resident: OrderedDict[tuple, None] = OrderedDict()
    found = []
    for path in paths:
        prefixes = [tuple(path[: end + 1]) for end in range(len(path))]
        hit = 0
        while hit < len(prefixes) and prefixes[hit] in resident:
            hit += 1
        found.append(hit)
        for prefix in prefixes[:hit]:
            resident.move_to_end(prefix)
        for prefix in prefixes[hit:]:
            if len(resident) >= capacity:
                inner = {one[:-1] for one in resident}
                victim = next((one for one in resident if one not in inner and one not in prefixes), None)
                if victim is None:
                    break
                del resident[victim]
            if capacity:
                resident[prefix] = None
    return found


@pytest.mark.parametrize("capacity", [0, 1, 2, 3, 5, 8, 13, 40])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_pass_equals_a_simulation_of_each_size(seed, capacity):
    trace = generate(
        Workload(sessions=12, turns=3, system_prompts=2, system_prompt_tokens=64, new_tokens=40, seed=seed)
    )
    paths = [list(trace.path(row)) for row in range(len(trace))]
    brute = leaf_lru(paths, capacity)
    assert hit_counts(reuse(trace), capacity).hit_blocks == sum(brute)


@pytest.mark.parametrize("seed", [4, 5])
def test_more_cache_never_has_fewer_hits_and_lru_never_beats_the_best(seed):
    reused = reuse(generate(Workload(sessions=150, turns=5, system_prompts=4, seed=seed)))
    sizes = [0, 10, 100, 500, 1000, 2000, 5000, 20_000, None]
    lru, best = ([hit_counts(reused, size, policy=one) for size in sizes] for one in ("lru", "best"))
    for small, large in pairwise(lru):
        assert small.hit_tokens <= large.hit_tokens
    for small, large in pairwise(best):
        assert small.hit_blocks <= large.hit_blocks
    assert all(one.hit_blocks <= other.hit_blocks for one, other in zip(lru, best, strict=True))
    assert lru[0].hit_tokens == best[0].hit_tokens == 0
    assert lru[-1] == best[-1]


def test_rounds_of_equal_length_hit_r_over_r_plus_1():
    # A conversation that grows by one length a round, nothing evicted: r of r + 1 parts are there.
    # SGLang issue 33984 prints 0, 0.499939, 0.666558, 0.749863 … for 20 such clients; the rest is page rounding.
    paths = [
        [f"{client}.{index}" for index in range(8 * (turn + 1))] for turn in range(6) for client in range(20)
    ]
    reused = reuse(trace_of(paths))
    hits = dict.fromkeys(range(6), 0)
    for run, previous in enumerate(reused.previous):
        if previous >= 0:
            hits[reused.request[run] // 20] += reused.length[run]
    for turn in range(6):
        assert hits[turn] / (20 * 8 * (turn + 1)) == pytest.approx(turn / (turn + 1))
    assert hit_counts(reused, None).hit_blocks == sum(hits.values())


def test_blocks_expire():
    reused = reuse(trace_of([[1, 2], [1, 2], [9], [1, 2]]))
    # Arrivals are a second apart: the last request comes 2 s after the blocks were last used.
    assert hit_counts(reused, None).hit_blocks == 4
    assert hit_counts(reused, None, time_to_live_s=1.0).hit_blocks == 2
    assert hit_counts(reused, None, time_to_live_s=0.5).hit_blocks == 0


def test_engine_blocks_are_full_and_leave_a_token_to_compute():
    trace = trace_of([[1, 2], [1, 2]], tokens=20)
    sixteen = reuse(trace, 16)
    # 40 tokens fill two blocks of 16; the same prompt again finds both.
    assert hit_counts(sixteen, None).hit_tokens == 32
    twenty = reuse(trace, 20)
    assert hit_counts(twenty, None).hit_tokens == 40
    assert hit_counts(twenty, None, compute_last=True).hit_tokens == 20


def test_what_cannot_be_counted_is_refused():
    plain = build([TracedRequest(0.0, 5, 1)], name="lengths")
    with pytest.raises(InputError, match="no prefix ids"):
        reuse(plain)
    reused = reuse(trace_of([[1]]))
    with pytest.raises(InputError, match="capacity"):
        hit_counts(reused, -1)
    with pytest.raises(InputError, match="warmup"):
        hit_counts(reused, 1, warmup=1.0)
    with pytest.raises(InputError, match="time to live"):
        hit_counts(reused, 1, policy="best", time_to_live_s=3.0)


def test_named_outputs_are_found_by_the_next_turn_and_take_room():
    from kvreport.traffic.block_pools import CacheKind, Pools, PoolSpec
    from kvreport.traffic.order import replay_in_order
    from kvreport.traffic.trace import with_outputs

    plain = generate(Workload(sessions=40, turns=6, output_tokens=600, think_s=90))
    named = with_outputs(plain)
    unlimited = [hit_counts(reuse(trace, 16), None, compute_last=True).hit_tokens for trace in (plain, named)]
    assert unlimited[1] > unlimited[0] + 16 * 100
    # The pool agrees, but for the blocks that a request holds beside its named ones while it runs.
    for blocks in (3000, 6000):
        pools = Pools((PoolSpec("KV pool", blocks),), (CacheKind("full", 0, 16, 1),))
        replayed = replay_in_order(named, pools).hit_tokens
        assert replayed == pytest.approx(
            hit_counts(reuse(named, 16), blocks, compute_last=True).hit_tokens, rel=0.02
        )
