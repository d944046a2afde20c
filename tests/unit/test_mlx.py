"""mlx-lm's memory, held against published runs of its benchmark."""

from __future__ import annotations

import pytest

from kvreport.accounting.engines.mlx import latent_score_bytes
from kvreport.estimation import estimate


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
