"""mlx-lm's memory, held against published runs of its benchmark."""

from __future__ import annotations

from typing import Any

import pytest

from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.mlx import CHUNK_BYTES, Mlx, latent_score_bytes
from kvreport.catalog.load import open_catalog
from kvreport.estimation import estimate
from kvreport.estimation.named import engine_named


@pytest.mark.parametrize(
    ("model", "weights", "peak"),
    [
        # mlx_lm.benchmark -p 2048 -g 128 on an M4 Max, mlx-lm 0.28.2; GB of 10^9 bytes.
        ("Qwen/Qwen3-4B-Instruct-2507", None, 9.02),
        ("Qwen/Qwen3-4B-Instruct-2507", "mlx-6bit", 4.25),
        ("Qwen/Qwen3-4B-Instruct-2507", "mlx-5bit", 3.86),
        ("Qwen/Qwen3-4B-Instruct-2507", "mlx-4bit", 3.35),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "mlx-5bit", 22.01),
    ],
)
def test_peak_of_a_benchmark(model: str, weights: str | None, peak: float) -> None:
    """Weights, cache in steps of 256 and one chunk of the prompt: within 3% of the printed peak."""
    answer = estimate(model, gpu="m4-max-128", engine="mlx", weights=weights, context_tokens=2048 + 128)
    total = answer.budget.weights + answer.budget.activations + answer.kv_bytes_per_request_per_gpu
    assert total / 1e9 == pytest.approx(peak, rel=0.035)


@pytest.mark.parametrize(("context", "peak"), [(4096, 383.213), (8192, 388.343), (16384, 398.605)])
def test_latent_scores_grow_with_the_context(context: int, peak: float) -> None:
    """DeepSeek-V3 in 4 bits with a latent cache, as printed by mlx-lm's own benchmark, in GB."""
    answer = estimate("deepseek-ai/DeepSeek-V3", gpu="m3-ultra-512", engine="mlx", weights="mlx-4bit")
    total = answer.budget.weights + 700e6 + latent_score_bytes(128, context) + 61 * 576 * 2 * context
    assert total / 1e9 == pytest.approx(peak, rel=0.01)


@pytest.mark.parametrize("context", [8192, 208_384])
def test_scores_of_heads_without_a_fused_kernel(context: int) -> None:
    """LM Studio's own line for Qwen3.8-27B on an MLX that does not fuse heads of 256: 98,304 B per token."""
    asked: dict[str, Any] = {"gpu": "m1-max-64", "weights": "mlx-4bit", "context_tokens": context}
    older = estimate("Qwen/Qwen3.8-27B", engine="mlx@0.31.2", **asked)
    assert older.budget.activations - CHUNK_BYTES == 98_304 * context
    newer = estimate("Qwen/Qwen3.8-27B", engine="mlx", **asked)
    assert newer.budget.activations == CHUNK_BYTES
    assert any("mlx@0.31.2" in note for note in newer.plan.notes)


def test_a_prompt_that_lm_studio_fits_is_one_request() -> None:
    """208,384 tokens on 64 GB: one request fits with its scores, two do not; and 256K does not."""
    asked: dict[str, Any] = {"gpu": "m1-max-64", "weights": "mlx-4bit", "engine": "mlx@0.31.2"}
    found = estimate("Qwen/Qwen3.8-27B", context_tokens=208_384, **asked)
    assert found.max_concurrent_requests == 1
    assert estimate("Qwen/Qwen3.8-27B", context_tokens=262_144, **asked).max_concurrent_requests == 0


@pytest.mark.parametrize(
    ("release", "fused"),
    [
        ("0.28.0", {64, 80, 128}),
        ("0.32.1", {64, 72, 80, 96, 128}),
        ("0.32.4", {64, 72, 80, 96, 128, 192, 256}),
    ],
)
def test_kernels_by_release(release: str, fused: set[int]) -> None:
    """The widths that the kernels in MLX's own packages have, and no others."""
    found = rules(engine_named(open_catalog(), f"mlx@{release}"))
    assert isinstance(found, Mlx)
    assert {width for width in range(32, 520, 8) if found._fused(width, width)} == fused


def test_a_longer_prompt_takes_more_scratch_where_no_kernel_fuses() -> None:
    """Latent attention and heads of 512 grow with the prompt; a GPU with matrix units fuses 512."""
    asked: dict[str, Any] = {"engine": "mlx", "weights": "mlx4-g64"}
    latent = estimate("deepseek-ai/DeepSeek-V3", gpu="m3-ultra-512", context_tokens=16384, **asked)
    assert latent.budget.activations == CHUNK_BYTES + latent_score_bytes(128, 16384)
    wide, units = (
        estimate("google/gemma-4-31B-it", gpu=gpu, context_tokens=65536, **asked)
        for gpu in ("m4-max-64", "m5-max-64")
    )
    assert wide.budget.activations == CHUNK_BYTES + 32 * 2048 * 65536 * 2
    assert units.budget.activations == CHUNK_BYTES
    rows = [row.max_concurrent_requests for row in wide.by_context]
    assert rows == sorted(rows, reverse=True)


def test_a_window_holds_a_chunk_of_the_prompt_beside_what_it_sees() -> None:
    """mlx-lm's ``RotatingKVCache`` trims to the window less one before it appends a chunk of 2,048 tokens.

    gpt-oss-20b: 12 windows of 128 tokens and 12 full layers in steps of 256 tokens; 8 heads of 64 keys and values of 16 bits.
    """
    one = 12 * 8 * (64 + 64) * 2
    profile = estimate(
        "openai/gpt-oss-20b", gpu="m4-max-128", engine="mlx", context_tokens=65536
    ).plan.profile
    for context, held in ((1000, 1000), (2175, 2175), (2176, 2175), (65536, 128 + 2048 - 1)):
        assert int(profile.request_bytes(context)) == one * (held + -(-context // 256) * 256), context
