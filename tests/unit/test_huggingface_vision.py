"""Towers beside text models: GLM-V, Command A Vision, Aya Vision, LFM2-VL, InternVL.

Totals are counts on the meta device with transformers 5.23.0 from the same configs.
"""

import pytest
from reading import kinds, parts, read, total

from kvreport.errors import InputError

TEXT = {
    "hidden_size": 256,
    "intermediate_size": 300,
    "num_attention_heads": 8,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "vocab_size": 160000,
}
COMMAND = {**TEXT, "model_type": "cohere2", "vocab_size": 256100}
SIGLIP = {
    "hidden_size": 96,
    "intermediate_size": 200,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "image_size": 56,
    "patch_size": 14,
}
PATCHES = {name: value for name, value in SIGLIP.items() if name != "image_size"}
GLM_TOWER = {
    "attention_bias": True,
    "depth": 3,
    "hidden_size": 96,
    "image_size": 56,
    "intermediate_size": 300,
    "num_heads": 4,
    "out_hidden_size": 256,
    "patch_size": 14,
}
INTERN_TOWER = {**SIGLIP, "image_size": [56, 56], "patch_size": [14, 14]}

COUNTED = [
    ("Glm4vForConditionalGeneration", {"text_config": {"vocab_size": 151552}}, 10_292_777_472),
    ("Glm46VForConditionalGeneration", {"text_config": TEXT, "vision_config": GLM_TOWER}, 83_950_144),
    ("Glm4vMoeForConditionalGeneration", {"text_config": {"vocab_size": 151424}}, 104_372_872_640),
    (
        "Glm4vMoeForConditionalGeneration",
        {
            "text_config": {
                **TEXT,
                "head_dim": 32,
                "n_routed_experts": 4,
                "num_experts_per_tok": 2,
                "attention_bias": False,
            },
            "vision_config": GLM_TOWER,
        },
        94_302_152,
    ),
    (
        "Exaone4_5_ForConditionalGeneration",
        {
            "text_config": {
                **TEXT,
                "num_hidden_layers": 6,
                "vocab_size": 1000,
                "sliding_window": 64,
            },
            "vision_config": {
                "depth": 3,
                "hidden_size": 128,
                "intermediate_size": 200,
                "num_heads": 8,
                "num_key_value_heads": 2,
                "out_hidden_size": 256,
            },
        },
        3_782_384,
    ),
    (
        "Cohere2VisionForConditionalGeneration",
        {"text_config": COMMAND, "vision_config": SIGLIP, "alignment_intermediate_size": 400},
        67_314_288,
    ),
    (
        "AyaVisionForConditionalGeneration",
        {
            "text_config": COMMAND,
            "vision_config": {**SIGLIP, "vision_use_head": False},
            "alignment_intermediate_size": 400,
        },
        67_238_824,
    ),
    (
        "Lfm2VlForConditionalGeneration",
        {
            "text_config": {**TEXT, "model_type": "lfm2", "full_attn_idxs": [1]},
            "vision_config": {**PATCHES, "num_patches": 64, "vision_use_head": False},
            "projector_hidden_size": 333,
            "projector_use_layernorm": False,
        },
        42_746_917,
    ),
    (
        "Lfm2VlForConditionalGeneration",
        {
            "text_config": {**TEXT, "model_type": "lfm2", "full_attn_idxs": [1]},
            "vision_config": {**PATCHES, "vision_use_head": True},
            "projector_bias": False,
        },
        44_267_040,
    ),
    (
        "InternVLForConditionalGeneration",
        {
            "text_config": {**TEXT, "model_type": "qwen2"},
            "vision_config": INTERN_TOWER,
            "tie_word_embeddings": False,
        },
        83_557_752,
    ),
    (
        "InternVLForConditionalGeneration",
        {
            "text_config": {**TEXT, "model_type": "qwen3", "head_dim": 64},
            "vision_config": {
                **INTERN_TOWER,
                "use_qk_norm": True,
                "attention_bias": True,
                "use_mean_pooling": False,
                "norm_type": "rms_norm",
                "use_mask_token": True,
                "use_absolute_position_embeddings": False,
            },
            "tie_word_embeddings": True,
            "downsample_ratio": 0.25,
        },
        43_385_240,
    ),
]


@pytest.mark.parametrize(("architecture", "keys", "expected"), COUNTED)
def test_parameters_equal_those_of_the_class_itself(
    architecture: str, keys: dict[str, object], expected: int
) -> None:
    assert total(read(architecture, **keys)) == expected


def test_a_text_part_is_read_by_its_own_class() -> None:
    text = {**TEXT, "model_type": "lfm2", "full_attn_idxs": [1]}
    model = read("Lfm2VlForConditionalGeneration", text_config=text)
    assert kinds(model) == ["state", "full", "state"]
    alone = read("Lfm2ForCausalLM", **TEXT, full_attn_idxs=[1])
    assert {name: size for name, size in parts(model).items() if name != "vision"} == parts(alone)


def test_a_text_parts_tensors_have_the_paths_of_the_whole_checkpoint() -> None:
    model = read("InternVLForConditionalGeneration", text_config={**TEXT, "model_type": "qwen2"})
    names = {row.name for row in model.weights}
    assert "language_model.model.layers.*.self_attn.q_proj.weight" in names
    assert "language_model.model.embed_tokens.weight" in names


def test_the_outer_part_says_whether_the_embedding_is_tied() -> None:
    text = {**TEXT, "model_type": "qwen2", "tie_word_embeddings": True}
    tied = read("InternVLForConditionalGeneration", text_config=text)
    untied = read("InternVLForConditionalGeneration", text_config=text, tie_word_embeddings=False)
    assert "output_head" not in parts(tied)
    assert parts(untied)["output_head"] == 160_000 * 256


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({"vocab_size": 1000}, "text_config"),
        ({"text_config": {**TEXT, "model_type": "internvl"}}, "model_type"),
        ({"text_config": {**TEXT, "model_type": "unheard_of"}}, "architectures"),
        ({"text_config": TEXT, "vision_config": {"image_size": [448, 224]}}, "image_size"),
        ({"text_config": TEXT, "downsample_ratio": 0}, "downsample_ratio"),
    ],
)
def test_a_bad_value_is_refused_by_name(keys: dict[str, object], field: str) -> None:
    with pytest.raises(InputError, match=field):
        read("InternVLForConditionalGeneration", **keys)
