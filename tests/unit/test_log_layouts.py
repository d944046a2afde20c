"""Layout flags in a log: read, followed, and named where no number follows them."""

from pathlib import Path

import pytest

from kvreport.accounting.parallel import Layout
from kvreport.catalog.load import open_catalog
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.startup_log import read_log
from kvreport.startup_log.diagnose import diagnose
from kvreport.startup_log.server_of_log import layout_of
from kvreport.units import GIB

DEEPSEEK = "deepseek-ai/DeepSeek-V3"
CODER = "Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8"
WIDE = (
    f"INFO 08-07 21:32:22 [api_utils.py:273] non-default args: {{'model': '{DEEPSEEK}', 'max_model_len': 32768, "
    "'data_parallel_size': 8, 'enable_expert_parallel': True, 'all2all_backend': 'deepep_low_latency', "
    "'eplb_config': EPLBConfig(window_size=1000, num_redundant_experts=32), 'max_num_batched_tokens': 256}\n"
    "(Worker_DP0_EP0 pid=2) INFO 08-13 11:26:35 [gpu_model_runner.py:5483] Model loading took {weights:.2f} GiB memory\n"
)
SGLANG = (
    f"python -m sglang.launch_server --model-path {DEEPSEEK} --tp-size 16 --dp-size 8 --enable-dp-attention "
    "--ep-size 16 --ep-num-redundant-experts 32 --moe-a2a-backend deepep --deepep-mode low_latency --nnodes 2"
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vllm serve m -tp 8 -pp 2 --nnodes 2", Layout(8, pipeline=2, nodes=2)),
        (
            "vllm serve m --tensor-parallel-size 2 -dp 8 --enable-expert-parallel",
            Layout(2, data=8, expert=True),
        ),
        ("vllm serve m -tp 8 -dcp 4", Layout(8, decode_context=4)),
        (
            "VLLM_PP_LAYER_PARTITION=16,32 vllm serve m --pipeline-parallel-size 2",
            Layout(pipeline=2, partition=(16, 32)),
        ),
        (
            (
                "vllm serve m -dp 8 --enable-expert-parallel --eplb-config '{\"num_redundant_experts\": 32}' "
                "--all2all-backend deepep_high_throughput"
            ),
            Layout(data=8, expert=True, redundant_experts=32, all_to_all="deepep_high_throughput"),
        ),
        (
            SGLANG,
            Layout(2, data=8, expert=True, nodes=2, redundant_experts=32, all_to_all="deepep_low_latency"),
        ),
        ("vllm serve m -tp 4 --mm-encoder-tp-mode data", Layout(4, whole_encoders=True)),
        (
            "non-default args: {'tensor_parallel_size': 4, 'mm_encoder_tp_mode': 'data'}",
            Layout(4, whole_encoders=True),
        ),
        ("vllm serve m -tp 4 --mm-encoder-tp-mode weights", Layout(4)),
        # Without data-parallel attention SGLang's data ranks are copies of the whole.
        ("python -m sglang.launch_server --model-path m --tp 4 --dp-size 2", Layout(4)),
        (
            "server_args=ServerArgs(model_path='m', tp_size=2, pp_size=2, dcp_size=2, ep_size=1)",
            Layout(2, 2, decode_context=2),
        ),
    ],
)
def test_flags_are_read_as_a_layout(line: str, expected: Layout) -> None:
    engine = (
        ""
        if "sglang" in line or "ServerArgs" not in line
        else "\nmem_fraction_static=0.9 sglang is using nccl"
    )
    assert layout_of(read_log(line + engine)) == expected


def test_redundant_experts_count_among_the_weights_and_buffers_do_not() -> None:
    answer = estimate(
        DEEPSEEK,
        gpu="h200-sxm-141gb",
        data_parallel=8,
        expert_parallel=True,
        num_redundant_experts=32,
        context_tokens=32768,
    )
    found = diagnose(
        WIDE.replace("{weights:.2f}", f"{answer.budget.weights / GIB:.2f}"), gpu="h200-sxm-141gb"
    )
    weights = next(one for one in found.comparisons if one.fact == "weights")
    assert weights.predicted == pytest.approx(answer.budget.weights, rel=0.001)


