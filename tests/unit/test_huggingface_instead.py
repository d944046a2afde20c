"""What people give where a config.json is asked for: read where it says the same, else answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_configs import CONFIGS
from reading import read_trimmed as read_config

from kvreport.errors import InputError

# Mistral 7B v0.1 and Mixtral 8x7B as their makers' own files state them.
MISTRAL = CONFIGS["huggingface_instead"]["MISTRAL"]
MIXTRAL = {**MISTRAL, "sliding_window": None, "moe": {"num_experts_per_tok": 2, "num_experts": 8}}


def total(params: dict[str, Any]) -> int:
    return sum(row.parameters for row in read_config(params, id="a/b").weights)


def test_params_json_is_read_as_the_config_of_the_same_model() -> None:
    assert total(MISTRAL) == 7_241_732_096
    assert total(MIXTRAL) == 46_702_792_704
    dense = read_config(MISTRAL, id="a/b")
    assert [cache.kind for cache in dense.layers[0].caches] == ["sliding"]
    assert [cache.kind for cache in read_config(MIXTRAL, id="a/b").layers[0].caches] == ["full"]
    # It states no context, so the class's default is taken, and that is said.
    assert "max_position_embeddings" in " ".join(dense.notes)


def test_params_json_may_state_its_context_and_a_shared_embedding() -> None:
    model = read_config({**MISTRAL, "max_seq_len": 32768, "tied_embeddings": True}, id="a/b")
    assert model.context_tokens == 32768
    assert not [row for row in model.weights if row.component == "output_head"]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"vision_encoder": {"hidden_size": 1024}}, "vision_encoder: found an image encoder"),
        ({"kv_lora_rank": 512}, "kv_lora_rank: found latent attention"),
        ({"quantization": {"qformat_weight": "fp8_e4m3"}}, "quantization: found quantized weights"),
        ({"moe": {"num_experts": 8, "route_every_n": 2}}, "moe: found"),
        ({"n_kv_heads": None}, "n_kv_heads: found nothing; allowed: a whole number (params.json)"),
        ({"n_kv_heads": -1}, "num_key_value_heads: found -1"),
    ],
)
def test_params_json_that_says_more_is_refused(more: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError) as caught:
        read_config({**MISTRAL, **more}, id="a/b", where="params.json")
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_is_read_by_the_config_or_else_by_the_params_that_it_has(tmp_path: Path) -> None:
    folder = tmp_path / "Mistral-7B"
    folder.mkdir()
    (folder / "params.json").write_text(json.dumps(MISTRAL), encoding="utf-8")
    model = read_config(folder)
    assert (model.id, model.architecture) == ("local/Mistral-7B", "MistralForCausalLM")
    (folder / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["LlamaForCausalLM"],
                "hidden_size": 64,
                "num_attention_heads": 4,
                "num_hidden_layers": 2,
                "vocab_size": 100,
            }
        ),
        encoding="utf-8",
    )
    assert read_config(folder).architecture == "LlamaForCausalLM"


@pytest.mark.parametrize("more", [{}, {"model_type": "mamba"}])
def test_a_config_of_mambas_own_package_is_answered_with_the_converted_one(more: dict[str, Any]) -> None:
    """The config of state-spaces/mamba-130m, and a copy that names a type."""
    config = {"d_model": 768, "n_layer": 24, "vocab_size": 50277, "ssm_cfg": {}, "rms_norm": True, **more}
    with pytest.raises(
        InputError, match=r"ssm_cfg: found a config in the words of.*converted for transformers"
    ):
        read_config(config, id="a/b")


@pytest.mark.parametrize("as_folder", [True, False])
def test_an_adapter_is_answered_with_its_base(tmp_path: Path, as_folder: bool) -> None:
    path = tmp_path / "adapter_config.json"
    adapter = {"peft_type": "LORA", "r": 16, "base_model_name_or_path": "meta-llama/Llama-3.1-8B"}
    path.write_text(json.dumps(adapter), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_config(tmp_path if as_folder else path)
    text = str(caught.value)
    assert "found an adapter ('LORA')" in text
    assert "the config.json of its base model, 'meta-llama/Llama-3.1-8B'" in text


def test_gguf_files_are_answered_with_the_config_they_were_made_from(tmp_path: Path) -> None:
    path = tmp_path / "model-Q4_K_M.gguf"
    path.write_bytes(b"GGUF")
    for given in (path, tmp_path):
        with pytest.raises(
            InputError, match=r"GGUF file.*allowed: the config.json of the model it was made from"
        ):
            read_config(given)


def test_an_empty_folder_lacks_a_config(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json: found no such file; allowed: a config\.json"):
        read_config(tmp_path)
