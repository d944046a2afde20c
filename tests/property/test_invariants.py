"""What holds for every answer of every engine, on a few drawn questions and on the inputs that once broke something."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import invariants
import pytest
from fuzzing import examples, thinned

import kvreport
from kvreport.accounting.engines.sglang.shapes import layers
from kvreport.accounting.parallel import Layout
from kvreport.catalog.load import Catalog
from kvreport.errors import InputError

CATALOG = invariants.catalog()


def told(model: str, **asked: Any) -> dict[str, Any]:
    """An answer as JSON, held against its own parts."""
    found = invariants.ask({"model": model, **asked})
    assert found is not None
    return invariants.hold(found)


@pytest.mark.parametrize(("max_seqs", "runs"), [(256, 256), (4096, None)])
def test_memory_of_states_first_is_what_would_run_if_it_were_told_so(max_seqs: int, runs: int | None) -> None:
    asked = {"gpu": "h200-sxm-141gb", "tensor_parallel": 4, "engine": "tensorrt-llm", "context_tokens": 2048}
    model = "Qwen/Qwen3-Next-80B-A3B-Instruct-FP8"
    found = told(model, **asked, max_seqs=max_seqs)
    assert found["limited_by"] == "max_num_seqs"
    # States of 4,096 are set aside, so that fewer run beside them than if fewer were told.
    assert found[invariants.RUNNING] == runs or found[invariants.RUNNING] < found[invariants.BY_MEMORY]
    by_memory = told(model, **asked, max_seqs=256)[invariants.BY_MEMORY]
    assert by_memory == found[invariants.BY_MEMORY]
    again = told(model, **asked, max_seqs=by_memory)
    assert again[invariants.RUNNING] == by_memory <= again[invariants.CEILING]
    assert told(model, **asked, max_seqs=by_memory + 1)[invariants.RUNNING] <= by_memory


@pytest.mark.parametrize(
    ("engine", "size", "gpu"),
    [("tensorrt-llm", "11B", "a100-sxm4-80gb"), ("sglang", "90B", "h200-sxm-141gb")],
)
def test_encoder_tokens_of_cross_attention_are_charged(engine: str, size: str, gpu: str) -> None:
    asked = {"gpu": gpu, "tensor_parallel": 8, "engine": engine, "context_tokens": 512, "max_seqs": 4096}
    told(f"meta-llama/Llama-3.2-{size}-Vision-Instruct", **asked)


def test_states_and_windows_are_of_what_a_request_reserves() -> None:
    found = told("Qwen/Qwen3.5-27B", gpu="h100-sxm-80gb", engine="sglang", context_tokens=2048)
    assert found[invariants.RESERVED] > 2048 * found["block_bytes"] // found["block_tokens"]


def test_a_window_of_transformers_is_not_above_its_ceiling() -> None:
    told(
        "XiaomiMiMo/MiMo-V2-Flash",
        gpu="b300-sxm-288gb",
        tensor_parallel=8,
        engine="transformers",
        context_tokens=128,
    )


@pytest.mark.parametrize("gpu", ["a2", "rtx-4080", "h100-sxm-80gb"])
def test_what_linked_servers_take_is_charged_on_them_alone(gpu: str) -> None:
    one, two = (
        told(
            "Qwen/Qwen2.5-7B-Instruct",
            gpu=gpu,
            tensor_parallel=ranks,
            engine="tensorrt-llm",
            context_tokens=2048,
        )
        for ranks in (1, 2)
    )
    more = two["budget"]["non_framework"] - one["budget"]["non_framework"]
    wider = two["uncertainty_bytes"] - one["uncertainty_bytes"]
    assert (more > 0, wider > 0) == ((True, False) if gpu == "h100-sxm-80gb" else (False, True))
    assert any("outside torch" in line for line in two["assumptions"]) == (more == 0)


@pytest.mark.parametrize("release", ["0.11.0", "0.11.1", "0.16.0"])
def test_the_sampler_that_is_asked_for_is_followed(release: str) -> None:
    asked = {"gpu": "l4", "engine": f"vllm@{release}", "context_tokens": 8192}
    sort, flashinfer = (
        told("Qwen/Qwen2.5-7B-Instruct", **asked, sampler=name)["kv_pool_tokens"]
        for name in ("sort", "flashinfer")
    )
    assert sort < flashinfer


def test_an_open_sampler_widens_the_band() -> None:
    asked = {"gpu": "l4", "engine": "vllm@0.11.0", "context_tokens": 8192}
    unknown, known = (told("Qwen/Qwen2.5-7B-Instruct", **asked, sampler=name) for name in ("auto", "sort"))
    assert unknown["kv_pool_tokens"] == known["kv_pool_tokens"]
    assert unknown["uncertainty_bytes"] > known["uncertainty_bytes"] + (1 << 29)


def test_a_sampler_that_a_release_does_not_have_is_named() -> None:
    found = told("Qwen/Qwen2.5-7B-Instruct", gpu="l4", engine="vllm", context_tokens=8192, sampler="sort")
    assert any(line.startswith("sampler sort: not followed") for line in found["assumptions"])
    assert (
        invariants.ask({"model": "Qwen/Qwen3-8B", "gpu": "l4", "engine": "sglang", "sampler": "sort"}) is None
    )


def test_the_smallest_share_of_a_pipeline_holds_the_workload() -> None:
    found = kvreport.size(
        "Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4",
        context=4096,
        concurrent=16,
        gpus=["rtx-4090"],
        layouts=[Layout.named("pp2-tp2")],
        tensor_parallel=(4,),
        catalog=CATALOG,
    )
    one = next(each for each in found.ranking.deployments if each.layout.pipeline == 2)
    share = found.describe(one)["smallest_utilization"]
    asked = {"gpu": "rtx-4090", "tensor_parallel": 2, "pipeline_parallel": 2, "context_tokens": 4096}
    held = [
        told("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", **asked, max_seqs=one.users_each, utilization=each)[
            invariants.BY_MEMORY
        ]
        for each in (share, share - 0.002)
    ]
    assert held[0] >= 16 > held[1]


@pytest.mark.parametrize("seed", range(examples(60)))
def test_what_is_drawn_holds(seed: int) -> None:
    invariants.answers(random.Random(f"answers {seed}"))  # noqa: S311 - examples, no secrets


def test_no_recorded_start_is_missed_by_more_than_the_record_says() -> None:
    """Whoever changes a rule reads what the change does to each log in the diff of tests/recorded.json."""
    names = list(invariants.sources())
    for name in thinned(names, 12):
        invariants.recorded(name)
    logs = [name for name in names if not name.startswith("run ")]
    assert sum(name in invariants.held() for name in logs) > 0.9 * len(logs)


@pytest.mark.parametrize("seed", range(examples(30)))
def test_offers_hold_when_asked_back(seed: int) -> None:
    invariants.offers(random.Random(f"offers {seed}"))  # noqa: S311 - examples, no secrets


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        # A division of one data rank said what all of them hold.
        ("Qwen/Qwen3-1.7B-FP8", {"engine": "vllm", "data_parallel": 8}),
        ("Zyphra/Zamba2-2.7B", {"engine": "transformers", "data_parallel": 2}),
        # More requests bring states of their draft tokens, states, or rings.
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", {"engine": "sglang", "num_speculative_tokens": 3}),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", {"engine": "tensorrt-llm"}),
        ("deepseek-ai/DeepSeek-V4-Flash", {"engine": "sglang", "tensor_parallel": 8}),
    ],
)
@pytest.mark.parametrize("context", [2048, 40_000])
def test_the_explanation_divides_to_what_memory_allows(
    model: str, asked: dict[str, Any], context: int
) -> None:
    told(model, **{"gpu": "h200-sxm-141gb", "tensor_parallel": 4, "context_tokens": context, **asked})


@pytest.mark.parametrize(
    ("model", "gpu", "engine", "context", "concurrent"),
    [
        # One state more leaves too few tokens, so that a larger share holds fewer requests.
        ("Qwen/Qwen3.5-122B-A10B-GPTQ-Int4", "gh200-96gb", "sglang-0.5.15", 45_313, 3),
        ("unsloth/Qwen3.6-27B-NVFP4", "h200-sxm-141gb", "sglang-0.5.15", 38_433, 1),
        # Rings, states and places for images are those of the number of requests that the command tells.
        ("RedHatAI/DeepSeek-V4-Flash-NVFP4-FP8", "gb200-186gb", "sglang-0.5.20", 2928, 37),
        ("nvidia/NVIDIA-Nemotron-3-Nano-4B-BF16", "b300-sxm-288gb", "tensorrt-llm", 41_610, 1),
        ("Qwen/Qwen3-VL-4B-Instruct", "h200-nvl-141gb", "sglang-0.5.20", 271, 67),
        # Tokens are rounded up to blocks.
        ("Qwen/Qwen2.5-Coder-14B-Instruct-AWQ", "rtx-4060ti-16gb", "tensorrt-llm", 4467, 4),
    ],
)
def test_the_smallest_share_is_the_smallest_one(
    model: str, gpu: str, engine: str, context: int, concurrent: int
) -> None:
    asked = {"gpus": [gpu], "engine": engine, "context": context, "concurrent": concurrent}
    draw = random.Random(1)  # noqa: S311 - examples, no secrets
    assert invariants.offered(draw, model, {**asked, "tensor_parallel": (1,), "layouts": []})[0] == "answered"


@pytest.mark.parametrize("name", ["offered", "lever", "apart"])
@pytest.mark.parametrize("seed", thinned(range(60), 12))
def test_what_a_search_names_holds_when_asked_back(name: str, seed: int) -> None:
    for each in range(seed, seed + 6):
        draw = random.Random(f"{name} {each}")  # noqa: S311 - examples, no secrets
        getattr(invariants, name)(draw, *invariants.search(draw))


@pytest.mark.parametrize("name", ["band", "boundary", "longest_context"])
@pytest.mark.parametrize("seed", range(examples(24)))
def test_what_a_band_a_boundary_and_a_longest_context_say_holds(name: str, seed: int) -> None:
    draw = random.Random(f"{name} {seed}")  # noqa: S311 - examples, no secrets
    asked = invariants.question(draw)
    first = invariants.ask(asked)
    if first is not None:
        getattr(invariants, name)(draw, asked, first)


@pytest.mark.parametrize("engine", ["sglang-0.5.13", "sglang-0.5.19", "sglang"])
@pytest.mark.parametrize(("data", "tokens"), [(1, 8), (1, 2048), (2, 2048), (4, 20_000)])
def test_compressed_attention_runs_what_sglang_sets_by_itself(engine: str, data: int, tokens: int) -> None:
    """256 requests of all data ranks together, and no more; a larger number that is told brings its rings."""
    asked: dict[str, Any] = {"gpu": "b300-sxm-288gb", "engine": engine, "tensor_parallel": 4}
    asked |= {"data_parallel": data, "context_tokens": tokens}
    model = "deepseek-ai/DeepSeek-V4-Flash"
    found = told(model, **asked)
    by_memory = found[invariants.BY_MEMORY]
    assert found[invariants.RUNNING] == min(256, by_memory)
    assert found["max_seqs"] == 256
    assert any(line.startswith("max_seqs 256: what SGLang") for line in found["assumptions"])
    again = told(model, **asked, max_seqs=by_memory)
    assert again[invariants.RUNNING] >= 0.98 * by_memory  # graphs of larger batches may take a little


@pytest.mark.parametrize(
    ("model", "caching"),
    [("meta-llama/Llama-4-Scout-17B-16E-Instruct", False), ("Qwen/Qwen3-Next-80B-A3B-Instruct-FP8", True)],
)
def test_the_number_that_sglang_takes_by_itself_can_be_told(model: str, caching: bool) -> None:
    """4,096 told is of all data ranks, and sizes windows without a prefix cache, as 4,095 and 4,097 do."""
    asked: dict[str, Any] = {"gpu": "b300-sxm-288gb", "engine": "sglang", "tensor_parallel": 1}
    asked |= {"data_parallel": 8, "expert_parallel": True, "context_tokens": 256, "prefix_caching": caching}
    below, told_so, above = (told(model, **asked, max_seqs=number) for number in (4088, 4096, 4104))
    assert told_so["verdict"] == below["verdict"] == above["verdict"]
    for name in (invariants.RUNNING, invariants.BY_MEMORY):
        assert below[name] <= told_so[name] <= above[name]
    assert told_so[invariants.RUNNING] <= 4096


def test_windows_of_a_short_request_take_whole_pages() -> None:
    """A page holds 256 tokens of one request: one of 2 tokens takes as much as one of 256."""
    asked: dict[str, Any] = {"gpu": "b300-sxm-288gb", "engine": "sglang-0.5.13", "tensor_parallel": 4}
    counts = {
        told("deepseek-ai/DeepSeek-V4-Flash", **asked, context_tokens=tokens)[invariants.BY_MEMORY]
        for tokens in (2, 100, 256)
    }
    assert len(counts) == 1


@pytest.mark.parametrize(
    ("model", "gpu", "engine", "context"),
    [
        ("codellama/CodeLlama-13b-hf", "ascend-950dt", "ollama", 21_649),
        ("meta-llama/Llama-2-13b-hf", "tpu-v5e", "llama-cpp", 905_173),
        ("Qwen/Qwen3-8B", "rtx-4090", "llama-cpp", 8192),
        ("Qwen/Qwen3-8B", "m4-max-128", "mlx", 40_000),
    ],
)
def test_the_line_of_the_asked_context_at_home_is_the_answers(
    model: str, gpu: str, engine: str, context: int
) -> None:
    weights = "mlx-4bit" if engine == "mlx" else "q4_k_m"
    told(model, gpu=gpu, engine=engine, context_tokens=context, weights=weights)


@pytest.mark.parametrize("parallel", [1, 4])
@pytest.mark.parametrize("gpu", ["a2", "rtx-4090"])
def test_a_line_of_another_context_at_home_is_of_all_slots(gpu: str, parallel: int) -> None:
    """A line said what is short for one slot, and a count that was a guess."""
    asked: dict[str, Any] = {"model": "Qwen/Qwen3-8B", "gpu": gpu, "engine": "llama-cpp", "weights": "bf16"}
    asked |= {"parallel": parallel, "context_tokens": 2048}
    first = invariants.ask(asked)
    assert first is not None
    for line in first.by_context:
        back = invariants.ask({**asked, "context_tokens": line.context_tokens})
        assert back is not None
        assert line in back.by_context


def test_a_device_without_room_for_a_cache_is_no_start_at_home() -> None:
    """Weights and buffers alone exceeded the device by less than the error: 2 slots "may fit" a pool of nothing."""
    asked = {"gpu": "rtx-3060-12gb", "engine": "llama-cpp", "parallel": 2, "context_tokens": 17}
    assert told("zai-org/chatglm3-6b", **asked)["verdict"] == "cache_exceeds_pool"


@pytest.mark.parametrize(
    ("model", "gpu", "engine", "more"),
    [
        # SGLang's AITER attention takes 15 % less of the share above 8,192 tokens: states of a smaller pool.
        (
            "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8",
            "mi300x",
            "sglang-0.5.9",
            {"utilization": 0.5, "max_seqs": 4096},
        ),
        (
            "Qwen/Qwen3.8-27B-FP8",
            "mi350x",
            "sglang-0.5.17",
            {"weights": "mxfp4", "kv": "fp8", "tensor_parallel": 4},
        ),
        # Beyond the model's limit none runs, and lines of shorter requests promised a trillion of them.
        ("Alibaba-NLP/gte-Qwen2-7B-instruct", "tpu-v5e", "ceiling", {"context_tokens": 160_678}),
    ],
)
def test_every_line_of_the_table_is_the_answer_to_its_context(
    model: str, gpu: str, engine: str, more: dict[str, Any]
) -> None:
    asked = {"model": model, "gpu": gpu, "engine": engine, "context_tokens": 24, **more}
    first = invariants.ask(asked)
    if first is None:
        return
    for line in first.by_context:
        back = invariants.ask({**asked, "context_tokens": line.context_tokens})
        assert back is not None
        assert line in back.by_context


def test_what_ollama_places_for_a_context_is_said_to_be_kept() -> None:
    first = invariants.ask({"model": "openai/gpt-oss-20b", "gpu": "a2", "engine": "ollama"})
    assert first is not None
    assert any(line.startswith(invariants.ROWS_KEEP) for line in first.request.assumptions)


@pytest.mark.parametrize("engine", ["llama-cpp", "ollama"])
@pytest.mark.parametrize("slots", [1, 4, 16])
def test_the_boundary_at_home_is_what_so_many_slots_have(engine: str, slots: int) -> None:
    """With the default of one slot, four requests had no context at all."""
    asked: dict[str, Any] = {"gpu": "rtx-4090", "engine": engine, "weights": "q4_k_m", "ubatch_size": 512}
    frame = kvreport.boundary("Qwen/Qwen3-8B", catalog=CATALOG, requests=[slots, 257], **asked)
    longest, none = (int(one) for one in frame["max_context_tokens"])
    assert none == 0
    asked["model"] = "Qwen/Qwen3-8B"
    assert told(**asked, context_tokens=longest)[invariants.BY_MEMORY] >= slots
    if longest < CATALOG.model("Qwen/Qwen3-8B").context_tokens:
        beyond = invariants.ask({**asked, "context_tokens": longest + 256})
        assert beyond is not None
        assert beyond.max_concurrent_requests_by_memory < slots


WINDOWED = sorted(
    model.id
    for model in CATALOG.models.values()
    if layers(model, CATALOG.engine("sglang")).windowed
    and layers(model, CATALOG.engine("sglang")).full
    and not str(model.weight_format).startswith("mlx")
)


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("model", random.Random("windows").sample(WINDOWED, 12))  # noqa: S311 - examples, no secrets
def test_a_request_reserves_its_window_beside_its_pages(model: str, caching: bool) -> None:
    """Of a short request the window holds more than the share that its pages bring; of a pool of fixed size, all."""
    asked = {"gpu": "b300-sxm-288gb", "tensor_parallel": 4, "engine": "sglang", "prefix_caching": caching}
    for context in (1, 100, 5000):
        told(model, **asked, max_seqs=16, context_tokens=context)


@pytest.mark.parametrize("engine", ["vllm", "vllm@0.19.0", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("model", ["deepseek-ai/DeepSeek-V3", "Qwen/Qwen3-8B", "google/gemma-3-27b-it"])
def test_the_boundary_of_each_stage_is_the_last_context_that_it_holds(
    model: str, stages: int, engine: str
) -> None:
    asked = {"gpu": "b300-sxm-288gb", "tensor_parallel": 4, "pipeline_parallel": stages, "engine": engine}
    found = invariants.ask({"model": model, **asked})
    if found is None:
        pytest.skip("refused in a sentence")
    for rank in found.deployment.at_any_length().ranks:
        for wanted in (1, 7, 100):
            invariants.edge_of(replace(rank, others=()), wanted)


@pytest.mark.parametrize("wanted", [1, 300, 3000, 10_000, 40_000])
@pytest.mark.parametrize("engine", ["tensorrt-llm", "sglang", "sglang-0.5.13"])
@pytest.mark.parametrize(
    "model",
    [
        "hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4",
        "openai/gpt-oss-120b",
        "Qwen/Qwen3-Next-80B-A3B-Instruct-FP8",
        "XiaomiMiMo/MiMo-V2-Flash",
        "deepseek-ai/DeepSeek-V4-Flash",
    ],
)
def test_the_boundary_of_many_requests_is_the_last_context_that_all_pools_hold(
    model: str, engine: str, wanted: int
) -> None:
    """Tokens rounded up to blocks, states that come with requests, and windows that short requests take less of."""
    for gpu, ranks in (("a100-pcie-40gb", 1), ("h200-sxm-141gb", 4)):
        found = invariants.ask({"model": model, "gpu": gpu, "tensor_parallel": ranks, "engine": engine})
        if found is not None:
            invariants.edge_of(replace(found.deployment.at_any_length(), others=()), wanted)


def test_the_boundary_of_a_stage_follows_the_length_that_it_is_told() -> None:
    """vLLM expands latents of the longest request: a server that is told a shorter one has a larger pool."""
    asked = {"gpu": "b300-sxm-288gb", "engine": "vllm", "pipeline_parallel": 2, "max_seqs": 1}
    found = invariants.ask({"model": "nvidia/GLM-5.3-NVFP4", **asked, "num_speculative_tokens": 3})
    assert found is not None
    laid = found.deployment.at_any_length()
    assert all(rank.following is not None for rank in laid.ranks)
    edges = [replace(rank, others=()).boundary(7) for rank in laid.ranks]
    assert all(0 < one < found.request.model.context_tokens for one in edges)
    for rank in laid.ranks:
        for wanted in (1, 3, 7):
            invariants.edge_of(replace(rank, others=()), wanted)


@pytest.mark.parametrize(("stages", "requests"), [(2, 40), (3, 16)])
def test_the_boundary_of_a_pipeline_is_of_all_its_stages(stages: int, requests: int) -> None:
    """The stage with the least pool is not the one with the largest blocks: 16 requests of 131,072 tokens were 15."""
    asked: dict[str, Any] = {"gpu": "jetson-thor-128gb", "engine": "vllm-0.11", "pipeline_parallel": stages}
    asked |= {"model": "ibm-granite/granite-3.3-8b-instruct", "weights": "mxfp4", "max_seqs": 256}
    given = {name: value for name, value in asked.items() if name != "model"}
    frame = kvreport.boundary(asked["model"], catalog=CATALOG, requests=[requests], **given)
    longest = int(frame["max_context_tokens"][0])
    assert told(**asked, context_tokens=longest)[invariants.BY_MEMORY] >= requests
    assert told(**asked, context_tokens=longest + 1)[invariants.BY_MEMORY] < requests


def test_a_shorter_step_of_sglang_leaves_its_requests_as_they_are() -> None:
    """vLLM runs no more requests at once than a step has tokens; SGLang's chunk says nothing of them."""
    asked = {"model": "XiaomiMiMo/MiMo-V2.6-Flash-RL", "gpu": "a100-sxm4-40gb", "engine": "sglang"}
    asked |= {"context_tokens": 4, "tensor_parallel": 1, "weights": "int4", "kv": "bf16"}
    asked |= {"data_parallel": 8, "expert_parallel": True}
    first = invariants.ask(asked)
    assert first is not None
    found = invariants.remedies(first, CATALOG.kv_formats)
    steps = next(one for one in found if one.flags == "--max-batched-tokens 2048")
    assert told(**asked, max_batched_tokens=2048)[invariants.RUNNING] == steps.requests