@pytest.mark.parametrize(
    ("model", "followed"), [("Qwen/Qwen2.5-VL-72B-Instruct", True), ("google/gemma-3-27b-it", False)]
)
def test_encoders_are_whole_in_a_prediction_where_the_class_has_it(model: str, followed: bool) -> None:
    # Classes without `supports_encoder_tp_data` divide the weights whatever the flag says (vLLM 0.33).
    told = estimate(
        model,
        gpu="h100-sxm-80gb",
        tensor_parallel=4,
        mm_encoder_tp_mode="data" if followed else "weights",
        context_tokens=8192,
    )
    log = (
        f"vllm serve {model} -tp 4 --mm-encoder-tp-mode data --max-model-len 8192\n"
        "vLLM API server version 0.33.0\n"
        f"(Worker_TP0 pid=2) INFO [gpu_model_runner.py:5483] Model loading took {told.budget.weights / GIB:.2f} GiB memory\n"
    )
    weights = next(one for one in diagnose(log, gpu="h100-sxm-80gb").comparisons if one.fact == "weights")
    assert weights.predicted == pytest.approx(told.budget.weights, rel=0.001)


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ("", {}),
        ("--moe-dense-tp-size 1", {"moe_dense_tp_size": 1}),
        ("--enable-dp-lm-head", {"enable_dp_lm_head": True}),
        (
            "--moe-dense-tp-size 1 --enable-dp-lm-head",
            {"moe_dense_tp_size": 1, "enable_dp_lm_head": True},
        ),
    ],
)
def test_dense_layers_and_the_head_of_a_log_are_divided_as_in_an_estimate(
    flags: str, options: dict[str, object]
) -> None:
    told = estimate(
        DEEPSEEK,
        gpu="h200-sxm-141gb",
        engine="sglang",
        tensor_parallel=1,
        data_parallel=8,
        context_tokens=32768,
        **options,
    )
    log = (
        f"python -m sglang.launch_server --model-path {DEEPSEEK} --tp 8 --dp 8 --enable-dp-attention {flags}\n"
        "[2026-09-12 00:22:48 TP0] Load weight end. elapsed=50.00 s, type=DeepseekV3ForCausalLM, avail mem=40.00 GB, "
        f"mem usage={told.budget.weights / GIB:.2f} GB.\n"
    )
    weights = next(one for one in diagnose(log, gpu="h200-sxm-141gb").comparisons if one.fact == "weights")
    assert weights.predicted == pytest.approx(told.budget.weights, rel=0.001)


def test_dense_layers_of_a_class_that_does_not_ask_are_divided_over_all_ranks() -> None:
    model = "moonshotai/Kimi-Linear-48B-A3B-Instruct"
    log = (
        f"python -m sglang.launch_server --model-path {model} --tp 8{{flag}}\n"
        "Load weight end. avail mem=40.00 GB, mem usage=12.00 GB.\n"
    )
    plain, asked = (
        next(
            one.predicted
            for one in diagnose(log.format(flag=flag), gpu="h200-sxm-141gb").comparisons
            if one.fact == "weights"
        )
        for flag in ("", " --moe-dense-tp-size 1")
    )
    assert asked == plain


def test_kernels_whose_buffers_are_not_known_are_named() -> None:
    line = WIDE.replace("deepep_low_latency", "flashinfer_all2allv").replace("{weights:.2f}", "100.00")
    notes = " ".join(diagnose(line, gpu="h200-sxm-141gb").notes)
    assert "the buffers of flashinfer_all2allv" in notes


def test_stages_are_followed_with_their_partition() -> None:
    start = f"VLLM_PP_LAYER_PARTITION=12,36 vllm serve {CODER} -pp 2 --max-model-len 32768 --gpu-memory-utilization 0.9\n"
    log = (
        start
        + "vLLM API server version 0.33.0\n(Worker_PP0 pid=1) INFO [gpu_worker.py:563] Available KV cache memory: 60.00 GiB\n"
    )
    found = diagnose(log, gpu="h100-sxm-80gb")
    pool = next(one for one in found.comparisons if one.fact == "kv_pool")
    answer = estimate(
        CODER,
        gpu="h100-sxm-80gb",
        pipeline_parallel=2,
        pipeline_partition="12,36",
        context_tokens=32768,
        utilization=0.9,
    )
    assert pool.predicted == answer.budget.kv_pool_bytes
    assert not any("Not taken into account" in note for note in found.notes)


