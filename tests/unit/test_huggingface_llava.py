"""LLaVA, Pixtral, PaliGemma and SmolVLM, and Llama's and Qwen's other relatives."""

import pytest
from huggingface_configs import CONFIGS
from reading import kinds, parts, read, total

from kvreport.errors import InputError

LLAMA = {"model_type": "llama", "num_hidden_layers": 2}
GEMMA2 = CONFIGS["huggingface_llava"]["GEMMA2"]


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
