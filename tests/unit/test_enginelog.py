"""Real start-up lines, and the numbers that stand in them.

The lines are from published logs: vLLM and SGLang issues, pull requests and repository files.
"""

import re
import time
from pathlib import Path

import pytest

from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.startup_log import FACTS, patterns, read_log, reading, table
from kvreport.startup_log.diagnose import diagnose
from kvreport.startup_log.server_of_log import version_of

GIB = 1 << 30

# vLLM 0.10.1.1, gpt-oss-120b on four A100 80GB.
GPT_OSS = """\
(EngineCore_0 pid=1159) (RayWorkerWrapper pid=343, ip=10.42.9.224) INFO 09-10 23:48:00 [gpu_model_runner.py:2007] Model loading took 17.2217 GiB and 1229.597812 seconds
(EngineCore_0 pid=1159) (RayWorkerWrapper pid=345, ip=10.42.11.243) INFO 09-10 23:48:39 [gpu_worker.py:276] Available KV cache memory: 45.32 GiB [repeated 3x across cluster]
(EngineCore_0 pid=1159) INFO 09-10 23:48:39 [kv_cache_utils.py:1013] GPU KV cache size: 2,640,144 tokens
(EngineCore_0 pid=1159) INFO 09-10 23:48:39 [kv_cache_utils.py:1017] Maximum concurrency for 16,384 tokens per request: 284.25x
(EngineCore_0 pid=1159) (RayWorkerWrapper pid=343, ip=10.42.9.224) INFO 09-10 23:50:21 [gpu_model_runner.py:2708] Graph capturing finished in 101 secs, took 1.88 GiB
"""

# SGLang on a GB10, Qwen2.5-1.5B-Instruct.
SGLANG = """\
[2026-06-07 19:06:00] Load weight begin. avail mem=112.26 GB
[2026-06-07 19:06:22] Load weight end. elapsed=22.28 s, type=Qwen2ForCausalLM, avail mem=109.01 GB, mem usage=3.25 GB.
[2026-06-07 19:06:24] KV Cache is allocated. #tokens: 1557709, K size: 20.80 GB, V size: 20.80 GB
[2026-06-07 19:06:24] Memory pool end. avail mem=66.18 GB
[2026-06-07 19:06:37] Capture cuda graph end. Time elapsed: 12.89 s. mem usage=2.23 GB. avail mem=63.06 GB.
[2026-06-07 19:06:55] max_total_num_tokens=1557709, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=4096, context_len=32768, available_gpu_mem=62.15 GB
"""


def test_a_vllm_log_states_weights_pool_tokens_and_concurrency() -> None:
    reading = read_log(GPT_OSS)
    assert reading.engine == "vllm"
    assert reading.facts == {
        "model_runner": "gpu_model_runner",
        "weights": round(17.2217 * GIB),
        "kv_pool": round(45.32 * GIB),
        "kv_tokens": 2_640_144,
        "concurrency": 284.25,
        "concurrency_len": 16_384,
        "graphs": round(1.88 * GIB),
    }
    assert reading.unknown == ()


