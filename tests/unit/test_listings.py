"""Listings: every line can be read, published models come out to the last parameter, bad input is named."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
from huggingface_configs import CONFIGS

from kvreport.accounting.extras import own_prediction_layer
from kvreport.architectures import listing, read_config, read_config_report
from kvreport.architectures.keys import Keys
from kvreport.architectures.listed import read_listed
from kvreport.architectures.listing_formulas import evaluate
from kvreport.architectures.registry import nearest_class
from kvreport.catalog.class_check import ClassCheck
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.resources import data_dir

PAGE = Path(__file__).parents[2] / "docs" / "about" / "listings.md"

WHISPER_LARGE_V3: dict[str, Any] = CONFIGS["listings"]["WHISPER_LARGE_V3"]
BERT_BASE: dict[str, Any] = CONFIGS["listings"]["BERT_BASE"]
BGE_RERANKER_V2_M3: dict[str, Any] = CONFIGS["listings"]["BGE_RERANKER_V2_M3"]
RWKV_7_191M: dict[str, Any] = CONFIGS["listings"]["RWKV_7_191M"]
EAGLE_3_LLAMA_3_1_8B: dict[str, Any] = CONFIGS["listings"]["EAGLE_3_LLAMA_3_1_8B"]
NEMOTRON_DSPARK: dict[str, Any] = CONFIGS["listings"]["NEMOTRON_DSPARK"]
"""The sizes that the config of NVIDIA's DSpark draft for Nemotron states."""
QWEN3_8B_DFLASH: dict[str, Any] = CONFIGS["listings"]["QWEN3_8B_DFLASH"]


def total(model: Model) -> int:
    return sum(row.parameters for row in model.weights)


def test_every_listing_can_be_read() -> None:
    for name in sorted(listing.index()):
        listed = listing.listing(name)
        assert listed.rows, name
        assert listed.family, name
        for row in listed.rows:
            for formula in (*row.shape, row.count, row.heads or "1", row.condition or "1"):
                ast.parse(formula.strip(), name, mode="eval")


def test_a_classifier_has_as_many_rows_as_labels() -> None:
    one = total(read_config(BGE_RERANKER_V2_M3))
    three = total(read_config(BGE_RERANKER_V2_M3 | {"id2label": {"0": "a", "1": "b", "2": "c"}}))
    assert three - one == 2 * (1024 + 1)


def test_an_encoder_decoder_keeps_both_caches() -> None:
    caches = read_config(WHISPER_LARGE_V3).layers[0].caches
    assert [cache.kind for cache in caches] == ["full", "cross"]
    assert caches[1].model_dump()["encoder_tokens"] == 1500


def test_an_encoder_keeps_nothing() -> None:
    assert all(not group.caches for group in read_config(BERT_BASE).layers)


@pytest.mark.parametrize("ending", ["ForSequenceClassification", "Model", "ForRewardModel"])
def test_a_pooling_class_is_its_decoder_without_the_head(ending: str) -> None:
    """vLLM gives the attention of a decoder a place in the pool, unless its tokens see those after them."""
    config = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
        "vocab_size": 100,
    }
    decoder = read_config({"architectures": ["LlamaForCausalLM"], **config})
    pooling = read_config({"architectures": [f"Llama{ending}"], **config})
    assert pooling.layers == decoder.layers
    for name in ("LlamaForCausalLM", f"Llama{ending}"):
        ahead = read_config({"architectures": [name], "is_causal": False, **config})
        assert all(not group.caches for group in ahead.layers)
    head = 0 if ending == "Model" else 2 * 64
    assert total(decoder) - total(pooling) == 100 * 64 - head


def pooled(name: str) -> int:
    """Count a class of its own defaults."""
    return total(read_config({"architectures": [name]}, assume_defaults=True))


def test_a_class_that_ties_fewer_tables_than_the_one_that_generates() -> None:
    """transformers 5.23 on the meta device, names compared: UdopModel has two more tables of 32 x 16."""
    assert pooled("UdopModel") == 742_441_984
    assert pooled("UdopForConditionalGeneration") == 742_440_960


def test_a_text_half_is_read_flat_and_inside_a_section() -> None:
    text = {
        "cross_attention_layers": [1, 3],
        "hidden_size": 64,
        "intermediate_size": 128,
        "max_position_embeddings": 2048,
        "num_attention_heads": 4,
        "num_hidden_layers": 5,
        "num_key_value_heads": 2,
        "vocab_size": 100,
    }
    flat = read_config({"architectures": ["MllamaForCausalLM"], **text})
    inside = read_config({"architectures": ["MllamaForCausalLM"], "text_config": text})
    assert total(flat) == total(inside)
    assert [group.caches for group in flat.layers] == [group.caches for group in inside.layers]


