"""DeepSeek-V4.1: a published checkpoint to the byte, and the cache that its makers state."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_configs import CONFIGS

from kvreport.accounting.weights import released_bytes
from kvreport.architectures import read_config
from kvreport.catalog.caches import Indexer, Latent, Ring, Shared
from kvreport.catalog.load import open_catalog
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.estimation.estimate import estimate

CONFIG: dict[str, Any] = CONFIGS["deepseek_v41"]["CONFIG"]


@pytest.fixture(scope="module")
def model() -> Model:
    return read_config(CONFIG)


def test_the_tensors_make_the_published_checkpoint(model: Model) -> None:
    # The headers of its 48 files hold 96,085 tensors and 510,286,023,000 bytes. Scales of the dense FP8
    # matrices count four bytes here and have one there: three more for each block of 32 x 32.
    formats = open_catalog().weight_formats
    dense = sum(
        row.count * row.shape[0] * row.shape[1] for row in model.weights if row.released == "fp8-block-32x32"
    )
    assert released_bytes(model, formats) - 3 * dense // 1024 == 510_286_023_000
    engrams = [row for row in model.weights if row.name.endswith("engram.embed.weight")]
    assert sum(row.parameters for row in engrams) == 196_613_849_600
    assert {row.released for row in engrams} == {"mxfp8"}


def test_four_layers_keep_what_the_others_read(model: Model) -> None:
    kept = {index: group.caches for group in model.layers for index in group.indices}
    sources = [index for index, caches in kept.items() if any(isinstance(c, Indexer) for c in caches)]
    assert sources == [2, 8, 14, 20]
    assert [index for index, caches in kept.items() if len(caches) == 1] == [0, 1]
    assert sum(any(isinstance(cache, Shared) for cache in caches) for caches in kept.values()) == 34
    assert all(isinstance(caches[0], Latent) and caches[0].window == 128 for caches in kept.values())
    assert [any(isinstance(c, Ring) for c in kept[index]) for index in sources] == [True, True, True, False]
    # Three layers keep one latent and one key for two tokens, one layer for each. In the narrowest formats of
    # vLLM 0.33, 288 and 68 bytes, that makes the 890 bytes per token that the makers state.
    strides = [cache.stride for index in sources for cache in kept[index] if isinstance(cache, Indexer)]
    assert strides == [2, 2, 2, 1]
    assert sum((288 + 68) / stride for stride in strides) == 890


def test_pools_that_are_not_known_are_not_guessed() -> None:
    with pytest.raises(InputError, match="are not computed here; allowed: vllm"):
        estimate("deepseek-v4.1-flash", gpu="h200", tensor_parallel=8, engine="sglang")


def test_tables_of_n_grams_lie_in_host_memory() -> None:
    # vLLM 0.33, config/engram.py: cpu_offload is the default. 203 GB of 510 are not on the GPUs.
    answer = estimate("deepseek-v4.1-flash", gpu="h200", tensor_parallel=8)
    assert 8 * answer.budget.weights < 430e9
    older = estimate("deepseek-v4.1-flash", gpu="h200", tensor_parallel=8, engine="vllm 0.25")
    assert older.verdict == "engine_does_not_run"


@pytest.mark.parametrize(
    ("engine", "gpu", "per_token"),
    [
        # Three layers keep a latent and a key for two tokens, one keeps them for each: 2.5 of both for a token.
        ("vllm", "b300", int(2.5 * (288 + 132))),
        ("vllm@0.30.0", "b300", int(2.5 * (528 + 132))),
    ],
)
def test_what_the_kernels_store_is_what_a_token_is_said_to_take(
    engine: str, gpu: str, per_token: int
) -> None:
    """Latents in records of their own are no longer than these, in the arithmetic and in the upper bound too."""
    found = estimate(
        "deepseek-v4.1-flash",
        gpu=gpu,
        engine=engine,
        tensor_parallel=4,
        context_tokens=349_577,
        max_batched_tokens=512,
        max_seqs=1,
        eager=True,
    )
    told = found.to_dict()
    assert told["kv_bytes_per_token_per_gpu"] == per_token
    assert any(f"each additional token adds {per_token:,} B" in line for line in found.explanation)
    assert told["max_concurrent_requests_by_memory"] <= told["max_concurrent_requests_ceiling"]
