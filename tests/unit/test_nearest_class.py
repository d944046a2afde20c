"""A class that nobody has heard of: the refusal names what its config is most like, not what its name sounds like."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvreport.architectures.reader import read_config
from kvreport.catalog.load import open_catalog
from kvreport.errors import InputError
from kvreport.estimation.opening import open_folder


@pytest.mark.parametrize(
    "name", ["Wan22Transformer3DModel", "StableDiffusionPipeline", "ZzyzxForCausalLM", "AliceNextModel"]
)
def test_no_class_is_near_by_its_letters_alone(name: str) -> None:
    with pytest.raises(InputError, match="allowed: one of") as caught:
        read_config({"architectures": [name], "hidden_size": 64})
    assert "nearest" not in str(caught.value)


def test_an_index_whose_total_was_never_added_up_is_no_witness(tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 128,
        "max_position_embeddings": 256,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": 320,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    alone = read_config(tmp_path)
    index = {"metadata": {"total_size": 0}, "weight_map": {"model.norm.weight": "model.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    found = open_folder(tmp_path, open_catalog(), id="local/zero")
    assert found.model.weights == alone.weights
    assert not any("files" in line for line in found.assumptions)


def test_a_config_without_a_vocabulary_is_near_no_class_that_writes_text() -> None:
    config = {
        "architectures": ["ViTForImageClassification"],
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
    }
    with pytest.raises(InputError, match="architectures") as caught:
        read_config(config)
    assert "nearest" not in str(caught.value)
    with pytest.raises(InputError, match="nearest class"):
        read_config(config | {"architectures": ["SomeNewForCausalLM"], "text_config": {"vocab_size": 1000}})


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("LlamaForCausaLM", "LlamaForCausalLM"),
        ("Qwen3MoeForCausallLM", "Qwen3MoeForCausalLM"),
        ("CLIPModell", "CLIPModel"),
        ("CLIPMdoel", "CLIPModel"),
        ("SiglipModell", "SiglipModel"),
    ],
)
def test_a_misspelled_class_is_told_of_the_one_that_it_means(name: str, near: str) -> None:
    with pytest.raises(InputError, match=f"{near} is the nearest class"):
        read_config({"architectures": [name]})