def test_a_token_classifier_has_a_bias() -> None:
    # transformers 5.23, GenericForTokenClassification: 4096 x 2 + 2.
    assert pooled("LlamaForTokenClassification") - pooled("LlamaModel") == 2 * 4096 + 2


def test_the_model_of_an_encoder_decoder_has_both_stacks() -> None:
    # As transformers 5.23 builds them from their defaults; the decoder alone is BartForCausalLM.
    assert pooled("BartModel") == 406_291_456
    assert pooled("MarianModel") == 414_307_328


def test_a_class_that_only_ends_like_a_text_model_keeps_its_encoder() -> None:
    # Counted on the meta device with transformers 5.24.0.
    assert pooled("Speech2TextModel") == 29_536_256


EMU3_TEXT = CONFIGS["listings"]["EMU3_TEXT"]


@pytest.mark.parametrize(
    ("name", "more", "parameters"),
    [
        # What transformers 5.23 allocates on the meta device for each class's default config.
        ("SwitchTransformersForConditionalGeneration", {}, 317_312_256),
        ("NllbMoeForConditionalGeneration", {}, 6_880_712_704),
        ("Speech2TextForConditionalGeneration", {}, 29_536_256),
        ("MoonshineStreamingForConditionalGeneration", {"num_key_value_heads": 8}, 44_054_721),
        ("Emu3ForConditionalGeneration", {"text_config": EMU3_TEXT}, 8_762_751_807),
    ],
)
def test_default_configs_come_out_to_the_last_parameter(
    name: str, more: dict[str, Any], parameters: int
) -> None:
    model = read_config({"architectures": [name], **more}, assume_defaults=True)
    assert total(model) == parameters
    table = ClassCheck.read(data_dir())
    assert table is not None
    assert next(entry.parameters for entry in table.classes if entry.name == name) == parameters


@pytest.mark.parametrize(
    ("half", "whole"),
    [("Emu3ForCausalLM", "LlamaForCausalLM"), ("CohereCompassForCausalLM", "Cohere2ForCausalLM")],
)
def test_a_text_half_is_read_as_the_class_whose_layers_it_has(half: str, whole: str) -> None:
    config = EMU3_TEXT | {"tie_word_embeddings": True, "sliding_window": 4096}
    found = [read_config({**config, "architectures": [name]}, assume_defaults=True) for name in (half, whole)]
    assert total(found[0]) == total(found[1])


def test_every_other_layer_of_a_switch_transformer_has_experts() -> None:
    # google/switch-base-8: 12 and 12 layers, every second of them with 8 experts.
    model = read_config(
        {
            "architectures": ["SwitchTransformersForConditionalGeneration"],
            "d_ff": 3072,
            "d_kv": 64,
            "d_model": 768,
            "decoder_sparse_step": 2,
            "encoder_sparse_step": 2,
            "num_decoder_layers": 12,
            "num_experts": 8,
            "num_heads": 12,
            "num_layers": 12,
            "num_sparse_decoder_layers": 6,
            "num_sparse_encoder_layers": 6,
            "relative_attention_num_buckets": 32,
            "router_bias": False,
            "tie_word_embeddings": True,
            "vocab_size": 32128,
        }
    )
    experts = sum(row.parameters for row in model.weights if row.component == "routed_experts")
    assert experts == 12 * 8 * 2 * 768 * 3072
    assert round(total(model) / 1e6) == 619  # the size that its card states


def test_what_is_derived_is_listed() -> None:
    reading = read_config_report({key: v for key, v in RWKV_7_191M.items() if key != "v_low_rank_dim"})
    assert any(text.startswith("v_low_rank_dim = ") for text in reading.assumptions)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("LlamaForCausalLMEagle9", "LlamaForCausalLM"),
        ("Qwen9MoeForCausalLM", "Qwen"),
        ("WhisperXForConditionalGeneration", "Whisper"),
    ],
)
def test_what_is_refused_names_the_nearest_class(name: str, near: str) -> None:
    assert (nearest_class(name) or "").startswith(near)
    with pytest.raises(InputError, match=f"found '{name}'; allowed: {near}\\w+ is the nearest class"):
        read_config({"architectures": [name]})


