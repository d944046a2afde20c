"""Configs as their makers released them, where transformers' own class has other names, defaults or places for sizes."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_configs import CONFIGS

from kvreport.accounting.weights import parameters
from kvreport.architectures.reader import read_config
from kvreport.errors import InputError

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
