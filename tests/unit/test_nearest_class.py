"""A class that nobody has heard of: the refusal names what its config is most like, not what its name sounds like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_configs import CONFIGS

from kvreport.architectures.reader import read_config
from kvreport.catalog.load import open_catalog
from kvreport.errors import InputError
from kvreport.estimation.opening import open_folder

MOE: dict[str, Any] = CONFIGS["nearest_class"]["MOE"]


@pytest.mark.parametrize(
    ("config", "near"),
    [
        # A composite of unknown making: the class of its text part (XGen-MM and LocateAnything, as released).
        (
            {"architectures": ["XGenMMModelForConditionalGeneration"], "text_config": {"model_type": "phi3"}},
            "Phi3ForCausalLM",
        ),
        (
            {
                "architectures": ["LocateAnythingForConditionalGeneration"],
                "text_config": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
            },
            "Qwen2ForCausalLM",
        ),
        # A decoder of unknown making: the class with the same keys.
        (
            {
                "architectures": ["ZzyzxForCausalLM"],
                "attention_bias": False,
                "head_dim": 128,
                "hidden_size": 4096,
                "intermediate_size": 12_288,
                "max_position_embeddings": 40_960,
                "max_window_layers": 36,
                "num_attention_heads": 32,
                "num_hidden_layers": 36,
                "num_key_value_heads": 8,
                "sliding_window": None,
                "tie_word_embeddings": False,
                "use_sliding_window": False,
                "vocab_size": 151_936,
            },
            "Qwen3ForCausalLM",
        ),
        ({"architectures": ["ZzyzxForCausalLM"], **MOE}, "DeepseekV3ForCausalLM"),
        # Part of the keys is enough where they are those of one kind of cache, and of plain decoders it is a usual one.
        (
            {
                key: MOE[key]
                for key in (
                    "hidden_size",
                    "kv_lora_rank",
                    "qk_nope_head_dim",
                    "qk_rope_head_dim",
                    "v_head_dim",
                )
            }
            | {"architectures": ["ZzyzxForCausalLM"]},
            "DeepseekV3ForCausalLM",
        ),
        (
            {
                "architectures": ["ZzyzxForCausalLM"],
                "hidden_size": 64,
                "linear_num_key_heads": 2,
                "linear_num_value_heads": 4,
            }
            | {"linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4},
            "Qwen3NextForCausalLM",
        ),
        (
            {
                key: MOE[key]
                for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
            }
            | {"architectures": ["ZzyzxForCausalLM"], "intermediate_size": 64, "vocab_size": 320},
            "Qwen3ForCausalLM",
        ),
        # A name that is nearly another one says more than any key.
        ({"architectures": ["Qwen3_9ForCausalLM"], **MOE}, "Qwen3_5ForCausalLM"),
    ],
)
def test_the_nearest_class_is_that_of_the_config(config: dict[str, Any], near: str) -> None:
    with pytest.raises(InputError, match=f"{near} is the nearest class that is read"):
        read_config(config)


def test_what_the_nearest_class_shares_is_said() -> None:
    with pytest.raises(InputError, match=r"both have q_lora_rank, kv_lora_rank, n_shared_experts"):
        read_config({"architectures": ["ZzyzxForCausalLM"], **MOE})


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
