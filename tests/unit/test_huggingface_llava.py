"""LLaVA, Pixtral, PaliGemma and SmolVLM, and Llama's and Qwen's other relatives.

Totals are counts on the meta device with transformers 5.23.0 from the same configs, but for MiMo 7B.
"""

import pytest
from reading import kinds, parts, read, total

from kvreport.errors import InputError

LLAMA = {"model_type": "llama", "num_hidden_layers": 2}
QWEN2 = {"model_type": "qwen2", "num_hidden_layers": 2, "tie_word_embeddings": True}
GEMMA2 = {
    "model_type": "gemma2",
    "head_dim": 256,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_attention_heads": 8,
    "num_hidden_layers": 2,
    "num_key_value_heads": 4,
    "vocab_size": 257216,
}
GEMMA = {
    "model_type": "gemma",
    "hidden_size": 2048,
    "intermediate_size": 16384,
    "num_attention_heads": 8,
    "num_hidden_layers": 2,
    "num_key_value_heads": 1,
    "vocab_size": 257216,
}
SMALL_LLAMA = {
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_hidden_layers": 2,
    "num_key_value_heads": 3,
    "vocab_size": 49280,
}
SIGLIP = {
    "model_type": "siglip_vision_model",
    "hidden_size": 1152,
    "image_size": 448,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "patch_size": 14,
    "vision_use_head": False,
}
COUNTED = [
    ("LlavaForConditionalGeneration", {"text_config": LLAMA}, 991_401_984),
    (
        "LlavaForConditionalGeneration",
        {"text_config": LLAMA, "vision_config": {"model_type": "clip_vision_model", "num_hidden_layers": 3}},
        710_511_104,
    ),
    (
        "LlavaForConditionalGeneration",
        {
            "text_config": {"model_type": "mistral", "num_hidden_layers": 2, "head_dim": 128},
            "vision_config": {"model_type": "pixtral", "num_hidden_layers": 3, "hidden_size": 512},
            "vision_feature_layer": -1,
        },
        739_671_552,
    ),
    (
        "LlavaForConditionalGeneration",
        {
            "text_config": QWEN2,
            "vision_config": {"model_type": "siglip_vision_model", "num_hidden_layers": 3},
            "vision_feature_layer": [-2, -1],
            "multimodal_projector_bias": False,
        },
        1_349_819_904,
    ),
    (
        "LlavaNextForConditionalGeneration",
        {"text_config": {"model_type": "mistral", "num_hidden_layers": 2}},
        1_022_863_360,
    ),
    (
        "LlavaOnevisionForConditionalGeneration",
        {"text_config": {**QWEN2, "tie_word_embeddings": False}},
        2_339_243_552,
    ),
    ("PaliGemmaForConditionalGeneration", {"text_config": GEMMA}, 1_148_848_384),
    (
        "PaliGemmaForConditionalGeneration",
        {"projection_dim": 2304, "text_config": GEMMA2, "vision_config": SIGLIP},
        1_164_343_536,
    ),
    ("Idefics3ForConditionalGeneration", {"text_config": {**LLAMA, "vocab_size": 128259}}, 1_626_738_688),
    (
        "SmolVLMForConditionalGeneration",
        {
            "scale_factor": 4,
            "tie_word_embeddings": True,
            "text_config": SMALL_LLAMA,
            "vision_config": {
                "hidden_size": 768,
                "image_size": 512,
                "num_hidden_layers": 12,
                "patch_size": 16,
            },
        },
        128_976_960,
    ),
    ("HyperCLOVAXForCausalLM", {"num_hidden_layers": 3}, 869_322_752),
    (
        "HyperCLOVAXForCausalLM",
        {
            "num_hidden_layers": 3,
            "num_key_value_heads": 8,
            "tie_word_embeddings": True,
            "use_post_norm": False,
        },
        662_728_704,
    ),
    ("CwmForCausalLM", {"num_hidden_layers": 3}, 3_029_379_072),
    ("YoutuForCausalLM", {"num_hidden_layers": 32}, 1_961_560_064),
    (
        "YoutuForCausalLM",
        {
            "attention_bias": True,
            "num_hidden_layers": 4,
            "q_lora_rank": None,
            "tie_word_embeddings": False,
        },
        731_412_736,
    ),
]


@pytest.mark.parametrize(("name", "config", "parameters"), COUNTED)
def test_parameters_are_exact(name: str, config: dict[str, object], parameters: int) -> None:
    assert total(read(name, **config)) == parameters


def test_the_layer_that_predicts_ahead_is_not_part_of_mimo_7b() -> None:
    # As XiaomiMiMo/MiMo-7B-Base has it; the one extra layer brings the published total.
    model = read(
        "MiMoForCausalLM",
        head_dim=128,
        hidden_size=4096,
        intermediate_size=11008,
        max_position_embeddings=32768,
        num_attention_heads=32,
        num_hidden_layers=36,
        num_key_value_heads=8,
        num_nextn_predict_layers=1,
        tie_word_embeddings=False,
        vocab_size=151680,
    )
    assert total(model) == 7_622_619_136
    assert parts(model)["mtp"] == 210_790_400


def test_code_world_model_keeps_a_window_on_three_layers_of_four() -> None:
    model = read("CwmForCausalLM", num_hidden_layers=8)
    assert kinds(model) == ["full", "sliding", "sliding", "sliding"] * 2


@pytest.mark.parametrize(
    ("name", "config", "field"),
    [
        ("LlavaForConditionalGeneration", {}, "text_config"),
        (
            "LlavaForConditionalGeneration",
            {"text_config": LLAMA, "vision_config": {"model_type": "eva"}},
            "vision_config.model_type",
        ),
        (
            "LlavaForConditionalGeneration",
            {"text_config": LLAMA, "vision_feature_layer": []},
            "vision_feature_layer",
        ),
        ("LlavaForConditionalGeneration", {"text_config": {"model_type": "llava"}}, "text_config"),
        ("PaliGemmaForConditionalGeneration", {"text_config": GEMMA2}, "projection_dim"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(name: str, config: dict[str, object], field: str) -> None:
    with pytest.raises(InputError) as caught:
        read(name, **config)
    assert field in str(caught.value)
