"""Commands say only what the engines' own argument parsers take."""

import shlex

import pytest

import kvreport
from kvreport.accounting.engines.ceiling import Ceiling
from kvreport.accounting.engines.command import LocalServed, Served
from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.accounting.engines.llama_cpp.rules import LlamaCpp
from kvreport.accounting.engines.ollama import Ollama
from kvreport.accounting.engines.tensorrt_llm import TensorRtLlm
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import CacheSettings
from kvreport.catalog.server_flags import ServerFlags, load_server_flags
from kvreport.estimation.commands import Server, serving_command, shell_line
from kvreport.resources import data_dir

EVERYTHING = Served(
    model="org/model",
    layout=Layout(tensor=4, pipeline=2, data=2, expert=True),
    context_tokens=8192,
    max_seqs=16,
    weight_format="fp8",
    kv_format="fp8",
    kv_is_own=False,
    utilization=0.85,
    dtype="bfloat16",
    max_batched_tokens=4096,
    eager=True,
    kv_pool_bytes=1 << 34,
    pool_tokens=100_000,
    caches=CacheSettings(block_tokens=32, prefix_caching=False, draft_tokens=3),
    images=False,
    lora_slots=(2, 32),
    draft="org/draft",
)


@pytest.fixture(scope="module")
def servers() -> dict[str, ServerFlags]:
    return load_server_flags(data_dir())


def taken(server: ServerFlags) -> set[str]:
    """Flags that a parser takes; vLLM's switches have a negative each (``argparse.BooleanOptionalAction``)."""
    negatives = {f"--no-{flag[2:]}" for flag in server.flags} if server.family == "vllm" else set()
    return set(server.flags) | negatives


@pytest.mark.parametrize("server", ["vllm", "sglang", "tensorrt_llm"])
@pytest.mark.parametrize(
    "served",
    [
        EVERYTHING,
        Served("org/model", Layout(), 4096),
        Served("m", Layout(tensor=2), 4096, 3, kv_is_own=False),
    ],
)
def test_every_flag_of_a_command_is_one_that_the_server_takes(
    servers: dict[str, ServerFlags], server: Server, served: Served
) -> None:
    command = serving_command(server, served)
    known = servers[server]
    assert command.startswith(known.command)
    flags = [word for word in command.split() if word.startswith("--")]
    assert flags
    assert set(flags) <= taken(known)


def test_the_lists_are_whole_parsers_not_the_flags_we_use(servers: dict[str, ServerFlags]) -> None:
    assert {"--tp-size", "--enable-dp-attention", "--swa-full-tokens-ratio"} <= set(servers["sglang"].flags)
    assert {"--tensor-parallel-size", "--kv-cache-memory-bytes"} <= set(servers["vllm"].flags)
    assert {"--free_gpu_memory_fraction", "--max_batch_size"} <= set(servers["tensorrt_llm"].flags)
    assert {"--n-gpu-layers", "--kv-unified"} <= set(servers["llama_cpp"].flags)


MOST_UNKNOWN = 0.05
"""Share of a server's flags whose effect may be unknown."""


def test_each_flag_says_where_its_effect_was_read_and_few_effects_are_unknown(
    servers: dict[str, ServerFlags],
) -> None:
    for family, server in servers.items():
        for group in (*server.groups, *server.variables):
            assert group.read or group.package or group.until, (family, list(group.flags))
        assert all(group.changes or group.effect in ("none", "followed") for group in server.groups)
        effects = [group.effect for group in server.groups for _ in group.flags]
        assert effects.count("unknown") <= MOST_UNKNOWN * len(effects), family


def test_attention_data_parallelism_in_each_engines_words() -> None:
    assert "--tp-size 8 --pp-size 2 --dp-size 2 --enable-dp-attention --ep-size 8" in serving_command(
        "sglang", EVERYTHING
    )
    assert "--tensor-parallel-size 4 --pipeline-parallel-size 2 --data-parallel-size 2" in serving_command(
        "vllm", EVERYTHING
    )
    assert TensorRtLlm.command(EVERYTHING).options == {
        "enable_attention_dp": True,
        "kv_cache_config": {"dtype": "fp8", "max_gpu_total_bytes": 1 << 34},
        "dtype": "bfloat16",
        "cuda_graph_config": None,
        "lora_config": {"max_loras": 2, "max_lora_rank": 32},
        "speculative_config": {
            "decoding_type": "Eagle",
            "max_draft_len": 3,
            "speculative_model_dir": "org/draft",
        },
    }


