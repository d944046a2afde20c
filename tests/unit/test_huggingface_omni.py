"""Qwen's Omni thinkers, InternVL in its makers' layout, Kimi-VL, Gemma 4 without towers.

Totals of the thinkers and of Gemma 4 are counts on the meta device with transformers 5.23.0 from the
same configs; that of InternVL3-8B is its published one.
"""

import pytest
from huggingface_configs import CONFIGS
from reading import parts, read, total

THINKERS = [
    (
        "Qwen2_5OmniThinkerForConditionalGeneration",
        {
            "text_config": {
                "hidden_size": 2048,
                "intermediate_size": 11008,
                "num_attention_heads": 16,
                "num_hidden_layers": 2,
                "num_key_value_heads": 2,
                "tie_word_embeddings": False,
            },
            "vision_config": {"depth": 3, "hidden_size": 1280, "out_hidden_size": 2048},
            "audio_config": {"encoder_layers": 3, "output_dim": 2048},
        },
        941_398_568,
    ),
    (
        "Qwen3OmniMoeThinkerForConditionalGeneration",
        {
            "text_config": {
                "head_dim": 128,
                "num_attention_heads": 32,
                "num_experts": 16,
                "num_hidden_layers": 2,
                "vocab_size": 152064,
            },
            "vision_config": {"deepstack_visual_indexes": [2, 4, 6], "depth": 9, "out_hidden_size": 2048},
            "audio_config": {"encoder_layers": 3, "output_dim": 2048},
        },
        1_153_275_856,
    ),
    (
        "Qwen3OmniMoeThinkerForConditionalGeneration",
        {
            "text_config": {
                "attention_bias": True,
                "decoder_sparse_step": 2,
                "hidden_size": 3584,
                "num_experts": 8,
                "num_hidden_layers": 4,
            },
            "audio_config": {"encoder_layers": 3, "num_mel_bins": 80},
        },
        1_325_258_096,
    ),
]
QWEN = CONFIGS["huggingface_omni"]["QWEN"]


@pytest.mark.parametrize(("name", "config", "parameters"), THINKERS)
def test_parameters_of_a_thinker_are_exact(name: str, config: dict[str, object], parameters: int) -> None:
    assert total(read(name, **config)) == parameters


def test_of_an_omni_model_the_thinker_counts() -> None:
    name, config, parameters = THINKERS[1]
    model = read("Qwen3OmniMoeForConditionalGeneration", thinker_config=config, talker_config={"a": 1})
    assert total(model) == parameters
    assert parts(model)["audio"] > parts(model)["vision"] // 10
    assert any("only the thinker" in note for note in model.notes)
    assert "visual.merger_list.*.mlp.0.weight" in {row.name for row in model.weights}
    assert read(name, **config).layers == model.layers


def test_internvit_of_the_large_kind_has_norms_of_queries_and_keys() -> None:
    # 6B: no biases at queries, keys and values, and RMSNorm everywhere.
    model = read("InternVLChatModel", llm_config=QWEN)
    names = {row.name for row in model.weights}
    assert "vision_model.encoder.layers.*.attn.q_norm.weight" in names
    assert "vision_model.encoder.layers.*.attn.qkv.bias" not in names
    assert "vision_model.encoder.layers.*.attn.proj.bias" in names


def test_kimi_vl_keeps_a_latent() -> None:
    model = read(
        "KimiVLForConditionalGeneration",
        text_config={
            "first_k_dense_replace": 1,
            "hidden_size": 2048,
            "intermediate_size": 11264,
            "moe_intermediate_size": 1408,
            "n_routed_experts": 64,
            "n_shared_experts": 2,
            "num_attention_heads": 16,
            "num_experts_per_tok": 6,
            "num_hidden_layers": 27,
            "q_lora_rank": None,
            "vocab_size": 163840,
        },
        vision_config={"init_pos_emb_height": 64, "init_pos_emb_width": 64},
    )
    assert {group.caches[0].kind for group in model.layers} == {"latent"}
    # The text model alone, a DeepSeek-V3 of 27 layers: counted with transformers, 26 x 64 offsets and all.
    assert total(model) - parts(model)["vision"] == 15_960_108_544 + 1_664
