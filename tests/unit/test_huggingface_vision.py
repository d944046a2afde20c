"""Towers beside text models: GLM-V, Command A Vision, Aya Vision, LFM2-VL, InternVL."""

import pytest
from reading import kinds, parts, read

from kvreport.errors import InputError

TEXT = {
    "hidden_size": 256,
    "intermediate_size": 300,
    "num_attention_heads": 8,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "vocab_size": 160000,
}


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