def test_an_sglang_log_states_its_pool_in_gib_that_it_calls_gb() -> None:
    reading = read_log(SGLANG)
    assert reading.engine == "sglang"
    assert reading.facts["weights"] == round(3.25 * GIB)
    assert reading.facts["key_bytes"] == reading.facts["value_bytes"] == round(20.80 * GIB)
    assert reading.facts["kv_tokens"] == 1_557_709
    assert reading.facts["max_model_len"] == 32_768
    assert reading.facts["max_seqs"] == 4096
    # 28 layers x 2 KV heads x 128 x 2 B = 14,336 B per token for keys: 20.80 GiB for 1,557,709 tokens.
    assert reading.facts["key_bytes"] / 1_557_709 == pytest.approx(14_336, rel=1e-3)


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        (
            (
                "INFO 04-07 02:43:34 [config.py:281] Setting attention block size to 528 tokens to ensure that "
                "attention page size is >= mamba page size."
            ),
            {"hybrid_block": 528},
        ),
        (
            "Padding mamba page size by 0.76% to ensure that mamba page size and attention page size are equal.",
            {"padding": 0.76},
        ),
        ("Estimated CUDA graph memory: 0.78 GiB total", {"graphs_estimate": round(0.78 * GIB)}),
        ("Loading model weights took 67.7229 GB", {"weights": round(67.7229 * GIB)}),
        ("# GPU blocks: 1381", {"gpu_blocks": 1381}),
        ("# CUDA blocks: 3947, # CPU blocks: 2048", {"gpu_blocks": 3947}),
        (
            "At gmu 0.90: Available KV cache memory: -0.12 GiB and the engine refuses",
            {"kv_pool": -round(0.12 * GIB)},
        ),
        ("Graph capturing finished in 8 secs, took -0.17 GiB", {"graphs": -round(0.17 * GIB)}),
        (
            "Free memory on device (39.0/39.49 GiB) on startup.",
            {"free_memory": round(39.0 * GIB), "total_memory": round(39.49 * GIB)},
        ),
        (
            "the current vLLM instance can use total_gpu_memory (47.50GiB) x gpu_memory_utilization (0.78) = 37.18GiB",
            {"total_memory": round(47.5 * GIB), "utilization": 0.78},
        ),
        (
            (
                "model weights take 0.52GiB; non_torch_memory takes 0.08GiB; PyTorch activation peak memory takes "
                "1.78GiB; the rest of the memory reserved for KV Cache is 34.81GiB."
            ),
            {
                "weights": round(0.52 * GIB),
                "non_framework": round(0.08 * GIB),
                "activations": round(1.78 * GIB),
                "kv_pool": round(34.81 * GIB),
            },
        ),
        (
            (
                "Total non KV cache memory: 10.22GiB; torch peak memory increase: 1.40GiB; non-torch forward increase "
                "memory: 0.02GiB; weights memory: 8.80GiB."
            ),
            {
                "non_cache": round(10.22 * GIB),
                "activations": round(1.4 * GIB),
                "non_framework": round(0.02 * GIB),
                "weights": round(8.8 * GIB),
            },
        ),
        (
            (
                "To serve at least one request with the model's max seq len (30000), (6.66 GiB KV cache is needed, which "
                "is larger than the available KV cache memory (5.44 GiB). Based on the available memory, the estimated "
                "maximum model length is 13528."
            ),
            {
                "max_model_len": 30_000,
                "needed": round(6.66 * GIB),
                "kv_pool": round(5.44 * GIB),
                "estimated_len": 13_528,
            },
        ),
        (
            (
                "ValueError: To serve at least one request with the model's max seq len (917504), 23.38 GiB KV cache is "
                "needed, which is larger than the available KV cache memory (22.61 GiB). Estimated maximum model length "
                "is 886912."
            ),
            {
                "max_model_len": 917_504,
                "needed": round(23.38 * GIB),
                "kv_pool": round(22.61 * GIB),
                "estimated_len": 886_912,
            },
        ),
        (
            (
                "The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV "
                "cache (81536)."
            ),
            {"max_model_len": 131_072, "storable": 81_536},
        ),
        (
            (
                "vllm serve Qwen/Qwen3-235B-A22B-Instruct-2507 --gpu-memory-utilization 0.9 --tensor-parallel-size 8 "
                "--decode-context-parallel-size 2"
            ),
            {
                "model": "Qwen/Qwen3-235B-A22B-Instruct-2507",
                "utilization": 0.9,
                "tensor_parallel": 8,
                "context_parallel": 2,
            },
        ),
        (
            (
                "(EngineCore_DP0 pid=143) INFO 03-18 14:04:03 [core.py:93] Initializing a V1 LLM engine "
                "(v0.13.0+faa43dbf.nv26.01) with config: model='neuralmagic/Qwen2.5-14B-Instruct-FP8-dynamic', "
                "dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=1, pipeline_parallel_size=1, "
                "quantization=compressed-tensors, enforce_eager=False, kv_cache_dtype=fp8, device_config=cuda"
            ),
            {
                "engine_version": "0.13.0+faa43dbf.nv26.01",
                "model": "neuralmagic/Qwen2.5-14B-Instruct-FP8-dynamic",
                "max_model_len": 32_768,
                "tensor_parallel": 1,
                "pipeline_parallel": 1,
                "quantization": "compressed-tensors",
                "kv_dtype": "fp8",
            },
        ),
        (
            (
                "(APIServer pid=1) INFO 06-14 04:56:37 [api_utils.py:273] non-default args: {'model': 'org/some-model', "
                "'max_model_len': 262144, 'enforce_eager': True, 'gpu_memory_utilization': 0.82, "
                "'max_num_batched_tokens': 2048, 'max_num_seqs': 1}"
            ),
            {
                "model": "org/some-model",
                "max_model_len": 262_144,
                "eager": True,
                "utilization": 0.82,
                "max_batched_tokens": 2048,
                "max_seqs": 1,
            },
        ),
        (
            (
                "python3 -m sglang.launch_server --model /path/to/Qwen3-235B-A22B-FP8 --tp 4 --trust-remote-code "
                "--mem-fraction-static 0.93"
            ),
            {"model": "/path/to/Qwen3-235B-A22B-FP8", "tensor_parallel": 4, "mem_fraction": 0.93},
        ),
        (
            "Use sliding window memory pool. full_layer_tokens=375360, swa_layer_tokens=300288",
            {"full_tokens": 375_360, "window_tokens": 300_288},
        ),
        (
            "Mamba Cache is allocated. max_mamba_cache_size: 360, conv_state size: 0.99GB, ssm_state size: 50.77GB",
            {"state_slots": 360, "conv_bytes": round(0.99 * GIB), "ssm_bytes": round(50.77 * GIB)},
        ),
        (
            "KV Cache is allocated. #tokens: 2454421, KV size: 160.63 GB",
            {"kv_tokens": 2_454_421, "kv_pool": round(160.63 * GIB)},
        ),
        (
            "Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.88.",
            {"mem_fraction": 0.88},
        ),
        (
            (
                "[2026-03-21 03:31:56] INFO engine.py:177: server_args=ServerArgs(model_path='org/m', dtype='auto', "
                "quantization=None, kv_cache_dtype='auto', context_length=None, mem_fraction_static=0.86, tp_size=2)"
            ),
            {"model": "org/m", "kv_dtype": "auto", "mem_fraction": 0.86, "tensor_parallel": 2},
        ),
    ],
)
def test_a_line_states_its_numbers_and_no_others(line: str, facts: dict[str, object]) -> None:
    reading = read_log(line)
    assert reading.facts == facts
    assert reading.unknown == ()
    assert all("{" not in found.says for found in reading.recognised)


