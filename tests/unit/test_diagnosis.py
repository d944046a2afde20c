"""Logs beside our numbers, and what to change."""

import json
from pathlib import Path

import pytest
from record_files import observed

from kvreport.catalog.load import open_catalog
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.evidence.validation import validate
from kvreport.startup_log import Diagnosis, diagnose, read_log

GIB = 1 << 30
CATALOG = open_catalog()

# vLLM 0.10.1.1, four A100 80GB (a published log): pool, tokens and concurrency as printed.
GPT_OSS = """\
INFO [core.py] Initializing a V1 LLM engine (v0.10.1.1) with config: model='openai/gpt-oss-120b', \
max_seq_len=16384, tensor_parallel_size=4, kv_cache_dtype=auto
INFO [gpu_worker.py:276] Available KV cache memory: 45.32 GiB
INFO [kv_cache_utils.py:1013] GPU KV cache size: 2,640,144 tokens
INFO [kv_cache_utils.py:1017] Maximum concurrency for 16,384 tokens per request: 284.25x
"""

# The refusal that the issue "0.65x" stands for, with a model nobody knows.
SHORT = """\
vllm serve my/model --max-model-len 32768 --gpu-memory-utilization 0.9
Free memory on device (79.0/80.00 GiB) on startup.
Available KV cache memory: 10.00 GiB
GPU KV cache size: 21,360 tokens
Maximum concurrency for 32,768 tokens per request: 0.65x
"""


def read(text: str, **given: object) -> Diagnosis:
    return diagnose(text, **given)  # type: ignore[arg-type]


def changes(found: Diagnosis) -> dict[str, tuple[float | str, float | None]]:
    return {one.name: (one.value, one.concurrency) for one in found.changes}


def test_the_engines_own_figures_follow_from_its_pool() -> None:
    found = {one.fact: one for one in read(GPT_OSS, gpu="a100-sxm-80gb").comparisons}
    assert found["concurrency"].predicted == pytest.approx(284.25, abs=0.01)
    assert found["kv_tokens"].predicted == pytest.approx(2_640_144, rel=1e-4)


def test_a_sampler_that_falls_back_makes_the_pool_smaller() -> None:
    # vLLM 0.10.1.1 on two A100 40GB without FlashInfer (a published log, obs-061).
    log = """\
Initializing a V1 LLM engine (v0.10.1.1) with config: model='Qwen/Qwen2-7B-Instruct', max_seq_len=16384, \
tensor_parallel_size=2, kv_cache_dtype=auto
'gpu_memory_utilization': 0.5
FlashInfer is not available. Falling back to the PyTorch-native implementation of top-p & top-k sampling.
Available KV cache memory: 11.03 GiB
"""
    found = read(log, gpu="a100-sxm4-40gb")
    assert found.reading.facts["sorts"] is True
    (with_it,) = (one for one in found.comparisons if one.fact == "kv_pool")
    assert abs(with_it.difference) < 0.03
    (without,) = (
        one
        for one in read(log.replace("Falling back", ""), gpu="a100-sxm4-40gb").comparisons
        if one.fact == "kv_pool"
    )
    assert without.difference > 0.07


def test_a_start_that_finds_its_compiled_graphs_has_what_compiling_takes() -> None:
    # vLLM 0.27.1 on one RTX 4090 (unseen-002, -003): 4.92 GiB at the first start, and 43,040 tokens of 147,456 bytes.
    log = """\
Initializing a V1 LLM engine (v0.27.1) with config: model='Qwen/Qwen3-8B', max_seq_len=8192, \
tensor_parallel_size=1, kv_cache_dtype=auto
'gpu_memory_utilization': 0.92
{graphs}
Model loading took 15.27 GiB and 36.382166 seconds
Available KV cache memory: {pool} GiB
"""
    found = "Directly load AOT compilation from path /root/.cache/vllm/torch_compile_cache/a/rank_0_0/model"
    for graphs, pool in (("torch.compile took 38.96 s in total", "4.92"), (found, "5.91")):
        read_so = read(log.format(graphs=graphs, pool=pool), gpu="rtx-4090")
        assert bool(read_so.reading.facts.get("compiled")) is (graphs == found)
        (compared,) = (one for one in read_so.comparisons if one.fact == "kv_pool")
        assert abs(compared.difference) < 0.03


