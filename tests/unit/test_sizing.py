"""Sizing: worked examples, inverses that invert, and sentences that say what to relax."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from told import held_as_told

import kvreport
from kvreport.accounting import kernel
from kvreport.accounting.capacity import users
from kvreport.accounting.engines.command import Served
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import BlockPlan
from kvreport.accounting.profile import CacheProfile, Term
from kvreport.accounting.sizing import (
    Load,
    in_flight,
    pool_for,
    replica_users,
    shared_bytes,
    what_binds,
)
from kvreport.catalog.accelerator import current_since
from kvreport.catalog.load import open_catalog
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.estimation import Estimate, estimate
from kvreport.estimation.commands import checkpoint_note, serving_command
from kvreport.estimation.size import Sizing, size

GIB = 1 << 30
CATALOG = open_catalog()
SINCE = current_since(CATALOG.accelerators.values())
LLAMA_70B = "meta-llama/Llama-3.1-70B-Instruct"

# A model of 1,000 B per token in blocks of 16 tokens, and one with a state beside it.
PLAIN = BlockPlan(16_000, CacheProfile.of([Term("full", 16_000, 16)]), kept_blocks=1)
STATED = BlockPlan(
    16_000, CacheProfile.of([Term("full", 16_000, 16), Term("state", constant_bytes=160_000)]), kept_blocks=1
)
WORK = Load(concurrent=10, longest_tokens=1000, mean_tokens=500, prompt_tokens=400, output_tokens=200)


def seventy(context: int, **changes: object) -> Sizing:
    asked = {"concurrent": 64, "gpus": ["h100-sxm-80gb"], "weights": ["fp8"], "kv": ["fp8"], **changes}
    return size(LLAMA_70B, context=context, **asked)  # type: ignore[arg-type]


def test_sixty_four_requests_of_6000_tokens_hold_64_gb_on_a_70b_model_with_an_fp8_cache() -> None:
    # 80 layers x 8 KV heads x 256 x 1 B = 163,840 B per token; x 6,000 = 983,040,000 B; x 64 = 62.9 GB.
    facts = seventy(6000, tensor_parallel=[1], gpus=["b200-sxm-180gb"]).to_dict()["deployments"][0]
    assert facts["kv_bytes_per_request_per_gpu"] == 983_040_000
    # Over two devices each holds half of the heads.
    assert (
        seventy(6000, tensor_parallel=[2]).describe(
            seventy(6000, tensor_parallel=[2]).ranking.deployments[0]
        )["kv_bytes_per_request_per_gpu"]
        == 491_520_000
    )


def smallest(found: Sizing) -> int:
    """The fewest devices that hold it at all, within the estimate's error or surely."""
    return min(one.devices for one in found.ranking.deployments)


def test_halved_it_surely_fits_two_h100() -> None:
    best = seventy(3000).ranking.deployments[0]
    assert (best.devices, best.sure) == (2, True)
    assert best.users_each >= 64


def test_whole_it_fits_two_h100_and_doubled_it_needs_four() -> None:
    assert smallest(seventy(6000)) == 2
    assert smallest(seventy(12_000)) == 4


def test_what_fits_only_within_the_error_comes_after_what_fits() -> None:
    for found in (seventy(context) for context in range(5000, 8000, 250)):
        kinds = [one.sure for one in found.ranking.deployments]
        assert kinds == sorted(kinds, reverse=True)
        best = found.ranking.deployments[0]
        smaller = found.tight(best)
        assert (smaller is not None) == (best.sure and smallest(found) < best.devices)


def test_doubled_it_needs_two_h200() -> None:
    assert smallest(seventy(12_000, gpus=["h200-sxm-141gb"])) == 2


def test_bursts_and_spares_multiply_replicas() -> None:
    calm = seventy(6000, tensor_parallel=[2]).ranking.deployments[0]
    assert calm.replicas == (1, 1, 1)
    # 71 users fit one pair; 128 at the peak need two pairs, and one more may fail.
    busy = seventy(6000, tensor_parallel=[2], burst=2.0, spare_replicas=1).ranking.deployments[0]
    assert busy.replicas == (1, 2, 3)
    assert busy.devices == 6


