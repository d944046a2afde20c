"""The simulation of a busy server, against runs worked by hand and its own closed forms."""

import pytest

from kvreport.accounting.batching import Allocator, SimulatedRun, at_best, simulate
from kvreport.accounting.demand import demand
from kvreport.accounting.paging import Lengths, last_page_waste, occupancy
from kvreport.accounting.roofline import Peaks, decode
from kvreport.catalog.load import open_catalog
from kvreport.errors import InputError

PROMPTS = Lengths.spread(400, 2048).draw(400, base=2)
OUTPUTS = Lengths.spread(200, 1024).draw(400, base=3)


def busy(allocator: Allocator, **changes: int) -> SimulatedRun:
    limits = {"pool_tokens": 40_960, "maximum_tokens": 4096, "max_seqs": 256, **changes}
    return simulate(PROMPTS, OUTPUTS, allocator, **limits)  # type: ignore[arg-type]


def test_one_request_by_hand() -> None:
    # 5 in, 4 out: prefill writes the first token, three steps store 6, 7, 8 tokens.
    run = simulate([5], [4], Allocator("paged", page_tokens=4), pool_tokens=16, maximum_tokens=16)
    assert (run.steps, run.output_tokens, run.preemptions) == (3, 4, 0)
    assert run.stored_share == pytest.approx((6 + 7 + 8) / (3 * 16))
    # Two pages of 4 all the way: 8 of 16 tokens.
    assert run.occupied_share == pytest.approx(0.5)


def test_static_batching_waits_for_the_longest() -> None:
    # Room for two stretches. Static: batches (2, 9) and (2, 9) take 8 steps each. Refilled one by
    # one: the short ones make way, and 2+2 steps run beside the long one's 8.
    lengths = {"prompt_tokens": [1, 1, 1, 1], "output_tokens": [2, 9, 2, 9]}
    limits = {"pool_tokens": 20, "maximum_tokens": 10}
    static = simulate(**lengths, allocator=Allocator("static"), **limits)  # type: ignore[arg-type]
    refilled = simulate(**lengths, allocator=Allocator("contiguous"), **limits)  # type: ignore[arg-type]
    assert static.steps == 16
    assert refilled.steps == 10
    assert static.output_tokens == refilled.output_tokens == 22


def test_pages_run_out_and_the_youngest_starts_over() -> None:
    # Two requests of 4 in, 8 out; pages of 2, room for 8 pages (16 tokens). Each needs 3 pages at its
    # first step, and both grow to 4 pages (8 tokens); the ninth token of the first throws the second out.
    run = simulate([4, 4], [8, 8], Allocator("paged", page_tokens=2), pool_tokens=16, maximum_tokens=12)
    assert run.preemptions == 1
    # It had stored 8 tokens and written one more.
    assert run.recomputed_tokens == 9
    assert run.output_tokens == 16
    # First: 7 steps. The second made 4 of its 7 beside it; recomputing writes one token more.
    assert run.steps == 7 + 2


def test_a_watermark_trades_concurrency_for_preemptions() -> None:
    eager = busy(Allocator("paged", 16))
    careful = busy(Allocator("paged", 16, watermark=0.2))
    assert eager.preemptions > careful.preemptions
    assert eager.mean_running > careful.mean_running


def test_pages_beat_refilled_stretches_beat_static_batches() -> None:
    static, refilled, paged = (
        busy(Allocator("static")),
        busy(Allocator("contiguous")),
        busy(Allocator("paged", 16)),
    )
    # 40,960 / 4,096: ten stretches.
    assert static.peak_running == refilled.peak_running == 10
    assert static.tokens_per_second < refilled.tokens_per_second < paged.tokens_per_second
    assert paged.mean_running > 4 * refilled.mean_running


