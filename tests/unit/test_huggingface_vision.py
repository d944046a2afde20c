"""Towers beside text models: GLM-V, Command A Vision, Aya Vision, LFM2-VL, InternVL."""

from reading import read

TEXT = {
    "hidden_size": 256,
    "intermediate_size": 300,
    "num_attention_heads": 8,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "vocab_size": 160000,
}


def test_a_text_parts_tensors_have_the_paths_of_the_whole_checkpoint() -> None:
    model = read("InternVLForConditionalGeneration", text_config={**TEXT, "model_type": "qwen2"})
    names = {row.name for row in model.weights}
    assert "language_model.model.layers.*.self_attn.q_proj.weight" in names
    assert "language_model.model.embed_tokens.weight" in names
