"""Classes that engines know and kvreport does not read: the refusal names the nearest one that it does."""

from __future__ import annotations

import pytest

from kvreport.architectures import read_config
from kvreport.architectures.nearest import NEAREST
from kvreport.architectures.registry import is_read, nearest_class
from kvreport.errors import InputError


def test_the_nearest_class_is_read_and_the_other_is_not() -> None:
    for name, nearest in sorted(NEAREST.items()):
        assert not is_read(name), name
        assert is_read(nearest), name
        with pytest.raises(InputError, match=nearest):
            read_config({"architectures": [name]})


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("DeepSeekMTPModel", "DeepseekV3"),
        ("ErnieMTPModel", "Ernie4_5_Moe"),
        ("OpenPanguMTPModel", "DeepseekV3"),
        ("Qwen3_5MoeMTP", "Qwen3_5Moe"),
        ("Exaone4_5_MTP", "Exaone4_5"),
        ("KimiK3MTPModel", "KimiK3"),
        ("GlmMoeDsaForCausalLMNextN", "GlmMoeDsa"),
        ("Step3p5MTP", "Step3p5"),
    ],
)
def test_prediction_layers_are_counted_with_their_target(name: str, target: str) -> None:
    assert (nearest_class(name) or "").startswith(target)
    with pytest.raises(InputError, match="MTP layers are included with it"):
        read_config({"architectures": [name]})
