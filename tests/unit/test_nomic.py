"""Nomic's encoders as released: their configs have GPT-2's names of sizes, transformers' own class has others."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_configs import CONFIGS

from kvreport.accounting.weights import parameters
from kvreport.architectures.reader import read_config

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
