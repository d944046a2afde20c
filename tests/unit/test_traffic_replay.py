"""The replay, against the theory of LRU, conservation laws, runs worked by hand and published reports."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from kvreport.errors import InputError
from kvreport.traffic.block_pools import CacheKind, Pools, PoolSpec, kind_blocks
from kvreport.traffic.generate import Workload, generate
from kvreport.traffic.hits import hit_counts
from kvreport.traffic.memory import HostTier
from kvreport.traffic.order import replay_in_order
from kvreport.traffic.replay import ReplayOptions, replay_trace
from kvreport.traffic.replay_setup import separate_pools
from kvreport.traffic.reuse import reuse
from kvreport.traffic.shipped import open_trace
from kvreport.traffic.trace import TracedRequest, build, with_outputs


@dataclass(frozen=True, slots=True)
class UniformClock:
    """A clock whose steps cost a fixed time and a time per token.

    Attributes:
        step_s: Seconds per step.
        prefill_token_s: Seconds per prefilled token.
    """

    step_s: float = 0.02
    prefill_token_s: float = 0.0

    def seconds(self, decodes: int, mean_context: float, chunks: Sequence[tuple[int, int]]) -> float:  # noqa: ARG002
        """Seconds of one step."""
        return self.step_s + self.prefill_token_s * sum(new for new, _ in chunks)


CLOCK = UniformClock(step_s=0.02, prefill_token_s=1e-5)
HYBRID = (
    CacheKind("full", 0, 16, 1),
    CacheKind("window", 0, 16, 5, window=1024, most_blocks=5 * 577),
    CacheKind("state", 0, 16, 2, held_blocks=4),
)


def one_pool(blocks, block_tokens=16):
    return Pools((PoolSpec("KV pool", blocks),), (CacheKind("full", 0, block_tokens, 1),))


def requests_of(*rows):
    return build((TracedRequest(*row) for row in rows), name="by hand")


@pytest.mark.parametrize("block_tokens", [16, 48, 512])
@pytest.mark.parametrize("blocks", [1000, 9776])
def test_the_pool_is_lru_to_the_token(blocks, block_tokens):
    """One request after another through the pool finds what the one-pass curve says, at any block size.

    Prompts end one token into a block, so that each holds one block that nobody can hit: the curve at one
    block less.
    """
    trace = open_trace("mooncake-synthetic")
    prompts, nodes, starts = array("q"), array("q"), array("q", [0])
    for row in range(len(trace)):
        full = max(trace.prompt_tokens[row] // 512, 1)
        prompts.append(full * 512 + 1)
        nodes.extend(trace.path(row)[:full])
        starts.append(len(nodes))
    trimmed = replace(trace, prompt_tokens=prompts, nodes=nodes, starts=starts)
    units = blocks * 512 // block_tokens
    found = replay_in_order(trimmed, one_pool(units, block_tokens), outputs=False)
    theory = hit_counts(reuse(trimmed, block_tokens), units - 1, compute_last=True)
    # A prompt larger than the pool is refused here, and there it passes through.
    assert found.refused == 0
    assert found.hit_tokens == theory.hit_tokens


@pytest.mark.parametrize("scheduler", ["vllm", "sglang"])
@pytest.mark.parametrize("kinds", [HYBRID[:1], HYBRID], ids=["full", "hybrid"])
@pytest.mark.parametrize("blocks", [2500, 6000, 60_000])
def test_nothing_is_lost_and_no_pool_is_exceeded(blocks, kinds, scheduler):
    trace = with_outputs(generate(Workload(sessions=120, turns=5, sessions_per_s=2.0, new_tokens=700)))
    pools = Pools((PoolSpec("KV pool", blocks),), kinds)

    def watch(memory, runs):
        for pool in memory.pools:
            assert pool.used >= 0
            assert pool.cached >= 0
            assert pool.used + pool.cached <= pool.blocks
        full = memory.residents[0]
        held = {node for run in runs for node in run.nodes[: run.held[0]]}
        assert all(full.users[node] > 0 for node in held)

    result = replay_trace(trace, pools, CLOCK, ReplayOptions(scheduler=scheduler), watch=watch)
    assert result.requests + result.refused == len(trace)
    # Every prompt token was found or computed once; what preemptions cost is counted apart.
    assert result.hit_tokens + result.prefilled_tokens == result.prompt_tokens + result.recomputed_tokens
    if not result.refused:
        assert result.output_tokens == sum(trace.output_tokens)
        assert result.prompt_tokens == sum(trace.prompt_tokens)
    assert len(result.end_to_end_s) == result.requests
    assert all(
        first <= end
        for first, end in zip(sorted(result.first_token_s), sorted(result.end_to_end_s), strict=True)
    )


def test_one_request_by_hand():
    # 32 tokens in two chunks of 16, then 3 decode steps of 20 ms after the first token.
    result = replay_trace(
        requests_of((1.0, 32, 4)),
        one_pool(10),
        UniformClock(0.02, 0.001),
        ReplayOptions(max_batched_tokens=16),
    )
    assert result.wait_s == [0.0]
    assert result.first_token_s == [pytest.approx(2 * (0.02 + 0.016))]
    assert result.end_to_end_s == [pytest.approx(0.072 + 3 * 0.02)]
    # 35 tokens are stored in the end: the last one is never read again.
    assert result.peak_used == (3,)


def test_the_peaks_have_their_moments():
    # Two requests at 1 s and three at 5 s on a pool of one: each prefill of 16 tokens takes 36 ms.
    trace = requests_of((1.0, 16, 1), (1.0, 16, 1), (5.0, 16, 1), (5.0, 16, 1), (5.0, 16, 1))
    clock = UniformClock(0.02, 0.001)
    result = replay_trace(trace, one_pool(1), clock, ReplayOptions(max_batched_tokens=16))
    assert (result.peak_running, result.peak_running_s) == (1, pytest.approx(1.0))
    assert (result.peak_waiting, result.peak_waiting_s) == (3, pytest.approx(5.0))


def test_vllm_preempts_the_last_admitted_and_prefills_it_again():
    # Blocks of 2, 8 of them. Two requests of 4 in, 8 out hold 2 blocks each and grow together: at 8 tokens each
    # all blocks are held, and the ninth of the first takes the second's place.
    trace = requests_of((0.0, 4, 8), (0.0, 4, 8))
    result = replay_trace(trace, one_pool(8, 2), UniformClock(), ReplayOptions(max_batched_tokens=64))
    assert (result.preemptions, result.preempted_requests) == (1, 1)
    # It had stored 8 tokens, and the fifth one it generated is prefilled with them.
    assert result.recomputed_tokens == 4 + 5
    assert result.output_tokens == 16


def test_sglang_keeps_room_for_outputs_and_so_retracts_less():
    rows = [(0.0, 64, 400) for _ in range(64)]
    pools = one_pool(12_000, 1)
    eager = replay_trace(requests_of(*rows), pools, CLOCK, ReplayOptions(scheduler="vllm"))
    careful = replay_trace(requests_of(*rows), pools, CLOCK, ReplayOptions(scheduler="sglang"))
    assert eager.peak_running > careful.peak_running
    assert eager.preemptions > careful.preemptions


def test_a_concurrency_planned_from_mean_lengths_preempts():
    """The report: 256 requests at once were assumed from the mean length, 70 to 80 fitted, 480 preemptions.

    (tandemn-system issue 11.) The same pool with the same mean but with spread lengths shows the mechanism.
    """
    workload = Workload(
        sessions=600,
        turns=1,
        sessions_per_s=200.0,
        system_prompt_tokens=0,
        new_tokens=1500,
        output_tokens=1500,
    )
    trace = generate(workload)
    mean = sum(trace.prompt_tokens) / len(trace) + sum(trace.output_tokens) / len(trace) / 2
    pools = one_pool(int(80 * mean) // 16)
    result = replay_trace(trace, pools, CLOCK, ReplayOptions(max_seqs=256))
    busy = [one.running for one in result.samples if one.waiting]
    assert result.peak_running < 160
    assert 60 <= sum(busy) / len(busy) <= 100
    assert 300 <= result.preemptions <= 900


def test_the_window_pool_evicts_prefixes_while_most_memory_is_free():
    """The report: the window pool held 64 prefix tails, so prefixes were lost with 88% of the full pool free.

    (MiaAI-Lab/DeepSeek-v4.1-Flash-DGX-Sparks issue 27; a larger window pool cures it.)
    """
    trace = with_outputs(generate(Workload(sessions=300, turns=6, sessions_per_s=0.5, think_s=120)))
    sizes = {"window": 1024, "full_tokens": 4_000_000}
    tight = replay_trace(
        trace, separate_pools(window_tokens=64_000, **sizes), CLOCK, ReplayOptions(scheduler="sglang")
    )
    ample = replay_trace(
        trace, separate_pools(window_tokens=954_000, **sizes), CLOCK, ReplayOptions(scheduler="sglang")
    )
    assert tight.peak_used[0] / 4_000_000 < 0.12
    assert tight.evicted[1] > 0
    assert ample.hit_rate > tight.hit_rate + 0.2


def test_an_idle_context_is_evicted_after_as_much_other_traffic():
    # One context of 64 tokens, then others; 16 blocks of 16 hold 256 tokens.
    rows = [(float(i), 64, 1, [f"{i}.{j}" for j in range(4)]) for i in range(8)]
    trace = build((TracedRequest(*row) for row in rows), name="idle", block_tokens=16)
    result = replay_trace(trace, one_pool(16), UniformClock(0.0), ReplayOptions())
    # Four contexts fit; the first is touched when the fifth request comes, 4 s later.
    assert result.peak_resident_contexts == 4
    assert result.idle_lifetimes_s == [pytest.approx(4.0)] * 4


def test_a_host_tier_keeps_what_the_device_evicts():
    trace = with_outputs(generate(Workload(sessions=200, turns=6, sessions_per_s=0.5, think_s=200)))
    pools = one_pool(4000)
    alone = replay_in_order(trace, pools)
    host = {policy: HostTier(40_000, 5e10, policy) for policy in ("write_through", "on_eviction")}
    through = replay_in_order(trace, pools, host=host["write_through"])
    evicted = replay_in_order(trace, pools, host=host["on_eviction"])
    assert alone.hit_tokens < through.hit_tokens <= evicted.hit_tokens
    assert through.host_tokens > 0
    # Together they cannot hold more than a device of both sizes.
    both = replay_in_order(trace, one_pool(44_000))
    assert evicted.hit_tokens <= both.hit_tokens * 1.01


def test_what_no_pool_could_hold_is_refused_and_the_rest_goes_on():
    trace = requests_of((0.0, 1000, 10), (0.0, 100, 10))
    for scheduler in ("vllm", "sglang"):
        assert replay_trace(requests_of((0.0, 9999, 1)), one_pool(16), CLOCK).refused == 1
        result = replay_trace(trace, one_pool(16), CLOCK, ReplayOptions(scheduler=scheduler))
        assert (result.requests, result.refused) == (1, 1)


def test_a_closed_loop_waits_for_answers():
    trace = generate(Workload(sessions=1, turns=30, sessions_per_s=1.0, think_s=5, seed=3))
    slow = UniformClock(step_s=0.5)
    opened = replay_trace(trace, one_pool(100_000), slow)
    closed = replay_trace(trace, one_pool(100_000), slow, ReplayOptions(closed_loop=True))
    assert closed.peak_running == 1
    assert closed.requests == len(trace)
    assert opened.peak_running > 1


def test_options_out_of_range_are_refused():
    for wrong in ({"max_seqs": 0}, {"max_batched_tokens": 0}, {"speed": 0.0}, {"time_to_live_s": -1.0}):
        with pytest.raises(InputError):
            ReplayOptions(**wrong)


@pytest.mark.parametrize("window", [1, 15, 16, 17, 113, 128, 1000])
@pytest.mark.parametrize("in_flight", [1, 7, 16, 512])
def test_a_window_holds_every_block_that_its_tokens_touch(window: int, in_flight: int) -> None:
    """vLLM's ``cdiv(sliding_window - 1 + tokens, block_size) + 1``: the window may begin inside a block, wherever it does."""
    kind = CacheKind("window", 0, 16, 3, window=window, most_blocks=1 << 20)
    tokens = window - 1 + in_flight
    touched = max((start + tokens - 1) // 16 - start // 16 + 1 for start in range(16))
    held = kind_blocks(kind, 100_000, in_flight)
    assert touched * 3 <= held == (-(-tokens // 16) + 1) * 3
    assert held - touched * 3 <= 3
