"""The doors: Python and the command line, from a trace and a model to answers."""

import json

import pytest

import kvreport
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.traffic.answers import replay, summarize
from kvreport.traffic.block_pools import kind_blocks
from kvreport.traffic.generate import Workload, generate
from kvreport.traffic.hits import hit_counts
from kvreport.traffic.replay_setup import pools_of
from kvreport.traffic.reuse import reuse
from kvreport.traffic.shipped import open_trace
from kvreport.traffic.timing import PipelineClock, RooflineClock

MODEL, GPU = "Qwen/Qwen2.5-7B-Instruct", "h100-sxm-80gb"
LONGER = "meta-llama/Llama-3.1-8B-Instruct"
"""Serves 99.7 % of the synthetic trace; MODEL (32K) would leave out 16 %, which is refused."""
SMALL = generate(Workload(sessions=60, turns=4, sessions_per_s=2.0), "small")
CSV = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,400,10\n0.5,300,8\n"


def test_hit_rates_of_a_deployment_are_those_of_its_blocks():
    found = replay("mooncake-synthetic", LONGER, gpu=GPU, order_only=True, hit_rate=0.4)
    pool = found.pools.pools[0]
    kept = reuse(open_trace("mooncake-synthetic"), 16)
    # Prompts beyond the model's 131,072 tokens are left out, so the rates differ; the pool's arithmetic does not.
    assert found.too_long == sum(
        tokens >= 131_072 for tokens in open_trace("mooncake-synthetic").prompt_tokens
    )
    assert found.too_long > 0
    assert pool.block_bytes == 16 * 131_072
    assert pool.blocks == found.estimate.budget.kv_pool_bytes // pool.block_bytes - 1
    assert hit_counts(kept, pool.blocks, compute_last=True).rate() < found.hit_rate < found.hit_rate_unlimited
    assert found.hit_rate < found.hit_rate_best
    rates = [point.lru for point in found.curve]
    assert rates == sorted(rates)
    assert len(rates) == 20
    assert found.cache_bytes_for_hit_rate is not None
    enough = replay(
        "mooncake-synthetic",
        LONGER,
        gpu=GPU,
        order_only=True,
        kv_pool=found.cache_bytes_for_hit_rate + pool.block_bytes,
    )
    assert enough.hit_rate == pytest.approx(0.4, abs=0.001)


@pytest.mark.parametrize("model", ["google/gemma-3-27b-it", "Qwen/Qwen3.6-27B", "openai/gpt-oss-20b"])
def test_pools_of_hybrids_hold_what_the_estimate_says(model):
    """A request alone takes of the replay's pools what the block plan reserves for it."""
    answer = kvreport.estimate(model, gpu="h200-sxm-141gb", context_tokens=32_768)
    pools = pools_of(answer)
    blocks = sum(kind_blocks(kind, 32_768) for kind in pools.kinds)
    assert blocks * pools.pools[0].block_bytes == answer.kv_bytes_per_request_per_gpu
    assert {kind.growth for kind in pools.kinds} > {"full"}


@pytest.mark.parametrize(
    ("model", "engine"),
    [
        (MODEL, "ceiling"),
        *(
            (model, engine)
            for model in (MODEL, "openai/gpt-oss-20b", "Qwen/Qwen3.6-27B")
            for engine in ("vllm", "sglang")
        ),
    ],
)
def test_every_kind_of_model_is_replayed_to_its_end(model, engine):
    found = replay(SMALL, model, gpu="h200-sxm-141gb", engine=engine)
    course = found.to_dict()["replay"]
    assert course["requests"] + course["refused"] == len(SMALL)
    assert (
        course["hit_tokens"] + course["prefilled_tokens"]
        == course["prompt_tokens"] + course["recomputed_tokens"]
    )
    assert 0 < course["hit_rate"] <= found.hit_rate_unlimited + 0.15


def test_the_clock_is_the_roofline_over_an_efficiency():
    half, full = (
        replay(SMALL, MODEL, gpu=GPU, efficiency=share, speed=100.0, curve=False) for share in (0.3, 0.6)
    )
    slow, fast = (one.to_dict()["replay"]["end_to_end_s"]["mean"] for one in (half, full))
    assert slow > 1.8 * fast


def test_steps_interpolate_the_roofline():
    from kvreport.accounting.demand import demand
    from kvreport.accounting.roofline import Peaks, decode, prefill

    request = kvreport.estimate(MODEL, gpu=GPU).request
    need = demand(request.model, None, request.formats, request.kv_format)
    peaks = Peaks.of(request.accelerator)
    clock = RooflineClock(need, peaks, max_seqs=256, efficiency=1.0)
    for batch, context in ((1, 100), (7, 3000), (100, 5000), (256, 40_000)):
        assert clock.seconds(batch, context, []) == pytest.approx(
            float(decode(need, peaks, batch, context).seconds), rel=0.02
        )
    for new, front in ((100, 0), (3000, 500), (8192, 20_000)):
        bound = float(prefill(need, peaks, new + front, cached_tokens=front).seconds)
        assert clock.seconds(0, 0, [(new, front)]) == pytest.approx(bound, rel=0.05)


