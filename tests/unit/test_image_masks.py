"""Models whose images attend in both directions: who has the mask, and the blocks of the kernels that serve it."""

from __future__ import annotations

import pytest
from huggingface_configs import CONFIGS

from kvreport import estimate
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.plan import Serving
from kvreport.architectures import read_config
from kvreport.catalog.load import open_catalog

CATALOG = open_catalog()
GEMMA_4 = CONFIGS["config_assumptions"]["GEMMA_4"]


@pytest.mark.parametrize(
    ("model", "gpu", "release", "tokens"),
    [
        ("google/gemma-4-26B-A4B", "b200-sxm-180gb", "0.33.0", 64),
        ("google/gemma-4-26B-A4B", "b200-sxm-180gb", "0.30.0", 64),
        ("google/gemma-4-26B-A4B", "b200-sxm-180gb", "0.29.0", 16),
        ("nvidia/Gemma-4-31B-IT-NVFP4", "b200-sxm-180gb", "0.33.0", 64),
        ("google/gemma-4-12B-it", "b300-sxm-288gb", "0.33.0", 64),
        ("google/gemma-4-26B-A4B", "h100-sxm-80gb", "0.33.0", 16),
        ("google/gemma-4-26B-A4B", "rtx-4090", "0.33.0", 16),
        ("google/gemma-4-E4B-it", "b200-sxm-180gb", "0.33.0", 16),
        ("google/gemma-3-4b-it", "b200-sxm-180gb", "0.33.0", 64),
        ("google/gemma-3-27b-it", "b200-sxm-180gb", "0.33.0", 16),
    ],
)
def test_blackwell_s_kernels_for_images_have_blocks_of_64(model, gpu, release, tokens):
    found = estimate(model, gpu=gpu, engine=f"vllm@{release}", context_tokens=2048)
    assert found.plan.block_tokens == tokens


@pytest.mark.parametrize(
    "told", [{"limit_mm_per_prompt": {"image": 0, "video": 0}}, {"kv": "fp8_per_token_head"}]
)
def test_text_alone_and_scales_of_each_token_leave_those_kernels(told):
    asked = {"gpu": "b200-sxm-180gb", "engine": "vllm@0.33.0", "context_tokens": 8192}
    assert estimate("google/gemma-4-26B-A4B", **asked).plan.block_tokens == 64
    assert estimate("google/gemma-4-26B-A4B", **asked, **told).plan.block_tokens < 64


def test_devices_part_for_full_attention_with_such_a_mask():
    serving, engine = Serving(max_batched_tokens=8192), rules(CATALOG.engine("vllm"))
    plain = CATALOG.model("google/gemma-7b")
    masked = plain.model_copy(update={"attends_both_ways": True})
    devices = [CATALOG.accelerator(name) for name in ("h100-sxm-80gb", "b200-sxm-180gb")]
    first, second = (engine.plan_class(plain, None, device, serving) for device in devices)
    assert first == second
    first, second = (engine.plan_class(masked, None, device, serving) for device in devices)
    assert first != second


@pytest.mark.parametrize(("said", "masked"), [("vision", True), (None, False), ("", False)])
def test_the_config_says_whether_images_attend_both_ways(said, masked):
    text = GEMMA_4["text_config"] | ({} if said == "" else {"use_bidirectional_attention": said})
    assert read_config(GEMMA_4 | {"text_config": text}, id="a/b").attends_both_ways is masked


def test_the_unified_class_masks_images_by_default():
    config = {
        "architectures": ["Gemma4UnifiedForConditionalGeneration"],
        "text_config": {"num_hidden_layers": 7},
    }
    assert read_config(config, id="a/b").attends_both_ways
    config["text_config"] |= {"use_bidirectional_attention": None}
    assert not read_config(config, id="a/b").attends_both_ways


def test_copies_have_the_mask_of_their_original():
    names = ("mlx-community/gemma-4-31b-it-4bit", "mlx-community/gemma-4-e4b-it-4bit")
    assert [CATALOG.model(name).attends_both_ways for name in names] == [True, False]