@pytest.mark.parametrize(
    ("model", "gpu", "engine", "more"),
    [
        ("thinkingmachines/Inkling-Small", "rtx-pro-6000-ws", "sglang-0.5.19", {"pipeline_parallel": 3}),
        (
            "thinkingmachines/Inkling-Small",
            "gaudi2",
            "sglang-0.5.20",
            {"data_parallel": 8, "expert_parallel": True},
        ),
        ("MiniMaxAI/MiniMax-M3", "h800-sxm-80gb", "sglang", {"pipeline_parallel": 3, "kv": "bf16"}),
        ("MiniMaxAI/MiniMax-M3", "h200-nvl-141gb", "sglang", {"pipeline_parallel": 4, "kv": "fp8"}),
    ],
)
def test_a_request_reserves_no_less_than_it_is_said_to_hold(
    model: str, gpu: str, engine: str, more: dict[str, Any]
) -> None:
    """SGLang keeps convolutions in 16 bits, and index keys in FP8 beside an FP8 cache alone."""
    for context in (1, 67, 3793):
        told(model, gpu=gpu, engine=engine, context_tokens=context, prefix_caching=False, **more)


def test_index_keys_follow_an_fp8_cache_alone() -> None:
    asked: dict[str, Any] = {"gpu": "h200-sxm-141gb", "tensor_parallel": 8, "engine": "sglang"}
    asked |= {"model": "MiniMaxAI/MiniMax-M3", "context_tokens": 4096}
    usual, plain = (told(**asked, **one)[invariants.RESERVED] for one in ({}, {"kv": "bf16"}))
    assert usual == plain
    found = told(**asked, kv="fp8")
    assert any("x 128 B per index key" in line for line in found["explanation"])
    index = 57 * 128 * 4096
    assert found[invariants.RESERVED] - index == (plain - 2 * index) // 2