def test_the_smallest_pool_and_the_largest_weights_of_the_ranks_count() -> None:
    reading = read_log(
        "Available KV cache memory: 12.02 GiB\nAvailable KV cache memory: 11.90 GiB\n"
        "Model loading took 7.1 GiB\nModel loading took 7.3 GiB\n"
    )
    assert reading.facts["kv_pool"] == round(11.90 * GIB)
    assert reading.facts["weights"] == round(7.3 * GIB)


def test_what_is_not_known_is_said_to_be_not_known() -> None:
    reading = read_log("GPU KV cache size: 10 tokens\nThe moon is 384,400 km away\n\n")
    assert reading.unknown == ((2, "The moon is 384,400 km away"),)
    assert [line.number for line in reading.recognised] == [1]


def test_a_log_of_neither_engine_has_no_engine() -> None:
    reading = read_log("llama_kv_cache: size = 1792.00 MiB (131072 cells,  14 layers,  1/1 seqs)")
    assert reading.engine is None
    assert reading.facts == {}
    assert len(reading.unknown) == 1


def test_terminal_colours_are_ignored() -> None:
    reading = read_log("\x1b[0;36m(EngineCore pid=5)\x1b[0;0m INFO GPU KV cache size: 44,832 tokens\x1b[0m")
    assert reading.facts["kv_tokens"] == 44_832


def test_what_copying_from_a_page_leaves_is_ignored() -> None:
    plain = "INFO non-default args: {'model': 'org/m', 'max_model_len': 32768}\nAvailable KV cache memory: 3.5 GiB"
    copied = plain.replace(" ", "\u00a0").replace("'", "&#39;")
    assert read_log(copied).facts == read_log(plain).facts
    assert read_log(plain).facts["model"] == "org/m"
    assert read_log("a &amp;gt; b").unknown == ((1, "a &gt; b"),)


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: 0.85",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 23.64 GiB",
        "[2026-08-14 16:08:55 TP0] Init torch distributed ends. elapsed=1.9 s, mem usage=2.21 GB",
    ],
)
def test_a_line_without_a_figure_is_understood(line: str) -> None:
    assert read_log(line).unknown == ()


def test_one_of_a_thing_is_not_called_many() -> None:
    found = read_log("'pipeline_parallel_size': 1, 'tensor_parallel_size': 2").recognised
    says = [line.says for line in found]
    assert "The layers are split over 1 stage." in says
    assert any("over 2 devices" in one for one in says)


def test_a_prefix_cache_that_is_off_is_read_from_sglang_s_flags() -> None:
    assert read_log("sglang.launch_server --disable-radix-cache --tp 2").facts["no_prefix_caching"] is True
    assert "no_prefix_caching" not in read_log("ServerArgs(disable_radix_cache=False)").facts


@pytest.mark.parametrize("text", ["", " \n\t\n"])
def test_an_empty_log_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="nothing but blanks"):
        read_log(text)


def test_a_huge_log_is_refused_with_what_is_enough() -> None:
    with pytest.raises(InputError, match="the start of the log"):
        read_log("a\n" * 300_000)


def test_a_hostile_line_does_not_stall_the_reader() -> None:
    # Nested repeats would take minutes on this; the reader must stay linear.
    read_log("with config: " + "model='" * 3000 + "\n" + "1," * 10_000 + "\n" + "--tp " * 4000)


