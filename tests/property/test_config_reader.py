"""What every class of configs must hold; that any config is a model or one sentence, ``fuzz_targets.config_mutation`` tries."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from reading import read_trimmed as read_config

from kvreport.architectures.keys import Keys
from kvreport.architectures.registry import find_architecture, known_classes
from kvreport.errors import InputError


def stated(architecture: str) -> dict[str, Any]:
    """A config of a class that states all of the class's defaults."""
    defaults = find_architecture(Keys({"architectures": [architecture]}, "test")).defaults
    config = {name: list(v) if isinstance(v, tuple) else copy.copy(v) for name, v in defaults.items()}
    return {"architectures": [architecture], **config}


def test_configs_that_once_ended_in_a_traceback_are_refused_or_read() -> None:
    narrow = {
        "architectures": ["PaddleOCRVLForConditionalGeneration"],
        "text_config": {"num_attention_heads": 1025},
    }
    with pytest.raises(InputError, match=r"^config: cache k: found 0; allowed: .*text_config\.head_dim"):
        read_config(narrow, id="test/model")
    single = read_config(stated("Gemma3nForCausalLM") | {"altup_num_inputs": 1}, id="test/model")
    assert len(single.pattern) == single.layer_count == 35


@pytest.mark.parametrize("architecture", known_classes())
def test_a_key_left_out_means_what_its_class_says(architecture: str) -> None:
    config = stated(architecture)
    try:
        whole = read_config(config, id="test/model")
    except InputError:
        # A class without a default for a dimension: leaving everything out must be refused as well.
        with pytest.raises(InputError):
            read_config({"architectures": [architecture]}, id="test/model")
        return
    for name in config.keys() - {"architectures"}:
        less = {key: value for key, value in config.items() if key != name}
        model = read_config(less, id="test/model")
        assert (model.layers, model.weights, model.context_tokens) == (
            whole.layers,
            whole.weights,
            whole.context_tokens,
        ), name


@pytest.mark.parametrize("pool", [257, 4097, 1 << 16])
def test_a_pooled_index_that_no_record_may_have_is_refused(pool: int) -> None:
    """Found by a mutated config: validation of the cache record ended in a traceback."""
    with pytest.raises(
        InputError, match=r"^config: .*index_kpool: found .*; allowed: a whole number from 1 to 256"
    ):
        read_config(stated("Glm5NextForCausalLM") | {"index_kpool": pool}, id="test/model")