def test_littles_law() -> None:
    # 500 users x 0.5 per minute / 60 x 20 s = 83.3 requests in flight.
    assert in_flight(500 * 0.5 / 60, 20) == pytest.approx(83.33, abs=0.01)
    found = seventy(6000, concurrent=None, users=500, requests_per_minute=0.5, latency_s=20)
    assert found.workload.peak == 84


def test_a_request_holds_its_prompt_and_half_of_its_answer_on_average() -> None:
    assert kernel.mean_tokens(3000, 501) == 3251


def test_a_replica_holds_average_requests_but_must_hold_one_longest() -> None:
    # 101 blocks. 500 tokens are 32 blocks: 3. 1,000 are 63 blocks, and one block is kept: it fits.
    assert int(replica_users(101 * 16_000, PLAIN, 500, 1000)) == 3
    # 63 blocks with one kept do not hold one request of 1,000 tokens.
    assert int(replica_users(63 * 16_000, PLAIN, 500, 1000)) == 0
    assert int(replica_users(64 * 16_000, PLAIN, 500, 1000)) == 2


@pytest.mark.parametrize("plan", [PLAIN, STATED])
def test_equal_requests_are_counted_as_everywhere_else(plan: BlockPlan) -> None:
    pools = np.arange(0, 400) * 7_001
    assert (replica_users(pools, plan, 300, 300) == users(pools, plan, 300)).all()


def test_a_shared_prefix_is_held_once_in_whole_blocks() -> None:
    # 250 of 500 tokens are 15 full blocks; each request holds 17 of its 32 blocks; (101 - 15) / 17 = 5.
    assert shared_bytes(PLAIN.profile, 250) == 15 * 16_000
    assert int(replica_users(101 * 16_000, PLAIN, 500, 1000, 250)) == 5


def test_states_and_windows_are_not_shared() -> None:
    profile = CacheProfile.of(
        [Term("full", 100), Term("sliding", 100, cap_tokens=64), Term("state", constant_bytes=5000)]
    )
    assert shared_bytes(profile, 1000) == 100_000


@pytest.mark.parametrize("plan", [PLAIN, STATED])
@pytest.mark.parametrize("wanted", [1, 3, 50])
def test_the_smallest_pool_holds_the_users_and_a_byte_less_does_not(plan: BlockPlan, wanted: int) -> None:
    pool = pool_for(plan, wanted, 700)
    assert int(users(pool, plan, 700)) == wanted
    assert int(users(pool - 1, plan, 700)) < wanted


@pytest.mark.parametrize("engine", ["vllm", "vllm@0.11.0", "tensorrt-llm"])
@pytest.mark.parametrize("gpu", ["h100-sxm-80gb", "mi300x", "rtx-4090"])
def test_the_smallest_share_holds_the_requests_and_less_does_not(engine: str, gpu: str) -> None:
    if engine == "tensorrt-llm" and gpu == "mi300x":
        pytest.skip("it runs on NVIDIA's GPUs")
    asked = {"gpus": [gpu], "engine": engine, "tensor_parallel": [1], "available": 1}
    found = size("Qwen/Qwen3-8B", context=4096, concurrent=3, **asked)
    best = found.ranking.deployments[0]
    share = found.describe(best)["smallest_utilization"]
    told = best.users_each if engine.startswith("vllm") else None
    assert served(gpu, engine, share, told=told) >= 3 > served(gpu, engine, share - 0.002, told=told)


@pytest.mark.parametrize("model", ["Qwen/Qwen3-8B", "Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen2.5-7B"])
@pytest.mark.parametrize("gpu", ["h100-sxm-80gb", "mi300x", "l40s"])
def test_sglangs_fractions_hold_the_requests_and_come_to_what_it_takes_by_itself(
    gpu: str, model: str
) -> None:
    asked = {"gpus": [gpu], "engine": "sglang", "tensor_parallel": [1], "available": 1}
    found = size(model, context=4096, concurrent=2, **asked)
    best = found.ranking.deployments[0]
    told = found.describe(best)
    assert told["smallest_utilization"] is None
    share = told["mem_fraction_static"]
    # The command states the requests at once, by which SGLang sizes its graphs and what it takes by itself.
    each = best.users_each
    assert (
        served(gpu, "sglang", share["lowest"], model, told=each)
        >= 2
        > served(gpu, "sglang", share["lowest"] - 0.002, model, told=each)
    )
    own = estimated(gpu, "sglang", None, model, told=each).budget.kv_pool_bytes
    given = estimated(gpu, "sglang", share["highest"], model, told=each).budget.kv_pool_bytes
    # A share that is stated is rounded to bytes on another way.
    assert -1 <= own - given <= 0.001 * best.total_bytes + 1
    assert told["commands"]["sglang"].startswith("python -m sglang.launch_server")
    assert "--mem-fraction-static" not in told["commands"]["sglang"]
    assert told["commands"]["vllm"] is None