def test_a_layout_that_cannot_be_is_told() -> None:
    log = (
        f"VLLM_PP_LAYER_PARTITION=12,12 vllm serve {CODER} -pp 2\nINFO Available KV cache memory: 60.00 GiB\n"
    )
    assert any("pipeline partition: found 12,12" in note for note in diagnose(log, gpu="h100-sxm-80gb").notes)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--prefill-context-parallel-size 2", "prompts that are divided over ranks"),
        ("--tp 8 --moe-dense-tp-size 4", "dense layers over 4 ranks"),
        ("--tp 8 --moe-dense-tp-size 8", None),
        ("--tp 8 --dp 8 --enable-dp-attention --moe-dense-tp-size 1 --enable-dp-lm-head", None),
        ("--prefill-context-parallel-size 1", None),
    ],
)
def test_what_no_number_follows_is_named(flag: str, said: str | None) -> None:
    engine = "python -m sglang.launch_server" if "--tp 8" in flag else "vllm serve"
    log = f"{engine} --model {DEEPSEEK} {flag}\nINFO Available KV cache memory: 60.00 GiB\n"
    notes = " ".join(diagnose(log, model=DEEPSEEK, gpu="h200-sxm-141gb").notes)
    assert ("Not taken into account" in notes) is (said is not None)
    if said:
        assert said in notes


UNEQUAL = (
    "(APIServer pid=1) INFO vLLM API server version 0.15.1\n"
    f"VLLM_PP_LAYER_PARTITION=16,32 vllm serve {CODER} --gpu-memory-utilization 0.9 --pipeline-parallel-size 2\n"
    "ValueError: To serve at least one request with the models's max seq len (262144), (24.0 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (3.18 GiB). Based on the available memory, the estimated "
    "maximum model length is 34736.\n"
)
"""vllm-project/vllm issue 34076: 16 layers on an RTX 5070 Ti, 32 on an RTX 5090 D."""


@pytest.mark.parametrize("gpu", [["rtx-5070ti", "rtx-5090"], "rtx-5070ti+rtx-5090"])
def test_a_log_of_unequal_gpus_is_judged_rank_by_rank(gpu: str | list[str]) -> None:
    found = {one.fact: one for one in diagnose(UNEQUAL, gpu=gpu).comparisons}
    pool, needed = found["kv_pool"], found["needed"]
    same = estimate(
        CODER,
        gpu=["rtx-5070ti", "rtx-5090"],
        tensor_parallel=1,
        pipeline_parallel=2,
        pipeline_partition="16,32",
        utilization=0.9,
        engine="vllm@0.15.1",
    )
    assert pool.predicted == same.budget.kv_pool_bytes
    assert pool.predicted != same.deployment.others[0].pool_bytes
    # That release asks for all layers of a request, whatever the stage.
    assert needed.predicted == 24 * GIB


def test_unequal_gpus_of_another_number_than_the_ranks_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(
        InputError, match=r"found 3 devices for a log of 2 ranks; allowed: one accelerator, or one for each"
    ):
        diagnose(UNEQUAL, gpu="rtx-5070ti+rtx-5090*2")
    log = tmp_path / "start.log"
    log.write_text(UNEQUAL)
    assert main(["log", str(log), "--gpu", "rtx-5070ti", "--gpu", "rtx-5090"]) == 0
    assert "cache pool on a device: log 3.18 GiB" in capsys.readouterr().out


NO_ROOM = (
    "INFO vLLM API server version 0.33.0\n"
    f"vllm serve {CODER} --max-model-len 32768 --gpu-memory-utilization 0.9 {{flags}}\n"
    "Available KV cache memory: -1.00 GiB\n"
)


@pytest.mark.parametrize("flags", ["-pp 2", "-tp 2"])
def test_no_other_machine_is_advised_for_unequal_gpus(flags: str) -> None:
    found = diagnose(NO_ROOM.format(flags=flags), gpu="rtx-5090+rtx-3090")
    assert not any(one.name == "tensor_parallel" for one in found.changes)


def test_advice_for_stages_is_of_the_whole_model() -> None:
    # Twice the GPUs free half of a stage's 15 GiB, four times three quarters.
    text = NO_ROOM.format(flags="-pp 2").replace("-1.00", "-9.00")
    found = diagnose(text, gpu="rtx-5090")
    assert [one.value for one in found.changes if one.name == "tensor_parallel"] == [4]