@pytest.mark.parametrize("page", [16, 32, 64, 128, 256])
def test_simulated_page_waste_is_the_closed_form(page: int) -> None:
    run = busy(Allocator("paged", page, watermark=0.1), max_seqs=40)
    empty = (run.occupied_share - run.stored_share) * (40_960 // page * page)
    # About (page - 1) / 2 tokens of each running request.
    assert empty / run.mean_running == pytest.approx(float(last_page_waste(page)), rel=0.06)


def test_simulated_stretches_waste_what_the_closed_form_says() -> None:
    run = busy(Allocator("contiguous"))
    # The simulation has output - 1 decode steps: prefill writes the first token.
    closed = occupancy(PROMPTS, OUTPUTS - 1, "maximum", maximum_tokens=4096)
    assert run.waste_share == pytest.approx(closed.waste_share, abs=1e-9)


def test_larger_pages_waste_more_and_hold_fewer() -> None:
    runs = [busy(Allocator("paged", page)) for page in (16, 64, 256)]
    waste = [run.waste_share for run in runs]
    assert waste == sorted(waste)
    assert runs[0].mean_running > runs[2].mean_running


def test_time_is_what_the_step_times_add_up_to() -> None:
    run = simulate(
        [10, 10],
        [3, 3],
        Allocator("paged", 16),
        pool_tokens=64,
        maximum_tokens=16,
        decode_seconds=lambda batch, mean: 0.1 * batch + 0.001 * mean,
        prefill_seconds=lambda tokens: 0.01 * tokens,
    )
    # Two prefills of 10, then two steps with both at 11 and 12 tokens.
    assert run.seconds == pytest.approx(2 * 0.1 + 2 * 0.2 + 0.001 * (11 + 12))
    assert run.tokens_per_second == pytest.approx(6 / run.seconds)


CATALOG = open_catalog()
H100 = Peaks.of(CATALOG.accelerator("h100-sxm-80gb"))
LLAMA_3 = demand(CATALOG.model("meta-llama/Meta-Llama-3-8B-Instruct"), None, CATALOG.weight_formats)


def llama_at_32k(page: int) -> SimulatedRun:
    """Llama 3 8B on an H100, prompts of 28K and answers of 4K on average, a batch of at most 16."""
    decode, prefill = at_best(LLAMA_3, H100)
    prompts = Lengths.spread(8192, 28_672).draw(64, base=2)
    answers = Lengths.spread(1024, 4096).draw(64, base=3)
    # 40 GiB / 131,072 B per token = 327,680 tokens.
    return simulate(
        prompts,
        answers,
        Allocator("paged", page),
        pool_tokens=327_680,
        maximum_tokens=32_768,
        max_seqs=16,
        decode_seconds=decode,
        prefill_seconds=prefill,
    )


def test_page_size_hardly_matters_at_long_contexts() -> None:
    # The question of a published exercise: Llama 3 8B at 32K, pages of 16 or of 256, a batch of 16. The last
    # page wastes 7.5 or 127.5 of some nine thousand tokens: 0.1% or 1.5%, and no throughput.
    small, large = llama_at_32k(16), llama_at_32k(256)
    assert small.waste_share == pytest.approx(7.5 / 9_500, rel=0.35)
    assert large.waste_share == pytest.approx(127.5 / 9_500, rel=0.35)
    assert large.tokens_per_second == pytest.approx(small.tokens_per_second, rel=0.02)


def test_throughput_at_best_stays_below_the_roofline_of_its_largest_batch() -> None:
    run = llama_at_32k(16)
    assert run.peak_running == 16
    # No step can be faster than 16 users that hold nothing.
    fastest = 16 / float(decode(LLAMA_3, H100, 16, 0).seconds)
    assert 0.05 * fastest < run.tokens_per_second < fastest


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"maximum_tokens": 100}, "over the maximum"),
        ({"pool_tokens": 64}, "do not hold one request"),
    ],
)
def test_impossible_servers_are_refused(changes: dict[str, int], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        busy(Allocator("paged"), **changes)