@pytest.mark.parametrize(("block", "allowed"), [(16, False), (64, False), (256, True), (512, True)])
@pytest.mark.parametrize("engine", ["vllm", "vllm-0.23"])
def test_a_block_that_no_kernel_of_compressed_latents_reads_is_refused(
    engine: str, block: int, *, allowed: bool
) -> None:
    """Of 4 tokens 186,624 B were reserved and 305,820 B held: no backend takes blocks of 16."""
    found = invariants.ask(
        {
            "model": "deepseek-ai/DeepSeek-V4-Flash",
            "gpu": "h200-sxm-141gb",
            "tensor_parallel": 4,
            "engine": engine,
            "context_tokens": 4,
            "block_size": block,
        }
    )
    assert (found is not None) == allowed
    if found is not None:
        invariants.hold(found)


@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("Qwen/Qwen3.5-0.8B", {"pipeline_parallel": 4, "num_speculative_tokens": 3, "max_seqs": 256}),
        ("Qwen/Qwen3.8-27B", {"tensor_parallel": 8, "num_speculative_tokens": 1, "max_seqs": 16}),
    ],
)
def test_states_of_draft_tokens_come_with_the_requests_that_are_told(
    model: str, more: dict[str, Any]
) -> None:
    """427 requests were promised by memory; told so, SGLang runs 418: each takes its drafts' states from the tokens."""
    asked: dict[str, Any] = {"gpu": "b300-sxm-288gb", "engine": "sglang-0.5.19", "context_tokens": 107_208}
    by_memory = told(model, **(asked | more))[invariants.BY_MEMORY]
    again = told(model, **(asked | more | {"max_seqs": by_memory}))
    assert again[invariants.RUNNING] == by_memory
    assert told(model, **(asked | more | {"max_seqs": by_memory + 1}))[invariants.RUNNING] <= by_memory


