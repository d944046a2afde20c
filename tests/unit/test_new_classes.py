"""Classes of transformers 5.24, classes that only engines serve, and drafts that keep nothing."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_configs import CONFIGS

from kvreport.accounting.weights import parameters
from kvreport.architectures import read_config
from kvreport.catalog.caches import FullAttention, Latent, SlidingWindow
from kvreport.catalog.model import Model
from kvreport.errors import InputError


def caches(model: Model) -> list[Any]:
    """Return every layer's caches, in order of the groups."""
    return [cache for group in model.layers for _ in group.indices for cache in group.caches]


DORY: dict[str, Any] = CONFIGS["new_classes"]["DORY"]


def test_each_pass_of_a_loop_keeps_a_cache_of_its_own() -> None:
    # 36 attention layers, of which 20 run twice: 5 of every 20 keep everything, the others a window.
    kept = caches(read_config(DORY))
    assert len(kept) == 36 + 20
    assert sum(isinstance(cache, FullAttention) for cache in kept) == 9 + 5
    assert sum(isinstance(cache, SlidingWindow) for cache in kept) == 27 + 15
    assert len(caches(read_config(DORY | {"recurrent_kv_cache_mode": "last_loop"}))) == 36


def test_a_loop_without_weights_of_its_own() -> None:
    config = {
        "architectures": ["Inkling2LoopForCausalLM"],
        "num_hidden_layers": 24,
        "loop_config": {"core_start": 6, "core_end": 18, "num_passes": 3, "gate_rank": 64},
    }
    looped = read_config(config, assume_defaults=True)
    once = read_config(
        config | {"loop_config": {**config["loop_config"], "num_passes": 1}}, assume_defaults=True
    )
    assert parameters(looped) == parameters(once)
    assert len(caches(looped)) == len(caches(once)) + 2 * 2 * 12  # a cache and a state each


def test_an_ouro_of_four_passes_keeps_four_times_as_much() -> None:
    # ByteDance/Ouro-2.6B: 48 layers, 4 passes; 192 x 2 x 16 x 128 x 2 B = 1.5 MiB per token.
    config = {
        "architectures": ["OuroForCausalLM"],
        "head_dim": 128,
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "max_position_embeddings": 65536,
        "num_attention_heads": 16,
        "num_hidden_layers": 48,
        "num_key_value_heads": 16,
        "total_ut_steps": 4,
        "vocab_size": 49152,
    }
    model = read_config(config)
    assert sum(cache.kv_heads * (cache.key_dim + cache.value_dim) * 2 for cache in caches(model)) == 3 << 19
    assert round(parameters(model) / 1e8) == 27


def test_later_passes_of_a_loop_coder_keep_a_window() -> None:
    config = {
        "architectures": ["IQuestLoopCoderForCausalLM"],
        "hidden_size": 5120,
        "intermediate_size": 27648,
        "max_position_embeddings": 131072,
        "num_attention_heads": 40,
        "num_hidden_layers": 80,
        "num_key_value_heads": 8,
        "vocab_size": 76800,
    }
    kept = caches(read_config(config))
    assert [cache.kind for cache in kept] == ["full"] * 80 + ["sliding"] * 80
    assert {cache.window for cache in kept if isinstance(cache, SlidingWindow)} == {64}


DOTS_OCR: dict[str, Any] = CONFIGS["new_classes"]["DOTS_OCR"]
GTE: dict[str, Any] = CONFIGS["new_classes"]["GTE"]


def test_published_models_come_out() -> None:
    # rednote-hilab/dots.ocr states 3.04 billion, Alibaba-NLP/gte-multilingual-base 305 million.
    assert round(parameters(read_config(DOTS_OCR)) / 1e7) == 304
    gte = read_config(GTE)
    assert round(parameters(gte) / 1e6) == 305
    assert caches(gte) == []


@pytest.mark.parametrize("name", ["Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"])
def test_an_assistant_reads_its_targets_caches(name: str) -> None:
    config = {"architectures": [name], "backbone_hidden_size": 1536, "text_config": {}}
    model = read_config(config, assume_defaults=True)
    assert caches(model) == []
    assert parameters(model) == 2_856_215_552 + 30  # transformers 5.24, with the scalar of each layer
    with pytest.raises(InputError, match="backbone_hidden_size"):
        read_config({"architectures": [name], "text_config": {}}, assume_defaults=True)


def test_a_diffusion_model_keeps_what_its_decoder_reads() -> None:
    config = {
        "architectures": ["DiffusionGemmaForBlockDiffusion"],
        "text_config": {"moe_intermediate_size": 704, "num_experts": 128, "top_k_experts": 8},
    }
    model = read_config(config, assume_defaults=True)
    assert [cache.kind for cache in caches(model)].count("full") == 5
    with pytest.raises(InputError, match="encoder and decoder share their weights"):
        read_config(config | {"tie_word_embeddings": False}, assume_defaults=True)