def test_a_device_has_the_memory_that_the_log_found() -> None:
    # Under WSL an RTX 4090 has 23.99 GiB (new-016), of which Linux has 23.52; a slice of a device has less.
    log = """\
Initializing a V1 LLM engine (v0.27.1) with config: model='Qwen/Qwen2.5-0.5B-Instruct', max_seq_len=2048, \
tensor_parallel_size=1, kv_cache_dtype=auto
'gpu_memory_utilization': 0.85
{said}
Available KV cache memory: 8.65 GiB
"""
    wsl = "Using 'pin_memory=False' as WSL is detected. This may slow down performance."
    free = "Free memory on device (22.45/{total} GiB) on startup. Desired GPU memory utilization is (0.85, 20.39 GiB)."

    def predicted(said: str) -> float:
        found = read(log.format(said=said), gpu="rtx-4090").comparisons
        return next(one.predicted for one in found if one.fact == "kv_pool")

    plain = predicted("")
    assert (predicted(wsl) - plain) / GIB == pytest.approx(0.85 * (23.988 - 23.517), abs=0.01)
    assert predicted(free.format(total="23.99")) == pytest.approx(predicted(wsl), abs=GIB / 100)
    assert (plain - predicted(free.format(total="11.99"))) / GIB == pytest.approx(0.85 * 11.527, abs=0.02)


def test_a_request_that_does_not_fit_gets_the_ways_out_that_suffice() -> None:
    found = read(SHORT)
    # 10 GiB and 5% of 80 GiB more are 14 GiB: 0.65 x 1.4 = 0.91 would not do. Nothing says that the cache is not FP8.
    assert changes(found) == {"max_model_len": (21_360, 1.0)}
    assert found.headline == (
        "0.65x: one request of 32,768 tokens does not fit. Lower max-model-len to 21,360: 1.00x."
    )
    # Twice 0.65 is 1.3.
    wide = read(SHORT + "kv_cache_dtype=bfloat16\n")
    assert changes(wide)["kv_dtype"] == ("fp8", 1.3)


def test_a_refusal_is_checked_against_the_formula() -> None:
    # Qwen2.5-72B on two GPUs: 80 layers x 4 KV heads x 256 x 2 B x 32,768 = 5.00 GiB, as the engine says.
    found = read(
        "vllm serve Qwen/Qwen2.5-72B-Instruct --tensor-parallel-size 2\n"
        "ValueError: To serve at least one request with the model's max seq len (32768), (5.00 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (3.20 GiB)."
    )
    assert found.concurrency == pytest.approx(0.64)
    assert found.comparisons[0].predicted == 5 * GIB
    # 3.20 GiB less the null block, in blocks of 16 tokens: 20,971 tokens, 1,310 blocks, less one: 20,944.
    assert changes(found)["max_model_len"] == (20_944, 1.0)
    assert changes(found)["kv_dtype"] == ("fp8", pytest.approx(1.28))


def test_nothing_is_changed_where_it_fits() -> None:
    # Fewer requests at once than the longest ones that fit would leave shorter ones waiting.
    found = read(
        "vllm serve my/model --max-model-len 8192 --max-num-seqs 256\nGPU KV cache size: 100,000 tokens\n"
        "Maximum concurrency for 8,192 tokens per request: 12.20x"
    )
    assert changes(found) == {}
    assert found.headline == "12.20x: 12 requests of 8,192 tokens fit at once."
    # Without the model every token costs the same: 100,000 / 4,096 = 24.
    assert found.shorter[:2] == ((8192, 12), (4096, 24))
    assert found.linear


def test_an_fp8_cache_cannot_be_halved_again() -> None:
    found = read(SHORT + "kv_cache_dtype=fp8\n")
    assert "kv_dtype" not in changes(found)


def test_a_server_with_memory_to_spare_may_take_a_larger_fraction() -> None:
    found = read(
        "server_args=ServerArgs(model_path='my/model', mem_fraction_static=0.80)\n"
        "Load weight begin. avail mem=78.00 GB\nKV Cache is allocated. #tokens: 400000, K size: 12.0 GB, V size: 12.0 GB\n"
        "max_total_num_tokens=400000, chunked_prefill_size=8192, context_len=32768, available_gpu_mem=14.00 GB\n"
    )
    # 14 less 8 GiB of 78 are 0.0769.
    assert changes(found)["mem_fraction"] == (0.876, None)
    assert found.concurrency == pytest.approx(400_000 / 32_768)