def test_memory_that_one_rank_prints_is_not_that_of_a_larger_one() -> None:
    total = open_catalog().accelerator("rtx-3090").usable_bytes / GIB
    flags = "-pp 2 # VLLM_PP_LAYER_PARTITION=18,30"
    text = NO_ROOM.format(flags=flags).replace("-1.00", "1.00")
    line = f"Free memory on device (20.0/{total:.2f} GiB) on startup.\n"
    plain, stated = (
        next(one.predicted for one in found.comparisons if one.fact == "kv_pool")
        for found in (diagnose(log, gpu="rtx-3090+rtx-5090") for log in (text, text + line))
    )
    assert plain == stated


def test_the_most_that_a_rank_loads_is_that_of_the_rank_with_most() -> None:
    text = UNEQUAL + "Model loading took 19.50 GiB\n"
    loaded = {
        gpu: next(one.predicted for one in diagnose(text, gpu=gpu).comparisons if one.fact == "weights")
        for gpu in ("rtx-5070ti+rtx-5090", "rtx-5090")
    }
    assert loaded["rtx-5070ti+rtx-5090"] == pytest.approx(loaded["rtx-5090"], rel=0.01)
    assert loaded["rtx-5090"] > 15 * GIB


def test_the_kernel_of_mxfp4_experts_is_read_from_the_log() -> None:
    # 0.11 computes them with Marlin's kernels, or with the package triton_kernels where it is installed.
    log = """\
INFO 10-31 12:00:01 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='openai/gpt-oss-120b', \
max_seq_len=16000, tensor_parallel_size=1, kv_cache_dtype=auto, enable_prefix_caching=True
INFO 10-31 12:00:02 [mxfp4.py:144] Using Triton backend
INFO 10-31 12:00:10 [gpu_model_runner.py:2653] Model loading took 64.38 GiB and 20 seconds
INFO 10-31 12:00:30 [gpu_worker.py:298] Available KV cache memory: 3.33 GiB
"""

    def loaded(text: str) -> float:
        (weights,) = (one for one in diagnose(text, gpu="h100").comparisons if one.fact == "weights")
        return weights.predicted / 2**30

    assert loaded(log) == pytest.approx(64.38, rel=0.002)
    assert loaded(log.replace("Using Triton", "Using Marlin")) == pytest.approx(65.9, rel=0.002)
    assert (
        loaded(
            log.replace(
                "[mxfp4.py:144] Using Triton backend", "[fp8.py:202] Using Triton backend for FP8 MoE"
            )
        )
        > 65
    )


@pytest.mark.parametrize(
    "told", ["'moe_backend': 'deep_gemm_mega_moe'", "--moe-backend flashinfer_moe_ep_cutedsl"]
)
def test_kernels_that_exchange_tokens_by_themselves_are_read_from_the_log(told: str) -> None:
    """They take no tokens of other data ranks, so that more is left for the cache."""
    log = f"""\
INFO 08-07 21:32:22 [api_utils.py:273] non-default args: {{'data_parallel_size': 8, 'enable_expert_parallel': True, 'gpu_memory_utilization': 0.92, {told}}}
INFO 08-07 21:32:30 [core.py:77] Initializing a V1 LLM engine (v0.25.0) with config: model='deepseek-ai/DeepSeek-V3', \
max_seq_len=8192, tensor_parallel_size=1, data_parallel_size=8, kv_cache_dtype=auto, enable_prefix_caching=True
INFO 08-07 21:33:30 [gpu_worker.py:298] Available KV cache memory: 40.0 GiB
"""

    def pool(text: str) -> float:
        (found,) = (one for one in diagnose(text, gpu="b200").comparisons if one.fact == "kv_pool")
        return found.predicted / 2**30

    assert pool(log) > pool(log.replace(told, "'seed': 0")) + 5


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: 0.8",
        "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.8",
    ],
)
def test_a_refusal_of_sglang_is_the_verdict(line: str) -> None:
    log = "server_args=ServerArgs(model_path='meta-llama/Llama-3.1-70B-Instruct', mem_fraction_static=0.8, tp_size=1)\n"
    assert diagnose(log + line, gpu="h100").headline.startswith("The server does not start: ")


def test_vllms_word_that_nothing_is_left_is_read() -> None:
    log = "INFO vLLM API server version 0.10.1\nERROR [core.py:700] ValueError: No available memory for the cache blocks. Try"
    found = diagnose(log, gpu="h100")
    assert found.headline.startswith("The server does not start: ")
    assert not found.reading.unknown
