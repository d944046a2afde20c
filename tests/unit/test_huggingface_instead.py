"""What people give where a config.json is asked for: read where it says the same, else answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_configs import CONFIGS
from reading import read_trimmed as read_config

from kvreport.catalog.load import open_catalog
from kvreport.catalog.model import Model
from kvreport.errors import InputError

# Mistral 7B v0.1 and Mixtral 8x7B as their makers' own files state them.
MISTRAL = CONFIGS["huggingface_instead"]["MISTRAL"]
MIXTRAL = {**MISTRAL, "sliding_window": None, "moe": {"num_experts_per_tok": 2, "num_experts": 8}}


def load_small() -> Model:
    """Mistral Small 3.1 as the catalog has it."""
    return open_catalog().model("mistralai/Mistral-Small-3.1-24B-Instruct-2503")


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


ENCODER = {
    "hidden_size": 1024, "num_channels": 3, "image_size": 1540, "patch_size": 14, "intermediate_size": 4096,
    "num_hidden_layers": 24, "num_attention_heads": 16, "rope_theta": 10000.0, "mm_projector_id": "patch_merge",
    "spatial_merge_size": 2, "add_pre_mm_projector_layer_norm": True, "adapter_bias": False,
}  # fmt: skip
SMALL_3_1 = {
    **MISTRAL, "dim": 5120, "n_layers": 40, "head_dim": 128, "hidden_dim": 32768, "n_heads": 32, "n_kv_heads": 8,
    "vocab_size": 131072, "sliding_window": None, "max_seq_len": 131072, "vision_encoder": ENCODER,
}  # fmt: skip
LARGE_3 = {
    "dim": 7168, "n_layers": 61, "hidden_dim": 16384, "n_heads": 128, "n_kv_heads": 128, "vocab_size": 131072,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "max_position_embeddings": 294912, "llama_4_scaling": {"original_max_position_embeddings": 8192, "beta": 0.1},
    "moe": {
        "expert_parallel": 1, "first_k_dense_replace": 3, "route_every_n": 1, "num_shared_experts": 1,
        "expert_hidden_dim": 4096, "num_experts": 128, "num_experts_per_tok": 4, "routed_scale": 1.0,
        "num_expert_groups": 1, "num_expert_groups_per_tok": 1,
    },
}  # fmt: skip


def test_params_json_with_an_encoder_is_the_same_model() -> None:
    """Mistral Small 3.1 has 24.0 billion parameters by its config.json, too (``data/models``)."""
    assert total(SMALL_3_1) == sum(row.parameters for row in load_small().weights) == 24_011_361_280


def test_params_json_of_latents_has_the_published_total() -> None:
    """Mistral Large 3: 673 billion without its image encoder."""
    model = read_config(LARGE_3, id="a/b")
    assert 672.5e9 < total(LARGE_3) < 673.5e9
    assert [(cache.kind, model.context_tokens) for cache in model.layers[0].caches] == [("latent", 294_912)]


@pytest.mark.parametrize(
    ("quantization", "form"),
    [
        ({"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"}, "fp8"),
        ({"qformat_weight": "fp8_e4m3", "qscheme_act": "NO_SCALES"}, "fp8"),
    ],
)
def test_params_json_may_state_fp8(quantization: dict[str, str], form: str) -> None:
    model = read_config({**MISTRAL, "quantization": quantization}, id="a/b")
    assert model.weight_format.startswith(form)


def test_params_json_may_state_its_context_and_a_shared_embedding() -> None:
    model = read_config({**MISTRAL, "max_seq_len": 32768, "tied_embeddings": True}, id="a/b")
    assert model.context_tokens == 32768
    assert not [row for row in model.weights if row.component == "output_head"]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"vision_encoder": {"hidden_size": 1024}}, "vision_encoder: found an image encoder"),
        ({"kv_lora_rank": 512}, "kv_lora_rank: found latent attention"),
        ({"quantization": {"qformat_weight": "int4"}}, "quantization: found quantized weights"),
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