def test_llama_cpp_is_told_only_what_its_parser_takes(servers: dict[str, ServerFlags]) -> None:
    options = LocalOptions(
        context=131072, parallel=16, unified=True, type_k="q8_0", type_v="q8_0", batch=1024, ubatch=256, flash="on",
        swa_full=True, gpu_layers=20, cpu_moe=4, split_mode="row", tensor_split=(3, 1), kv_offload=False,
        op_offload=False, overrides=(("exps", "CPU"),), main_gpu=1, mtp=True, draft=2,
    )  # fmt: skip
    served = LocalServed("m.gguf", "m", options, draft="d.gguf", projector="p.gguf", projector_offload=False)
    words = LlamaCpp.command(Served("", Layout(), None, local=served)).words
    assert words[:7] == ("llama-server", "-m", "m.gguf", "-c", "131072", "-np", "16")
    assert {word for word in words if word.startswith("--")} <= taken(servers["llama_cpp"])


def test_ollama_is_told_by_its_environment() -> None:
    command = Ollama.command(
        Served(
            "", Layout(), None, local=LocalServed("", "llama3.1:8b", LocalOptions(context=8192, parallel=2))
        )
    )
    assert shell_line(command) == (
        "OLLAMA_CONTEXT_LENGTH=4096 OLLAMA_NUM_PARALLEL=2 ollama serve & ollama run llama3.1:8b"
    )


def test_an_engine_without_a_server_has_no_command() -> None:
    assert Ceiling.command(EVERYTHING) is None
    with pytest.raises(KeyError):
        serving_command("transformers", EVERYTHING)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"eager": True, "max_batched_tokens": 4096}, "--max-num-batched-tokens 4096 --enforce-eager"),
        ({"max_loras": 2, "max_lora_rank": 32}, "--enable-lora --max-loras 2 --max-lora-rank 32"),
        ({"kv": "fp8"}, "--kv-cache-dtype fp8"),
        ({"max_seqs": 12, "utilization": 0.85}, "--max-num-seqs 12 --gpu-memory-utilization 0.85"),
        ({"dtype": "half"}, "--dtype float16"),
        ({"kv_pool": "20GiB"}, "--kv-cache-memory-bytes 21474836480"),
        ({"prefix_caching": False, "block_size": 32}, "--block-size 32 --no-enable-prefix-caching"),
        ({"gpu": "dgx-spark-gb10"}, "--gpu-memory-utilization 0.8"),
        ({"gpu": "t4", "model": "google/gemma-2-2b-it"}, "--dtype float32"),
        ({"tensor_parallel": 2, "pipeline_parallel": 2, "nodes": 2}, "--pipeline-parallel-size 2 --nnodes 2"),
        (
            {
                "model": "deepseek-ai/DeepSeek-V3",
                "gpu": "h200",
                "tensor_parallel": 8,
                "num_speculative_tokens": 1,
            },
            """--speculative-config '{"method":"mtp","num_speculative_tokens":1}'""",
        ),
    ],
)
def test_an_estimates_command_says_what_its_verdict_rests_on(servers, options, told) -> None:
    asked = {"model": "Qwen/Qwen3-8B", "gpu": "h100", "context_tokens": 4096} | options
    found = kvreport.estimate(asked.pop("model"), **asked)
    command = found.to_dict()["command"]
    assert told in command, command
    assert "--max-model-len 4096" in command
    flags = {word for word in shlex.split(command) if word.startswith("--")}
    assert flags <= taken(servers["vllm"])


@pytest.mark.parametrize(
    "options",
    [
        {"gpu": "m4-max-128", "engine": "vllm"},
        {"weights": "bnb-4bit"},
        {"gpu": "dgx-spark-gb10", "utilization": 0.92},
        {"engine": "ceiling"},
        {"engine": "transformers"},
        {"gpu": ["h100", "a100"], "tensor_parallel": 2},
    ],
)
def test_nothing_is_printed_for_what_does_not_start_or_has_no_server(options) -> None:
    asked = {"gpu": "h100", "context_tokens": 4096} | options
    assert kvreport.estimate("Qwen/Qwen3-8B", **asked).to_dict()["command"] is None


def test_sglang_says_the_same_in_its_own_words(servers) -> None:
    found = kvreport.estimate(
        "deepseek-ai/DeepSeek-V3",
        gpu="h200",
        engine="sglang",
        tensor_parallel=8,
        context_tokens=4096,
        eager=True,
        draft="mtp",
        num_speculative_tokens=3,
    )
    command = found.to_dict()["command"]
    assert "--disable-cuda-graph --speculative-algorithm EAGLE --speculative-num-steps 3" in command
    assert {word for word in command.split() if word.startswith("--")} <= set(servers["sglang"].flags)
