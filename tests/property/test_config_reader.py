"""What must hold for the config reader, whatever a file says: a model or one clear sentence.

Every class is fuzzed from its own defaults: keys are taken away, set to values of other types, made
negative, huge or not finite, and sections are nested where none belong.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from fuzzing import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reading import read_trimmed as read_config

from kvreport.architectures.keys import Keys
from kvreport.architectures.registry import find_architecture, known_classes
from kvreport.catalog.model import Model
from kvreport.errors import InputError

COMMON = (
    "architectures",
    "dtype",
    "head_dim",
    "hf_quant_config",
    "hidden_size",
    "intermediate_size",
    "layer_types",
    "max_position_embeddings",
    "model_type",
    "num_attention_heads",
    "num_experts",
    "num_hidden_layers",
    "num_key_value_heads",
    "quantization_config",
    "rope_scaling",
    "sliding_window",
    "text_config",
    "tie_word_embeddings",
    "torch_dtype",
    "vision_config",
    "vocab_size",
)
odd = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, 2, 3, 7, -1, 2**31, 2**63, 10**30, 1.5, float("nan"), float("inf"), -0.0]),
    st.integers(0, 4096),
    st.sampled_from(["", "x", "auto", "float32", "full_attention", "é" * 10, "a" * 5000, "\n", "{{"]),
    st.lists(st.sampled_from([0, 1, 64, -3, None, "sliding_attention", "conv", [], {}, 1.5]), max_size=5),
    st.dictionaries(
        st.sampled_from([*COMMON, "quant_method", "rope_type", "factor", "bits", "config_groups", "ignore"]),
        st.sampled_from([None, 0, 1, 2, -5, "fp8", "yarn", [], {}, ["re:.*"], True, 1e9]),
        max_size=4,
    ),
)


def stated(architecture: str) -> dict[str, Any]:
    """A config of a class that states all of the class's defaults."""
    defaults = find_architecture(Keys({"architectures": [architecture]}, "test")).defaults
    config = {name: list(v) if isinstance(v, tuple) else copy.copy(v) for name, v in defaults.items()}
    return {"architectures": [architecture], **config}


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    config = stated(draw(st.sampled_from(known_classes())))
    names = sorted({*config, *COMMON} - {"architectures"})
    for name in draw(st.lists(st.sampled_from(names), max_size=4)):
        if draw(st.integers(0, 4)) == 0:
            config.pop(name, None)
        else:
            config[name] = draw(odd)
    if draw(st.integers(0, 9)) == 0:
        # The same object one level down, as multimodal configs have it.
        config = {"architectures": config.pop("architectures"), "text_config": config}
    return config


@settings(max_examples=examples(400))
@example(
    {"architectures": ["PaddleOCRVLForConditionalGeneration"], "text_config": {"num_attention_heads": 1025}}
)
@example(stated("Gemma3nForCausalLM") | {"altup_num_inputs": 1})
@given(configs())
def test_any_config_gives_a_model_or_one_clear_sentence(config: dict[str, Any]) -> None:
    try:
        model = read_config(config, id="test/model")
    except InputError as error:
        text = str(error)
        assert "\n" not in text
        assert text.startswith("config: ")
        assert "found" in text
        assert len(text) < 1000
    else:
        assert isinstance(model, Model)
        assert len(model.pattern) == model.layer_count
        assert sum(row.parameters for row in model.weights) > 0


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