def test_more_replicas_wait_less():
    found = replay(SMALL, MODEL, gpu="rtx-4090", weights="int4", speed=40.0, wait_s=0.5, curve=False)
    needed = found.replicas_for_wait
    assert needed is not None
    assert needed > 1
    enough, less = (
        replay(SMALL, MODEL, gpu="rtx-4090", weights="int4", speed=40.0, replicas=number, curve=False)
        for number in (needed, needed - 1)
    )
    assert enough.times("wait_s")["p95"] <= 0.5 < less.times("wait_s")["p95"]


def test_a_host_tier_adds_hits_and_an_expiry_takes_them():
    plain = replay(SMALL, MODEL, gpu=GPU, kv_pool="1GiB", order_only=True)
    host = replay(SMALL, MODEL, gpu=GPU, kv_pool="1GiB", order_only=True, host_memory="8GiB")
    brief = replay(SMALL, MODEL, gpu=GPU, kv_pool="1GiB", order_only=True, time_to_live_s=5)
    assert brief.hit_rate < plain.hit_rate < host.hit_rate_with_host <= host.hit_rate_unlimited


def test_python_has_the_door():
    found = kvreport.replay(SMALL, MODEL, gpu=GPU, order_only=True)
    assert isinstance(found, kvreport.TrafficAnswer)
    assert "hit rate" in repr(found)


