"""How a start ended: what was short, by how much, and remedies that our own estimate confirms."""

from __future__ import annotations

import pytest

from kvreport.catalog.log_lines import log_lines
from kvreport.estimation.estimate import estimate
from kvreport.startup_log import diagnose
from kvreport.startup_log.local import diagnose_local

GIB = 1 << 30
BEGUN = "INFO Initializing a V1 LLM engine (v0.33.0) with config: model='{}', max_seq_len={}, tensor_parallel_size={}\n"
NO_ROOM = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`\n"
FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {} MiB. GPU 0 has a total capacity of 79.25 GiB of "
    "which {} MiB is free.\n"
)
POOL = (
    "INFO GPU KV cache size: 100,000 tokens\nINFO Maximum concurrency for 8,192 tokens per request: 12.20x\n"
)
LLAMA = """\
load_tensors: offloaded 40/49 layers to GPU
load_tensors:      CUDA0 model buffer size = 10524.42 MiB
llama_context: n_ctx         = 8192
"""
NO_CACHE = """\
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory
alloc_tensor_range: failed to allocate CUDA0 buffer of size 4294967296
llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache
srv  llama_server: exiting due to model loading error
"""


@pytest.mark.parametrize(
    "line",
    [line for one in log_lines() for line in one.lines if line.ends is not None],
    ids=lambda line: line.name,
)
def test_a_line_that_ends_a_start_says_so_in_the_headline(line) -> None:
    """Before these lines were data, 6 of 63 such lines were recognized, and one headline said that nothing starts."""
    found = diagnose(line.example)
    assert found.ended is not None
    assert "does not say how many" not in found.headline
    said = "\n".join((*found.notes, *(change.line() for change in found.changes)))
    assert found.concurrency is not None or all(words in said for words in found.ended.remedies.values())


def test_the_bytes_that_were_short_are_named() -> None:
    found = diagnose(FULL.format("2048.00", "512.00"))
    assert found.ended is not None
    assert (found.ended.asked, found.ended.left, found.ended.missing) == (2 * GIB, GIB // 2, GIB * 3 // 2)
    assert "(2.00 GiB requested, 0.50 GiB left, 1.50 GiB short)" in found.headline


def test_memory_that_runs_out_beside_an_allocated_cache_is_no_refusal() -> None:
    assert diagnose(POOL + FULL.format("2048.00", "512.00")).headline.startswith(
        "The server stops after allocating its cache: not enough device memory (2.00 GiB"
    )
    assert diagnose(FULL.format("2048.00", "512.00") + POOL).headline.startswith("12.20x")  # another try


def test_an_engine_s_own_line_counts_for_more_than_the_device_s() -> None:
    capture = "Exception: Capture cuda graph failed: " + FULL.format("448.00", "301.00")
    assert "not enough device memory for CUDA graphs (0.44 GiB requested" in diagnose(capture).headline


@pytest.mark.parametrize(
    ("model", "gpu", "devices", "longest"),
    [
        ("Qwen/Qwen2.5-72B-Instruct", "h100-sxm-80gb", 2, 32768),
        ("Qwen/Qwen3-32B", "a100-sxm4-80gb", 1, 40960),
        ("Qwen/Qwen3-8B", "l4", 1, 40960),
        ("openai/gpt-oss-120b", "a100-sxm4-80gb", 1, 131072),
    ],
)
def test_a_remedy_that_is_offered_fits_by_our_own_estimate(
    model: str, gpu: str, devices: int, longest: int
) -> None:
    """Advice cannot harm: what is offered with a value is asked of the estimate, and what does not suffice is not."""
    command = f"vllm serve {model} --gpu-memory-utilization 0.8 --max-model-len {longest}\n"
    found = diagnose(command + BEGUN.format(model, longest, devices) + NO_ROOM, gpu=gpu)
    asked = {"gpu": gpu, "tensor_parallel": devices, "context_tokens": longest, "utilization": 0.8}
    asked["engine"] = "vllm@0.33.0"
    assert (estimate(model, **asked).verdict in ("fits", "tight")) == any(
        "By our rules, one request fits" in note for note in found.notes
    )
    for change in found.changes:
        changed = {
            "more_share": {"utilization": change.value},
            "fewer_requests": {"max_seqs": change.value},
            "more_devices": {"tensor_parallel": change.value},
        }[change.name]
        assert estimate(model, **{**asked, **changed}).verdict in ("fits", "tight"), change.line()


def test_remedies_are_offered_with_their_value_or_named_as_not_enough() -> None:
    model = "Qwen/Qwen2.5-72B-Instruct"
    command = f"vllm serve {model} --gpu-memory-utilization 0.8 --max-model-len 32768\n"
    found = diagnose(command + BEGUN.format(model, 32768, 2) + NO_ROOM, gpu="h100-sxm-80gb")
    assert [change.line() for change in found.changes] == [
        "divide the model among more devices (--tensor-parallel-size): 4"
    ]
    assert any(
        note.startswith("According to the calculation, this is not enough: raise --gpu-memory-")
        for note in found.notes
    )
    assert any(
        note
        == "You can also try the following, which is not calculated here: use smaller weights, such as a quantized checkpoint."
        for note in found.notes
    )


@pytest.mark.parametrize("line", [NO_CACHE, "RuntimeError: [malloc] Unable to allocate 34359738368 bytes.\n"])
def test_nothing_of_a_server_is_said_of_an_engine_at_home(line: str) -> None:
    found = diagnose(line, model="Qwen/Qwen3-8B", gpu="rtx-4090")
    assert found.comparisons == found.changes == ()
    assert [note.partition(":")[0] for note in found.notes] == [
        "You can also try the following, which is not calculated here"
    ]


def test_a_release_that_is_not_stated_is_the_newest_as_in_an_estimate() -> None:
    command = "vllm serve Qwen/Qwen2.5-72B-Instruct --gpu-memory-utilization 0.8 --max-model-len 32768\n"
    found = diagnose(command + NO_ROOM, gpu="h100-sxm-80gb", tensor_parallel=2)
    assert [change.value for change in found.changes] == [4]
    without = diagnose(command.replace("--gpu-memory-utilization 0.8 ", "") + NO_ROOM, gpu="h100-sxm-80gb")
    assert without.changes == ()  # its share is not known


def test_a_start_of_llama_cpp_names_the_buffer_that_failed() -> None:
    found = diagnose_local(LLAMA + NO_CACHE)
    assert found.headline.startswith(
        "The server does not start: not enough memory for the KV cache (4.00 GiB requested at once). Until then, it took 10.28 GiB"
    )
    compute = NO_CACHE.replace("buffer for kv cache", "compute pp buffers")
    assert "lower" not in found.headline
    assert "process fewer tokens per step (-ub 256)" in diagnose_local(LLAMA + compute).changes


def test_a_second_try_that_succeeds_is_no_failure() -> None:
    again = "W sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism\n"
    assert diagnose_local(LLAMA + NO_CACHE + again).headline.startswith("It starts with 8,192 tokens")
    assert diagnose_local(LLAMA + NO_CACHE + again + NO_CACHE).start.ran_out
