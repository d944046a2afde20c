"""Commands say only what the engines' own argument parsers take."""

import pytest

from kvreport.catalog.server_flags import ServerFlags, load_server_flags
from kvreport.estimation.commands import Served, Server, serving_command, tensorrt_llm_options
from kvreport.resources import data_dir

EVERYTHING = Served(
    model="org/model",
    tensor_parallel=4,
    context_tokens=8192,
    max_seqs=16,
    weight_format="fp8",
    kv_format="fp8",
    kv_is_own=False,
    share=0.85,
    pipeline_parallel=2,
    data_parallel=2,
    expert_parallel=True,
)


@pytest.fixture(scope="module")
def servers() -> dict[str, ServerFlags]:
    return load_server_flags(data_dir())


@pytest.mark.parametrize("server", ["vllm", "sglang", "tensorrt_llm", "llama_cpp"])
@pytest.mark.parametrize(
    "served", [EVERYTHING, Served("org/model", 1, 4096), Served("m", 2, 4096, 3, kv_is_own=False)]
)
def test_every_flag_of_a_command_is_one_that_the_server_takes(
    servers: dict[str, ServerFlags], server: Server, served: Served
) -> None:
    command = serving_command(server, served)
    known = servers[server]
    assert command.startswith(known.command)
    flags = [word for word in command.split() if word.startswith("--")]
    assert flags
    assert set(flags) <= set(known.flags)


def test_the_lists_are_whole_parsers_not_the_flags_we_use(servers: dict[str, ServerFlags]) -> None:
    assert {"--tp-size", "--enable-dp-attention", "--swa-full-tokens-ratio"} <= set(servers["sglang"].flags)
    assert {"--tensor-parallel-size", "--kv-cache-memory-bytes"} <= set(servers["vllm"].flags)
    assert {"--free_gpu_memory_fraction", "--max_batch_size"} <= set(servers["tensorrt_llm"].flags)
    assert {"--n-gpu-layers", "--kv-unified"} <= set(servers["llama_cpp"].flags)


def test_attention_data_parallelism_in_each_engines_words() -> None:
    assert "--tp-size 8 --pp-size 2 --dp-size 2 --enable-dp-attention --ep-size 8" in serving_command(
        "sglang", EVERYTHING
    )
    assert "--tensor-parallel-size 4 --pipeline-parallel-size 2 --data-parallel-size 2" in serving_command(
        "vllm", EVERYTHING
    )
    assert tensorrt_llm_options(EVERYTHING) == {
        "enable_attention_dp": True,
        "kv_cache_config": {"dtype": "fp8"},
    }


def test_llama_cpp_takes_the_context_of_all_requests_together() -> None:
    assert "--ctx-size 131072 --parallel 16" in serving_command("llama_cpp", EVERYTHING)