@pytest.mark.parametrize("context", [10, 63, 64, 65, 500])
def test_a_smaller_cache_in_larger_blocks_takes_no_more_of_them(context: int) -> None:
    """FP8 heads of 512 lie in blocks of 64 tokens on Hopper: below that a request takes more bytes, never more blocks."""
    asked = {"model": "google/gemma-4-26B-A4B-it", "gpu": "gh200-144gb", "engine": "vllm-0.32"}
    asked |= {"context_tokens": context, "tensor_parallel": 4}
    first = invariants.ask(asked)
    assert first is not None
    assert invariants.smaller_cache(random.Random(0), asked, first) == 3  # noqa: S311 - examples, no secrets


def test_an_answer_does_not_depend_on_what_was_asked_before() -> None:
    """Many questions that share models, devices and releases, asked in one process, and each alone of a fresh catalog."""
    draw = random.Random("order")  # noqa: S311 - examples, no secrets
    models = ("google/gemma-2-2b-it", "Qwen/Qwen3-8B", "deepseek-ai/DeepSeek-V3", "Qwen/Qwen3.6-27B")
    axes: dict[str, tuple[Any, ...]] = {
        "gpu": ("t4", "h100-sxm-80gb", "mi300x"),
        "engine": ("vllm", "vllm@0.11.0", "sglang", "sglang@0.5.15", "tensorrt-llm"),
        "dtype": (None, "bfloat16", "float16"),
        "weights": (None, "bf16", "fp8"),
        "kv": (None, "fp8"),
        "tensor_parallel": (1, 4),
        "context_tokens": (2048,),
    }
    asked = [
        {"model": draw.choice(models), **{name: draw.choice(values) for name, values in axes.items()}}
        for _ in range(examples(90))
    ]

    def said(question: dict[str, Any], known: Catalog) -> Any:
        given = {name: value for name, value in question.items() if value is not None and name != "model"}
        try:
            return kvreport.estimate(question["model"], catalog=known, **given).to_dict()
        except InputError as error:
            return str(error)

    together = [said(one, CATALOG) for one in asked]
    for one, found in zip(asked, together, strict=True):
        assert said(one, Catalog(CATALOG.folder)) == found, one


