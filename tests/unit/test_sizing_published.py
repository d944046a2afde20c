"""Deployments that makers and engines publish for models with latent attention, and the first answer of ``size``."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kvreport.estimation.size import size

_VLLM = "https://docs.vllm.ai/projects/recipes/en/latest/"
_SGLANG = "https://docs.sglang.io/docs/basic_usage/deepseek_v3.md"
_KIMI = "https://github.com/MoonshotAI/Kimi-K2/blob/main/docs/deploy_guidance.md"
_TRT = "https://nvidia.github.io/TensorRT-LLM/deployment-guide/deployment-guide-for-glm-5-on-trtllm.html"


@dataclass(frozen=True)
class Published:
    """How many GPUs a guide names for a model, and the longest context for which it does."""

    model: str
    gpu: str
    devices: int
    source: str
    context: str = "32K"

    def __str__(self) -> str:
        return f"{self.devices} x {self.gpu} for {self.model}"


PUBLISHED = (
    Published("deepseek-ai/DeepSeek-R1", "h200-sxm-141gb", 8, f"{_VLLM}DeepSeek/DeepSeek-V3.html"),
    Published("nvidia/DeepSeek-V3.1-NVFP4", "b200-sxm-180gb", 4, f"{_VLLM}DeepSeek/DeepSeek-V3.html"),
    Published("deepseek-ai/DeepSeek-V3", "h200-sxm-141gb", 8, _SGLANG),
    Published("deepseek-ai/DeepSeek-V3", "b200-sxm-180gb", 8, _SGLANG),
    Published("deepseek-ai/DeepSeek-V3", "mi300x", 8, _SGLANG),
    Published("deepseek-ai/DeepSeek-V3", "h100-sxm-80gb", 16, _SGLANG),
    Published("deepseek-ai/DeepSeek-V3", "h800-sxm-80gb", 16, _SGLANG),
    Published("deepseek-ai/DeepSeek-V3", "h20-96gb", 16, _SGLANG),
    Published("moonshotai/Kimi-K2-Instruct", "h200-sxm-141gb", 16, _KIMI, "128K"),
    Published("zai-org/GLM-5.1-FP8", "h200-sxm-141gb", 8, f"{_VLLM}GLM/GLM5.html"),
    Published("zai-org/GLM-5.1-FP8", "h20-141gb", 8, f"{_VLLM}GLM/GLM5.html"),
    Published("zai-org/GLM-5-FP8", "b200-sxm-180gb", 8, _TRT),
)


@pytest.mark.parametrize("one", PUBLISHED, ids=str)
def test_the_first_answer_takes_as_many_gpus_as_a_published_deployment(one: Published) -> None:
    # The guides state no load: the answer must hold for one request and for sixteen of them.
    for concurrent in (1, 16):
        first = size(one.model, context=one.context, concurrent=concurrent, gpus=[one.gpu])
        assert first.ranking.deployments[0].devices == one.devices, concurrent


def test_the_layout_follows_the_load_as_vllms_guide_advises() -> None:
    # DeepSeek-V3.html: tensor parallelism on 8 H200 or 4 B200 for low loads, data ranks with expert parallelism for high ones.
    # On Hopper graphs keep partial results for all heads of a data rank, for as many requests as it is told to run at once. Experts
    # take the tokens of all data ranks: with steps of 8,192 the H200 have no room for 64 such requests in this way.
    for model, gpu, ranks, step in (
        ("deepseek-ai/DeepSeek-R1", "h200-sxm-141gb", 8, 2048),
        ("nvidia/DeepSeek-V3.1-NVFP4", "b200-sxm-180gb", 4, None),
    ):
        for concurrent, expected in ((1, f"tp{ranks}"), (64, f"dp{ranks}-ep")):
            first = size(model, context="32K", concurrent=concurrent, gpus=[gpu], max_batched_tokens=step)
            assert first.ranking.deployments[0].layout.label == expected, (model, concurrent)


def test_layouts_of_the_same_hardware_are_ordered_by_step_plainness_and_requests() -> None:
    found = size("deepseek-ai/DeepSeek-V3", context="32K", concurrent=16, gpus=["h200-sxm-141gb"])
    listed = found.same_hardware(found.ranking.deployments[0])
    assert len(listed) > 3
    assert {one.devices for one in listed} == {8}
    shortest = min(one.tpot_bound_s for one in listed)
    quick = [one for one in listed if one.tpot_bound_s <= 1.5 * shortest]
    assert listed[: len(quick)] == tuple(quick)
    for group in (quick, listed[len(quick) :]):
        ways = [
            (one.layout.data > 1) + (one.layout.pipeline > 1) + (one.layout.decode_context > 1)
            for one in group
        ]
        assert ways == sorted(ways)
    # The fastest does not come first where it is a combination of more ways and hardly faster.
    h100 = size("deepseek-ai/DeepSeek-V3", context="32K", concurrent=16, gpus=["h100-sxm-80gb"])
    first = h100.ranking.deployments[0]
    fastest = min(h100.same_hardware(first), key=lambda one: one.tpot_bound_s)
    assert (first.layout.label, fastest.layout.label) == ("dp4-tp4-ep", "dp2-tp8-ep-dcp8")
    assert fastest.tpot_bound_s < first.tpot_bound_s <= 1.5 * fastest.tpot_bound_s


def test_kimi_k2_on_16_h800_holds_one_long_request_where_all_sixteen_share_its_cache() -> None:
    # vLLM's recipe names 16 H800 for 128K, but its command asks for one request of 2,048 tokens (Kimi-K2.html).
    # With 1,024 sequences, as by default, graphs keep 4 GiB for 512 of them on each rank (:func:`partial_bytes_per_row`).
    asked = {"concurrent": 1, "gpus": ["h800-sxm-80gb"], "max_seqs": 256}
    for context in (2048, "128K"):
        first = size("moonshotai/Kimi-K2-Instruct", context=context, **asked).ranking.deployments[0]
        assert first.devices == 16, context
    # All sixteen share its cache: by tokens (tp16-dcp16) or, which holds more, by stages and tokens.
    assert first.layout.pipeline * first.layout.decode_context == 16