@pytest.mark.parametrize("formula", ["__import__('os')", "open('x')", "a.b()", "[i for i in a]", "lambda: 1"])
def test_a_formula_is_arithmetic_and_nothing_else(formula: str) -> None:
    with pytest.raises(ValueError, match=r"formula|key"):
        evaluate(formula, lambda _path: 1)


def test_the_worked_example_of_the_page_is_true() -> None:
    blocks = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    written = next(text for language, text in blocks if language == "ini")
    config = json.loads(next(text for language, text in blocks if language == "json"))
    stated = re.search(r"([\d,]+) parameters", PAGE.read_text(encoding="utf-8"))
    assert stated
    name = config["architectures"][0]
    listed = listing.read_listing(name, written.replace(f"[{name}]", ""))
    blueprint = read_listed(listed, Keys(config, "config.json"))
    counted = 0
    for tensor in blueprint.outer:
        elements = tensor.count
        for side in tensor.shape:
            elements *= side
        counted += elements
    assert counted == int(stated[1].replace(",", ""))
    assert [layer.kind for layer in blueprint.layers] == ["sliding window", "full attention"] * 2


def test_windows_and_the_number_of_layers_read_are_the_drafts_own() -> None:
    kinds = [cache.kind for group in read_config(NEMOTRON_DSPARK).layers for cache in group.caches]
    assert kinds == ["sliding"]
    assert [cache.kind for group in read_config(QWEN3_8B_DFLASH).layers for cache in group.caches] == ["full"]
    forced = QWEN3_8B_DFLASH | {
        "dflash_config": {"target_layer_ids": [1, 9], "use_swa": True, "swa_window_size": 512}
    }
    assert [cache.kind for group in read_config(forced).layers for cache in group.caches] == ["sliding"]
    assert total(read_config(QWEN3_8B_DFLASH)) - total(read_config(forced)) == 3 * 4096 * 4096
    mixed = QWEN3_8B_DFLASH | {
        "layer_types": ["sliding_attention"] * 4 + ["full_attention"],
        "sliding_window": 2048,
    }
    assert [cache.kind for group in read_config(mixed).layers for cache in group.caches] == [
        "sliding",
        "full",
    ]


def test_a_smaller_vocabulary_of_a_draft_needs_its_own_head() -> None:
    small = QWEN3_8B_DFLASH | {"draft_vocab_size": 32_000}
    assert total(read_config(small)) - total(read_config(QWEN3_8B_DFLASH)) == 32_000 * 4096


def test_only_the_first_layer_of_a_draft_head_reads_two_vectors() -> None:
    one, two = (total(read_config(EAGLE_3_LLAMA_3_1_8B | {"num_hidden_layers": n})) for n in (1, 2))
    assert two - one == 3 * 4096 * 14336 + 2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 4096


_K_EXAONE: Final[dict[str, Any]] = {
    "architectures": ["ExaoneMoEForCausalLM"],
    "model_type": "exaone_moe",
    "hidden_size": 6144,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 8,
    "vocab_size": 153600,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "num_shared_experts": 1,
    "max_position_embeddings": 262144,
    "sliding_window": 128,
    "first_k_dense_replace": 2,
}


def test_each_layer_has_the_window_that_the_config_lists_for_it() -> None:
    """K-EXAONE 2.0 has a layer of 4,096 tokens among those of 128 (vLLM 0.33, exaone_moe.py)."""
    alike = read_config(_K_EXAONE | {"sliding_windows": [128] * 8})
    assert alike.layers == read_config(_K_EXAONE).layers
    read = read_config(_K_EXAONE | {"sliding_windows": [128, 4096, 128, None, 128, 128, 128, 0]})
    assert [(group.name, group.layers) for group in read.layers] == [
        ("sliding window of 128", "0,2,4-6"),
        ("sliding window of 4,096", "1"),
        ("full attention", "3,7"),
    ]
    for listed in ([128] * 7, [128, None, *[128] * 6], [128, True, *[128] * 6], "128"):
        with pytest.raises(InputError, match="sliding_windows"):
            read_config(_K_EXAONE | {"sliding_windows": listed})