def estimated(gpu: str, engine: str, share: float | None, model: str, told: int | None = None) -> Estimate:
    asked = {"gpu": gpu, "engine": engine, "utilization": share, "max_seqs": told}
    return estimate(model, context_tokens=4096, **asked)


def served(gpu: str, engine: str, share: float, model: str = "Qwen/Qwen3-8B", told: int | None = None) -> int:
    return estimated(gpu, engine, share, model, told).max_concurrent_requests_by_memory


def test_what_binds_is_named() -> None:
    assert what_binds(PLAIN, 500, held=3, fast=3, limit=256) == "cache"
    assert what_binds(STATED, 100, held=3, fast=3, limit=256) == "state"
    assert what_binds(PLAIN, 500, held=9, fast=4, limit=256) == "time"
    assert what_binds(PLAIN, 500, held=900, fast=900, limit=256) == "max_seqs"


def test_time_targets_bound_the_batch() -> None:
    free = seventy(6000, tensor_parallel=[2]).ranking.deployments[0]
    # Two H100: 36.3 GB of weights each are 10.8 ms; at 60% of the roofline 64 requests take 33 ms.
    slow = seventy(6000, tensor_parallel=[2], tpot_s=0.022).ranking.deployments[0]
    assert slow.users_each < free.users_each
    assert slow.binds == "time"


def test_prices_decide_the_order() -> None:
    def best(h100: float, h200: float) -> str:
        found = seventy(
            6000,
            gpus=["h100-sxm-80gb", "h200-sxm-141gb"],
            prices={"h100-sxm-80gb": h100, "h200-sxm-141gb": h200},
        ).ranking.deployments[0]
        assert (
            found.price_per_hour
            == found.devices * {"h100-sxm-80gb": h100, "h200-sxm-141gb": h200}[found.offer.accelerator.id]
        )
        return found.offer.accelerator.id

    assert best(h100=10.0, h200=1.0) == "h200-sxm-141gb"
    assert best(h100=1.0, h200=10.0) == "h100-sxm-80gb"


def test_the_whole_catalog_is_ranked_and_every_deployment_serves_the_peak() -> None:
    found = size(
        LLAMA_70B, context=6000, concurrent=64, weights=["released", "fp8"], kv=["auto", "fp8"], burst=1.5
    )
    assert len(found.ranking.best_of_each()) > 40
    for one in found.ranking.deployments:
        assert one.replicas[1] * one.users_each >= found.workload.peak
        assert one.weight_bytes + one.reserve_bytes + one.pool_bytes <= one.total_bytes
    order = [
        (
            not one.sure,
            -one.offer.accelerator.rental_class(SINCE),
            one.offer.accelerator.billed(one.devices),
            one.memory_bytes,
        )
        for one in found.ranking.deployments
    ]
    assert order == sorted(order)


def test_what_is_commonly_rented_comes_first_unless_accelerators_are_named() -> None:
    asked = {"context": 6000, "concurrent": 64}
    usual, alike = size(LLAMA_70B, **asked), size(LLAMA_70B, gpus=["*"], **asked)  # type: ignore[arg-type]
    kinds = [one.offer.accelerator.rental_class(SINCE) for one in usual.ranking.best_of_each() if one.sure]
    assert kinds == sorted(kinds, reverse=True)
    assert {2, 0} <= set(kinds)
    assert any("several clouds" in text for text in usual.assumptions)
    by_memory = [one.memory_bytes for one in alike.ranking.deployments if one.sure]
    assert by_memory == sorted(by_memory)
    assert not any("several clouds" in text for text in alike.assumptions)

    def every(found: object) -> set[tuple[str, int]]:
        return {(one.offer.accelerator.id, one.tensor_parallel) for one in found.ranking.deployments}  # type: ignore[attr-defined]

    assert every(usual) == every(alike)


