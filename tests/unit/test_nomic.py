"""Nomic's encoders as released: their configs have GPT-2's names of sizes, transformers' own class has others."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_configs import CONFIGS

from kvreport.accounting.weights import parameters
from kvreport.architectures.reader import read_config
from kvreport.errors import InputError

# nomic-embed-text-v1.5 as released.
TEXT: dict[str, Any] = CONFIGS["nomic"]["TEXT"]
MIXTURE: dict[str, Any] = CONFIGS["nomic"]["MIXTURE"]


@pytest.mark.parametrize(("config", "published"), [(TEXT, 136_731_648), (MIXTURE, 475_292_928)])
def test_the_released_models_have_the_parameters_that_the_hub_shows(
    config: dict[str, Any], published: int
) -> None:
    model = read_config(config, id="local/nomic")
    assert parameters(model) == published
    assert not [cache for group in model.layers for cache in group.caches]
    assert (model.experts is None) is (config is TEXT)


def test_the_names_of_transformers_are_read_as_before() -> None:
    own = {
        "architectures": ["NomicBertModel"],
        "hidden_size": 768,
        "intermediate_size": 3072,
        "max_position_embeddings": 2048,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "type_vocab_size": 2,
        "vocab_size": 30_528,
    }
    assert parameters(read_config(own, id="local/nomic")) == 136_731_648


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"n_layer": None}, "n_layer"),
        ({"mlp_fc1_bias": True}, "mlp_fc1_bias"),
        ({"activation_function": "relu"}, "activation_function"),
        ({"moe_every_n_layers": 2}, "num_experts"),
    ],
)
def test_what_is_missing_or_unknown_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        read_config({**TEXT, **changes})
