"""Models whose images attend in both directions: who has the mask, the blocks of the kernels that serve it, and the step."""

from __future__ import annotations

import numpy as np
import pytest
import rows
from huggingface_configs import CONFIGS

from kvreport import estimate
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.plan import Serving
from kvreport.architectures import read_config
from kvreport.catalog.load import open_catalog
from kvreport.dataset.grid import axes
from kvreport.dataset.matrix import matrix
from kvreport.errors import InputError

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


@pytest.mark.parametrize(
    ("release", "model", "gpu", "tokens"),
    [
        ("0.33.0", "google/gemma-4-26B-A4B", "rtx-4090", 2496),
        ("0.33.0", "google/gemma-4-26B-A4B", "a100-sxm4-80gb", 2496),
        ("0.33.0", "google/gemma-4-26B-A4B", "h100-sxm-80gb", 8192),
        ("0.33.0", "google/gemma-4-E4B-it", "rtx-4090", 2048),
        ("0.33.0", "google/gemma-3-12b-it", "rtx-4090", 2048),
        ("0.23.0", "google/gemma-4-12B-it", "rtx-4090", 2496),
        ("0.22.0", "google/gemma-4-26B-A4B", "rtx-4090", 2496),
        ("0.20.2", "google/gemma-4-26B-A4B", "rtx-4090", 2048),
        ("0.19.1", "google/gemma-4-26B-A4B", "rtx-4090", 2048),
    ],
)
def test_steps_hold_the_longest_video(release, model, gpu, tokens):
    served = rules(CATALOG.engine(f"vllm@{release}"))
    record, device = CATALOG.model(model), CATALOG.accelerator(gpu)
    assert served.scheduler(device, model=record)[0] == tokens
    assert served.least_step(record) == (2496 if record.attends_both_ways and release != "0.19.1" else 0)


@pytest.mark.parametrize(("engine", "told"), [("vllm", {"max_batched_tokens": 2048}), ("vllm@0.20.2", {})])
def test_a_step_that_does_not_hold_the_longest_video_is_refused(engine, told):
    asked = {
        "gpu": "rtx-4090",
        "tensor_parallel": 2,
        "engine": engine,
        "weights": "fp8",
        "context_tokens": 8192,
        **told,
    }
    with pytest.raises(InputError, match=r"max-batched-tokens: found 2,048 .* at least 2,496"):
        estimate("google/gemma-4-26B-A4B", **asked)
    found = estimate("google/gemma-4-26B-A4B", **asked, limit_mm_per_prompt={"video": 0})
    assert found.request.serving.max_batched_tokens == 2048


def test_text_alone_has_the_usual_step():
    text = {"limit_mm_per_prompt": {"image": 0, "video": 0}}
    found = estimate("google/gemma-4-26B-A4B", gpu="rtx-4090", engine="vllm", **text)
    assert found.request.serving.max_batched_tokens == 2048


def test_the_matrix_takes_the_step_of_the_model():
    asked = {"models": "google/gemma-4-26B-A4B,google/gemma-4-E4B-it", "gpus": "rtx-4090,h100-sxm-80gb"}
    compared = 0
    for cube in matrix(axes(CATALOG, **asked)):
        for where in np.argwhere(cube.possible).tolist()[::7]:
            compared += rows.compare(CATALOG, cube, tuple(where), 3, cube.engine)
    assert compared > 4


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