def test_the_published_form_of_a_config_is_the_librarys() -> None:
    # dots3-note: flat, with names of its own, against transformers' form of the same config.
    flat = {
        "architectures": ["Dots3NoteForCausalLM"],
        "model_type": "dots3_note",
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "moe_shared_expert_intermediate_size": 1536,
        "sliding_window_size": 512,
        "swa_head_dim": 256,
        "swa_kv_lora_rank": 1024,
        "swa_num_attention_heads": 64,
        "swa_q_lora_rank": 1024,
        "swa_qk_nope_head_dim": 192,
        "use_dsa": True,
        "audio_config": {"whisper_config": {"d_model": 1280, "encoder_layers": 32}},
        "vision_config": {"embed_dim": 1536, "pyramid_num_routed": [-1] * 25 + [*range(4, 65, 4), 64]},
    }
    library = {"architectures": ["Dots3NoteForConditionalGeneration"], "text_config": {}}
    found = [read_config(config, assume_defaults=True) for config in (flat, library)]
    assert parameters(found[0]) == parameters(found[1])
    assert caches(found[0]) == caches(found[1])
    windows = [cache for cache in caches(found[0]) if isinstance(cache, Latent) and cache.window]
    assert [(cache.latent_dim, cache.rope_dim, cache.window) for cache in windows] == [(1024, 64, 512)] * 33
    text = read_config({k: v for k, v in flat.items() if "_config" not in k}, assume_defaults=True)
    assert parameters(text) == 279_551_718_016 + 45 * 256


def test_the_draft_of_dots_3_note_makes_its_repositorys_total() -> None:
    # Its recipe states about 576.9 GB of 16-bit weights; without the draft they would be 574.6.
    config = {
        "architectures": ["Dots3NoteForCausalLM"],
        "audio_config": {},
        "vision_config": {},
        "num_nextn_predict_layers": 1,
        "layer_types": ["full_attention" if i < 2 or i % 4 == 1 else "sliding_attention" for i in range(47)],
    }
    model = read_config(config, assume_defaults=True)
    assert round(2 * sum(row.parameters for row in model.weights) / 1e8) == 5769
    short = config | {"layer_types": ["full_attention"] * 40}
    with pytest.raises(InputError, match="a list of 46 or some more"):
        read_config(short, assume_defaults=True)


PLAIN: dict[str, Any] = CONFIGS["new_classes"]["PLAIN"]


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("AquilaForCausalLM", "LlamaForCausalLM"),
        ("Fairseq2LlamaForCausalLM", "LlamaForCausalLM"),
        ("GritLM", "MistralForCausalLM"),
    ],
)
def test_one_class_under_two_names(name: str, same: str) -> None:
    found = [read_config({"architectures": [c], **PLAIN}, assume_defaults=True) for c in (name, same)]
    assert parameters(found[0]) == parameters(found[1])
    assert caches(found[0]) == caches(found[1])


def test_a_list_may_stand_where_a_class_has_lists() -> None:
    # conv_dim ends like a size and is a list of seven.
    config = {"architectures": ["OmniASRForConditionalGeneration"], "text_config": PLAIN}
    narrow = config | {"audio_config": {"conv_dim": [256] * 7}}
    wide = parameters(read_config(config, assume_defaults=True))
    assert parameters(read_config(narrow, assume_defaults=True)) < wide
    with pytest.raises(InputError, match="seven convolutions"):
        read_config(config | {"audio_config": {"conv_dim": [512] * 6}}, assume_defaults=True)


def test_step_3_has_one_key_head_and_queries_through_a_low_rank() -> None:
    text = {
        "head_dim": 256,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "max_position_embedding": 65536,
        "moe_intermediate_size": 5120,
        "moe_layers_enum": ",".join(map(str, range(4, 60))),
        "moe_num_experts": 48,
        "moe_top_k": 3,
        "num_attention_groups": 1,
        "num_attention_heads": 64,
        "num_hidden_layers": 61,
        "share_expert_dim": 5120,
        "share_q_dim": 2048,
        "vocab_size": 128815,
    }
    model = read_config({"architectures": ["Step3TextForCausalLM"], **text})
    # Per layer: 7168 x (2048 + 2 x 256) + 2048 x 16384 + 16384 x 7168, norms of 7168 twice and 2048. Five dense layers of
    # 3 x 7168 x 18432; 56 mixtures of 49 x 3 x 7168 x 5120 and a router of 48; two tables of 128815, and the last norm.
    attention = 7168 * (2048 + 2 * 256) + 2048 * 16384 + 16384 * 7168 + 2 * 7168 + 2048
    mixtures = 56 * (49 * 3 * 7168 * 5120 + 48 * 7168)
    expected = 61 * attention + 5 * 3 * 7168 * 18432 + mixtures + 2 * 128815 * 7168 + 7168
    assert sum(group.parameters for group in model.weights) == expected == 316_294_538_240
    # One key and one value of 256 in each of 61 layers, at two bytes.
    kept = [cache for group in model.layers for cache in group.caches]
    assert [(cache.kv_heads, cache.key_dim, cache.value_dim) for cache in kept] == [(1, 256, 256)]
    tower = {
        "hidden_size": 1792,
        "image_size": 728,
        "intermediate_size": 3072,
        "num_channels": 3,
        "num_hidden_layers": 63,
        "output_hidden_size": 4096,
        "patch_size": 14,
    }
    whole = read_config(
        {
            "architectures": ["Step3VLForConditionalGeneration"],
            "projector_bias": True,
            "text_config": text,
            "vision_config": tower,
        }
    )
    # vLLM's own defaults: 63 blocks of four square projections with biases, two norms and an MLP; patches and positions;
    # two convolutions; a projection.
    block = 4 * (1792 * 1792 + 1792) + 4 * 1792 + 2 * 1792 * 3072 + 3072 + 1792
    ends = 1792 * 3 * 14 * 14 + 1792 + 1792 + (52 * 52 + 1) * 1792
    merged = 4096 * 1792 * 4 + 4096 + 8192 * 4096 * 9 + 8192 + 8192 * 7168 + 7168
    vision = sum(group.parameters for group in whole.weights if group.component == "vision")
    assert vision == 63 * block + ends + merged
