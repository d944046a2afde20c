"""MiniCPM-V, Phi-3-vision, Phi-4-multimodal: a known text model beside towers of their own."""

import pytest
from huggingface_configs import CONFIGS
from reading import parts, read, total

from kvreport.errors import InputError

# What the published config.json files state of their shapes.
MINICPM_V_2_6 = CONFIGS["huggingface_towers"]["MINICPM_V_2_6"]


def test_the_tower_of_minicpm_v_may_lack_its_last_layer() -> None:
    whole = read("MiniCPMV", **MINICPM_V_2_6)
    less = read("MiniCPMV", **MINICPM_V_2_6, drop_vision_last_layer=True)
    # Four matrices of 1,152 x 1,152 and two of 4,304 x 1,152, all with biases, and two LayerNorms.
    layer = 4 * (1152 * 1152 + 1152) + 2 * 4304 * 1152 + 4304 + 1152 + 4 * 1152
    assert parts(whole)["vision"] - parts(less)["vision"] == layer


@pytest.mark.parametrize("version", [None, "2.0", 3, [2.6]])
def test_a_minicpm_v_of_a_version_that_is_not_known_is_refused(version: object) -> None:
    with pytest.raises(InputError, match=r"version: found .*; allowed: one of 2\.5, 2\.6, 4\.0, 4\.5"):
        read("MiniCPMV", **{**MINICPM_V_2_6, "version": version})


def test_the_conformer_follows_its_own_dimensions() -> None:
    audio = {"num_blocks": 23, "bias_symmetric": True, "time_reduction": 4, "downsample_rate": 2}
    usual = parts(read("Phi4MultimodalForCausalLM", hidden_size=3072))["audio"]
    other = parts(read("Phi4MultimodalForCausalLM", hidden_size=3072, audio_config=audio))["audio"]
    block = (
        3 * 2 * 1024  # norms
        + 2 * (2 * 1024 + 3072 * 1024 + 3072 + 1024 * 1536 + 1024)
        + 4 * (1024 * 1024 + 1024)
        + (2048 * 1024 + 2048 + 2 * 1024)
        + (1024 * 3 + 1024)
        + 2 * (1024 * 1024 + 1024)
    )
    thinning = 1024 * 9 + 1024 + 1024 * 1024 + 1024
    # 80 bands become 20 instead of 10; half of the 2,000 distances; two frames of 1,024 go up at once.
    bands, distances, up = 1024 * 10 * 1024, 1000 * 16, 2 * 3072 * 1024
    assert other - usual == -block - thinning + bands - distances + up


def test_voxtral_has_the_parameters_of_its_class() -> None:
    # Voxtral Mini 3B, counted on the meta device with transformers 5.23.0.
    text = {
        "model_type": "llama",
        "head_dim": 128,
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "max_position_embeddings": 131072,
        "num_attention_heads": 32,
        "num_hidden_layers": 30,
        "num_key_value_heads": 8,
        "vocab_size": 131072,
    }
    model = read("VoxtralForConditionalGeneration", text_config=text, audio_config={})
    assert total(model) == 4_676_271_104
    # Four frames of 1,280 go up to 3,072 at once; then a square matrix, both without a bias.
    projector = [row for row in model.weights if "multi_modal_projector" in row.name]
    assert sum(row.parameters for row in projector) == 5120 * 3072 + 3072 * 3072
