"""Configs of public checkpoints whose every tensor is listed, with its shape and its type, next to the config.

The lists are those of gogongxt/python (scripts/models, commits ec996269, 69107007, a0d3871a and c1feefbd): parameters to
the last one, bytes in GiB with two digits. Inkling's bytes are ``metadata.total_size`` of its index, as
dylantirandaz/inkling-quant has it (src/inkling_quant_lab/gguf/inkling.py).
"""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_configs import CONFIGS, STARTS

from kvreport.accounting.weights import released_bytes
from kvreport.architectures.reader import read_config
from kvreport.catalog.load import open_catalog
from kvreport.catalog.model import Model

_MXFP4: dict[str, Any] = CONFIGS["published_tensor_lists"]["_MXFP4"]
_BLOCKS: dict[str, Any] = {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "quant_method": "fp8",
    "weight_block_size": [128, 128],
}


def _mimo(layers: int, **sizes: object) -> dict[str, Any]:
    ignored = [f"model.layers.{index}.self_attn.o_proj" for index in range(layers)]
    return {
        "architectures": ["MiMoV2ForCausalLM"],
        "model_type": "mimo_v2",
        "add_full_attention_sink_bias": False,
        "add_swa_attention_sink_bias": True,
        "attention_bias": False,
        "dtype": "bfloat16",
        "head_dim": 192,
        "intermediate_size": 16384,
        "max_position_embeddings": 1048576,
        "moe_intermediate_size": 2048,
        "moe_layer_freq": [0] + [1] * (layers - 1),
        "n_shared_experts": None,
        "num_experts_per_tok": 8,
        "num_hidden_layers": layers,
        # The config leaves it out; the checkpoint has model_mtp.safetensors with three.
        "num_nextn_predict_layers": 3,
        "quantization_config": _BLOCKS | {"ignored_layers": [*ignored, "model.decoder.self_attn.o_proj"]},
        "sliding_window": 128,
        "swa_head_dim": 192,
        "swa_v_head_dim": 128,
        "swa_num_key_value_heads": 8,
        "tie_word_embeddings": False,
        "v_head_dim": 128,
        "vocab_size": 152576,
    } | sizes


MIMO_PRO = _mimo(
    70,
    hidden_size=6144,
    hybrid_layer_pattern=[0, *[1] * 6, *([0] + [1] * 7) * 6, *([0] + [1] * 6) * 2, 0],
    n_routed_experts=384,
    num_attention_heads=128,
    num_key_value_heads=8,
    swa_num_attention_heads=128,
)
MIMO = _mimo(
    48,
    hidden_size=4096,
    hybrid_layer_pattern=[0, *[1] * 4, *([0] + [1] * 5) * 7, 0],
    n_routed_experts=256,
    num_attention_heads=64,
    num_key_value_heads=4,
    swa_num_attention_heads=64,
    audio_config={
        "audio_channels": 20,
        "group_size": 4,
        "input_local_dim": 1024,
        "input_local_intermediate_size": 4096,
        "input_local_layers": 6,
        "out_hidden_size": 4096,
        "projection_layers": 2,
        "speech_vocab_size": "1280",
    },
    vision_config={
        "depth": 28,
        "fullatt_block_indexes": [0, 9, 18, 27],
        "hidden_size": 1280,
        "in_chans": 3,
        "intermediate_size": 4608,
        "num_heads": 32,
        "num_key_value_heads": 8,
        "out_hidden_size": 4096,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "use_sink": True,
    },
)

DEEPSEEK_V4_FLASH_0731: dict[str, Any] = CONFIGS["published_tensor_lists"]["DEEPSEEK_V4_FLASH_0731"]

GLM_5_1: dict[str, Any] = CONFIGS["published_tensor_lists"]["GLM_5_1"]

INKLING: dict[str, Any] = CONFIGS["published_tensor_lists"]["INKLING"]


def _gib(model: Model) -> float:
    return round(released_bytes(model, open_catalog().weight_formats) / 2**30, 2)


@pytest.mark.parametrize(
    ("config", "gib"),
    [(MIMO, 293.40), (MIMO_PRO, 962.40), (DEEPSEEK_V4_FLASH_0731, 155.42), (GLM_5_1, 1404.18)],
    ids=["MiMo-V2.5", "MiMo-V2.5-Pro", "DeepSeek-V4-Flash-0731", "GLM-5.1"],
)
def test_bytes_are_those_of_the_listed_tensors(config: dict[str, Any], gib: float) -> None:
    assert _gib(read_config(config)) == gib


def test_the_router_of_mimo_is_single_precision_unless_the_config_names_a_type() -> None:
    stored = {}
    for name in ("float32", "bfloat16"):
        model = read_config(MIMO_PRO | {"moe_router_dtype": name})
        stored[name] = {group.shape: group.released for group in model.weights if group.component == "router"}
    assert stored["float32"] == {(384, 6144): "fp32", (384,): "fp32"}
    assert stored["bfloat16"] == {(384, 6144): None, (384,): "fp32"}


def test_dspark_has_three_layers_unless_the_config_says_how_many() -> None:
    steps = {
        group.name.split(".")[1]
        for group in read_config(DEEPSEEK_V4_FLASH_0731).weights
        if group.component == "mtp"
    }
    assert steps == {"0", "1", "2"}
    two = read_config(DEEPSEEK_V4_FLASH_0731 | {"n_mtp_layers": 2})
    names = {group.name for group in two.weights if group.component == "mtp"}
    assert "mtp.1.markov_head.markov_w1.weight" in names
    assert "mtp.0.main_proj.weight" in names
    assert not any(name.startswith("mtp.2.") for name in names)


def test_the_prediction_layer_of_glm_5_shares_embedding_and_head() -> None:
    assert sum(group.parameters for group in read_config(GLM_5_1).weights) == 753_864_139_008


def test_inkling_is_as_large_as_its_index_says() -> None:
    assert released_bytes(read_config(INKLING), open_catalog().weight_formats) == 1_904_604_285_204


def test_the_latent_projections_of_kimi_k3_are_not_quantized() -> None:
    rows = {
        group.name.rsplit(".", 2)[1]: group for group in open_catalog().models["moonshotai/Kimi-K3"].weights
    }
    text = STARTS["KimiK3ForConditionalGeneration"]["text_config"] | {"routed_expert_hidden_size": 32}
    config = {
        "architectures": ["KimiK3ForConditionalGeneration"],
        "text_config": text | {"quantization_config": _MXFP4},
    }
    read = read_config(config, assume_defaults=True)
    for name in ("routed_expert_down_proj", "routed_expert_up_proj"):
        assert rows[name].released is None
        assert {group.released for group in read.weights if name in group.name} == {None}
    assert {group.released for group in read.weights if group.component == "routed_experts"} == {"mxfp4"}


def test_the_name_that_vllm_gives_to_mimo_with_encoders_is_read() -> None:
    named = read_config(MIMO | {"architectures": ["MiMoV2OmniForCausalLM"]})
    assert named.weights == read_config(MIMO).weights
