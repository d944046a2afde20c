"""TensorRT-LLM's blocks and budget, against what its logs print."""

import pytest

from kvreport.accounting import capacity
from kvreport.accounting.engines.tensorrt_llm import states_bytes, step_bytes_per_token, token_bytes
from kvreport.catalog.load import Catalog
from kvreport.errors import InputError
from kvreport.estimation.estimate import estimate
from kvreport.units import GIB


def test_latents_are_whole_on_every_rank(catalog: Catalog) -> None:
    # "Allocated 166.02 GiB for max tokens in paged KV cache (5073376)": eight B300, Kimi K2.5 with FP8 cache.
    fp8 = catalog.kv_format("fp8")
    one = token_bytes(catalog.model("moonshotai/Kimi-K2.5"), fp8, 8)
    assert one == 61 * 576
    assert one * 5_073_376 / GIB == pytest.approx(166.02, abs=0.005)


@pytest.mark.parametrize(
    ("model", "kv", "tokens", "gib"),
    [
        # "Allocated 9.06 GiB for max tokens in paged KV cache (422048)", and 16.05 GiB for 263,008 (#4275).
        ("HuggingFaceTB/SmolLM2-135M-Instruct", None, 422_048, 9.06),
        ("meta-llama/Llama-3.1-8B-Instruct", "fp8", 263_008, 16.05),
    ],
)
def test_bytes_of_logged_tokens(
    catalog: Catalog, model: str, kv: str | None, tokens: int, gib: float
) -> None:
    stored = None if kv is None else catalog.kv_format(kv)
    assert token_bytes(catalog.model(model), stored, 1) * tokens / GIB == pytest.approx(gib, abs=0.005)


def test_tokens_are_rounded_up_to_whole_blocks() -> None:
    found = estimate(
        "HuggingFaceTB/SmolLM2-135M-Instruct", gpu="rtx-4090", engine="tensorrt-llm", kv_pool=int(9.06 * GIB)
    )
    # 13,189 blocks of 32 tokens in the log; 9.06 GiB is what it prints of a pool with two decimals.
    blocks = int(capacity.blocks(found.budget.kv_pool_bytes, found.plan))
    assert blocks == pytest.approx(13_189, rel=6e-4)
    assert found.kv_pool_tokens == blocks * 32


def test_the_share_is_of_what_weights_and_the_reserve_leave() -> None:
    asked = {"gpu": "h100-sxm-80gb", "engine": "trtllm", "context_tokens": 8192}
    whole = estimate("meta-llama/Llama-3.1-8B-Instruct", utilization=1.0, **asked).budget  # type: ignore[arg-type]
    half = estimate("meta-llama/Llama-3.1-8B-Instruct", utilization=0.5, **asked).budget  # type: ignore[arg-type]
    left = whole.total_bytes - whole.weights - whole.activations - whole.non_framework
    assert whole.kv_pool_bytes == left
    assert half.kv_pool_bytes == left // 2


def test_one_published_log_of_eight_ranks_lies_in_the_band() -> None:
    found = estimate(
        "nvidia/Kimi-K2.5-NVFP4",
        gpu="b300-sxm-288gb",
        tensor_parallel=8,
        kv="fp8",
        engine="tensorrt-llm",
        context_tokens=8192,
    ).budget
    assert abs(found.kv_pool_bytes - 166.02 * GIB) < found.uncertainty_bytes


def test_states_of_all_requests_are_taken_first(catalog: Catalog) -> None:
    model = catalog.model("Qwen/Qwen3.5-27B")
    asked = {"gpu": "h200", "engine": "tensorrt-llm", "kv_pool": 40 * GIB}
    few = estimate(model.id, max_seqs=8, **asked)  # type: ignore[arg-type]
    more = estimate(model.id, max_seqs=72, **asked)  # type: ignore[arg-type]
    lost = 64 * states_bytes(model, 1) // token_bytes(model, None, 1)
    assert few.kv_pool_tokens is not None
    assert more.kv_pool_tokens is not None
    assert few.kv_pool_tokens - more.kv_pool_tokens == pytest.approx(lost, abs=32)


def test_blocks_are_powers_of_two_and_a_cache_must_grow() -> None:
    asked = {"gpu": "h100-sxm-80gb", "engine": "tensorrt-llm"}
    with pytest.raises(InputError, match="power of two"):
        estimate("Qwen/Qwen3-8B", block_size=48, **asked)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="growing cache"):
        estimate("tiiuae/falcon-mamba-7b", **asked)  # type: ignore[arg-type]


def test_memory_shared_with_a_cpu_names_the_cached_files() -> None:
    # A GB10 that had read gpt-oss-120b from its disk printed a pool of 5.95 GiB ("49.28 GiB outside torch").
    asked = {"context_tokens": "32K", "engine": "tensorrt-llm"}
    shared = estimate("openai/gpt-oss-120b", gpu="dgx-spark-gb10", **asked)
    assert any("page cache" in one for one in shared.to_dict()["assumptions"])
    own = estimate("openai/gpt-oss-120b", gpu="H100", **asked)
    assert not any("page cache" in one for one in own.to_dict()["assumptions"])


@pytest.mark.parametrize(
    ("model", "whole", "divided"),
    [
        # Six copies of 4,096 values of 16 bits; both halves of an inner side of 14,336 and their product.
        ("meta-llama/Llama-3.1-8B-Instruct", 12 * 4096, 6 * 14_336),
        # Six of 2,048; eight experts with an inner side of 768 each and an output of 2,048.
        ("Qwen/Qwen3-30B-A3B", 12 * 2048 + 8 * 2 * 2048, 8 * 6 * 768),
        # Dense layers and experts: the larger of both kinds at once.
        ("deepseek-ai/DeepSeek-V3", 12 * 7168 + 8 * 2 * 7168, 6 * 18_432 + 8 * 6 * 2048),
    ],
)
def test_a_step_takes_copies_of_the_stream_whole_and_inner_sides_divided(
    catalog: Catalog, model: str, whole: int, divided: int
) -> None:
    for ranks in (1, 2, 8):
        assert step_bytes_per_token(catalog.model(model), ranks) == whole + divided / ranks