@pytest.mark.parametrize(
    ("model", "gpu", "ranks"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "h100-sxm-80gb", 1),
        ("openai/gpt-oss-120b", "a100-sxm-80gb", 4),
        ("deepseek-ai/DeepSeek-V3", "b200-sxm-180gb", 8),
        ("Qwen/Qwen3.6-27B", "l40s", 2),
        ("google/gemma-3-27b-it", "h200-sxm-141gb", 1),
        ("zai-org/GLM-5-FP8", "b200-sxm-180gb", 8),
        ("deepseek-ai/DeepSeek-V4-Flash", "h200-sxm-141gb", 4),
    ],
)
def test_a_replica_holds_what_an_estimate_says(model: str, gpu: str, ranks: int) -> None:
    known = CATALOG.model(model)
    context = min(16_384, known.context_tokens)
    found = size(
        model, context=context, concurrent=1, gpus=[gpu], tensor_parallel=[ranks]
    ).ranking.deployments[0]
    asked = {"gpu": gpu, "tensor_parallel": ranks, "context_tokens": context}
    same = estimate(model, max_seqs=found.users_each, **asked)
    assert found.pool_bytes == same.budget.kv_pool_bytes
    held_as_told(found, model, asked)


def test_the_reserve_is_that_of_a_server_that_is_told_as_many_requests_as_the_command_says() -> None:
    """By default a server on an H100 captures graphs and makes logits for 1,024 requests, and one that holds 12 for 12."""
    asked = {"gpu": "h200-sxm-141gb", "data_parallel": 8, "expert_parallel": True, "context_tokens": 32_768}
    found = size(
        "deepseek-ai/DeepSeek-R1",
        context=32_768,
        concurrent=8,
        gpus=["h200-sxm-141gb"],
        layouts=[Layout(data=8, expert=True)],
    )
    best = next(one for one in found.ranking.deployments if one.layout.label == "dp8-ep")
    flag = best.users_each // 8
    assert f"--max-num-seqs {flag} " in found.describe(best)["commands"]["vllm"] + " "
    usual = estimate("deepseek-ai/DeepSeek-R1", **asked)
    assert best.pool_bytes > usual.budget.kv_pool_bytes
    assert best.users_held > usual.max_concurrent_requests_by_memory
    held_as_told(best, "deepseek-ai/DeepSeek-R1", asked | {"catalog": CATALOG})


def test_fewer_requests_for_a_time_target_leave_a_larger_pool() -> None:
    asked = {"context": 4096, "concurrent": 4, "gpus": ["h100-sxm-80gb"], "tensor_parallel": [1]}
    every, fast = (size("Qwen/Qwen3-8B", **asked, tpot_s=at).ranking.deployments[0] for at in (None, 0.012))
    assert fast.users_each < every.users_each
    assert fast.pool_bytes > every.pool_bytes
    same = estimate("Qwen/Qwen3-8B", gpu="h100-sxm-80gb", max_seqs=fast.users_each, context_tokens=4096)
    assert fast.pool_bytes == same.budget.kv_pool_bytes


@pytest.mark.parametrize("engine", ["sglang", "ceiling", "vllm@0.11.0"])
def test_every_engine_sizes_and_none_without_a_scheduler_limits_requests(engine: str) -> None:
    found = seventy(3000, engine=engine).ranking.deployments[0]
    assert found.users_each >= 64
    assert found.devices in (2, 4)


@pytest.mark.parametrize("gpu", ["h100-sxm-80gb", "h200-sxm-141gb", "l40s"])
def test_sglangs_pool_is_that_of_an_estimate_on_every_device(gpu: str) -> None:
    # Its reserve depends on the device's memory, so devices with equal kernels still differ.
    found = size("Qwen/Qwen2.5-7B-Instruct", context=8192, concurrent=1, engine="sglang")
    mine = next(
        one
        for one in found.ranking.deployments
        if (one.offer.accelerator.id, one.tensor_parallel) == (gpu, 1)
    )
    same = estimate(
        "Qwen/Qwen2.5-7B-Instruct",
        gpu=gpu,
        context_tokens=8192,
        engine="sglang",
        max_seqs=mine.users_each,
    )
    assert mine.pool_bytes == same.budget.kv_pool_bytes


