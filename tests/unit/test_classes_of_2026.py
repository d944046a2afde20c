"""EmbeddingGemma 2 and K2 Horizon against parameters counted elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_configs import CONFIGS

from kvreport.accounting.weights import parameters as counted
from kvreport.architectures import read_config
from kvreport.catalog.load import open_catalog

TEXT: dict[str, Any] = CONFIGS["classes_of_2026"]["TEXT"]
VISION = {"model_type": "gemma4_vision"}
AUDIO = {"model_type": "gemma4_audio"}


def parameters(config: dict[str, Any]) -> int:
    model = read_config(config, assume_defaults=True)
    return sum(row.parameters for row in model.weights)


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        # transformers 5.24 on the meta device, with the scalar of each layer, which is a buffer there.
        ({}, 271_002_648),
        ({"vision_config": VISION}, 438_760_472),
        ({"vision_config": VISION, "audio_config": AUDIO}, 744_371_512),
    ],
)
def test_embedding_gemma_has_the_parameters_of_its_class(sections: dict[str, Any], expected: int) -> None:
    config = {
        "architectures": ["EmbeddingGemma2Model"],
        "model_type": "embedding_gemma2",
        "text_config": TEXT,
    }
    assert parameters(config | sections) == expected


def test_embedding_gemma_keeps_no_cache() -> None:
    model = read_config(TEXT | {"architectures": ["EmbeddingGemma2TextModel"]}, assume_defaults=True)
    assert all(not group.caches for group in model.layers)


K2: dict[str, Any] = CONFIGS["classes_of_2026"]["K2"]


def test_the_dense_k2_horizon_has_the_parameters_that_the_hub_lists() -> None:
    assert parameters(K2) == 5_058_255_360


def test_layers_with_experts_have_experts_for_values_too() -> None:
    mixture = {
        "attention_gate_func": "softplus",
        "head_dim": 16,
        "hidden_size": 64,
        "intermediate_size": 48,
        "mlp_only_layers": [0, 1],
        "moe_gate_bias": True,
        "moe_intermediate_size": 32,
        "mova_num_experts": 3,
        "mova_num_experts_per_tok": 2,
        "num_attention_heads": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 4,
        "num_key_value_heads": 2,
        "num_shared_experts": 1,
        "vocab_size": 128,
    }
    # By hand: what all layers have; a dense one's values and MLP; a mixture's value experts, two routers, 4 + 1 experts.
    every = 2 * 64 + 3 * 64 * 64 + 32 * 64
    dense = 32 * 64 + 3 * 48 * 64
    sparse = 3 * 32 * 64 + (3 * 64 + 3) + (4 * 64 + 4) + (4 + 1) * 3 * 32 * 64
    assert parameters(K2 | mixture) == 2 * 128 * 64 + 64 + 4 * every + 2 * dense + 2 * sparse


def test_published_totals_hold_to_the_last_parameter() -> None:
    """Totals of the Hub's records, as public lists and reviews of 2026 quote them; prediction layers are in them."""
    totals = {
        "IFM/K2-Horizon-3.7B": 5_058_255_360,
        "MiniMaxAI/MiniMax-M2": 228_689_764_864,
        "Qwen/Qwen3-235B-A22B": 235_093_634_560,
        "Qwen/Qwen3-30B-A3B": 30_532_122_624,
        "Qwen/Qwen3-Coder-480B-A35B-Instruct": 480_154_875_392,
        "Qwen/Qwen3-Next-80B-A3B-Instruct": 81_324_862_720,
        "Qwen/Qwen3.5-2B": 2_274_069_824,
        "Qwen/Qwen3.5-4B": 4_659_865_088,
        "Qwen/Qwen3.6-27B": 27_781_427_952,
        "Qwen/Qwen3.8-2.4T-A95B": 2_446_182_725_504,
        "Qwen/Qwen3.8-27B": 27_781_427_952,
        "deepseek-ai/DeepSeek-V4-Flash": 290_944_616_402,
        "deepseek-ai/DeepSeek-V4-Pro": 1_598_839_674_782,
        "google/gemma-4-12B-it": 11_959_730_224,
        "inclusionAI/Ling-3.0-flash": 127_486_405_600,
        "meta-llama/Llama-4-Maverick-17B-128E-Instruct": 401_583_781_376,
        "meta-llama/Llama-4-Scout-17B-16E-Instruct": 108_641_793_536,
        "mistralai/Mixtral-8x22B-v0.1": 140_620_634_112,
        "openai/gpt-oss-120b": 116_829_156_672,
        "openbmb/MiniCPM5-2B": 2_516_756_480,
        "zai-org/GLM-4.5": 358_337_791_296,
        "zai-org/GLM-4.5-Air": 110_468_824_832,
        "zai-org/GLM-4.7-Flash": 31_221_488_576,
        "zai-org/GLM-5.3": 753_329_940_480,
    }
    catalog = open_catalog()
    assert {name: sum(row.parameters for row in catalog.model(name).weights) for name in totals} == totals


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # n_parameters of MTEB 2.26.24; engines leave the output head of the class out.
        ("Qwen/Qwen3-Embedding-0.6B", 595_776_512),
        ("Qwen/Qwen3-Embedding-4B", 4_021_774_336),
        ("Qwen/Qwen3-Embedding-8B", 7_567_295_488),
        # Its buffers of the audio encoder are no parameters here: 480 of 744,371,992.
        ("google/embeddinggemma-2", 744_371_512),
    ],
)
def test_records_of_embedding_models_have_their_published_parameters(name: str, expected: int) -> None:
    assert counted(open_catalog().model(name)) == expected