def test_a_prediction_layer_has_the_window_that_the_config_lists_for_it() -> None:
    config = _K_EXAONE | {
        "num_nextn_predict_layers": 1,
        "layer_types": ["full_attention", "sliding_attention"] * 4,
        "sliding_windows": [None, 4096, None, 128, None, 128, None, 128],
    }
    assert own_prediction_layer(read_config(config)).layers[0].caches[0].kind == "full"
    listed = config | {"mtp_layer_types": ["sliding_attention"], "mtp_sliding_windows": [128]}
    (cache,) = own_prediction_layer(read_config(listed)).layers[0].caches
    assert (cache.kind, cache.window) == ("sliding", 128)
    with pytest.raises(InputError, match="MTP layers"):
        read_config(listed | {"mtp_sliding_windows": [256]})


_LATENTS: Final = {
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}


def test_longcat_predicts_with_half_a_layer_and_an_embedding() -> None:
    """vLLM 0.33, longcat_flash_mtp.py: one latent attention, one dense MLP, three norms of the glue."""
    config = _LATENTS | {
        "architectures": ["LongcatFlashForCausalLM"],
        "hidden_size": 6144,
        "num_layers": 2,
        "num_attention_heads": 64,
        "ffn_hidden_size": 12288,
        "expert_ffn_hidden_size": 2048,
        "n_routed_experts": 8,
        "moe_topk": 2,
        "zero_expert_num": 0,
        "vocab_size": 1024,
        "max_position_embeddings": 4096,
    }
    plain, ahead = read_config(config), read_config(config | {"num_nextn_predict_layers": 1})
    attention = 6144 * 1536 + 1536 + 1536 * 64 * 192 + 6144 * 576 + 512 + 512 * 64 * 256 + 64 * 128 * 6144
    assert total(ahead) - total(plain) == attention + 3 * 6144 * 12288 + 5 * 6144 + 2 * 6144**2 + 1024 * 6144
    assert len(ahead.layers[0].caches) == 2
    assert len(own_prediction_layer(ahead).layers[0].caches) == 1


def test_glm_ocr_predicts_with_a_layer_of_its_text_model() -> None:
    text = {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "vocab_size": 256,
        "max_position_embeddings": 1024,
    }
    config = {"architectures": ["GlmOcrForConditionalGeneration"], "model_type": "glm_ocr"}
    plain = read_config(config | {"text_config": text}, assume_defaults=True)
    ahead = read_config(
        config | {"text_config": text | {"num_nextn_predict_layers": 1}}, assume_defaults=True
    )
    layer = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128 + 4 * 64
    assert total(ahead) - total(plain) == layer + 3 * 64 + 2 * 64 * 64
    assert {row.component for row in ahead.weights if row not in plain.weights} == {"mtp"}


@pytest.mark.parametrize(
    ("architecture", "key"),
    [
        ("MiniMaxM3SparseForConditionalGeneration", "num_mtp_modules"),
        ("Glm4vMoeForConditionalGeneration", "num_nextn_predict_layers"),
        ("Ernie4_5_VLMoeForConditionalGeneration", "num_nextn_predict_layers"),
        ("HYV4VLForConditionalGeneration", "num_nextn_predict_layers"),
    ],
)
def test_prediction_layers_that_are_not_counted_are_named(architecture: str, key: str) -> None:
    config: dict[str, Any] = {"architectures": [architecture]}
    plain = read_config_report(config | {"text_config": {}}, assume_defaults=True)
    ahead = read_config_report(config | {"text_config": {key: 1}}, assume_defaults=True)
    assert total(ahead.model) == total(plain.model)
    assert not any("multi-token" in note for note in plain.model.notes)
    assert any("multi-token" in note for note in ahead.model.notes)
    assert f"text_config.{key}" not in ahead.not_read


def test_hunyuan_4_predicts_with_an_indexer_and_one_stream() -> None:
    """vLLM 0.33, hy_v4/nvidia/mtp.py: no hyper-connections, an indexer however the layers share theirs."""
    config = {"architectures": ["HYV4ForCausalLM"], "num_nextn_predict_layers": 1}
    plain = read_config(config | {"num_nextn_predict_layers": 0}, assume_defaults=True)
    ahead = read_config(config, assume_defaults=True)
    rows = [row for row in ahead.weights if row not in plain.weights]
    names = {row.name.rpartition("layers.")[2].partition(".")[2] for row in rows}
    assert {"eh_proj.weight", "final_layernorm.weight", "self_attn.indexer.wk.weight"} <= names
    assert not any("_hc." in name or "shared_head" in name for name in names)
    assert {row.component for row in rows} == {"mtp"}