def test_a_shortlist_leaves_out_models_with_too_short_a_context() -> None:
    found = size(
        ["Qwen/Qwen2.5-7B-Instruct", "meta-llama/Meta-Llama-3-8B-Instruct"],
        context="16K",
        concurrent=4,
        gpus=["H100"],
    )
    assert {one.model.id for one in found.ranking.deployments} == {"Qwen/Qwen2.5-7B-Instruct"}


def test_the_answer_is_json_without_nan() -> None:
    answer = size("Qwen/Qwen2.5-7B-Instruct", context=2048, concurrent=4).to_dict(top=200)
    json.dumps(answer, allow_nan=False)
    assert answer["deployments"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"users": 5}, "either the requests in flight, or all three"),
        ({"concurrent": None}, "found no number of requests; allowed: concurrent"),
        ({"concurrent": None, "users": 40}, "found users without requests per minute and latency"),
        ({"concurrent": 0}, "concurrent: found 0"),
        ({"average": 7000}, "lower the average or raise the maximum"),
        ({"prompt": 5000, "output": 2000}, "shorten one of them or raise the context"),
        ({"shared_prefix": 5900}, "shared prefix: found 5,900"),
        ({"burst": 0.5}, "burst"),
        ({"burst": float("inf")}, "burst"),
        ({"concurrent": float("nan")}, "concurrent"),
        ({"spare_replicas": -1}, "redundancy"),
        ({"efficiency": 2.0}, "efficiency"),
        ({"available": 1}, "no deployment on the available devices"),
        ({"tpot_s": 0.001}, r"relax TPOT to \d"),
        ({"ttft_s": 0.001}, r"relax TTFT to \d"),
        ({"tensor_parallel": [1], "weights": ["bf16"]}, "exceed the memory of all available devices"),
        ({"tensor_parallel": [3]}, "other tensor-parallel sizes"),
        ({"gpus": ["h1000"]}, "h1000"),
        ({"prices": {"H200": -1}}, "price"),
        ({"prices": {"h200-sxm-141gb": 1.0}}, "a price for every GPU"),
        ({"context": 200_000}, "supports 131,072"),
        ({"utilization": 1.0}, "asks for a larger share of the memory at start than is free"),
        ({"max_seqs": 2, "available": 4}, "more requests at once than --max-seqs 2"),
        ({"gpus": ["m4-max-128"], "tpot_s": 1.0}, "does not run the model in these formats and layouts"),
    ],
)
def test_impossible_workloads_get_a_sentence_that_says_what_to_relax(
    changes: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        seventy(**{"context": 6000, **changes})


def test_what_the_sentence_says_to_relax_does_help() -> None:
    with pytest.raises(InputError) as refusal:
        seventy(6000, tpot_s=0.001)
    wanted = float(str(refusal.value).split("TPOT to ")[1].split(" ms")[0].replace(",", ""))
    assert seventy(6000, tpot_s=wanted / 1e3 * 1.0001).ranking.deployments


def test_commands_name_what_differs_from_the_default() -> None:
    served = Served("org/model", Layout(tensor=2), 6000, 64, "fp8", "fp8", kv_is_own=False, utilization=0.92)
    assert serving_command("vllm", served) == (
        "vllm serve org/model --tensor-parallel-size 2 --max-model-len 6000 --max-num-seqs 64 "
        "--gpu-memory-utilization 0.92 --quantization fp8 --kv-cache-dtype fp8"
    )
    assert serving_command("sglang", replace(served, utilization=0.85)) == (
        "python -m sglang.launch_server --model-path org/model --tp-size 2 --context-length 6000 "
        "--max-running-requests 64 --mem-fraction-static 0.85 --quantization fp8 --kv-cache-dtype fp8_e4m3"
    )
    assert (
        serving_command("vllm", Served("org/model", Layout(), 4096))
        == "vllm serve org/model --max-model-len 4096"
    )


def test_a_hostile_model_name_stays_one_word_of_the_command() -> None:
    assert serving_command("vllm", Served("a; rm -rf ~", Layout(), 1)).startswith("vllm serve 'a; rm -rf ~' ")


def test_a_format_that_engines_do_not_make_needs_its_own_checkpoint() -> None:
    assert "int4" in (checkpoint_note(Served("org/model", Layout(), 1, weight_format="int4")) or "")
    assert checkpoint_note(Served("org/model", Layout(), 1, weight_format="fp8")) is None


def test_the_command_line_answers_in_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["size", LLAMA_70B, "--concurrent", "64", "--context", "3000", "--gpu", "H100", "--kv", "fp8"]
    assert main([*words, "--weights", "fp8"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(
        "For 64 concurrent requests of 3,000 tokens with meta-llama/Llama-3.1-70B-Instruct: 2 x H100 80GB HBM3"
    )
    assert "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 2" in shown
    assert main([*words, "--weights", "fp8", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["deployments"][0]["devices"] == 2


def test_observed_lengths_give_the_longest_and_the_average(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lengths = tmp_path / "lengths.txt"
    lengths.write_text("# tokens\n1000\n2000\n\n6000  # the longest\n", encoding="utf-8")
    words = ["size", LLAMA_70B, "--concurrent", "4", "--gpu", "b200-sxm-180gb", "--lengths", str(lengths)]
    assert main([*words, "--format", "json"]) == 0
    work = json.loads(capsys.readouterr().out)["workload"]
    assert (work["longest_tokens"], work["mean_tokens"]) == (6000, 3000)
    assert main(words) == 0
    shown = capsys.readouterr().out
    # 9,000 of 18,000 tokens if each has room for the longest; 63 + 125 + 375 blocks of 16 are 9,008; 4 + 8 + 24 of 256 are 9,216.
    assert "reserved for the longest    50.0%" in shown
    assert "blocks of 16 tokens          0.1%" in shown
    assert "blocks of 256 tokens         2.3%" in shown


@pytest.mark.parametrize("content", ["", "12\nmany\n", "0\n", "-3\n", "99999999999\n"])
def test_lengths_that_are_none_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    lengths = tmp_path / "lengths.txt"
    lengths.write_text(content, encoding="utf-8")
    assert main(["size", LLAMA_70B, "--concurrent", "4", "--lengths", str(lengths)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_longest_request_must_be_said_somehow(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", LLAMA_70B, "--concurrent", "4"]) == 2
    assert "neither --context nor --lengths" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--tpot", "fast"],
        ["--price", "H100"],
        ["--tensor-parallel", "two"],
        ["--ttft", "-1s"],
    ],
)
def test_bad_words_on_the_command_line_are_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["size", LLAMA_70B, "--concurrent", "4", "--context", "4K", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_peaks_of_the_workload_are_whole() -> None:
    assert replace(WORK, concurrent=0.2).peak == 1
    assert np.ceil(replace(WORK, burst=1.05).peak) == 11


def test_a_rack_is_not_rented_by_the_device() -> None:
    found = size(LLAMA_70B, context=8192, concurrent=64)
    best = found.ranking.best_of_each()
    first = best[0].offer.accelerator
    assert first.rental_class(SINCE) == 2
    assert first.rented_devices == 1
    for one in best:
        device = one.offer.accelerator
        assert device.billed(one.devices) % device.rented_devices == 0
    assert CATALOG.accelerator("GB200").billed(3) == 4


def test_every_accelerator_says_where_it_is_rented_or_that_it_was_looked_up() -> None:
    for one in CATALOG.accelerators.values():
        assert any("rented_as" in source.covers for source in one.sources), one.id
        providers = [name.split()[0] for name in one.rented_as]
        assert len(providers) == len(set(providers)), one.id
    assert sum(bool(one.rented_as) for one in CATALOG.accelerators.values()) >= 40


def test_a_million_output_tokens_cost_what_their_hours_do() -> None:
    """The load's tokens per hour, of requests as fast as the bounds over the efficiency, or as slow as somebody says."""
    lengths = {"context": 8192, "prompt": 1500, "output": 300}
    found = size(LLAMA_70B, concurrent=64, prices={"h100": 2.5}, spare_replicas=1, **lengths)
    best = found.ranking.deployments[0]
    seconds = (best.ttft_bound_s + 300 * best.tpot_bound_s) / found.workload.efficiency
    per_hour = 64 / seconds * 3600 * 300
    assert best.price_per_hour == 2.5 * best.devices
    want = best.price_per_hour / per_hour * 1e6
    assert found.describe(best)["price_per_million_output_tokens"] == pytest.approx(want)
    told = size(LLAMA_70B, users=100, requests_per_minute=2, latency_s=30, prices={"h100": 2.5}, **lengths)
    (first, *_) = told.ranking.deployments
    assert first.price_per_hour is not None
    want = first.price_per_hour / (200 * 60 * 300) * 1e6
    assert first.price_per_million(told.workload) == pytest.approx(want)
    unpriced = size(LLAMA_70B, concurrent=64, **lengths)
    assert unpriced.describe(unpriced.ranking.deployments[0])["price_per_million_output_tokens"] is None


def test_a_price_may_be_given_by_an_alias() -> None:
    by_alias = size(LLAMA_70B, context=8192, concurrent=64, prices={"b200": 5, "h100": 2.5})
    by_slug = size(LLAMA_70B, context=8192, concurrent=64, prices={"b200-sxm-180gb": 5, "h100-sxm-80gb": 2.5})
    assert [one.price_per_hour for one in by_alias.ranking.deployments] == [
        one.price_per_hour for one in by_slug.ranking.deployments
    ]
    costs = [one.price_per_hour for one in by_alias.ranking.best_of_each()]
    assert costs == sorted(costs)


def test_the_command_is_that_of_the_engine_whose_answer_it_is() -> None:
    """SGLang held 22 of the 24 requests that its command allowed, when vLLM's answer printed one for both."""
    for engine, family in (
        ("vllm", "vllm"),
        ("sglang", "sglang"),
        ("tensorrt-llm", "tensorrt_llm"),
        ("ceiling", None),
    ):
        found = size("Qwen/Qwen3-8B", context=8192, concurrent=4, gpus=["h100"], engine=engine)
        told = found.describe(found.ranking.best_of_each()[0])["commands"]
        assert [name for name, line in told.items() if line] == [family][: family is not None]


def test_of_equal_accelerators_the_one_that_more_clouds_rent_out_is_first() -> None:
    from kvreport.estimation.size import size

    found = size("Qwen/Qwen2.5-VL-7B-Instruct", context=16384, concurrent=16)
    order = list(dict.fromkeys(one.offer.accelerator.id for one in found.ranking.deployments))
    assert order.index("h100-sxm-80gb") < order.index("h100-pcie-80gb")
    assert order.index("l40s") < order.index("l40")


def test_the_smallest_share_starts_with_the_number_of_requests_that_the_command_says() -> None:
    """vLLM wants a block of states for each sequence that it is told, whatever the workload holds."""
    model, asked = "Qwen/Qwen3-Next-80B-A3B-Instruct", {"gpu": "h200-sxm-141gb", "context_tokens": 4096}
    found = kvreport.size(model, gpus=["h200-sxm-141gb"], context=4096, concurrent=3, tensor_parallel=(4,))
    best = found.ranking.deployments[0]
    share = found.describe(best)["smallest_utilization"]
    told = {**asked, "tensor_parallel": 4, "max_seqs": best.users_each}
    least = kvreport.estimate(model, utilization=share, **told)
    assert least.max_concurrent_requests >= 3, (share, least.verdict)
    below = kvreport.estimate(model, utilization=share - 0.002, **told)
    assert below.max_concurrent_requests == 0


def test_a_model_without_a_cache_has_the_pool_of_its_share() -> None:
    found = kvreport.size("BAAI/bge-large-en", gpus=["h100-sxm-80gb"], context=138, concurrent=25)
    best = found.ranking.deployments[0]
    answer = kvreport.estimate(
        "BAAI/bge-large-en", gpu="h100-sxm-80gb", context_tokens=138, max_seqs=best.users_each
    )
    assert best.pool_bytes == answer.budget.kv_pool_bytes


@pytest.mark.parametrize(
    ("engine", "share", "said"),
    [
        ("vllm", 0.85, "--gpu-memory-utilization 0.85"),
        ("sglang", 0.8, "--mem-fraction-static 0.8"),
        ("sglang", 1.0, ""),
    ],
)
def test_the_command_has_the_share_that_was_asked_for(engine: str, share: float, said: str) -> None:
    """Answers were computed with it, and every command said the default."""
    found = seventy(6000, engine=engine, utilization=share)
    facts = found.describe(found.ranking.deployments[0])
    command = facts["commands"][engine]
    assert said in command
    assert ("--mem-fraction-static" in command) == (engine == "sglang" and share < 1)
    if engine == "sglang" and share < 1:
        assert facts["mem_fraction_static"]["highest"] == share