def test_the_command_line_answers(capsys, tmp_path):
    assert (
        main(["replay", "mooncake-synthetic", LONGER, "--gpu", "H100", "--limit", "400", "--hit-rate", "0.2"])
        == 0
    )
    said = capsys.readouterr().out
    assert "Prefix cache (hit tokens ÷ prompt tokens" in said
    assert "For a hit rate of 20.0%" in said
    assert "preemptions" in said
    file = tmp_path / "lengths.csv"
    file.write_text(CSV)
    assert main(["replay", str(file), MODEL, "--gpu", "H100"]) == 0
    assert "prefix cache hits are not counted" in capsys.readouterr().out
    assert main(["replay", str(file), MODEL, "--gpu", "H100", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["hit_rate"] is None
    assert found["replay"]["requests"] == 2
    assert found["trace"]["duration_s"] == 0.5


def test_a_deployment_is_sized_for_a_trace(capsys, tmp_path):
    file = tmp_path / "lengths.csv"
    file.write_text(CSV)
    assert main(["size", MODEL, "--trace", str(file), "--gpu", "H100", "--top", "1", "--format", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["gpu"], found["gpus"], found["replicas"]) == (GPU, 1, 1)
    assert main(["size", MODEL, "--trace", str(file), "--context", "8K"]) == 2
    assert "found with --trace" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": 0},
        {"hit_rate": 1.0},
        {"wait_s": 0.0},
        {"efficiency": 0.0},
        {"speed": -1.0},
        {"time_to_live_s": 0.0},
        {"host_memory": "many"},
        {"kv_pool": "1KiB"},
        {"engine": "transformers"},
        {"context_tokens": 10},
    ],
    ids=str,
)
def test_what_cannot_be_replayed_is_refused_in_one_line(wrong):
    with pytest.raises(InputError) as caught:
        replay(SMALL, MODEL, gpu=GPU, **wrong)
    assert len(str(caught.value).splitlines()) == 1


def test_percentiles():
    assert summarize([]) is None
    assert summarize([1.0, 2.0, 3.0]) == {"mean": 2.0, "p50": 2.0, "p95": 3.0, "p99": 3.0, "max": 3.0}


@pytest.mark.parametrize(
    "model", [MODEL, "openai/gpt-oss-20b", "Qwen/Qwen3.6-27B", "deepseek-ai/DeepSeek-V2-Lite"]
)
def test_sglang_s_pools_hold_the_tokens_that_it_prints(model):
    answer = kvreport.estimate(model, gpu="h200-sxm-141gb", engine="sglang", context_tokens=8192)
    pools = pools_of(answer)
    assert pools.pools[0].blocks * pools.kinds[0].block_tokens == answer.kv_pool_tokens
    assert pools.kinds[0].growth == "full"


def test_the_evidence_page_shows_every_comparison():
    from kvreport.site.pages.traffic_checks import tables

    simulator, published = tables()
    assert [row.cells[0].text for row in simulator.rows] == ["24 of 24", "24 of 24"]
    assert len(published.rows) >= 8


@pytest.mark.parametrize(
    "layout",
    [
        {"tensor_parallel": 8, "decode_context_parallel": 8},
        {"data_parallel": 8, "expert_parallel": True},
        {"tensor_parallel": 4, "pipeline_parallel": 2},
        {"tensor_parallel": 8, "data_parallel": 8, "expert_parallel": True, "engine": "sglang"},
    ],
    ids="-".join,
)
def test_pools_of_a_layout_hold_the_requests_that_the_estimate_says(layout):
    answer = kvreport.estimate(
        "deepseek-ai/DeepSeek-V3.2", gpu="h200-sxm-141gb", context_tokens=32_768, **layout
    )
    pools = pools_of(answer)
    each = pools.request_blocks(32_768, 0)
    copies = answer.request.layout.data
    # The printed concurrency counts the block that the engine keeps for itself, too.
    there = pools.pools[0].blocks + answer.plan.kept_blocks
    assert there // each * copies == answer.max_concurrent_requests_by_memory


def test_each_data_rank_replays_a_share_of_the_trace():
    found = replay(
        SMALL, "deepseek-ai/DeepSeek-V3.2", gpu="h200-sxm-141gb", data_parallel=8, expert_parallel=True
    )
    assert len(found.runs) == 8
    assert found.to_dict()["replay"]["requests"] == len(SMALL)
    assert found.to_dict()["layout"]["data_parallel"] == 8


def test_the_tightest_of_unequal_stages_decides_the_pool():
    def blocks(*gpus):
        return (
            replay(
                SMALL,
                "Qwen/Qwen3-32B",
                gpu=list(gpus),
                pipeline_parallel=2,
                context_tokens=8192,
                order_only=True,
            )
            .pools.pools[0]
            .blocks
        )

    assert blocks("h200-sxm-141gb", "h100-sxm-80gb") < blocks("h200-sxm-141gb", "h200-sxm-141gb")
    # The order matters a little: stages are not equal. The smaller device decides either way.
    assert blocks("h100-sxm-80gb", "h200-sxm-141gb") == pytest.approx(
        blocks("h200-sxm-141gb", "h100-sxm-80gb"), rel=0.05
    )


def test_pipeline_stages_share_a_round_between_them():
    one = RoundClock()
    whole = one.seconds(64, 1000.0, [(8192, 0)])
    assert PipelineClock(one, 4).seconds(64, 1000.0, [(8192, 0)]) == whole / 4


class RoundClock:
    """Time in proportion to what a step does."""

    def seconds(self, decodes, _mean_context, chunks):
        return decodes + sum(new for new, _ in chunks)


def test_a_host_tier_of_a_data_rank_is_divided_over_its_devices():
    asked = {"gpu": GPU, "kv_pool": "64MiB", "order_only": True, "tensor_parallel": 2, "pipeline_parallel": 2}
    whole, each = (
        replay(SMALL, MODEL, **asked, **one) for one in ({"kv_offload": "1GiB"}, {"host_memory": "256MiB"})
    )
    assert whole.hit_rate_with_host == each.hit_rate_with_host
    assert whole.hit_rate_with_host < replay(SMALL, MODEL, **asked, host_memory="1GiB").hit_rate_with_host


def test_a_host_tier_of_equal_latents_is_not_divided():
    asked = {"gpu": "H200", "kv_pool": "64MiB", "order_only": True, "tensor_parallel": 8}
    for engine, each in (("vllm", "8GiB"), ("vllm@0.26.0", "1GiB")):
        whole, same = (
            replay(SMALL, "deepseek-ai/DeepSeek-V3", engine=engine, **asked, **one)
            for one in ({"kv_offload": "8GiB"}, {"host_memory": each})
        )
        assert whole.host_bytes == same.host_bytes


def test_a_host_tier_has_two_names_and_one_meaning():
    answers = [
        replay(SMALL, MODEL, gpu=GPU, kv_pool="1GiB", order_only=True, **{name: "8GiB"})
        for name in ("host_memory", "kv_offload")
    ]
    assert answers[0].hit_rate_with_host == answers[1].hit_rate_with_host
    with pytest.raises(InputError, match="kv-offload: found together with host-memory"):
        replay(SMALL, MODEL, gpu=GPU, host_memory="1GiB", kv_offload="1GiB")
    for name in ("host_memory", "kv_offload"):
        with pytest.raises(InputError, match="whose one memory of 122 GiB"):
            replay(SMALL, MODEL, gpu="dgx-spark-gb10", order_only=True, **{name: "100GiB"})


@pytest.mark.parametrize("model", ["google/gemma-3-27b-it", "Qwen/Qwen3.6-27B"])
def test_no_policy_of_a_hybrid_exceeds_the_bound(model):
    found = replay(SMALL, model, gpu=GPU, kv_pool="4GiB", order_only=True, context_tokens=32_768)
    assert found.best_is_bound
    for point in found.curve:
        assert point.lru <= point.best + 1e-9
    assert found.hit_rate <= found.hit_rate_best <= found.hit_rate_unlimited


def test_a_local_engine_has_no_replay():
    with pytest.raises(InputError, match="whose scheduler is not known here"):
        replay(SMALL, MODEL, gpu="rtx-4090", engine="llama-cpp")
