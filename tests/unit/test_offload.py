"""Host memory for evicted blocks: which ranks share it, and what it keeps."""

from __future__ import annotations

from typing import Any

import pytest

from kvreport.catalog.load import Catalog
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.units import GIB

CONTEXT = 32_768


def tokens(catalog: Catalog, model: str, engine: str = "vllm", **asked: Any) -> int:
    """Tokens that 64 GiB for each data rank keep."""
    found = estimate(
        model,
        **({"gpu": "H200", "context_tokens": CONTEXT, "kv_offload": 64 * GIB} | asked),
        engine=engine,
        catalog=catalog,
    )
    assert found.offloaded_tokens is not None
    return found.offloaded_tokens


@pytest.mark.parametrize("engine", ["vllm", "vllm@0.27.0", "vllm@0.26.0"])
def test_all_ranks_of_a_data_rank_divide_host_memory(catalog: Catalog, engine: str) -> None:
    """A token of Llama 3.1 70B takes 327,680 B however two or four ranks divide it; pipeline stages counted as free."""
    layouts = (
        {"tensor_parallel": 2},
        {"pipeline_parallel": 2},
        {"tensor_parallel": 2, "pipeline_parallel": 2},
    )
    kept = {tokens(catalog, "llama-3.1-70b", engine, **layout) for layout in layouts}
    assert kept == {64 * GIB // (16 * 327_680) * 16}


@pytest.mark.parametrize(
    ("engine", "model", "gpu", "layout", "copies"),
    [
        ("vllm@0.26.0", "deepseek-v3", "H200", {"tensor_parallel": 8}, 8),
        ("vllm@0.27.0", "deepseek-v3", "H200", {"tensor_parallel": 8}, 1),
        ("vllm", "deepseek-v3", "H200", {"tensor_parallel": 8}, 1),
        # Only one process per node maps the region, and stages hold other layers.
        ("vllm", "deepseek-v3", "H200", {"tensor_parallel": 16, "nodes": 2}, 16),
        ("vllm", "deepseek-v3", "H200", {"tensor_parallel": 8, "pipeline_parallel": 2, "nodes": 2}, 16),
        ("vllm", "deepseek-v3", "H200", {"tensor_parallel": 8, "decode_context_parallel": 8}, 8),
        ("vllm", "deepseek-v3", "B200", {"tensor_parallel": 4, "data_parallel": 2}, 1),
        ("vllm", "deepseek-v3", "H200", {"data_parallel": 8, "expert_parallel": True}, 1),
        # ROCm had the region up to 0.30.
        ("vllm@0.30.0", "deepseek-v3", "MI325X", {"tensor_parallel": 8}, 1),
        ("vllm", "deepseek-v3", "MI325X", {"tensor_parallel": 8}, 8),
        # Index keys next to latents: two kinds of pages.
        ("vllm@0.30.0", "deepseek-v3.2", "H200", {"tensor_parallel": 8}, 8),
        ("vllm@0.31.0", "deepseek-v3.2", "H200", {"tensor_parallel": 8}, 1),
        ("vllm", "llama-3.1-70b", "H200", {"tensor_parallel": 8}, 8),
        ("vllm", "moonshotai/Kimi-Linear-48B-A3B-Instruct", "H200", {"tensor_parallel": 4}, 4),
        ("sglang", "deepseek-v3", "H200", {"tensor_parallel": 8}, 8),
    ],
)  # fmt: skip
def test_equal_latents_are_kept_once_where_ranks_map_one_region(
    engine: str, model: str, gpu: str, layout: dict[str, Any], copies: int
) -> None:
    found = estimate(model, gpu=gpu, engine=engine, context_tokens=8192, kv_offload="64GiB", **layout)
    assert found.to_dict()["extras"]["offload"]["copies"] == copies
    asked = copies * found.held.request_bytes(8192)
    requests = (found.offloaded_tokens or 0) // 8192
    assert requests * asked <= 64 * GIB < (requests + 2) * asked * 1.1


def test_windows_and_states_are_counted_as_a_release_stores_them(catalog: Catalog) -> None:
    """Gemma 3 27B: 62 layers in seven groups of a block; ten layers of full attention alone gave 838,860 tokens."""
    chunks, blocks = 64 * GIB // (2 * 655_360), CONTEXT // 16
    dense = tokens(catalog, "gemma-3-27b", "vllm@0.28.0", tensor_parallel=2)
    assert dense == chunks * CONTEXT // (7 * blocks)
    # Since 0.29 only the window before a prompt's end: 1,023 tokens in each of six groups.
    sparse = tokens(catalog, "gemma-3-27b", tensor_parallel=2)
    assert sparse == chunks * CONTEXT // (blocks + 6 * 64)
    states = tokens(catalog, "qwen3.6-27b", tensor_parallel=2)
    assert states < 64 * GIB // (2 * 32_768)


def test_sglang_divides_whole_gigabytes_of_each_rank_by_its_pools(catalog: Catalog) -> None:
    for layout in ({"tensor_parallel": 2}, {"pipeline_parallel": 2}):
        asked: dict[str, Any] = {"gpu": "H200", "context_tokens": CONTEXT, **layout}
        found = estimate("llama-3.1-70b", engine="sglang", kv_offload="64GiB", **asked)
        # 68.7 GB for two ranks.
        assert "--hicache-size 34" in str(found.command)
        assert found.offloaded_tokens == 34 * 10**9 // 163_840
    windows = tokens(catalog, "gpt-oss-120b", "sglang", tensor_parallel=2)
    assert windows < 64 * GIB // (2 * 33_178)


def test_host_memory_of_no_block_is_refused(catalog: Catalog) -> None:
    """``--hicache-size 0`` would be SGLang's default: twice the pool."""
    with pytest.raises(InputError, match="kv-offload: found 1 GiB for 8 ranks"):
        tokens(catalog, "llama-3.1-70b", "sglang", tensor_parallel=8, kv_offload=GIB)


def test_host_memory_of_a_deployment_counts_all_data_ranks() -> None:
    asked: dict[str, Any] = {"gpu": "H200", "context_tokens": 8192, "kv_offload": "64GiB"}
    found = estimate("qwen3-8b", **asked, data_parallel=8)
    assert found.to_dict()["host_bytes"]["cache"] == 8 * 64 * GIB
    assert found.to_dict()["extras"]["offload"]["shared_memory_bytes"] == 8 * 64 * GIB
    older = estimate("qwen3-8b", **asked, engine="vllm@0.26.0")
    assert older.shared_memory_bytes == 0
    # Each node maps the whole region.
    spread = estimate("llama-3.1-70b", **asked, tensor_parallel=2, pipeline_parallel=8, nodes=2)
    assert (spread.shared_memory_bytes, spread.to_dict()["host_bytes"]["cache"]) == (64 * GIB, 64 * GIB)


@pytest.mark.parametrize(
    ("kind", "stated"),
    [("compose", 'shm_size: "72gb"'), ("kubernetes", "sizeLimit: 72Gi"), ("helm", "shmSize: 72Gi")],
)
def test_a_files_shared_memory_holds_evicted_blocks(
    kind: str, stated: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A region beyond ``/dev/shm`` does not start; it had 8 GiB for eight GPUs whatever was offloaded."""
    words = [
        "estimate",
        "llama-3.1-70b",
        "--gpu",
        "H200",
        "--tp",
        "8",
        "--context",
        "8K",
        "--kv-offload",
        "64GiB",
    ]
    assert main([*words, "--as", kind]) == 0
    written = capsys.readouterr().out
    assert stated in written.replace('"72Gi"', "72Gi")
    assert "64.00 GiB for evicted KV blocks" in written
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "the 8 ranks divide that host memory, and each keeps its own blocks in it" in said
    assert "shm, which needs 64.00 GiB on each node" in said