@pytest.mark.parametrize("weights", ["bf16", "fp8", "int4", "nvfp4"])
def test_a_class_that_is_not_served_is_the_reason_whatever_the_format(weights: str) -> None:
    for name in ("Qwen/Qwen-7B", "Zyphra/ZAYA1-8B", "google/recurrentgemma-2b"):
        answer = invariants.ask({"model": name, "gpu": "a100-sxm-80gb", "engine": "vllm", "weights": weights})
        assert answer is not None
        assert answer.verdict == "engine_does_not_run", (name, answer.verdict)
        invariants.hold(answer)


@pytest.mark.parametrize("requests", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_step_of_few_requests_reads_no_more_experts_than_there_are(requests: int, seed: int) -> None:
    draw = random.Random(f"experts {seed}")  # noqa: S311 - examples, no secrets
    known = invariants.catalog().models
    asked = {
        "model": draw.choice([name for name in sorted(known) if known[name].experts]),
        "gpu": "h200-sxm-141gb",
        "engine": "vllm",
        "tensor_parallel": 8,
        "context_tokens": 4096,
        "max_seqs": requests,
    }
    answer = invariants.ask(asked)
    if answer is not None and answer.verdict in invariants.STARTS:
        assert invariants.times(draw, asked, answer) == 7


@pytest.mark.parametrize("layout", ["pp2", "pp3", "pp4"])
def test_the_longest_context_of_unlike_stages_is_that_of_the_shortest(layout: str) -> None:
    for name in ("Qwen/Qwen3-30B-A3B", "google/gemma-3-12b-it", "meta-llama/Llama-3.1-8B-Instruct"):
        draw = random.Random(2)  # noqa: S311 - examples, no secrets
        asked = {"gpus": ["h100-sxm-80gb"], "engine": "vllm", "context": 4096, "concurrent": 5}
        layouts = [Layout.named(layout)]
        assert (
            invariants.offered(draw, name, {**asked, "tensor_parallel": (1,), "layouts": layouts})[0]
            == "answered"
        )