def test_sglangs_tokens_follow_from_its_pool() -> None:
    # Qwen2.5-7B: 28 layers x 4 KV heads x 256 x 2 B = 57,344 B per token; 2 x 20.80 GiB are 778,942 tokens,
    # and what is printed as 20.80 may be the 778,900 that are printed.
    found = read(
        "server_args=ServerArgs(model_path='Qwen/Qwen2.5-7B-Instruct', kv_cache_dtype='auto')\n"
        "KV Cache is allocated. #tokens: 778900, K size: 20.80 GB, V size: 20.80 GB\n"
        "max_total_num_tokens=778900, chunked_prefill_size=8192, context_len=32768"
    )
    assert [(one.fact, one.predicted) for one in found.comparisons] == [("kv_tokens", 778_900)]


def test_what_is_missing_is_asked_for() -> None:
    notes = read("GPU KV cache size: 100,000 tokens").notes
    assert any("does not name its model" in note for note in notes)
    assert any("Name the GPU" in note for note in notes)
    assert any("does not have my/model" in note for note in read(SHORT).notes)


def test_a_model_given_by_hand_must_be_known() -> None:
    with pytest.raises(InputError, match="model"):
        read(SHORT, model="no/such-model")


def test_the_command_reads_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "vllm.log"
    log.write_bytes(GPT_OSS.encode() + b"\xff\xfe nothing\n")
    assert main(["log", str(log), "--gpu", "a100-sxm-80gb"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("284.25x: 284 requests of 16,384 tokens fit at once.")
    assert "we compute 284.25 from the log's pool (" in shown
    assert "Not recognized and not used (1):" in shown
    assert main(["log", str(log), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["facts"]["kv_tokens"] == 2_640_144


def test_a_missing_or_empty_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", str(tmp_path / "absent.log")]) == 2
    empty = tmp_path / "empty.log"
    empty.touch()
    assert main(["log", str(empty)]) == 2
    assert capsys.readouterr().err.count("\n") == 2


TOO_MANY_ROWS = """\
vllm serve openai/gpt-oss-120b --gpu-memory-utilization 0.9 --max-model-len 32K --max-num-seqs 1024
INFO 08-20 10:00:00 [gpu_model_runner.py:2653] Model loading took 65.9700 GiB and 30 seconds
INFO 08-20 10:00:00 [gpu_worker.py:298] Available KV cache memory: -2.14 GiB
INFO 08-20 10:00:00 [kv_cache_utils.py:1087] more
"""


def test_a_pool_below_nothing_is_a_refusal_with_ways_out_that_suffice() -> None:
    found = read(TOO_MANY_ROWS, gpu="H100")
    assert found.concurrency == 0
    assert found.headline.startswith(
        "The server does not start: the weights and the engine's reserve leave -2.14 GiB"
    )
    # 0.11.0 sorts 1,024 rows of logits, 38 bytes each: with 256 rows 5.5 GiB are free.
    assert changes(found)["fewer_requests"] == (256, None)
    assert changes(found)["tensor_parallel"] == (2, None)
    (pool,) = (one for one in found.comparisons if one.fact == "kv_pool")
    assert pool.predicted < 0


def test_the_release_is_told_by_where_the_lines_were_written() -> None:
    notes = " ".join(read(TOO_MANY_ROWS, gpu="H100").notes)
    assert "its lines were written by vLLM 0.11.0" in notes
    unknown = TOO_MANY_ROWS.replace(":2653]", ":1]").replace(":298]", ":1]").replace(":1087]", ":1]")
    found = read(unknown, gpu="H100")
    assert not [one for one in found.comparisons if one.fact == "kv_pool"]
    assert any("the log does not state its release" in note for note in found.notes)


def test_no_pool_is_compared_where_the_share_is_unknown() -> None:
    found = read(TOO_MANY_ROWS.replace("--gpu-memory-utilization 0.9", ""), gpu="H100")
    assert not [one for one in found.comparisons if one.fact == "kv_pool"]
    assert any("does not state its share of memory" in note for note in found.notes)


def test_the_summary_of_the_budget_is_read() -> None:
    found = read(
        "Free memory on device (22.45/23.99 GiB) on startup. Desired GPU memory utilization is (0.85, 20.39 GiB). "
        "Actual usage is 1.49 GiB for consumed memory (weights + non-torch), 0.25 GiB for peak activation, and "
        "0.37 GiB for CUDAGraph memory. Current kv cache memory in use is 18.65 GiB."
    )
    facts = found.reading.facts
    gib = {
        name: facts[name] / 2**30 for name in ("requested", "consumed", "activations", "graphs", "kv_pool")
    }
    assert facts["utilization"] == 0.85
    assert gib == pytest.approx(
        {"requested": 20.39, "consumed": 1.49, "activations": 0.25, "graphs": 0.37, "kv_pool": 18.65},
        abs=1e-6,
    )


def test_a_pool_that_is_stated_in_bytes_is_read() -> None:
    # vLLM 0.10.2 on an H100.
    reading = read(
        "(EngineCore_DP0 pid=3021) INFO 09-23 18:12:39 [gpu_worker.py:391] Free memory on device (78.66/79.19 GiB) on "
        "startup. Desired GPU memory utilization is (0.9, 71.27 GiB). Actual usage is 14.08 GiB for weight, 1.97 GiB for "
        "peak activation, 0.07 GiB for non-torch memory, and 0.67 GiB for CUDAGraph memory. Current kv cache memory in "
        "use is 59212694937 bytes."
    ).reading
    assert reading.facts["kv_pool"] == 59_212_694_937
    assert "The KV pool is 55.15 GiB on this device." in [line.says for line in reading.recognised]


@pytest.mark.parametrize(
    ("flag", "named"), [("--swap-space 0", False), ("--swap-space=0", False), ("--swap-space 4", True)]
)
def test_no_swap_space_is_no_offloading(flag: str, named: bool) -> None:
    log = f"vllm serve Qwen/Qwen3-8B {flag}\nINFO Available KV cache memory: 10.65 GiB"
    assert any("offloading" in note for note in read(log).notes) is named


TRTLLM_TWICE = (
    "[12/20/2025-04:21:00] [TRT-LLM] [I] Use 63.32 GB for model weights.\n"
    "[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 8193 [window size=262112], tokens per block=32, primary "
    "blocks=8191, secondary blocks=0, max sequence length=262145\n"
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 2.25 GiB for max tokens in paged KV cache (262112).\n"
    "[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 8193 [window size=262145], tokens per block=32, primary "
    "blocks=216616, secondary blocks=0, max sequence length=262145\n"
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 59.50 GiB for max tokens in paged KV cache (6931712).\n"
)


def test_the_cache_of_a_profiled_step_is_not_the_pool_of_tensorrt_llm() -> None:
    found = read(TRTLLM_TWICE)
    facts = found.reading.facts
    assert (facts["kv_tokens"], facts["gpu_blocks"], facts["max_model_len"]) == (6_931_712, 216_616, 262_145)
    assert facts["kv_pool"] == pytest.approx(59.5 * 2**30)
    assert facts["weights"] == pytest.approx(63.32 * 2**30, abs=1)
    assert not found.reading.unknown
    assert found.headline.startswith("26.44x")


def test_the_first_engines_profile_is_read() -> None:
    facts = read(
        "Memory profiling results: duration=1.2 seconds, total_gpu_memory=23.59GiB, initial_memory_usage=15.4GiB, "
        "peak_torch_memory=17.06GiB, memory_usage_post_profile=15.5GiB, non_torch_memory=0.35GiB, "
        "kv_cache_size=3.81GiB, gpu_memory_utilization=0.90."
    ).reading.facts
    assert facts["utilization"] == 0.9
    assert facts["kv_pool"] == pytest.approx(3.81 * 2**30, abs=1)


@pytest.mark.parametrize(
    ("flags", "tokens"), [("--max-model-len 32K", 32_768), ("--max-model-len=25.6k", 25_600)]
)
def test_lengths_with_a_letter_are_read(flags: str, tokens: int) -> None:
    assert read(f"vllm serve Qwen/Qwen2.5-7B {flags}").reading.facts["max_model_len"] == tokens


def test_a_number_at_the_end_of_a_sentence_is_read() -> None:
    line = "Chunked prefill is enabled with max_num_batched_tokens=2048."
    assert read(line).reading.facts["max_batched_tokens"] == 2048


def test_flags_that_are_not_followed_are_listed() -> None:
    found = read('vllm serve Qwen/Qwen2.5-7B --cpu-offload-gb 4 --speculative-config \'{"method": "mtp"}\'')
    (note,) = (note for note in found.notes if note.startswith("Not taken into account"))
    assert "offloading to the host" in note
    assert "speculative decoding" in note


def test_adapters_of_vllm_are_counted() -> None:
    # Llama 3.1 8B on an A100 (held-034, by 0.8.2): 15.1749 GiB were loaded, two slots of rank 16 among them.
    log = (
        "INFO vLLM API server version 0.9.0\n"
        "vllm serve meta-llama/Llama-3.1-8B-Instruct {}\n"
        "INFO [gpu_model_runner.py:1549] Model loading took 15.1749 GiB and 59.268527 seconds\n"
    )
    flags = "--enable-lora --max-loras 2 --max-lora-rank 16"
    found = [read(log.format(said), gpu="a100-sxm4-40gb") for said in (flags, "")]
    with_slots, without = (one.comparisons[0] for one in found)
    assert with_slots.predicted == pytest.approx(with_slots.stated, rel=0.002)
    assert without.predicted < 0.99 * without.stated
    assert not any("LoRA" in note for note in found[0].notes)
    sglang = "server_args=ServerArgs(model_path='Qwen/Qwen2.5-7B-Instruct', enable_lora=True)"
    assert any("LoRA adapters" in note for note in read(sglang).notes)


def test_headline_and_table_come_from_one_plan() -> None:
    # The log's cache is half as wide as its model's (FP8, which it does not say): its own figure counts.
    text = (
        "vllm serve Qwen/Qwen2.5-7B --max-model-len 32768\n"
        "Available KV cache memory: 28.00 GiB\n"
        "Maximum concurrency for 32,768 tokens per request: 32.00x"
    )
    found = read(text)
    assert found.headline.startswith("32.00x")
    assert found.shorter[0] == (32_768, 32)
    assert any("does not match the log" in note for note in found.notes)


def test_a_published_start_and_its_pasted_log_are_judged_alike() -> None:
    # obs-011 is the log above, as a record: one judge, so that every shared figure is predicted alike.
    observations = observed()
    (published,) = (one for one in observations if one.printed.kv_tokens == 2_640_144)
    (case,) = validate(CATALOG, [published]).cases
    judged = {one.quantity: one.predicted for one in case.comparisons}
    pasted = {one.fact: one.predicted for one in read(GPT_OSS, gpu="a100-sxm-80gb").comparisons}
    assert pasted["kv_tokens"] == judged["tokens given pool"]
    assert pasted["concurrency"] == judged["concurrency given pool"]


def test_the_lines_of_a_release_that_is_not_computed_are_read() -> None:
    log = """\
INFO [gpu_model_runner.py:1186] Model loading took 15.1749 GB and 59.268527 seconds
Initializing a V1 LLM engine (v0.8.3) with config: model='google/gemma-2-9b-it', max_seq_len=8192
Maximum concurrency for 8,192 tokens per request: 16.27x
"""
    for text in (log, log.replace(" (v0.8.3)", "")):  # the places of its lines tell 0.8.2
        found = read(text, gpu="h100-sxm-80gb")
        assert found.headline.startswith("16.27x")
        assert not found.comparisons
        (said,) = (note for note in found.notes if "not computed" in note)
        assert "0.9 is the oldest release that is" in said


@pytest.mark.parametrize(
    ("text", "headline"),
    [
        (
            (
                "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (694). Each decode sequence "
                "requires one Mamba cache block, so CUDA graph capture cannot proceed."
            ),
            "The server does not start: max-num-seqs is 1,024, and 694 blocks hold recurrent states. Lower max-num-seqs to 694.",
        ),
        (
            (
                "ValueError: Free memory on device cuda:0 (12.38/287.69 GiB) on startup is less than desired GPU memory "
                "utilization (0.92, 264.67 GiB)."
            ),
            (
                "The server does not start: it may take 264.67 GiB, but only 12.38 GiB is free. Stop other processes that use the memory, or lower "
                "gpu-memory-utilization to 0.04."
            ),
        ),
        (
            "max_mamba_cache_size=4, mamba_ratio=5, resulting max_num_reqs=0",
            "The server does not start: 4 recurrent states are fewer than one request holds. Give the states more memory.",
        ),
        (
            "Maximum concurrency for 786,432 tokens per request: 1.04x",
            "1.04x: one request of 786,432 tokens fits.",
        ),
        (
            (
                "▎ Available KV cache memory: 22.5 GiB\n"
                "▎ ValueError: To serve at least one request with the model's max seq len (196608),\n"
                "▎ 23.25 GiB KV cache is needed, which is larger than the available KV cache memory (22.5 GiB).\n"
                "▎ Based on the available memory, the estimated maximum model length is 190272."
            ),
            "0.97x: one request of 196,608 tokens does not fit. Lower max-model-len to 190,272: 1.00x.",
        ),
    ],
)
def test_refusals_of_pasted_logs_have_a_verdict(text: str, headline: str) -> None:
    assert diagnose(text).headline == headline


def test_the_image_and_the_logo_name_release_and_model() -> None:
    image = read_log(
        "docker run vllm/vllm-openai:v0.31.0-ubuntu2404 --model meta-llama/Llama-3.1-8B-Instruct"
    )
    assert (image.facts["engine_version"], image.facts["model"]) == (
        "0.31.0",
        "meta-llama/Llama-3.1-8B-Instruct",
    )
    logo = read_log(
        "INFO 07-02 21:27:15 [api_utils.py:339]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.23.1rc1.dev531+ga65f93fb2\n"
        "INFO 07-02 21:27:15 [api_utils.py:339]   █▄█▀ █     █     █     █  model   nvidia/Qwen3.6-27B-NVFP4"
    )
    assert (logo.facts["engine_version"], logo.facts["model"]) == (
        "0.23.1rc1.dev531+ga65f93fb2",
        "nvidia/Qwen3.6-27B-NVFP4",
    )


def test_prefixes_that_are_cached_take_two_states_of_a_hybrid() -> None:
    lines = (
        "non-default args: {'model': 'nvidia/Qwen3.6-27B-NVFP4', 'max_model_len': 262144, 'kv_cache_dtype': 'fp8', "
        "'enable_prefix_caching': True, 'max_num_batched_tokens': 65536, 'max_num_seqs': 8}\n"
        "Initializing a V1 LLM engine (v0.24.0) with config\n"
        "Available KV cache memory: 47.84 GiB\nGPU KV cache size: 1,505,068 tokens\n"
    )
    found = {one.fact: one for one in diagnose(lines).comparisons}
    assert found["kv_tokens"].predicted == pytest.approx(1_505_068, rel=1e-4)


def test_a_model_without_a_growing_cache_is_compared_by_what_has_a_number():
    """Nothing bounds its requests, so a concurrency is not predicted; JSON has no number for it."""
    log = (
        "Model loading took 13.50 GiB and 3.20 seconds\nAvailable KV cache memory: 50.00 GiB\n"
        "GPU KV cache size: 17,884 tokens\nMaximum concurrency for 4,096 tokens per request: 1.98x\n"
    )
    found = diagnose(log, model="tiiuae/falcon-mamba-7b", gpu="h100-sxm-80gb")
    assert "weights" in {one.fact for one in found.comparisons}
    json.dumps(found.to_dict(), allow_nan=False)
    assert all(one.predicted >= 0 for one in found.comparisons if one.fact in ("kv_tokens", "concurrency"))


def test_a_model_without_a_cache_has_a_diagnosis():
    """Infinitely many requests fit in what memory is left, which ended in a traceback."""
    log = "vllm serve my/model --max-model-len 512\nAvailable KV cache memory: 3.20 GiB\n"
    found = diagnose(log, model="BAAI/bge-large-en")
    assert found.concurrency is None
    assert "The model has no KV cache, so memory does not limit its requests." in found.notes
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_length_is_not_lowered_to_itself():
    """With a model that is not the log's, the plan said that the length fits which the log says does not."""
    log = (
        "Available KV cache memory: 10.00 GiB\nGPU KV cache size: 21,360 tokens\n"
        "Maximum concurrency for 32,768 tokens per request: 0.65x\n"
    )
    found = diagnose(log, model="meta-llama/Llama-3.1-8B-Instruct")
    assert "Our plan does not match the log" in " ".join(found.notes)
    assert "Lower max-model-len to 21,360: 1.00x" in found.headline


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (
            "vllm serve my/model --foo-bar 3 --max-model-len 8k",
            "vllm serve of 0.33.0 does not have|: --foo-bar.",
        ),
        ("vllm serve my/model \\\n  --max_model_len 8k \\\n  --no_such", "|: --no-such."),
        ("$ python -m sglang.launch_server --model-path my/model --tp 8 --bar=2 | tee --foo", "|: --bar."),
    ],
)
def test_flags_that_the_server_does_not_have_are_named(command: str, named: str) -> None:
    log = f"{command}\n{SHORT.partition(chr(10))[2]}"
    note = next(note for note in read(log).notes if "which are ignored" in note)
    server, _, flags = named.partition("|")
    assert server in note
    assert note.endswith(flags)


def test_flags_that_the_server_has_are_not_named() -> None:
    command = (
        "vllm serve my/model --no-enable-prefix-caching --max_num_seqs=8 --compilation-config.mode 3 -tp 2"
    )
    log = f"{command}\n{SHORT.partition(chr(10))[2]}"
    assert not [note for note in read(log).notes if "not read" in note]


def test_weights_of_another_format_than_released_are_named() -> None:
    # vLLM 0.26.0 on an H100 with gpt-oss-20b at 16 bits (own-002).
    log = """\
Initializing a V1 LLM engine (v0.26.0) with config: model='openai/gpt-oss-20b', max_seq_len=131072, tensor_parallel_size=1
Model loading took 39.15 GiB memory and 0.546776 seconds
Available KV cache memory: 29.54 GiB
"""
    said = "The log's weights are those of bf16, not of the checkpoint as released: say --weights bf16."
    assert said in read(log, gpu="h100").notes
    told = read(log, gpu="h100", weights="bf16")
    assert said not in told.notes
    (weights,) = (one for one in told.comparisons if one.fact == "weights")
    assert abs(weights.difference) < 0.001
    for other in ("12.98", "30.00"):  # as released, and of no format
        assert not any("--weights" in one for one in read(log.replace("39.15", other), gpu="h100").notes)


@pytest.mark.parametrize("command", ["vllm serve my/model", "kv_cache_dtype=auto", "kv_cache_dtype=fp8"])
def test_an_fp8_cache_is_not_advised_where_it_may_be_one_already(command: str) -> None:
    assert "kv_dtype" not in changes(read(f"{command}\n{SHORT.partition(chr(10))[2]}"))


def test_a_refusal_of_an_fp8_cache_does_not_offer_it_again() -> None:
    # Half of what the formula says for 16 bits: the cache is FP8, although the log does not say it.
    found = read(
        "vllm serve Qwen/Qwen2.5-72B-Instruct --tensor-parallel-size 2\n"
        "ValueError: To serve at least one request with the model's max seq len (32768), (2.50 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (2.00 GiB)."
    )
    assert "kv_dtype" not in changes(found)


def test_what_is_computed_from_the_logs_pool_says_so() -> None:
    found = read(GPT_OSS, gpu="a100-sxm-80gb")
    told = {one.fact: one.line() for one in found.comparisons}
    assert "from the log's pool" in told["concurrency"]
    assert "from the log's pool" in told["kv_tokens"]
    assert "from_log_pool" in found.to_dict()["comparisons"][0]


def test_a_large_difference_is_judged_in_words() -> None:
    log = (
        "Initializing a V1 LLM engine (v0.30.0) with config: model='Qwen/Qwen2.5-7B-Instruct', max_seq_len=8192\n"
        "'gpu_memory_utilization': 0.9\nAvailable KV cache memory: {} GiB\n"
    )
    right, wrong = (read(log.format(pool), gpu="h100-sxm-80gb").comparisons[-1] for pool in ("54.46", "3.31"))
    assert "inside our band" in right.line()
    assert "outside our band" in wrong.line()
    assert "do not match this log" in wrong.line()


def test_weights_are_compared_only_where_the_device_is_known() -> None:
    # What loading adds depends on the device: without it the figure is 3.5% low.
    log = (
        "Initializing a V1 LLM engine (v0.30.0) with config: model='Qwen/Qwen2.5-7B-Instruct', max_seq_len=8192\n"
        "Model loading took 14.3 GiB\n"
    )
    assert not read(log).comparisons
    assert [one.fact for one in read(log, gpu="l4").comparisons] == ["weights"]


def test_a_decimal_comma_is_not_read_as_thousands() -> None:
    found = read("INFO Available KV cache memory: 54,46 GiB\nINFO GPU KV cache size: 446,112 tokens\n")
    assert "kv_pool" not in found.reading.facts
    assert found.reading.facts["kv_tokens"] == 446_112
    assert any("line 1" in note and "decimal point" in note for note in found.notes)
    assert read_log("INFO Available KV cache memory: 1,054.46 GiB").facts["kv_pool"] > 1000 * GIB


@pytest.mark.parametrize("gpu", [None, "h100-sxm-80gb"])
def test_a_pool_above_the_devices_memory_is_not_used(gpu: str | None) -> None:
    found = read("INFO Available KV cache memory: 5446.00 GiB\n", gpu=gpu)
    assert "kv_pool" not in found.reading.facts
    assert any("5,446.00 GiB is more than" in note for note in found.notes)


def test_a_lone_number_of_tokens_is_divided_by_common_lengths() -> None:
    found = diagnose("GPU KV cache size: 284,928 tokens")
    assert found.headline == (
        "The cache holds 284,928 tokens. If every layer keeps every token, these are 34 requests of 8K, 8 of 32K or 2 of 128K."
    )


@pytest.mark.parametrize(
    "counted",
    [
        "GPU KV cache size: 1,310,720 tokens",
        "GPU KV cache size: 1,310,720 tokens\nMaximum concurrency for 32,768 tokens per request: 40.00x",
    ],
)
def test_what_is_counted_in_a_pool_that_is_not_used_is_not_used(counted: str) -> None:
    log = (
        "INFO vLLM API server version 0.27.1\n"
        "INFO non-default args: {'model': 'Qwen/Qwen3-8B', 'max_model_len': 32768}\n"
        f"INFO Available KV cache memory: 180.00 GiB\n{counted}\n"
    )
    found = read(log, gpu="h100-sxm-80gb")
    assert found.headline == "The log does not show how many requests fit."
    assert (found.concurrency, found.shorter, found.changes) == (None, (), ())
    assert any("are ignored. The log may be of another GPU." in note for note in found.notes)
    assert read(log, gpu="b300").concurrency == pytest.approx(40, abs=0.01)


REFUSED_LENGTH = (
    "ValueError: To serve at least one request with the models's max seq len (40960), ({} GiB KV cache is needed, "
    "which is larger than the available KV cache memory ({} GiB). Based on the available memory, the estimated "
    "maximum model length is {}."
)


def test_shorter_requests_follow_from_a_refusal_that_the_plan_does_not_match() -> None:
    # Four ranks, which the log does not state: 10 GiB of one rank are 2.5 GiB of each.
    found = read(REFUSED_LENGTH.format("2.50", "2.00", 32768), model="Qwen/Qwen3-32B")
    assert changes(found)["max_model_len"] == (32768, 1.0)
    assert found.shorter == ((40960, 0), (20480, 1), (10240, 3), (5120, 6))
    assert found.linear
    assert any("Our plan does not match the log" in note for note in found.notes)
    named = read(REFUSED_LENGTH.format("2.50", "2.00", 32768), model="Qwen/Qwen3-32B", tensor_parallel=4)
    assert (named.shorter, named.linear) == (found.shorter, False)


def test_more_devices_are_not_advised_by_a_plan_that_is_not_the_logs() -> None:
    log = REFUSED_LENGTH.format("2.50", "0.10", 1638)
    found = read(log, model="Qwen/Qwen3-32B", gpu="h100-sxm-80gb")
    assert "tensor_parallel" not in changes(found)
    named = read(log, model="Qwen/Qwen3-32B", gpu="h100-sxm-80gb", tensor_parallel=4)
    assert changes(named)["tensor_parallel"] == (8, None)


def test_devices_of_the_printed_memory_are_offered() -> None:
    free = "Free memory on device (23.2/{} GiB) on startup. Desired GPU memory utilization is (0.9, 21.16 GiB).\n"
    (note,) = (note for note in read(free.format("23.52")).notes if "Name yours" in note)
    assert "RTX 4090" in note
    assert "RTX 3090" in note
    seventh = "Your GPU has compute capability 8.9.\n"
    (note,) = (note for note in read(free.format("23.52") + seventh).notes if "Name yours" in note)
    assert "RTX 4090" in note
    assert "RTX 3090" not in note
    assert not any("Name yours" in note for note in read(free.format("23.52"), gpu="rtx-4090").notes)


COMPOSE = """\
# Measured: 270,930 KV tokens. GPU KV cache size: 270,930 tokens, with max_num_seqs=1 at first.
services:
  chat:
    image: ${IMAGE:-vllm/vllm-openai:v0.27.1}
    command:
      - --model
      - /models/m
      - --max-num-seqs
      - "${SEQS:-2}"
      - ${EAGER:+--enforce-eager}
"""
SHELL = """\
#!/usr/bin/env bash
set -eu
exec vllm serve org/m --max-model-len ${MAX_LEN:-8192} ${EAGER:+--enforce-eager}
"""


@pytest.mark.parametrize("text", [COMPOSE, SHELL], ids=["compose", "shell"])
def test_a_deployment_file_or_a_script_is_no_log(text: str) -> None:
    with pytest.raises(InputError, match="kvreport estimate"):
        read(text)
    assert read(f"{text}INFO Available KV cache memory: 4.25 GiB\n").reading.facts["kv_pool"] == 4.25 * GIB


def test_a_command_by_itself_is_read() -> None:
    text = "vllm serve org/m \\\n  --max-model-len 8192 \\\n  --enforce-eager\n"
    assert read(text).reading.facts["max_model_len"] == 8192


@pytest.mark.parametrize(("release", "tokens"), [("0.18.2", 95_472), ("0.30.0", 95_472)])
def test_a_server_that_printed_its_cache_is_not_told_that_a_request_does_not_fit(
    release: str, tokens: int
) -> None:
    found = read(
        f"vLLM API server version {release}\nvllm serve no/model --max-model-len 262144 --max-num-seqs 256\n"
        f"Available KV cache memory: 10.93 GiB\nGPU KV cache size: {tokens:,} tokens\n"
    )
    assert found.headline.startswith("The server runs")
    assert not found.changes
    assert all(fits for _, fits in found.shorter)
