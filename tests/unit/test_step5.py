"""Step 5: regions of tokens that an indexer picks by FP8 summaries, and Intern-S1-Pro's learned Fourier coefficients."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_configs import CONFIGS

from kvreport.accounting.kv_cache import index_bytes
from kvreport.architectures.reader import read_config, read_config_report
from kvreport.catalog.caches import FullAttention, Indexer, SlidingWindow
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.estimation import estimate

# Step-5-Preview, as a public study quotes its config and the shapes in the headers of its files.
SPARSE: dict[str, Any] = CONFIGS["step5"]["SPARSE"]
TEXT: dict[str, Any] = {
    "architectures": ["Step4ForCausalLM"],
    "model_type": "step4",
    "hidden_size": 4096,
    "intermediate_size": 13_824,
    "num_hidden_layers": 92,
    "vocab_size": 128_896,
    "num_attention_heads": 64,
    "num_attention_groups": 4,
    "num_attention_groups_sliding_attention": 4,
    "head_dim": 192,
    "sliding_window": 512,
    "max_seq_len": 1_048_576,
    "norm_dtype": "float32",
    "moe_num_experts": 352,
    "moe_intermediate_size": 1536,
    "moe_top_k": 8,
    "share_expert_dim": 1536,
    "moe_layer_list": list(range(3, 91)),
    "num_nextn_predict_layers": 3,
    "use_head_wise_attn_gate": True,
    "layer_types": ["full_attention" if i % 4 == 3 else "sliding_attention" for i in range(95)],
    "sparse_config": SPARSE,
    "torch_dtype": "bfloat16",
}
VISION: dict[str, Any] = {
    "model_type": "perception_encoder",
    "image_size": 728,
    "patch_size": 14,
    "width": 1536,
    "layers": 47,
    "heads": 16,
}


def step5(**text: object) -> Model:
    return read_config(
        {
            "architectures": ["MMGPTStepRoboticsForCausalLM"],
            "model_type": "step3p5v",
            "projector_bias": False,
            "tie_word_embeddings": False,
            "vision_config": VISION,
            "text_config": {**TEXT, **text},
        },
        id="local/step5",
    )


def counted(model: Model, *components: str) -> int:
    total = 0
    for row in model.weights:
        if not components or row.component in components:
            size = row.count
            for side in row.shape:
                size *= side
            total += size
    return total


def test_step5_has_the_tensors_of_its_files() -> None:
    model = step5()
    hidden, heads = 4096, 64 * 192
    attention = 2 * heads * hidden + 2 * 768 * hidden + 64 * hidden + 2 * 192 + 2 * hidden
    dense = 3 * 13_824 * hidden
    mixed = 352 * hidden + 352 + (352 + 1) * 3 * 1536 * hidden
    picks = hidden * hidden + 2 * 256 * hidden + 3 * 256 + 16 * hidden + 64
    text = 92 * attention + 4 * dense + 88 * mixed + 23 * picks + 2 * 128_896 * hidden + hidden
    predicting = 3 * (2 * hidden * hidden + 3 * hidden + attention + dense + 128_896 * hidden)
    assert counted(model, "mtp") == predicting == 2_515_858_560
    assert counted(model) - counted(model, "mtp", "vision") == text == 598_476_053_952
    # The Hub shows 604,339,504,832: it counts the copies in the repository's last shard too, the 17 tensors of the first
    # prediction layer and one more matrix of the vocabulary.
    assert counted(model) == 604_339_504_832 - predicting // 3 - 128_896 * hidden


def test_full_layers_keep_one_summary_of_256_bytes_for_8_tokens() -> None:
    windows, full = step5().layers
    assert windows.caches == (SlidingWindow(kv_heads=4, key_dim=192, value_dim=192, window=512),)
    assert full.indices == tuple(range(3, 92, 4))
    keys, index = full.caches
    assert keys == FullAttention(kv_heads=4, key_dim=192, value_dim=192)
    assert isinstance(index, Indexer)
    assert (index.stride, index.top_k, index_bytes(index)) == (8, 4096, 256)


def test_vllm_keeps_the_open_region_in_one_page_of_each_full_layer() -> None:
    answer = estimate(model=step5(), gpu="b300", engine="vllm", tensor_parallel=8, context_tokens=8192)
    laid = {(group.kind, group.layers, group.page_bytes) for group in answer.plan.groups}
    page = 16 * (192 + 192) * 2 * 23
    assert ("ring", 23, page) in laid
    assert ("full", 46, page + 23 * 2 * 256) in laid


def test_its_text_model_alone_and_without_an_indexer() -> None:
    text = read_config({**TEXT, "sparse_config": {**SPARSE, "enabled": False}}, id="local/step4")
    assert [cache.kind for group in text.layers for cache in group.caches] == ["sliding", "full"]
    assert counted(text, "vision") == 0


INTERN: dict[str, Any] = CONFIGS["step5"]["INTERN"]
TOWER: dict[str, Any] = CONFIGS["step5"]["TOWER"]


def pro(name: str, **rope: object) -> dict[str, Any]:
    return {
        "architectures": [name],
        "tie_word_embeddings": False,
        "vision_config": {**TOWER, **({} if "Pro" in name else {"deepstack_visual_indexes": []})},
        "text_config": {**INTERN, "rope_scaling": {"rope_type": "default", **rope}},
        "torch_dtype": "bfloat16",
    }


def test_intern_s1_pro_says_that_time_series_are_left_out_and_wants_its_coefficients() -> None:
    config = pro("InternS1ProForConditionalGeneration", fope_sep_head=True)
    report = read_config_report({**config, "ts_config": {"d_model": 768}}, id="local/intern")
    assert any("time series" in note for note in report.model.notes)
    with pytest.raises(InputError, match="fope_init_factor"):
        read_config(pro("InternS1ProForConditionalGeneration"), id="local/intern")
