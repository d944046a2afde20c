"""MiniCPM-V, Phi-3-vision, Phi-4-multimodal: a known text model beside towers of their own."""

import pytest
from huggingface_configs import CONFIGS
from reading import kinds, parts, read, total
from reading import read_trimmed as read_config

from kvreport.errors import InputError

# What the published config.json files state of their shapes.
MINICPM_V_2_6 = CONFIGS["huggingface_towers"]["MINICPM_V_2_6"]
MINICPM_V_4_5 = CONFIGS["huggingface_towers"]["MINICPM_V_4_5"]


@pytest.mark.parametrize(
    ("config", "published"), [(MINICPM_V_2_6, 8_099_175_152), (MINICPM_V_4_5, 8_695_895_280)]
)
def test_minicpm_v_has_the_parameters_of_its_published_checkpoint(
    config: dict[str, object], published: int
) -> None:
    model = read("MiniCPMV", **config)
    assert total(model) == published
    assert set(kinds(model)) == {"full"}


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


MINICPM_V_4_6 = CONFIGS["huggingface_towers"]["MINICPM_V_4_6"]


@pytest.mark.parametrize(
    ("architecture", "more", "expected"),
    [
        ("MiniCPMV4_6ForConditionalGeneration", {}, 1_554_939_120),
        ("MiniCPMV4_7ForConditionalGeneration", {"merger_times": 2}, 1_581_496_176),
    ],
)
def test_minicpm_v_4_6_has_the_parameters_of_its_class(
    architecture: str, more: dict[str, object], expected: int
) -> None:
    # Counted on the meta device with transformers 5.23.0.
    model = read(architecture, **MINICPM_V_4_6, **more)
    assert total(model) == expected
    assert kinds(model)[:4] == ["state", "state", "state", "full"]


def test_phi_4_multimodal_has_the_parameters_of_its_class() -> None:
    # Counted on the meta device with transformers 5.23.0, whole and by tower.
    model = read("Phi4MultimodalForCausalLM", hidden_size=3072)
    assert total(model) == 5_308_268_992
    assert parts(model)["vision"] == 441_550_016
    assert parts(model)["audio"] == 466_432_256


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


def test_phi_3_vision_is_phi_3_mini_beside_the_large_clip() -> None:
    config = {
        "hidden_size": 3072,
        "num_hidden_layers": 32,
        "max_position_embeddings": 131072,
        "sliding_window": 262144,
        "img_processor": {"model_name": "openai/clip-vit-large-patch14-336"},
    }
    model = read("Phi3VForCausalLM", **config)
    # Phi-3-mini's 3,821,079,552, CLIP's 303,507,456, two projections with biases, two separators.
    assert total(model) == 3_821_079_552 + 303_507_456 + 12_585_984 + 9_440_256 + 2 * 4096
    other = {**config, "img_processor": {"model_name": "my/tower"}}
    with pytest.raises(InputError, match=r"img_processor\.model_name: found 'my/tower'"):
        read("Phi3VForCausalLM", **other)


def test_a_minicpm_v_without_its_towers_config_is_refused() -> None:
    config = {key: value for key, value in MINICPM_V_2_6.items() if key != "vision_config"}
    with pytest.raises(InputError, match="vision_config: found nothing"):
        read_config({"architectures": ["MiniCPMV"], **config}, id="a/b")


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


def test_qwen2_audio_has_the_parameters_of_its_class() -> None:
    # Counted on the meta device with transformers 5.23.0; Whisper's own names for the encoder's sizes.
    text = {
        "model_type": "qwen2",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "max_position_embeddings": 8192,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 32,
        "vocab_size": 156032,
    }
    audio = {"d_model": 1280, "encoder_layers": 4}
    model = read("Qwen2AudioForConditionalGeneration", text_config=text, audio_config=audio)
    assert total(model) == 7_846_162_432
    assert set(kinds(model)) == {"full"}
