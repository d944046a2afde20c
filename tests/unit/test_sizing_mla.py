"""Models with latent attention: the first answer divides the cache instead of copying it to each tensor rank."""

from __future__ import annotations

import pytest

from kvreport.errors import InputError
from kvreport.estimation.size import size

LARGE = (
    "deepseek-ai/DeepSeek-V3",  # R1 and V3.1 have its layers, weights and formats
    "deepseek-ai/DeepSeek-V3.2",
    "deepseek-ai/DeepSeek-V4-Flash",
    "deepseek-ai/DeepSeek-V4-Pro",
    "moonshotai/Kimi-K2-Instruct",
    "moonshotai/Kimi-K2.5",
    "zai-org/GLM-5",
)


@pytest.mark.parametrize("gpu", ["h200-sxm-141gb", "h100-sxm-80gb", "mi300x"])
@pytest.mark.parametrize("model", LARGE)
def test_the_first_answer_for_latent_attention_divides_its_cache(model: str, gpu: str) -> None:
    # On MI300X two stages hang on the error of stages, and without stages one copy of GLM-5 holds 42 requests.
    concurrent = 40 if gpu == "mi300x" else 64
    asked = {"context": "32K", "concurrent": concurrent, "gpus": [gpu]}
    if gpu == "h100-sxm-80gb":
        # Experts take the tokens of all data ranks: in steps of 8,192, DeepSeek-V4-Pro needs stages on 160 such GPUs.
        asked["max_batched_tokens"] = 2048
    first = size(model, **asked).ranking.deployments[0]
    assert first.layout.data > 1 or first.layout.decode_context > 1
    # One copy of the weights serves the load, in as many GPUs as hold it.
    assert first.devices == first.layout.devices
    try:
        plain = size(model, tensor_parallel=(1, 2, 4, 8), **asked).ranking.deployments[0]
    except InputError as error:
        if not any(
            words in str(error)
            for words in (
                "exceed the memory of all available devices",
                "does not fit on the available devices",
            )
        ):
            raise
        return  # one server is too small for this model
    assert first.devices <= plain.devices


@pytest.mark.parametrize("gpu", ["h200-sxm-141gb", "h100-sxm-80gb", "mi300x"])
def test_a_small_model_with_latent_attention_needs_no_second_gpu(gpu: str) -> None:
    asked = {"context": "32K", "concurrent": 64, "gpus": [gpu]}
    assert size("deepseek-ai/DeepSeek-V2-Lite", **asked).ranking.deployments[0].layout.devices == 1