def test_spark_gates_each_head_and_has_windows() -> None:
    config = {
        "architectures": ["Spark2_5ForCausalLM"],
        "head_dim": 256,
        "headwise_attn_output_gate": True,
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "layer_types": [*["sliding_attention"] * 3, "full_attention"] * 9,
        "max_position_embeddings": 1048576,
        "num_attention_heads": 16,
        "num_hidden_layers": 36,
        "num_key_value_heads": 4,
        "sliding_window": 512,
        "tie_word_embeddings": True,
        "vocab_size": 131072,
    }
    # By hand, for the sizes that a copy of Spark-X2.5-4B states: queries and outputs, keys and values, gates, MLP, norms.
    layer = 2 * 2560 * 4096 + 2 * 2560 * 1024 + 16 * 2560 + 3 * 10240 * 2560 + 2 * 2560
    assert parameters(config) == 36 * layer + 131072 * 2560 + 2560
    caches = [cache for group in read_config(config).layers for cache in group.caches]
    assert {cache.kind for cache in caches} == {"sliding", "full"}


def test_step_vl_is_its_text_model_behind_a_perception_encoder() -> None:
    text = {
        "head_dim": 16,
        "hidden_size": 64,
        "intermediate_size": 128,
        "max_position_embeddings": 4096,
        "model_type": "qwen3",
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "vocab_size": 100,
    }
    vision = {
        "image_size": 28,
        "layers": 3,
        "mlp_ratio": 4.0,
        "num_channels": 3,
        "patch_size": 14,
        "width": 32,
    }
    config = {
        "architectures": ["StepVLForConditionalGeneration"],
        "projector_bias": False,
        "text_config": text,
        "tie_word_embeddings": False,
        "vision_config": vision,
    }
    # By hand: four matrices and an MLP with biases, two norms and two scales a layer; patches, positions, one norm,
    # two convolutions of 3 x 3, the projector.
    layer = 4 * (32 * 32 + 32) + 2 * 32 * 128 + 128 + 32 + 2 * 64 + 2 * 32
    tower = 3 * layer + 32 * 3 * 14 * 14 + 4 * 32 + 64 + 9 * 32 * 64 + 64 + 9 * 64 * 128 + 128 + 128 * 64
    alone = parameters({"architectures": ["Qwen3ForCausalLM"], "tie_word_embeddings": False, **text})
    assert parameters(config) == alone + tower


def test_ling_3_has_a_prediction_layer_without_copies_of_the_ends() -> None:
    record = open_catalog().model("inclusionAI/Ling-3.0-flash")
    config = {
        "architectures": ["BailingHybridForCausalLM"],
        "model_type": "bailing_hybrid",
        "num_nextn_predict_layers": 1,
    }
    model = read_config(config, assume_defaults=True)
    predicts = [row for row in model.weights if row.component == "mtp"]
    assert sum(row.parameters for row in predicts) == 3_072_194_048
    assert sum(row.parameters for row in model.weights) == sum(row.parameters for row in record.weights)