def test_every_group_names_a_fact_and_every_sentence_only_its_own() -> None:
    for pattern in patterns():
        groups = {name.partition("__")[0].rstrip("_") for name in re.compile(pattern.expression).groupindex}
        assert groups <= set(FACTS), pattern.name
        assert set(re.findall(r"\{(\w+)\}", pattern.line.says)) <= groups, pattern.name


def test_the_table_for_the_browser_holds_no_python_only_syntax() -> None:
    for pattern in table()["patterns"]:
        assert "(?P" not in pattern["expression"]


WINDOWS = """\
server_args=ServerArgs(model_path='openai/gpt-oss-120b', tp_size=1, mem_fraction_static=0.9)
Load weight end. type=GptOssForCausalLM, dtype=torch.bfloat16, avail mem=14.5 GB, mem usage=64.08 GB.
Use sliding window memory pool. full_layer_tokens=120000, swa_layer_tokens=96000
KV Cache is allocated. #tokens: 96000, K size: 1.65 GB, V size: 1.65 GB
KV Cache is allocated. #tokens: 120000, K size: 2.06 GB, V size: 2.06 GB
Memory pool end. avail mem=7.08 GB
max_total_num_tokens=120000, chunked_prefill_size=8192, max_running_requests=2048, context_len=131072
"""


def test_several_pools_of_sglang_are_laid_out_together() -> None:
    found = {one.fact: one for one in diagnose(WINDOWS).comparisons}
    assert found["kv_tokens"].stated == 120_000
    assert found["kv_tokens"].predicted == pytest.approx(120_000, rel=1e-3)


def test_another_share_of_windows_is_read() -> None:
    text = WINDOWS.replace("mem_fraction_static=0.9", "mem_fraction_static=0.9, swa_full_tokens_ratio=0.5")
    assert read_log(text).facts["window_share"] == 0.5
    found = {one.fact: one for one in diagnose(text).comparisons}
    assert found["kv_tokens"].predicted > 140_000


def test_a_build_of_a_clone_without_tags_is_dated_by_its_lines() -> None:
    text = (
        "Initializing a V1 LLM engine (v0.1.dev15312+g44) with config: model='Qwen/Qwen3-8B', max_seq_len=40960\n"
        "[gpu_worker.py:538] Available KV cache memory: 10.29 GiB\n"
        "[kv_cache_utils.py:2146] GPU KV cache size: 74,000 tokens\n"
    )
    assert (version_of(read_log(text)) or "").startswith("0.25")


def test_a_file_that_powershell_wrote_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "start.log"
    line = "INFO Maximum concurrency for 32,768 tokens per request: 13.48x\n"
    path.write_bytes(line.encode("utf-16"))
    assert main(["log", str(path)]) == 0
    assert capsys.readouterr().out.startswith("13.48x: 13 requests of 32,768 tokens")
    path.write_text(f"\ufeff{line}", encoding="utf-8")
    assert main(["log", str(path)]) == 0


SERVING = (
    'INFO:     127.0.0.1:34042 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    "INFO 10-06 17:00:41 [loggers.py:271] Engine 000: Avg prompt throughput: 0.9 tokens/s, Running: 1 reqs",
    "[2026-03-30 14:21:44 TP0] Decode batch, #running-req: 1, #token: 130, token usage: 0.00, cuda graph: True",
    "[2026-03-30 14:21:44] Prefill batch, #new-seq: 1, #new-token: 7, #cached-token: 0, token usage: 0.00",
)


@pytest.mark.parametrize("line", SERVING)
def test_lines_of_a_server_at_work_are_passed_over_at_once(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reading._match(line, patterns()) == ([], False)
    monkeypatch.setattr(reading, "_SERVING_LINE", 0)
    assert reading._match(line, patterns()) == ([], False)  # no pattern reads them


def test_a_fact_in_a_joined_line_is_read_all_the_same() -> None:
    joined = SERVING[0] * 8 + " Available KV cache memory: 4.25 GiB"
    assert read_log(joined).facts["kv_pool"] == 4.25 * 2**30


def test_a_long_log_is_read_in_a_second_per_megabyte() -> None:
    served = "\n".join(line for line in SERVING for _ in range(2500))
    took = []
    for _ in range(3):  # the best of them: one may stand for a search for garbage in a process of many tests
        began = time.thread_time()
        found = read_log("Available KV cache memory: 4.25 GiB\n" + served)
        took.append(time.thread_time() - began)
        assert found.facts["kv_pool"] == 4.25 * 2**30
    assert min(took) * 1e6 / len(served) < 1
