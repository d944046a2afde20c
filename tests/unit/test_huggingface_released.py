"""Configs as their makers released them, where transformers' own class has other names, defaults or places for sizes."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_configs import CONFIGS

from kvreport.accounting.weights import parameters
from kvreport.architectures.reader import read_config
from kvreport.errors import InputError

# microsoft/deberta-v3-large with one label, as OpenAssistant's reward model has it.
DEBERTA: dict[str, Any] = CONFIGS["huggingface_released"]["DEBERTA"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Each counted with transformers 5.24 on the meta device.
        ({}, 435_062_785),
        ({"position_biased_input": True}, 435_587_073),
        ({"share_att_key": False}, 485_443_585),
        ({"share_att_key": False, "pos_att_type": "p2c|c2p"}, 485_443_585),
        ({"share_att_key": False, "pos_att_type": "c2p"}, 460_253_185),
        ({"position_buckets": -1, "max_relative_positions": 300}, 435_152_897),
        ({"conv_kernel_size": 3}, 438_211_585),
        ({"conv_kernel_size": 3, "conv_groups": 4}, 435_852_289),
        ({"type_vocab_size": 2}, 435_064_833),
        ({"embedding_size": 512}, 369_999_873),
        ({"norm_rel_ebd": "none"}, 435_060_737),
        ({"relative_attention": False}, 434_538_497),
    ],
)
def test_deberta_follows_what_v3_changed(changes: dict[str, Any], expected: int) -> None:
    assert parameters(read_config({**DEBERTA, **changes}, id="local/deberta")) == expected


# microsoft/Florence-2-large; the widths of its vision stages are called dim_embed.
FLORENCE: dict[str, Any] = CONFIGS["huggingface_released"]["FLORENCE"]


def test_florence_2_large_has_the_large_encoder() -> None:
    # Its files have two buffers more, of the head's bias and of the frames: 776,721,497 in all.
    assert parameters(read_config(FLORENCE, id="local/florence")) == 776_721_497 - 51_289 - 100 * 2048


# PaddlePaddle/PaddleOCR-VL: the text model's keys stand at the top.
PADDLE: dict[str, Any] = CONFIGS["huggingface_released"]["PADDLE"]


def test_paddleocr_vl_is_read_with_the_text_models_keys_at_the_top() -> None:
    top = {
        name: PADDLE[name] for name in PADDLE if name not in ("architectures", "model_type", "vision_config")
    }
    nested = {
        "architectures": PADDLE["architectures"],
        "text_config": top,
        "tie_word_embeddings": False,
        "vision_config": PADDLE["vision_config"],
    }
    flat = read_config(PADDLE, id="local/paddle")
    assert parameters(flat) == parameters(read_config(nested, id="local/paddle"))
    assert flat.layers[0].caches[0].kind == "full"
    with pytest.raises(InputError, match="text_config"):
        read_config({name: PADDLE[name] for name in PADDLE if name != "hidden_size"}, id="local/paddle")


@pytest.mark.parametrize("name", ["CLIPTextModel", "SiglipTextModel", "CLIPModel"])
def test_keys_of_a_text_encoder_alone_are_not_those_of_both_encoders(name: str) -> None:
    alone = {
        "architectures": [name],
        "hidden_size": 512,
        "intermediate_size": 2048,
        "max_position_embeddings": 77,
        "num_attention_heads": 8,
        "num_hidden_layers": 12,
        "projection_dim": 512,
        "vocab_size": 49_408,
    }
    with pytest.raises(InputError, match="text_config"):
        read_config(alone, id="local/clip")


# baidu/ERNIE-4.5-VL-28B-A3B-PT: a number of experts for each kind of tokens.
ERNIE: dict[str, Any] = CONFIGS["huggingface_released"]["ERNIE"]


def test_ernie_vl_is_read_with_a_number_of_experts_for_each_kind_of_tokens() -> None:
    listed, alone = (
        read_config({**ERNIE, "moe_num_experts": count}, id="local/ernie") for count in ([64, 64], 64)
    )
    # As transformers 5.24 counts it on the meta device.
    assert parameters(listed) == parameters(alone) == 29_399_294_336
    with pytest.raises(InputError, match="moe_num_experts"):
        read_config({**ERNIE, "moe_num_experts": [64, 32]}, id="local/ernie")


@pytest.mark.parametrize(("width", "projection"), [(128, 768 * 128 + 768), (768, 0)])
def test_electra_projects_only_embeddings_of_another_width(width: int, projection: int) -> None:
    config = {
        "architectures": ["ElectraModel"],
        "embedding_size": width,
        "hidden_size": 768,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "type_vocab_size": 2,
        "vocab_size": 30_522,
    }
    embeddings = (30_522 + 512 + 2 + 2) * width
    layer = 4 * (768 * 768 + 768) + 2 * 3072 * 768 + 3072 + 768 + 4 * 768
    assert parameters(read_config(config, id="local/electra")) == embeddings + projection + 12 * layer


# xai-org/grok-2: eight experts of half the width of a dense MLP that runs beside them.
GROK: dict[str, Any] = CONFIGS["huggingface_released"]["GROK"]


def test_grok_2_has_a_dense_mlp_beside_its_experts() -> None:
    model = read_config(GROK, id="local/grok")
    attention = 2 * 8192 * 8192 + 2 * 8192 * 1024
    layer = attention + 4 * 8192 + 8 * 8192 + 8 * 3 * 8192 * 16_384 + 3 * 8192 * 32_768
    assert parameters(model) == 2 * 131_072 * 8192 + 8192 + 64 * layer
    plain = {name: GROK[name] for name in GROK if name not in ("moe_intermediate_size", "residual_moe")}
    wide = attention + 4 * 8192 + 8 * 8192 + 8 * 3 * 8192 * 32_768
    assert parameters(read_config(plain, id="local/grok")) == 2 * 131_072 * 8192 + 8192 + 64 * wide


def test_a_roberta_that_rotates_has_no_table_of_positions() -> None:
    """jina-embeddings-v3 and jina-reranker-v2 (vLLM 0.33, ``roberta.py``)."""
    config = {
        "architectures": ["XLMRobertaModel"],
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "max_position_embeddings": 8194,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "type_vocab_size": 1,
        "vocab_size": 250_002,
    }
    plain = parameters(read_config(config, id="local/roberta"))
    turned = parameters(read_config({**config, "position_embedding_type": "rotary"}, id="local/roberta"))
    assert (plain, plain - turned) == (567_754_752, 8194 * 1024)
